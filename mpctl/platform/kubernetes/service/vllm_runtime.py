"""VLLMRuntime, from which the operator of vLLM's production-stack makes a Deployment of its name.

The operator compares the Deployment with its object by some fields, and arguments are none of them: a changed setting
reaches no pod. Replicas are compared, and then the whole Deployment is written. So where it still has other arguments,
mpctl asks it for one pod more; the operator sets the number back and writes the new arguments with it. Source:
``deploymentNeedsUpdate`` of https://github.com/vllm-project/production-stack,
operator/internal/controller/vllmruntime_controller.go (2026-08).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mpctl.errors import Refused
from mpctl.json_fields import annotations_of, labels_of, mapping_at, name_of, value_at
from mpctl.json_types import Json, JsonView
from mpctl.platform.kubernetes.api.api_client import Client
from mpctl.platform.kubernetes.api.kinds import DEPLOYMENT, VLLM_RUNTIME
from mpctl.platform.kubernetes.service.container import (
    ExpectedContainer,
    engine_container,
    expected,
    matches_expected,
)
from mpctl.platform.kubernetes.service.kind_shape import KindShape

_CONFIG, _PODS = "vllmConfig", "deploymentConfig"
_BEHIND = (
    "--chat-template",
    "--kv-transfer-config",
)  # what the operator writes behind the object's own arguments


@dataclass(frozen=True)
class VllmRuntimeShape(KindShape):
    """A VLLMRuntime."""

    def pod_selector(self, record: JsonView) -> str:
        labels = {"app": name_of(record), **labels_of(record)}
        return ",".join(f"{key}={value}" for key, value in labels.items())

    def serving(self, pods: Sequence[Json]) -> list[Json]:
        return list(pods)

    def expected(self, record: JsonView, layers: JsonView | None) -> ExpectedContainer:
        config = record["spec"].get(_CONFIG) or {}
        container = {"args": config.get("extraArgs"), "env": config.get("env")}
        return expected(container, whole=False, inherited=(), appended=_BEHIND)

    def deliver(self, client: Client, record: JsonView, namespace: str) -> None:
        deployment = client.get(DEPLOYMENT, self.workload_name(record), namespace)
        if deployment is None:
            return
        template = deployment["spec"]["template"]
        container = engine_container(template["spec"]["containers"])
        annotations = annotations_of(template)
        wanted = mapping_at(record["spec"][_PODS], "podAnnotations")
        is_written = (
            matches_expected(container, self.expected(record, None))
            and wanted.items() <= annotations.items()
        )
        pods = self.desired_pods(record)
        if not is_written and deployment["spec"]["replicas"] == pods:
            client.replace(
                DEPLOYMENT, {**deployment, "spec": {**deployment["spec"], "replicas": pods + 1}}
            )

    def require_changeable(
        self,
        record: JsonView,
        title: str,
        *,
        side_by_side: bool,
        downtime: bool,
        pods: int,
    ) -> None:
        if value_at(record, "spec", "autoscalingConfig", "enabled"):
            raise Refused(
                f"{title}: its operator writes the ScaledObject anew at every change, so it cannot be pinned",
                hint="set autoscalingConfig.enabled: false until the rollout is done",
            )
        recreates = record["spec"][_PODS].get("deploymentStrategy") == "Recreate"
        if recreates and not downtime:
            raise Refused(
                f"{title} has deploymentStrategy Recreate, which stops every pod before a new one starts",
                hint="use --accept-downtime, or set deploymentStrategy: RollingUpdate",
            )
        if downtime and not recreates:
            raise Refused(
                f"{title} has deploymentStrategy RollingUpdate, which starts a new pod before an old one stops",
                hint="set deploymentStrategy: Recreate, or add a GPU node",
            )

    def candidate_spec(self, record: JsonView, pods: int, marks: Mapping[str, str]) -> Json:
        return {**record["spec"], _PODS: {**record["spec"][_PODS], "replicas": pods}}


VLLM_RUNTIMES = VllmRuntimeShape(
    VLLM_RUNTIME,
    (_PODS,),
    annotations=(_PODS, "podAnnotations"),
    replicas=(_PODS, "replicas"),
    labels_pods=True,
    autoscaled=VLLM_RUNTIME.name,
    no_route=": its router finds pods by their labels, and splits no traffic by weights",
)
