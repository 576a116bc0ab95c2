"""The candidate as a manifest for other tools to apply. Pure."""

from __future__ import annotations

from mpctl.errors import InputError
from mpctl.manifest.text.canonical import dump
from mpctl.platform.kubernetes.api.names import SERVICE_LABEL
from mpctl.platform.kubernetes.service.manifest_text import ARM_ANNOTATION, candidate_of
from mpctl.rollout.ports import Arm


def candidate_manifest(text: str, name: str) -> str:
    """The second InferenceService for the service ``name`` in the manifest ``text``: one pod, not scaled, without
    traffic.

    mpctl's own marks are left out: what another tool applied must not be taken for a candidate that mpctl may remove.

    Raises:
        InputError: the service is a Modelplane one, which has no candidate of this kind.
        Refused: its pods take a claim by name, which two pods would share.
    """
    import yaml

    documents = [d for d in yaml.safe_load_all(text) if isinstance(d, dict)]
    isvc = next((d for d in documents if d.get("kind") == "InferenceService" and d["metadata"]["name"] == name), None)
    if isvc is None:
        raise InputError(
            f"{name} is not an InferenceService; only an InferenceService has a candidate",
            field="--candidate",
            hint="render a changed ModelDeployment under another name",
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
    return dump(record)
