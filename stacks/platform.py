"""The platform layer: charts on a cluster that exists, in the order they need each other.

Custom resources of these charts are not here: their definitions must be in the cluster before Terraform can
plan an object, so they belong to the serving layer, applied after this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from constructs import Construct

from infra import builder, charts
from infra.aws import eks
from stacks import chart_values as values
from stacks.base import Plan, Stack
from stacks.clouds import CLOUDS
from stacks.driver_installer import daemonset
from stacks.isolation import PLATFORM, ingress_policy
from stacks.manifests import AUTOSCALING, Document, address, manifest
from stacks.services.documents import written
from stacks.services.objects import GPU_TOLERATION
from stacks.storage import DISK, storage_classes

DRA_NAMESPACE = "dra-driver-nvidia-gpu"
# From the folder of a stack, in which Terraform runs: no path of this machine belongs into a state.
MIRROR_IMAGES = "../../../scripts/mirror-images"
PRIVILEGED = {
    "pod-security.kubernetes.io/enforce": "privileged"
}  # the kubelet plugin talks to the driver of the host


class Platform(Stack):
    """Charts of one cluster."""

    def __init__(self, scope: Construct, plan: Plan) -> None:
        super().__init__(scope, plan, "platform")
        self.cloud = CLOUDS[plan.cluster.provider]
        self.installed: dict[str, list[builder.Element]] = {}
        outputs = self.outputs_of("cluster")
        self.kubernetes_providers(outputs, helm=True)
        classes = [
            manifest(self, address(document), document)
            for document in storage_classes(plan, outputs["model_volume"])
        ]
        cert = self.chart("cert-manager", "cert-manager", values.cert_manager())
        gateway = self.chart("envoy-gateway", "envoy-gateway-system", {})
        metrics = self.chart(
            "kube-prometheus-stack",
            "monitoring",
            values.prometheus_stack(
                plan.settings.log_days, DISK, self.cloud, plan.settings.monitoring
            ),
            after=classes,
            minutes=20,
        )
        self.dra(after=[metrics])
        self.chart(
            "dcgm-exporter",
            "monitoring",
            values.dcgm_exporter(self.cloud, self.tolerations()),
            after=[metrics],
        )
        self.kserve(after=[cert, gateway])
        self.autoscaling(after=[metrics])
        for document in engine_logs(plan):
            manifest(self, address(document), document)
        self.isolate()
        builder.output(
            self,
            "next_step",
            "MPCTL_LAYERS=serving cdktf deploy",
            description="Services on this platform",
        )

    def chart(
        self,
        name: str,
        namespace: str,
        chart_values: Mapping[str, Any],
        *,
        after: list[builder.Element] | None = None,
        create_namespace: bool = True,
        minutes: int = 10,
    ) -> builder.Element:
        pin = self.plan.versions.chart(name)
        assert pin.repository and pin.chart
        mirror = self.plan.settings.mirror
        release = charts.Release(
            name=name,
            namespace=namespace,
            repository=mirror.charts or pin.repository,
            chart=pin.chart,
            version=pin.version,
            values=chart_values,
            create_namespace=create_namespace,
            minutes=minutes,
            postrender=(MIRROR_IMAGES, *mirror.arguments()) if mirror.registries else (),
        )
        installed = charts.install(self, release, after or [])
        self.installed.setdefault(namespace, []).append(installed)
        return installed

    def isolate(self) -> None:
        """Policies for the namespaces of the charts that were installed."""
        for namespace, callers in PLATFORM.items():
            if after := self.installed.get(namespace):
                document = ingress_policy(namespace, callers, self.plan.cidr)
                manifest(self, address(document), document, after)

    def tolerations(self) -> list[Mapping[str, str]]:
        """Of GPU nodes: their own taint, and those of the pools."""
        taints = [taint for pool in self.plan.cluster.pools for taint in pool.taints]
        own = [{"key": taint.key, "operator": "Exists", "effect": taint.effect} for taint in taints]
        return [GPU_TOLERATION, *own]

    def dra(self, after: list[builder.Element]) -> None:
        """The NVIDIA DRA driver and what it leans on. Never a device plugin: a GPU must have one owner."""
        before = list(after)
        tolerations = self.tolerations()
        if self.cloud.node_feature_discovery:
            feature_discovery = values.node_feature_discovery(tolerations)
            before.append(
                self.chart("node-feature-discovery", "node-feature-discovery", feature_discovery)
            )
        if self.cloud.driver_installer:
            before.append(
                manifest(
                    self,
                    "driver_installer",
                    daemonset(pause_image(self.plan), gpu_driver(self.plan)),
                )
            )
        namespace = builder.resource(
            self,
            "kubernetes_namespace_v1",
            "dra",
            metadata=[{"name": DRA_NAMESPACE, "labels": PRIVILEGED}],
        )
        before.append(namespace)
        if self.cloud.critical_pods_quota:
            before.append(self.quota(namespace))
        driver = values.dra_driver(self.cloud, tolerations)
        self.chart(
            "dra-driver-nvidia-gpu",
            DRA_NAMESPACE,
            driver,
            after=before,
            create_namespace=False,
            minutes=15,
        )

    def quota(self, namespace: builder.Element) -> builder.Element:
        match = {
            "operator": "In",
            "scope_name": "PriorityClass",
            "values": ["system-node-critical", "system-cluster-critical"],
        }
        return builder.resource(
            self,
            "kubernetes_resource_quota_v1",
            "dra_critical_pods",
            metadata={"name": "critical-pods", "namespace": DRA_NAMESPACE},
            spec={"hard": {"pods": "1000"}, "scope_selector": {"match_expression": [match]}},
            depends_on=[namespace],
        )

    def kserve(self, after: list[builder.Element]) -> None:
        crds = self.chart("kserve-crd", "kserve", {}, after=after)
        version = self.plan.versions.chart("kserve-resources").version
        main = self.chart(
            "kserve-resources",
            "kserve",
            values.kserve_resources(
                version, self.plan.settings.downloader_memory, self.plan.settings.gateway
            ),
            after=[crds],
        )
        self.chart("kserve-runtime-configs", "kserve", values.kserve_runtimes(), after=[main])

    def autoscaling(self, after: list[builder.Element]) -> None:
        adapter = values.prometheus_adapter(adapter_rules(AUTOSCALING / "adapter" / "values.yaml"))
        self.chart("prometheus-adapter", "monitoring", adapter, after=after)
        # Who made a cluster runs its autoscaler, whose identity is of the cluster layer.
        if self.cloud.cluster_autoscaler and not (
            self.plan.existing and self.plan.existing.cluster
        ):
            image = self.plan.versions.image(f"cluster-autoscaler-{self.plan.minor}")
            # The name is ours; a Terraform reference inside Helm's YAML would be escaped as literal text.
            chosen = values.cluster_autoscaler(self.plan.name, self.plan.cluster.region, image)
            self.chart(
                "cluster-autoscaler", "kube-system", chosen, after=after, create_namespace=False
            )


def engine_logs(plan: Plan) -> list[Document]:
    """The collector of the engines' logs. Its log group and identity are of the cluster layer, as the autoscaler's."""
    wanted = plan.settings.monitoring.logs and CLOUDS[plan.cluster.provider].log_collector
    if not wanted or (plan.existing and plan.existing.cluster):
        return []
    collector = written(
        "engine_logs",
        image=plan.settings.mirror.image(plan.versions.image("fluent-bit")),
        region=plan.cluster.region,
        group=eks.engine_log_group(plan.name),
        namespace=plan.settings.namespace,
    )
    return [written("service_account", name="engine-logs", namespace="kube-system"), collector]


def pause_image(plan: Plan) -> str:
    """The image of the container that stays after the driver's installation."""
    return plan.settings.mirror.image(plan.versions.image("gke-pause"))


def gpu_driver(plan: Plan) -> str:
    """The driver that the installer installs on GKE nodes."""
    return plan.settings.gpu_driver or plan.versions.image("gke-gpu-driver")


def adapter_rules(path: Path) -> dict[str, Any]:
    """The rules of prometheus-adapter; none when the file is absent."""
    return yaml.safe_load(path.read_text("utf-8")) or {} if path.is_file() else {}
