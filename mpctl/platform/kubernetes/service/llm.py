"""LLMInferenceServices: what KServe merges below them, and what their Deployment's container must look like.

KServe merges presets, the configs in ``baseRefs`` and the service into one pod template. Containers and variables merge
by name; ``args`` of a stronger layer replace those below as a whole. The engine is container ``main``. The Deployment's
strategy cannot be set (KServe 0.20): with one replica a new pod starts before the old one stops.

On several nodes (``spec.worker``) KServe makes a LeaderWorkerSet, see ``shapes``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mpctl import commands
from mpctl.errors import Refused
from mpctl.manifest.engine.evaluated import VARIABLE
from mpctl.platform.kubernetes.api.client import Client
from mpctl.platform.kubernetes.api.kinds import LEADER_WORKER_SET, LLM_CONFIG, LLM_INFERENCE_SERVICE, STATEFUL_SET
from mpctl.platform.kubernetes.service.container import LLM_CONTAINER, ExpectedContainer, expected
from mpctl.platform.kubernetes.service.shape import GroupsShape, Json, Shape, child_name, no_route

# KServe's labels of the pods that decode (`singleNodeLabels`, `expectedMainMultiNodeLWS` in KServe 0.20).
_NAME, _COMPONENT = "app.kubernetes.io/name", "app.kubernetes.io/component=llminferenceservice-workload"
_ROUTER_PRESETS = ("router-route", "scheduler", "scheduler-latency-predictor", "tokenizer", "tracing")


@dataclass(frozen=True)
class LlmShape(Shape):
    """An LLMInferenceService with one pod per replica."""

    def mode_of(self, record: Mapping[str, Any]) -> Shape:
        return LLM if record["spec"].get("worker") is None else LLM_GROUPS

    def workload_name(self, record: Mapping[str, Any]) -> str:
        return child_name(str(record["metadata"]["name"]), "-kserve")

    def pod_selector(self, record: Mapping[str, Any]) -> str:
        return f"{_NAME}={record['metadata']['name']},{_COMPONENT}"

    def expected(self, record: Mapping[str, Any], layers: Mapping[str, Any] | None) -> ExpectedContainer:
        return expected(merged_container(record, layers), whole=False, inherited=(), merged=True)

    def read_layers(self, client: Client, record: Mapping[str, Any], namespace: str) -> Json | None:
        """Read the configs that shape the pods, as a List, the weakest first; None until KServe reports them."""
        refs = [ref for ref in _applied_configs(record) if not str(ref["name"]).endswith(_ROUTER_PRESETS)]
        applied = [client.get(LLM_CONFIG, ref["name"], ref.get("namespace") or namespace) for ref in refs]
        return {"kind": "List", "items": [config for config in applied if config is not None]} if refs else None

    def config_texts(self, record: Mapping[str, Any], layers: Mapping[str, Any] | None) -> tuple[str, ...]:
        """The merged configs: where from, namespace, name, and generation where it was read."""
        items = (layers or {}).get("items", ())
        by_name = {(config["metadata"]["namespace"], config["metadata"]["name"]): config for config in items}
        texts = []
        for ref in _applied_configs(record):
            space = ref.get("namespace") or record["metadata"].get("namespace")
            config = by_name.get((space, ref["name"]))
            generation = "" if config is None else f", generation {config['metadata'].get('generation')}"
            texts.append(f"{ref.get('source')} {space}/{ref['name']}{generation}")
        return tuple(texts)

    def require_changeable(
        self, record: Mapping[str, Any], title: str, *, side_by_side: bool, downtime: bool, pods: int
    ) -> None:
        if side_by_side and record["spec"].get("prefill") is not None:
            raise Refused(
                f"{title} has prefill pods of its own: a candidate beside it would prefill by itself, so the two would "
                "not be alike",
                hint="use --strategy in-place, which changes the decode pods alone",
            )
        if downtime:
            raise Refused(
                f"{title}: KServe gives an LLMInferenceService no update strategy, so no old pod can stop first",
                hint=f"add capacity first with '{commands.line('capacity', 'CLUSTER')}'",
            )

    def require_route(self, title: str) -> None:
        raise no_route(f"{title}: KServe writes the HTTPRoute of an LLMInferenceService and reverts changes to it")

    def candidate_spec(self, record: Mapping[str, Any], pods: int, marks: Mapping[str, str]) -> Json:
        """The same model name, fixed replicas, and no route, so that requests reach it only where mpctl sends them."""
        spec = {key: value for key, value in record["spec"].items() if key not in ("scaling", "router")}
        model = spec.get("model") or {}
        return {**spec, "model": {**model, "name": model.get("name") or record["metadata"]["name"]}, "replicas": pods}


@dataclass(frozen=True)
class LlmGroupsShape(GroupsShape, LlmShape):
    """An LLMInferenceService on several nodes: KServe alone sees whether its groups are complete."""

    def workload_name(self, record: Mapping[str, Any]) -> str:
        return child_name(str(record["metadata"]["name"]), "-kserve-mn")

    def pod_selector(self, record: Mapping[str, Any]) -> str:
        return f"{super().pod_selector(record)}-leader"


LLM = LlmShape(LLM_INFERENCE_SERVICE, ("template",), ("annotations",), layered=True)
LLM_GROUPS = LlmGroupsShape(
    LLM_INFERENCE_SERVICE,
    ("template",),
    ("annotations",),
    layered=True,
    workload=STATEFUL_SET,
    autoscaled=LEADER_WORKER_SET.name,
)


def merged_container(record: Mapping[str, Any], configs: Mapping[str, Any] | None) -> Json:
    """The fields of container ``main`` that start the engine, merged as KServe merges them. ``configs`` None: unknown,
    so variables that only a config may set are left out."""
    layers = [_container_of(document) for document in (*(() if configs is None else configs["items"]), record)]
    env: dict[str, Json] = {} if configs is None else {VARIABLE: {"name": VARIABLE, "value": ""}}
    for layer in layers:
        env |= {variable["name"]: variable for variable in layer.get("env") or ()}
    strongest = {key: layer[key] for layer in layers for key in ("args", "command", "image") if layer.get(key)}
    return {**strongest, "env": list(env.values())}


def _container_of(record: Mapping[str, Any]) -> Json:
    """Container ``main`` of a service or a config; empty where it has none."""
    containers = ((record.get("spec") or {}).get("template") or {}).get("containers") or ()
    return next((dict(container) for container in containers if container.get("name") == LLM_CONTAINER), {})


def _applied_configs(record: Mapping[str, Any]) -> list[Json]:
    """The configs that KServe merged, the weakest first: ``name``, ``namespace``, ``source``."""
    return [dict(config) for config in (record.get("status") or {}).get("appliedConfigs") or ()]
