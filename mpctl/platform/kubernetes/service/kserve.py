"""KServe's two kinds: InferenceServices, also in Knative mode, and LLMInferenceServices.

In Knative mode every change of the service makes a revision with its own Deployment, side by side with the previous
one. Once the new revision is ready Knative gives it the traffic and later deletes the old pods. So no pod stops first,
a change needs capacity for all pods of the new revision, and an arm runs alone only when no other revision has pods.
Knative's autoscaler counts requests at its own proxies. Measurements go to the engines directly, so they scale nothing
up, and do not keep a service from scaling to zero either.

For an LLMInferenceService KServe merges presets, the configs in ``baseRefs`` and the service into one pod template.
Containers and variables merge by name; ``args`` of a stronger layer replace those below as a whole. The engine is
container ``main``. The Deployment's strategy cannot be set (KServe 0.20): with one replica a new pod starts before the
old one stops. On several nodes (``spec.worker``) KServe makes a LeaderWorkerSet, see ``shapes``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from mpctl import commands
from mpctl.errors import Refused
from mpctl.json_fields import annotations_of, labels_of, list_at, mapping_at, name_of, value_at
from mpctl.json_types import Json, JsonView
from mpctl.manifest.engine.locate import VARIABLE
from mpctl.platform.kubernetes.api.api_client import Client
from mpctl.platform.kubernetes.api.kinds import (
    CLUSTER_SERVING_RUNTIME,
    INFERENCE_SERVICE,
    LEADER_WORKER_SET,
    LLM_CONFIG,
    LLM_INFERENCE_SERVICE,
    SERVING_RUNTIME,
    STATEFUL_SET,
)
from mpctl.platform.kubernetes.httproute.specs import backend_of
from mpctl.platform.kubernetes.service.container import (
    LLM_CONTAINER,
    ExpectedContainer,
    engine_container,
    expected,
    speculation_args,
)
from mpctl.platform.kubernetes.service.kind_shape import (
    GroupsShape,
    KindShape,
    Pod,
    child_name,
)

ISVC_LABEL = "serving.kserve.io/inferenceservice"
_AUTOSCALER_CLASS = "serving.kserve.io/autoscalerClass"
# Scaling of the live service; a candidate has fixed replicas.
_NOT_FOR_CANDIDATE = (
    "minReplicas",
    "maxReplicas",
    "scaleTarget",
    "scaleMetric",
    "scaleMetricType",
    "autoScaling",
)
_MODES = ("Knative", "Serverless")  # the second is the name until KServe 0.15
_MODE = "serving.kserve.io/deploymentMode"
_REVISION = "serving.knative.dev/revision"
_SCALING = "autoscaling.knative.dev/"
_HPA_CLASS = "hpa.autoscaling.knative.dev"


@dataclass(frozen=True)
class InferenceServiceShape(KindShape):
    """An InferenceService in Standard mode."""

    def mode_of(self, record: JsonView) -> KindShape:
        annotations = annotations_of(record)
        mode = annotations.get(_MODE) or value_at(record, "status", "deploymentMode")
        return KNATIVE if mode in _MODES else self

    def workload_name(self, record: JsonView) -> str:
        return f"{name_of(record)}-predictor"

    def pod_selector(self, record: JsonView) -> str:
        return f"{ISVC_LABEL}={name_of(record)}"

    def desired_pods(self, record: JsonView) -> int:
        return int(record["spec"]["predictor"].get("minReplicas") or 1)

    def expected(self, record: JsonView, layers: JsonView | None) -> ExpectedContainer:
        predictor = self.pod_of(record)
        model = predictor.get("model")
        container = (
            model if model is not None else engine_container(list_at(predictor, "containers"))
        )
        inherited = None
        if layers is not None:
            of_runtime = engine_container(list_at(layers, "spec", "containers"))
            inherited = speculation_args(tuple(list_at(of_runtime, "args")))
        return expected(container, whole=model is None, inherited=inherited)

    def read_layers(self, client: Client, record: JsonView, namespace: str) -> Json | None:
        model = record["spec"]["predictor"].get("model")
        if model is None:
            return None
        status = mapping_at(record, "status")
        name = model.get("runtime") or status.get("servingRuntimeName")
        if name:
            runtime = client.get(SERVING_RUNTIME, name, namespace)
            if runtime is not None:
                return runtime
        name = model.get("runtime") or status.get("clusterServingRuntimeName")
        return client.get(CLUSTER_SERVING_RUNTIME, name) if name else None

    def deleted_hpa(self, record: JsonView) -> str | None:
        return self.workload_name(record)  # whoever owns it (KServe 0.20)

    def candidate_annotations(self) -> Mapping[str, str]:
        return {_AUTOSCALER_CLASS: "none"}

    def candidate_spec(self, record: JsonView, pods: int, marks: Mapping[str, str]) -> Json:
        predictor = {
            k: v for k, v in record["spec"]["predictor"].items() if k not in _NOT_FOR_CANDIDATE
        }
        return {
            **record["spec"],
            "predictor": {**predictor, "minReplicas": pods, "maxReplicas": pods},
        }

    def backends(
        self, name: str, services: Callable[[], Iterable[Json]], labels: Mapping[str, str]
    ) -> frozenset[str]:
        return frozenset({backend_of(name)})


@dataclass(frozen=True)
class KnativeShape(InferenceServiceShape):
    """An InferenceService whose pods Knative runs and whose traffic it splits. Its limits are part of a revision, and
    pinning them would restart the pods."""

    def workload_name(self, record: JsonView) -> str:
        return child_name(newest_revision(record), "-deployment")

    def newest(self, record: JsonView, pods: Sequence[Pod]) -> list[Pod]:
        # Pods of another revision may have the same start, for example after a rollback, while they terminate.
        return [pod for pod in pods if _revision_of(pod) == newest_revision(record)]

    def obstacle(self, record: JsonView, ready: Sequence[Pod]) -> str:
        # A failed revision is kept for its progress deadline (default 600 s) without traffic; its pods are not ready.
        predictor, newest = _predictor_status(record), newest_revision(record)
        if predictor.get("latestReadyRevision") != newest:
            return f"Knative does not report revision {newest} as ready yet"
        traffic = list_at(predictor, "traffic")
        share = sum(int(t.get("percent") or 0) for t in traffic if t.get("revisionName") == newest)
        if share != 100:
            return f"revision {newest} gets {share} % of the traffic"
        older = sorted({_revision_of(pod) for pod in ready} - {newest})
        return f"Knative has not deleted the pods of {', '.join(older)} yet" if older else ""

    def expected(self, record: JsonView, layers: JsonView | None) -> ExpectedContainer:
        return replace(super().expected(record, layers), by_digest=True)

    def require_changeable(
        self,
        record: JsonView,
        title: str,
        *,
        side_by_side: bool,
        downtime: bool,
        pods: int,
    ) -> None:
        predictor = record["spec"]["predictor"]
        canary = predictor.get("canaryTrafficPercent")
        if canary is not None and int(canary) < 100:
            raise Refused(
                f"{title} has canaryTrafficPercent {canary}: a new revision would get no more traffic than that",
                hint="finish that canary first: set canaryTrafficPercent to 100, or remove it",
            )
        if predictor.get("minReplicas") == 0:
            raise Refused(
                f"{title} has minReplicas 0: Knative may delete its pods during the measurement, whose requests it "
                "does not count",
                hint="set minReplicas to 1 until the rollout ends; each of the two edits makes a revision",
            )
        if annotations_of(record).get(f"{_SCALING}class") == _HPA_CLASS:
            raise Refused(
                f"{title} is scaled by an HPA that Knative makes for each revision: it cannot be pinned during a "
                "measurement",
                hint=f"remove annotation {_SCALING}class until the rollout ends: Knative's own autoscaler counts only "
                "requests through its proxies",
            )
        if downtime:
            raise Refused(
                f"{title} runs in Knative mode: a new revision starts side by side with the old one, no pod can stop "
                "first",
                hint=f"add a GPU node first; '{commands.kubectl('get', 'nodes')}' lists them",
            )
        initial = starting_pods(record)
        if pods > initial:
            raise Refused(
                f"{title} was scaled to {pods} pods, but a new revision gets all its traffic with {initial} ready",
                hint=f'annotate it with {_SCALING}initial-scale: "{pods}" (that makes a revision), or wait until it '
                f"has {initial} again",
            )

    def additional_pods(self, record: JsonView, *, side_by_side: bool) -> tuple[int, str, str]:
        pods = starting_pods(record)
        return pods, f"a new revision's {pods} pods side by side", ""

    def deleted_hpa(self, record: JsonView) -> str | None:
        return None


STANDARD = InferenceServiceShape(
    INFERENCE_SERVICE,
    ("predictor",),
    strategy=("predictor", "deploymentStrategy"),
    annotations=("predictor", "annotations"),
)
# KServe refuses a strategy; a revision gets another Deployment, so only the time tells a stuck pod from a starting one.
KNATIVE = KnativeShape(
    INFERENCE_SERVICE,
    ("predictor",),
    annotations=("predictor", "annotations"),
    is_watchable=False,
    autoscaled=None,
    no_route=" runs in Knative mode, where Knative splits the traffic",
)


def newest_revision(record: JsonView) -> str:
    """Name of the predictor's newest revision; of its first one until KServe reports one."""
    first = f"{name_of(record)}-predictor-00001"
    return str(_predictor_status(record).get("latestCreatedRevision") or first)


def starting_pods(record: JsonView) -> int:
    """Number of pods with which a new revision starts before it gets traffic."""
    minimum = record["spec"]["predictor"].get("minReplicas")
    text = str(annotations_of(record).get(f"{_SCALING}initial-scale", ""))
    initial = int(text) if text.isdecimal() else 0  # KServe removes other values
    return max(1 if minimum is None else int(minimum), initial, 1)


def _predictor_status(record: JsonView) -> JsonView:
    predictor: Json = mapping_at(record, "status", "components", "predictor")
    return predictor


def _revision_of(pod: JsonView) -> str:
    return str(labels_of(pod).get(_REVISION, ""))


# KServe's labels of the pods that decode (`singleNodeLabels`, `expectedMainMultiNodeLWS` in KServe 0.20).
_NAME, _COMPONENT = (
    "app.kubernetes.io/name",
    "app.kubernetes.io/component=llminferenceservice-workload",
)
_TRACING = (
    "--otlp-traces-endpoint",
)  # KServe appends it, and what follows, to the arguments (spec.tracing)
_ROUTER_PRESETS = (
    "router-route",
    "scheduler",
    "scheduler-latency-predictor",
    "tokenizer",
    "tracing",
)


@dataclass(frozen=True)
class LlmShape(KindShape):
    """An LLMInferenceService with one pod per replica. ``suffix``: of its workload; ``component``: of the label of its
    pods."""

    suffix: str = "-kserve"
    component: str = ""

    def mode_of(self, record: JsonView) -> KindShape:
        return LLM if record["spec"].get("worker") is None else LLM_GROUPS

    def prefill_of(self, record: JsonView) -> KindShape | None:
        prefill = record["spec"].get("prefill")
        if prefill is None:
            return None
        return LLM_PREFILL if prefill.get("worker") is None else LLM_PREFILL_GROUPS

    def workload_name(self, record: JsonView) -> str:
        return child_name(name_of(record), self.suffix)

    def pod_selector(self, record: JsonView) -> str:
        return f"{_NAME}={name_of(record)},{_COMPONENT}{self.component}"

    def expected(self, record: JsonView, layers: JsonView | None) -> ExpectedContainer:
        return expected(
            merged_container(record, layers), whole=False, inherited=(), appended=_TRACING
        )

    def read_layers(self, client: Client, record: JsonView, namespace: str) -> Json | None:
        """Read the configs that shape the pods, as a List, the weakest first; None until KServe reports them."""
        refs = [
            ref
            for ref in _applied_configs(record)
            if not str(ref["name"]).endswith(_ROUTER_PRESETS)
        ]
        applied = [
            client.get(LLM_CONFIG, ref["name"], ref.get("namespace") or namespace) for ref in refs
        ]
        return (
            {"kind": "List", "items": [config for config in applied if config is not None]}
            if refs
            else None
        )

    def config_texts(self, record: JsonView, layers: JsonView | None) -> tuple[str, ...]:
        """The merged configs: where from, namespace, name, and generation where it was read."""
        items = (layers or {}).get("items", ())
        by_name = {(config["metadata"]["namespace"], name_of(config)): config for config in items}
        texts = []
        for ref in _applied_configs(record):
            space = ref.get("namespace") or record["metadata"].get("namespace")
            config = by_name.get((space, ref["name"]))
            generation = (
                "" if config is None else f", generation {config['metadata'].get('generation')}"
            )
            texts.append(f"{ref.get('source')} {space}/{ref['name']}{generation}")
        return tuple(texts)

    def require_changeable(
        self,
        record: JsonView,
        title: str,
        *,
        side_by_side: bool,
        downtime: bool,
        pods: int,
    ) -> None:
        if side_by_side and record["spec"].get("prefill") is not None:
            raise Refused(
                f"{title} has prefill pods of its own: a candidate beside it would prefill by itself, so the two would "
                "not be alike",
                hint="use --strategy in-place, which changes both where the draft has KV cache",
            )
        if downtime:
            raise Refused(
                f"{title}: KServe gives an LLMInferenceService no update strategy, so no old pod can stop first",
                hint=f"add a GPU node first; '{commands.kubectl('get', 'nodes')}' lists them",
            )

    def candidate_spec(self, record: JsonView, pods: int, marks: Mapping[str, str]) -> Json:
        """The same model name, fixed replicas, and no route, so that requests reach it only where mpctl sends them."""
        spec = {
            key: value for key, value in record["spec"].items() if key not in ("scaling", "router")
        }
        model = mapping_at(spec, "model")
        return {
            **spec,
            "model": {**model, "name": model.get("name") or name_of(record)},
            "replicas": pods,
        }


@dataclass(frozen=True)
class LlmGroupsShape(GroupsShape, LlmShape):
    """An LLMInferenceService on several nodes: KServe alone sees whether its groups are complete."""


@dataclass(frozen=True)
class LlmPrefillShape(LlmShape):
    """The pods of an LLMInferenceService that fill prompts."""

    def expected(self, record: JsonView, layers: JsonView | None) -> ExpectedContainer:
        below = (
            None
            if layers is None
            else {**layers, "items": [_of_prefill(config) for config in layers["items"]]}
        )
        return super().expected(_of_prefill(record), below)


def _of_prefill(document: JsonView) -> Json:
    """A service or a config with the part of its prefill pods in place of the others'."""
    return {**document, "spec": mapping_at(document, "spec", "prefill")}


_LLM_ROUTE = ": KServe writes the HTTPRoute of an LLMInferenceService and reverts changes to it"
LLM = LlmShape(
    LLM_INFERENCE_SERVICE, ("template",), ("annotations",), layered=True, no_route=_LLM_ROUTE
)
LLM_GROUPS = LlmGroupsShape(
    LLM_INFERENCE_SERVICE,
    ("template",),
    ("annotations",),
    layered=True,
    workload=STATEFUL_SET,
    autoscaled=LEADER_WORKER_SET.name,
    no_route=_LLM_ROUTE,
    suffix="-kserve-mn",
    component="-leader",
)
LLM_PREFILL = LlmPrefillShape(
    LLM_INFERENCE_SERVICE,
    ("prefill", "template"),
    (),
    suffix="-kserve-prefill",
    component="-prefill",
)
LLM_PREFILL_GROUPS = replace(  # the leaders of groups that fill prompts
    LLM_PREFILL,
    workload=STATEFUL_SET,
    suffix="-kserve-mn-prefill",
    component="-leader-prefill",
)


def merged_container(record: JsonView, configs: JsonView | None) -> Json:
    """The fields of container ``main`` that start the engine, merged as KServe merges them. ``configs`` None: unknown,
    so variables that only a config may set are left out."""
    layers: list[Json] = []
    for document in (*(() if configs is None else configs["items"]), record):
        template = mapping_at(document, "spec", "template")
        containers = list_at(template, "containers")
        layers.append(next((dict(c) for c in containers if c.get("name") == LLM_CONTAINER), {}))
    env: dict[str, Json] = {} if configs is None else {VARIABLE: {"name": VARIABLE, "value": ""}}
    for layer in layers:
        env |= {variable["name"]: variable for variable in list_at(layer, "env")}
    strongest = {
        key: layer[key]
        for layer in layers
        for key in ("args", "command", "image")
        if layer.get(key)
    }
    return {**strongest, "env": list(env.values())}


def _applied_configs(record: JsonView) -> list[Json]:
    """The configs that KServe merged, the weakest first: ``name``, ``namespace``, ``source``."""
    return [dict(config) for config in list_at(record, "status", "appliedConfigs")]
