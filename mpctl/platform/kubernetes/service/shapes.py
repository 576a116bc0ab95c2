"""The table of the kinds that are a service on a cluster, and the two of them without KServe. Pure.

A plain Deployment is its own workload. A LeaderWorkerSet runs one engine over the pods of a group; its controller (lws
0.8) makes the leaders from a StatefulSet of its name, and the workers of each group from one of their own. A change
stops a group before it starts it anew; with one group even ``maxSurge`` adds no second (``rollingUpdateParameters``
releases the surge for the last group), so the service is down meanwhile.

The number of replicas of these two belongs to whoever scales them: it is no part of a recorded manifest, and every
write keeps the live one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mpctl.json_fields import list_at, mapping_at, name_of, owners_of
from mpctl.json_types import Json, JsonView
from mpctl.methods.preflight.drain import selected_services
from mpctl.platform.kubernetes.api.kinds import DEPLOYMENT, LEADER_WORKER_SET, STATEFUL_SET
from mpctl.platform.kubernetes.api.names import candidate_name
from mpctl.platform.kubernetes.service.container import starts_vllm
from mpctl.platform.kubernetes.service.kind_shape import GroupsShape, KindShape, Pod
from mpctl.platform.kubernetes.service.kserve import LLM, STANDARD
from mpctl.platform.kubernetes.service.vllm_runtime import VLLM_RUNTIMES

# Labels that admission of a pod asks for, and no Service selects.
_ADMISSION_LABELS = ("kueue.x-k8s.io/", "sidecar.istio.io/", "azure.workload.identity/")
# Labels of the pods of a LeaderWorkerSet (lws 0.8, api/leaderworkerset/v1); the leader of a group has index 0.
_SET, _LEADER = "leaderworkerset.sigs.k8s.io/name", "leaderworkerset.sigs.k8s.io/worker-index=0"
_TERMS = {"In": "{} in ({})", "NotIn": "{} notin ({})", "Exists": "{}", "DoesNotExist": "!{}"}


@dataclass(frozen=True)
class DeploymentShape(KindShape):
    """A Deployment that starts vLLM."""

    def is_service(self, record: JsonView) -> bool:
        """Return whether a container starts vLLM, and no controller made the object."""
        owners = owners_of(record)
        containers = list_at(self.pod_of(record), "containers")
        return not any(owner.get("controller") for owner in owners) and any(
            map(starts_vllm, containers)
        )

    def pod_selector(self, record: JsonView) -> str:
        selector = record["spec"]["selector"]
        terms = [f"{key}={value}" for key, value in mapping_at(selector, "matchLabels").items()]
        terms += [
            _TERMS[expression["operator"]].format(
                expression["key"], ",".join(list_at(expression, "values"))
            )
            for expression in list_at(selector, "matchExpressions")
        ]
        return ",".join(terms)

    def serving(self, pods: Sequence[Json]) -> list[Json]:
        return list(pods)

    def candidate_spec(self, record: JsonView, pods: int, marks: Mapping[str, str]) -> Json:
        """Label the pods so that no Service and no selector of the service's own finds: requests reach them only
        where mpctl sends them."""
        template = record["spec"]["template"]
        metadata = mapping_at(template, "metadata")
        admitted = {
            k: v
            for k, v in mapping_at(metadata, "labels").items()
            if k.startswith(_ADMISSION_LABELS)
        }
        return {
            **record["spec"],
            "replicas": pods,
            "selector": {"matchLabels": dict(marks)},
            "template": {**template, "metadata": {**metadata, "labels": {**admitted, **marks}}},
        }

    def candidate_services(
        self, documents: Iterable[Json], record: Json, candidate: Json
    ) -> list[Json]:
        labels = mapping_at(record, "spec", "template", "metadata", "labels")
        services = [
            d for d in documents if d.get("kind") == "Service" and selected_services([d], labels)
        ]
        return [_service_of(service, candidate) for service in services]


@dataclass(frozen=True)
class LeaderWorkerSetShape(GroupsShape, DeploymentShape):
    """A LeaderWorkerSet whose leaders start vLLM."""

    def pod_selector(self, record: JsonView) -> str:
        return f"{_SET}={name_of(record)},{_LEADER}"

    def obstacle(self, record: JsonView, ready: Sequence[Pod]) -> str:
        """Describe the groups that are not complete: a leader may be ready before its workers."""
        wanted, status = self.desired_pods(record), mapping_at(record, "status")
        complete, updated = (
            int(status.get("readyReplicas") or 0),
            int(status.get("updatedReplicas") or 0),
        )
        if min(complete, updated) >= wanted:
            return ""
        return f"{complete} of {wanted} groups ready, {updated} updated"


_GROUP = "leaderWorkerTemplate"
_NO_ROUTE = " is none of KServe's: a candidate has no Service that a route could name"
_SHAPES = (
    STANDARD,
    LLM,
    DeploymentShape(
        DEPLOYMENT,
        ("template", "spec"),
        strategy=("strategy",),
        annotations=("template", "metadata", "annotations"),
        replicas=("replicas",),
        labels_stay=True,
        no_route=_NO_ROUTE,
    ),
    LeaderWorkerSetShape(
        LEADER_WORKER_SET,
        (_GROUP, "leaderTemplate", "spec"),
        annotations=(_GROUP, "leaderTemplate", "metadata", "annotations"),
        replicas=("replicas",),
        otherwise=(_GROUP, "workerTemplate", "spec"),
        workload=STATEFUL_SET,
        autoscaled=LEADER_WORKER_SET.name,
        no_route=_NO_ROUTE,
    ),
    VLLM_RUNTIMES,
)
SHAPES: dict[str, KindShape] = {shape.resource.name: shape for shape in _SHAPES}


def shape_of(record: JsonView) -> KindShape:
    """The shape of an object; of an InferenceService where the kind is not written."""
    return SHAPES.get(str(record.get("kind")), STANDARD).mode_of(record)


def _service_of(service: Json, candidate: Json) -> Json:
    """The Service of a candidate: the ports of the baseline's, for measuring."""
    metadata = {"name": candidate_name(name_of(service))}
    if "namespace" in candidate["metadata"]:
        metadata["namespace"] = candidate["metadata"]["namespace"]
    ports = [
        {k: v for k, v in port.items() if k != "nodePort"}
        for port in list_at(service, "spec", "ports")
    ]
    spec = {"selector": candidate["spec"]["selector"]["matchLabels"], "ports": ports}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}
