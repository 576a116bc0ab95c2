"""Values of the charts: those of chart_values.yaml, with what depends on the cluster and its environment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from infra.templates import entries
from stacks.clouds import Cloud
from stacks.services.objects import UID
from stacks.settings.gateway import Gateway
from stacks.settings.monitoring import Monitoring, RemoteWrite

Values = dict[str, Any]
PROMETHEUS = "http://kube-prometheus-stack-prometheus.monitoring.svc"
GATEWAY = "kserve/kserve-ingress-gateway"


def written() -> dict[str, Values]:
    """Chart -> its values in the file."""
    return entries(Path(__file__).with_suffix(".yaml"))


def merged(values: Mapping[str, Any], more: Mapping[str, Any]) -> Values:
    """*values* with *more* in it, mapping by mapping."""
    both = {name: merged(values[name], more[name]) for name in values.keys() & more.keys()}
    return {**values, **more, **both}


def cert_manager() -> Values:
    return written()["cert_manager"]


def prometheus_stack(
    log_days: int, storage_class: str, cloud: Cloud, monitoring: Monitoring
) -> Values:
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": storage_class,
        "resources": {"requests": {"storage": f"{monitoring.storage_gb}Gi"}},
    }
    server: Values = {
        "retention": f"{min(log_days, 30)}d",
        # A full disk stops Prometheus, and with it the autoscaler.
        "retentionSize": f"{monitoring.storage_gb * 9 // 10}GiB",
        "storageSpec": {"volumeClaimTemplate": {"spec": claim}},
    }
    if stores := monitoring.remote_write:
        server["remoteWrite"] = [remote_write(one) for one in stores]
    made: Values = {
        # GKE serves DNS with kube-dns, which has no such port; its target would be down for ever.
        "coreDns": {"enabled": cloud.core_dns},
        "prometheus": {"prometheusSpec": server},
    }
    if secret := monitoring.alertmanager_secret:
        # The chart's own configuration sends every alert to a receiver called "null".
        own = {"useExistingSecret": True, "configSecret": secret}
        made["alertmanager"] = {"alertmanagerSpec": own}
    return merged(written()["prometheus_stack"], made)


def remote_write(store: RemoteWrite) -> Values:
    """A store of samples, as the Prometheus operator names it."""
    if store.token_secret is None:
        return {"url": store.url}
    credentials = {"name": store.token_secret, "key": "token"}
    return {"url": store.url, "authorization": {"type": "Bearer", "credentials": credentials}}


def dra_driver(cloud: Cloud, tolerations: list[Mapping[str, str]]) -> Values:
    return written()["dra_driver"] | {
        "nvidiaDriverRoot": cloud.driver_root,
        "kubeletPlugin": {"tolerations": tolerations},
    }


def dcgm_exporter(cloud: Cloud, tolerations: list[Mapping[str, str]]) -> Values:
    """Temperature, errors, memory and load of every GPU. It reads all GPUs of a node without a claim."""
    values = written()["dcgm_exporter"] | {"tolerations": tolerations}
    if cloud.driver_on_host:
        volumes = [{"name": "driver", "hostPath": cloud.driver_root}]
        values |= written()["dcgm_exporter_with_the_driver_of_the_host"]
        values["extraHostVolumes"] = volumes
    return values


def node_feature_discovery(tolerations: list[Mapping[str, str]]) -> Values:
    # Without the tolerations no worker runs on the very nodes whose devices are to be found.
    return merged(written()["node_feature_discovery"], {"worker": {"tolerations": tolerations}})


def kserve_resources(version: str, downloader_memory: str, gateway: Gateway) -> Values:
    # Of the addresses that KServe writes into a service's status and into its routes.
    addresses: Values = {"urlScheme": "https" if gateway.tls else "http"}
    if gateway.domain:
        addresses["domain"] = gateway.domain
    storage = {
        # Modelcar containers run as the user of the server, so that it may read the other's files.
        "uidModelcar": UID,
        "resources": {"limits": {"memory": downloader_memory}},
    }
    controller = {"gateway": {**addresses, "ingressGateway": {"kserveGateway": GATEWAY}}}
    own = {"version": version, "controller": controller, "storage": storage}
    return merged(written()["kserve_resources"], {"kserve": own})


def kserve_runtimes() -> Values:
    return written()["kserve_runtimes"]


def prometheus_adapter(rules: Mapping[str, Any]) -> Values:
    """*rules* is manifests/autoscaling/adapter/values.yaml, the definition of queue_wait_ms."""
    return {"prometheus": {"url": PROMETHEUS, "port": 9090}, "replicas": 2, **rules}


def cluster_autoscaler(cluster: str, region: str, image: str) -> Values:
    return written()["cluster_autoscaler"] | {
        "awsRegion": region,
        "autoDiscovery": {"clusterName": cluster},
        "image": {"tag": image},
    }
