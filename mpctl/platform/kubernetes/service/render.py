"""The candidate as a manifest for other tools to apply. Pure."""

from __future__ import annotations

from typing import Any

from mpctl.errors import InputError
from mpctl.manifest.text.canonical import dump
from mpctl.platform.kubernetes.api.names import SERVICE_LABEL
from mpctl.platform.kubernetes.service.manifest_text import ARM_ANNOTATION, candidate_of
from mpctl.platform.kubernetes.service.shapes import SHAPES, shape_of
from mpctl.rollout.ports import Arm

Json = dict[str, Any]


def candidate_manifest(text: str, name: str) -> str:
    """The second object for the service ``name`` in the manifest ``text``: one pod, not scaled,
    without traffic.

    mpctl's own marks are left out: what another tool applied must not be taken for a candidate that mpctl may remove.

    Raises:
        InputError: the service is of another kind, which has no candidate.
        Refused: its pods take a claim by name, which two pods would share.
    """
    import yaml

    documents = [d for d in yaml.safe_load_all(text) if isinstance(d, dict)]
    isvc = next((d for d in documents if d.get("kind") in SHAPES and d["metadata"]["name"] == name), None)
    if isvc is None:
        raise InputError(
            f"{name} has no candidate; these kinds have one: {', '.join(SHAPES)}",
            field="--candidate",
            hint="render the changed service under another name",
        )
    own = dump(isvc)
    namespace = isvc["metadata"].get("namespace")
    record = candidate_of(own, Arm(own).id, namespace=namespace or "")
    metadata = record["metadata"]
    metadata["annotations"].pop(ARM_ANNOTATION)
    metadata["labels"].pop(SERVICE_LABEL)
    for key in ("namespace", "labels"):
        if not metadata[key]:
            del metadata[key]
    services = shape_of(isvc).candidate_services(documents, isvc, record)
    return "---\n".join(dump(manifest) for manifest in (record, *services))
