"""A service of the API server as a :class:`mpctl.manifest.Service`, and its candidate as a manifest for other tools.

A service with ``predictor.model`` gets part of its command line from a ServingRuntime, an LLMInferenceService from its
configs. mpctl reads these objects, so that preflight sees all arguments, and never changes them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache

import yaml

from mpctl.errors import InputError
from mpctl.json_fields import annotations_of, mapping_at, name_of
from mpctl.json_types import Json
from mpctl.manifest import Service, load_one
from mpctl.manifest.text.yaml_tree import dump
from mpctl.platform.kubernetes.api.names import SERVICE_LABEL
from mpctl.platform.kubernetes.service.manifest_text import (
    ARM_ANNOTATION,
    LAST_APPLIED,
    candidate_of,
    text_of,
)
from mpctl.platform.kubernetes.service.shapes import SHAPES, shape_of
from mpctl.rollout.ports import Arm

_SEPARATOR = "---\n"


def read_service(isvc: Json, runtime: Json | None = None) -> Service:
    """The service. ``runtime``: the ServingRuntime it uses, or the List of its configs.

    Raises:
        InputError: not a single vLLM engine.
    """
    record = isvc
    if runtime is not None and "model" in shape_of(isvc).pod_of(isvc):
        # The reader finds a runtime by the name the service asks for; a chosen one is in the status only.
        record = _with_runtime(isvc, name_of(runtime))
    text = text_of(record)
    name = name_of(isvc)
    file = f"{shape_of(isvc).resource.name} {isvc['metadata'].get('namespace', '')}/{name}"
    return load_one(text + _runtime_text(runtime), name, file=file)


def speculation_of(isvc: Json, runtime: Json | None) -> Json | None:
    """The speculative setting of a service; services that differ in their names alone are parsed once.

    Raises:
        InputError: not a single vLLM engine.
    """
    annotations = {k: v for k, v in annotations_of(isvc).items() if k != LAST_APPLIED}
    metadata = {"name": "service", "annotations": annotations}
    bare: Json = {key: isvc[key] for key in ("apiVersion", "kind", "spec") if key in isvc}
    bare["metadata"] = metadata
    config: Json | None = json.loads(_speculation_of(json.dumps([bare, runtime])))
    return config


@lru_cache(maxsize=256)
def _speculation_of(objects: str) -> str:
    return json.dumps(read_service(*json.loads(objects)).speculation())


def _with_runtime(isvc: Json, name: str) -> Json:
    predictor = isvc["spec"]["predictor"]
    if predictor["model"].get("runtime"):
        return isvc
    model = {**predictor["model"], "runtime": name}
    return {**isvc, "spec": {**isvc["spec"], "predictor": {**predictor, "model": model}}}


def edited(
    isvc: Json,
    runtime: Json | None,
    config: Json | None,
    edit: Callable[[Service], Service] | None = None,
) -> str:
    """The text of ``isvc`` with another speculative setting, as the editor spells it; ``edit`` changes its storage."""
    before = read_service(isvc, runtime)
    if edit is not None:
        before = edit(before)
    if config is None:
        before.require_removable()
    after = before.with_speculation(config).to_yaml()
    text = after.removesuffix(_runtime_text(runtime))
    predictor = shape_of(isvc).pod_of(isvc)
    chosen = mapping_at(predictor, "model")
    if runtime is None or chosen.get("runtime") or "model" not in predictor:
        return text
    record = yaml.safe_load(text)
    record["spec"]["predictor"]["model"].pop("runtime", None)  # it was only named for the reader
    return dump(record)


def _runtime_text(runtime: Json | None) -> str:
    if runtime is None:
        return ""
    items = runtime.get("items", [runtime])
    fields = [
        ({k: document[k] for k in ("apiVersion", "kind", "spec")}, name_of(document))
        for document in items
    ]
    return "".join(_SEPARATOR + dump({**own, "metadata": {"name": name}}) for own, name in fields)


def candidate_manifest(text: str, name: str) -> str:
    """The second object for the service ``name`` in the manifest ``text``: one pod, not scaled,
    without traffic.

    mpctl's own marks are left out: what another tool applied must not be taken for a candidate that mpctl may remove.

    Raises:
        InputError: the service is of another kind, which has no candidate.
        Refused: its pods take a claim by name, which two pods would share.
    """
    documents = [d for d in yaml.safe_load_all(text) if isinstance(d, dict)]
    isvc = next((d for d in documents if d.get("kind") in SHAPES and name_of(d) == name), None)
    if isvc is None:
        raise InputError(
            f"{name} has no candidate; these kinds have one: {', '.join(SHAPES)}",
            field="--candidate",
            hint="render the changed service under another name",
        )
    service_text = dump(isvc)
    namespace = isvc["metadata"].get("namespace")
    record = candidate_of(service_text, Arm(service_text).id, namespace=namespace or "")
    metadata = record["metadata"]
    metadata["annotations"].pop(ARM_ANNOTATION)
    metadata["labels"].pop(SERVICE_LABEL)
    for key in ("namespace", "labels"):
        if not metadata[key]:
            del metadata[key]
    services = shape_of(isvc).candidate_services(documents, isvc, record)
    return "---\n".join(dump(manifest) for manifest in (record, *services))
