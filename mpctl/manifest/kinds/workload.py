"""Deployment and StatefulSet (``apps/v1``): one container of the pod template starts vLLM.

The arguments are in ``spec.template.spec.containers[].command`` and ``args``. A change of the template is rolled by
Kubernetes: a Deployment starts new pods by its strategy, a StatefulSet replaces one pod after the other. The change is
undone by writing the recorded template again. A document without a vLLM container is no service.
"""

from __future__ import annotations

from functools import partial

from mpctl.manifest.kinds.adapter import Adapter, ManifestFile
from mpctl.manifest.kinds.containers import only_engine, service_of_pod, starts_vllm
from mpctl.manifest.service import Kind, Place, Service
from mpctl.manifest.text.view import View

API = "apps/v1"


def read(root: View, file: ManifestFile, place: Place, *, kind: Kind) -> Service:
    """The service of a Deployment or StatefulSet.

    Raises:
        InputError: several containers start vLLM, or the command cannot be read.
    """
    pod = root.need("spec").need("template").need("spec")
    return service_of_pod(kind, root, file.text, place, pod, only_engine(pod, "pod template"))


def serves(root: View) -> bool:
    """Return whether a container of the pod template starts vLLM."""
    containers = root.at("spec", "template", "spec", "containers")
    return containers is not None and any(starts_vllm(container) for container in containers.items())


DEPLOYMENT = Adapter("Deployment", (API,), partial(read, kind="Deployment"), serves, own=False)
STATEFUL_SET = Adapter("StatefulSet", (API,), partial(read, kind="StatefulSet"), serves, own=False)
