"""KServe's ServingRuntime and ClusterServingRuntime (``serving.kserve.io/v1alpha1``): arguments of many services.

The arguments are in ``spec.containers``; KServe adds those of an InferenceService behind them. A runtime is shared, so
a setting belongs into the InferenceService, and a runtime is read only where a user asks for it. KServe updates every
service that uses a changed runtime; the change is undone by writing the recorded object again.
"""

from __future__ import annotations

from functools import partial

from mpctl.manifest.kinds.adapter import Adapter, ManifestFile, name_and_namespace
from mpctl.manifest.kinds.containers import service_of_pod, starts_vllm
from mpctl.manifest.kinds.inference_service import runtime_container
from mpctl.manifest.service import Kind, Place, Service
from mpctl.manifest.text.view import View, text_of

API = "serving.kserve.io/v1alpha1"


def read(root: View, file: ManifestFile, place: Place, *, kind: Kind) -> Service:
    """The engine of a runtime, with the InferenceServices of the file that use it as ``endpoints``.

    Raises:
        InputError: it runs on several nodes, or its command cannot be read.
    """
    spec = root.need("spec")
    workers = spec.get("workerSpec")
    if workers is not None:
        raise workers.error("a runtime with workerSpec runs on several nodes", hint="change its arguments by hand")
    container = runtime_container(root)
    assert container is not None
    name, _ = name_and_namespace(root)
    users = tuple(
        name_and_namespace(service)[0]
        for service in file.of_kind("InferenceService")
        if text_of(service.at("spec", "predictor", "model", "runtime")) == name
    )
    return service_of_pod(kind, root, file.text, place, spec, container, users=users)


def serves(root: View) -> bool:
    """Return whether the runtime starts vLLM."""
    container = runtime_container(root)
    return container is not None and starts_vllm(container)


SERVING_RUNTIME = Adapter("ServingRuntime", (API,), partial(read, kind="ServingRuntime"), serves)
CLUSTER_SERVING_RUNTIME = Adapter("ClusterServingRuntime", (API,), partial(read, kind="ClusterServingRuntime"), serves)
