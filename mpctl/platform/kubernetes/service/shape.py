"""The four kinds of objects that are a service on a cluster, and where each keeps what a change needs. Pure.

An InferenceService has its pod in ``spec.predictor``, an LLMInferenceService what it adds to KServe's presets in
``spec.template`` (see ``llm``); KServe makes their Deployments. A plain Deployment is its own workload; the leaders of
a LeaderWorkerSet are a StatefulSet of its name (see ``groups``). The number of replicas of these two belongs to whoever
scales them: it is no part of a recorded manifest, and every write keeps the live one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mpctl.manifest.engine import starts as engine_starts
from mpctl.platform.kubernetes.api.kinds import (
    DEPLOYMENT,
    INFERENCE_SERVICE,
    LEADER_WORKER_SET,
    LLM_INFERENCE_SERVICE,
    STATEFUL_SET,
    Kind,
)

Json = dict[str, Any]

CONTAINER = "kserve-container"
LLM_CONTAINER = "main"  # the engine in KServe's presets for LLMInferenceService
ISVC_LABEL = "serving.kserve.io/inferenceservice"
# Written by the Deployment's controller.
_REVISION = "deployment.kubernetes.io/revision"
# KServe's labels of the pods that decode (`singleNodeLabels`, `expectedMainMultiNodeLWS` in KServe 0.20).
# Labels of the pods of a LeaderWorkerSet (lws 0.8, api/leaderworkerset/v1); the leader of a group has index 0.
_SET, _LEADER = "leaderworkerset.sigs.k8s.io/name", "leaderworkerset.sigs.k8s.io/worker-index=0"
_NAME, _COMPONENT = "app.kubernetes.io/name", "app.kubernetes.io/component=llminferenceservice-workload"


@dataclass(frozen=True)
class Shape:
    """Paths below ``spec``: ``pod`` of the mapping with the containers, ``strategy`` of the rolling update's limits
    (empty where they cannot be set), ``annotations`` of those that its pods get, ``limits`` of the mapping with
    ``minReplicas`` and ``maxReplicas``. ``scaled``: whether ``spec.replicas`` belongs to whoever scales the service.
    ``otherwise``: of the mapping with the containers where ``pod`` is absent."""

    resource: Kind
    pod: tuple[str, ...]
    strategy: tuple[str, ...]
    annotations: tuple[str, ...]
    limits: tuple[str, ...] = ()
    scaled: bool = False
    otherwise: tuple[str, ...] = ()

    def pod_of(self, record: Mapping[str, Any]) -> Json:
        """The mapping that holds containers, volumes and claims; empty where the service leaves it to presets."""
        return _at(record["spec"], self.pod) or _at(record["spec"], self.otherwise or self.pod)

    def strategy_of(self, record: Mapping[str, Any]) -> Any:
        """The limits of a rolling update; None without any."""
        return _at(record["spec"], self.strategy[:-1]).get(self.strategy[-1]) if self.strategy else None

    def set_strategy(self, record: Json, value: Any) -> None:
        """Set the limits of a rolling update; None removes them."""
        home = _at(record["spec"], self.strategy[:-1])
        if value is None:
            home.pop(self.strategy[-1], None)
        else:
            home[self.strategy[-1]] = value

    def annotate_pods(self, record: Json, name: str, value: str) -> None:
        """Set an annotation of the pods, which replaces them."""
        home, path = record["spec"], self.annotations
        if self.otherwise and not _at(home, self.pod):
            path = (*self.otherwise[:-1], "metadata", "annotations")
        for key in path:
            home[key] = home.get(key) or {}
            home = home[key]
        home[name] = value

    def recorded(self, record: Json) -> Json:
        """The object without the fields that others write all the time."""
        if not self.scaled:
            return record
        spec = {k: v for k, v in record["spec"].items() if k != "replicas"}
        annotations = {k: v for k, v in (record["metadata"].get("annotations") or {}).items() if k != _REVISION}
        return {**record, "spec": spec, "metadata": {**record["metadata"], "annotations": annotations}}

    def to_write(self, record: Json, live: Mapping[str, Any]) -> Json:
        """The object with those fields as they are now."""
        if not self.scaled:
            return record
        spec, metadata = dict(record["spec"]), dict(record["metadata"])
        if "replicas" in live["spec"]:
            spec["replicas"] = live["spec"]["replicas"]
        revision = (live["metadata"].get("annotations") or {}).get(_REVISION)
        if revision is not None:
            metadata["annotations"] = {**(metadata.get("annotations") or {}), _REVISION: revision}
        return {**record, "spec": spec, "metadata": metadata}


OF_KSERVE = Shape(
    INFERENCE_SERVICE,
    ("predictor",),
    strategy=("predictor", "deploymentStrategy"),
    annotations=("predictor", "annotations"),
    limits=("predictor",),
)
OF_LLM = Shape(LLM_INFERENCE_SERVICE, ("template",), (), ("annotations",), ("scaling",))
OF_DEPLOYMENT = Shape(
    DEPLOYMENT,
    ("template", "spec"),
    strategy=("strategy",),
    annotations=("template", "metadata", "annotations"),
    scaled=True,
)
_GROUP = "leaderWorkerTemplate"
OF_GROUPS = Shape(
    LEADER_WORKER_SET,
    (_GROUP, "leaderTemplate", "spec"),
    (),
    annotations=(_GROUP, "leaderTemplate", "metadata", "annotations"),
    scaled=True,
    otherwise=(_GROUP, "workerTemplate", "spec"),
)
SHAPES = {shape.resource.name: shape for shape in (OF_KSERVE, OF_LLM, OF_DEPLOYMENT, OF_GROUPS)}


def shape_of(record: Mapping[str, Any]) -> Shape:
    """The shape of an object; of KServe's where the kind is not written."""
    return SHAPES.get(str(record.get("kind")), OF_KSERVE)


def is_plain(record: Mapping[str, Any]) -> bool:
    """Return whether the service is a Deployment or a LeaderWorkerSet without KServe."""
    return shape_of(record) in (OF_DEPLOYMENT, OF_GROUPS)


def is_grouped(record: Mapping[str, Any]) -> bool:
    """Return whether each engine is a group of pods: a LeaderWorkerSet, or an LLMInferenceService on several nodes, of
    which KServe makes one."""
    return shape_of(record) is OF_GROUPS or (is_llm(record) and record["spec"].get("worker") is not None)


def workload_of(record: Mapping[str, Any]) -> Kind:
    """The kind that counts the pods that serve: a Deployment, or the StatefulSet of the leaders."""
    return STATEFUL_SET if is_grouped(record) else DEPLOYMENT


def is_llm(record: Mapping[str, Any]) -> bool:
    """Return whether the service is an LLMInferenceService."""
    return shape_of(record) is OF_LLM


def serves_vllm(workload: Mapping[str, Any]) -> bool:
    """Return whether a Deployment or LeaderWorkerSet is a service of its own: a container starts vLLM, and no
    controller made it."""
    owners = workload["metadata"].get("ownerReferences") or []
    containers = shape_of(workload).pod_of(workload).get("containers") or []
    return not any(owner.get("controller") for owner in owners) and any(map(starts_vllm, containers))


def engine_container(containers: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the engine's container: the one with KServe's name, else the first that starts vLLM, else the one that
    KServe's presets name, else the first."""
    tests = (lambda c: c.get("name") == CONTAINER, starts_vllm, lambda c: c.get("name") == LLM_CONTAINER)
    container = next((c for test in tests for c in containers if test(c)), None)
    return container if container is not None else next(iter(containers), {})


def starts_vllm(container: Mapping[str, Any]) -> bool:
    """Return whether a container starts vLLM: by its command, or by the entrypoint of its image."""
    command, args = ([str(word) for word in container.get(key) or ()] for key in ("command", "args"))
    return engine_starts.starts_vllm(str(container.get("image") or ""), command or None, args)


def pod_selector(record: Mapping[str, Any]) -> str:
    """The label selector of the service's pods that serve."""
    if is_llm(record):
        leads = "-leader" if is_grouped(record) else ""
        return f"{_NAME}={record['metadata']['name']},{_COMPONENT}{leads}"
    if shape_of(record) is OF_GROUPS:
        return f"{_SET}={record['metadata']['name']},{_LEADER}"
    if not is_plain(record):
        return f"{ISVC_LABEL}={record['metadata']['name']}"
    selector = record["spec"]["selector"]
    terms = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    for expression in selector.get("matchExpressions") or ():
        values = ",".join(expression.get("values") or ())
        form = {"In": "{} in ({})", "NotIn": "{} notin ({})", "Exists": "{}", "DoesNotExist": "!{}"}[
            expression["operator"]
        ]
        terms.append(form.format(expression["key"], values))
    return ",".join(terms)


def _at(home: Mapping[str, Any], path: tuple[str, ...]) -> Json:
    for key in path:
        home = home.get(key) or {}
    return home  # type: ignore[return-value]
