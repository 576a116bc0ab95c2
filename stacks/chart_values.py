"""Values of the charts, as plain functions: what differs from a chart's default, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stacks.clouds import Cloud
from stacks.services.objects import UID
from stacks.settings.gateway import Gateway
from stacks.settings.monitoring import Monitoring, RemoteWrite

Values = dict[str, Any]
PROMETHEUS = "http://kube-prometheus-stack-prometheus.monitoring.svc"
GATEWAY = "kserve/kserve-ingress-gateway"


def cert_manager() -> Values:
    # Kept on uninstall: certificates of KServe's webhooks outlive a chart that is replaced.
    return {"crds": {"enabled": True, "keep": True}}


def prometheus_stack(
    log_days: int, storage_class: str, cloud: Cloud, monitoring: Monitoring
) -> Values:
    made: Values = {}
    if monitoring.alertmanager_secret:
        # The chart's own configuration sends every alert to a receiver called "null".
        made["alertmanager"] = {
            "alertmanagerSpec": {
                "useExistingSecret": True,
                "configSecret": monitoring.alertmanager_secret,
            }
        }
    return made | {
        # GKE serves DNS with kube-dns, which has no such port; its target would be down for ever.
        "coreDns": {"enabled": cloud.core_dns},
        # The control plane is the cloud's: these targets would be down for ever and their alerts would
        # always fire.
        **{
            name: {"enabled": False}
            for name in ("kubeControllerManager", "kubeScheduler", "kubeEtcd", "kubeProxy")
        },
        "prometheus": {
            "prometheusSpec": {
                "retention": f"{min(log_days, 30)}d",
                # A full disk stops Prometheus, and with it the autoscaler.
                "retentionSize": f"{monitoring.storage_gb * 9 // 10}GiB",
                **(
                    {"remoteWrite": [remote_write(one) for one in stores]}
                    if (stores := monitoring.remote_write)
                    else {}
                ),
                # PodMonitors and rules of services come from the serving layer, not from this chart.
                "podMonitorSelectorNilUsesHelmValues": False,
                "serviceMonitorSelectorNilUsesHelmValues": False,
                "ruleSelectorNilUsesHelmValues": False,
                "storageSpec": {
                    "volumeClaimTemplate": {
                        "spec": {
                            "accessModes": ["ReadWriteOnce"],
                            "storageClassName": storage_class,
                            "resources": {"requests": {"storage": f"{monitoring.storage_gb}Gi"}},
                        }
                    }
                },
            }
        },
        # Null takes away the chart's well-known password; Grafana's own chart then generates one into a
        # Secret.
        "grafana": {
            "adminPassword": None,
            "sidecar": {"dashboards": {"enabled": True, "searchNamespace": "ALL"}},
        },
    }


def remote_write(store: RemoteWrite) -> Values:
    """A store of samples, as the Prometheus operator names it."""
    if store.token_secret is None:
        return {"url": store.url}
    credentials = {"name": store.token_secret, "key": "token"}
    return {"url": store.url, "authorization": {"type": "Bearer", "credentials": credentials}}


def dra_driver(cloud: Cloud, tolerations: list[Mapping[str, str]]) -> Values:
    gpu = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    return {
        "nvidiaDriverRoot": cloud.driver_root,
        # Without the override the chart publishes no GPUs (chart 0.4), and every claim stays pending.
        "gpuResourcesEnabledOverride": True,
        "resources": {"gpus": {"enabled": True}, "computeDomains": {"enabled": False}},
        "kubeletPlugin": {"tolerations": [gpu, *tolerations]},
    }


def dcgm_exporter(cloud: Cloud, tolerations: list[Mapping[str, str]]) -> Values:
    """Temperature, errors, memory and load of every GPU. It reads all GPUs of a node without a claim."""
    gpu = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    values: Values = {
        "nodeSelector": {"nvidia.com/gpu.present": "true"},
        "tolerations": [gpu, *tolerations],
        # Names the pod that holds a GPU by a claim; the kubelet's list knows the device plugin's only.
        "kubernetesDRA": {"enabled": True},
        # `pod` and `namespace` are those of the pod that holds the GPU, not the exporter's own.
        "serviceMonitor": {"enabled": True, "honorLabels": True},
        "resources": {
            "requests": {"cpu": "100m", "memory": "256Mi"},
            "limits": {"cpu": "500m", "memory": "1Gi"},
        },
    }
    # What the chart has by default, and the node images count on it: without SYS_ADMIN no container gets GPUs but by a
    # claim (EKS images since v20260423, awslabs/amazon-eks-ami #2706).
    values["securityContext"] = {
        "runAsNonRoot": False,
        "runAsUser": 0,
        "capabilities": {"add": ["SYS_ADMIN"]},
    }
    if cloud.driver_on_host:
        counters = "/etc/dcgm-exporter/default-counters.csv"  # the chart's own mount, which a list replaces
        values |= {
            "securityContext": {"privileged": True},
            "extraHostVolumes": [{"name": "driver", "hostPath": cloud.driver_root}],
            "extraVolumeMounts": [
                {
                    "name": "exporter-metrics-volume",
                    "mountPath": counters,
                    "subPath": "default-counters.csv",
                },
                {"name": "driver", "mountPath": "/usr/local/nvidia", "readOnly": True},
            ],
        }
    return values


def node_feature_discovery(tolerations: list[Mapping[str, str]]) -> Values:
    gpu = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    return {
        "worker": {
            # Without it no worker runs on the very nodes whose devices are to be found.
            "tolerations": [gpu, *tolerations],
            # The DRA driver's affinity asks for pci-10de.present; NFD's default writes the class into the name.
            "config": {"sources": {"pci": {"deviceLabelFields": ["vendor"]}}},
        }
    }


def kserve_resources(version: str, downloader_memory: str, gateway: Gateway) -> Values:
    hosts = {"domain": gateway.domain} if gateway.domain else {}
    return {
        "kserve": {
            "version": version,
            "controller": {
                # The chart's default is Knative.
                "deploymentMode": "Standard",
                "gateway": {
                    # Of the addresses that KServe writes into a service's status and into its routes.
                    **hosts,
                    "urlScheme": "https" if gateway.tls else "http",
                    "ingressGateway": {
                        "enableGatewayApi": True,
                        "kserveGateway": GATEWAY,
                        "createGateway": False,
                    },
                },
            },
            "storage": {
                # Switches on oci://; oci+native:// needs no switch. The chart of 0.20 passes neither of the newer
                # settings (enableOciModelSupport, ociModelMode) on to the ConfigMap.
                "enableModelcar": True,
                # Modelcar containers run as the user of the server, so that it may read the other's files.
                "uidModelcar": UID,
                # The chart's 1 GiB ends the download of a model of 14 GB (kserve #5162, #5326): eight ranges of a file
                # are held in memory at once (kserve pkg/utils/storage.go at v0.20.0).
                "resources": {
                    "requests": {"cpu": "500m", "memory": "1Gi"},
                    "limits": {"cpu": "2", "memory": downloader_memory},
                },
                # The chart's own context for downloads lacks the profile that `restricted` asks for.
                "containerSecurityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
            },
        }
    }


def kserve_runtimes() -> Values:
    return {"kserve": {"servingruntime": {"enabled": True}, "llmisvcConfigs": {"enabled": False}}}


def prometheus_adapter(rules: Mapping[str, Any]) -> Values:
    """*rules* is manifests/autoscaling/adapter/values.yaml, the definition of queue_wait_ms."""
    return {"prometheus": {"url": PROMETHEUS, "port": 9090}, "replicas": 2, **rules}


def cluster_autoscaler(cluster: str, region: str, image: str) -> Values:
    return {
        "cloudProvider": "aws",
        "awsRegion": region,
        "autoDiscovery": {"clusterName": cluster},
        "image": {"tag": image},
        "rbac": {
            # The name that the Pod Identity association of the cluster layer is for.
            "serviceAccount": {"create": True, "name": "cluster-autoscaler"},
            # Simulating a claim needs to read what can be claimed; the chart's own rules may lag behind the
            # image.
            "additionalRules": [
                {
                    "apiGroups": ["resource.k8s.io"],
                    "resources": [
                        "deviceclasses",
                        "resourceclaims",
                        "resourceclaimtemplates",
                        "resourceslices",
                    ],
                    "verbs": ["get", "list", "watch"],
                }
            ],
        },
        "extraArgs": {
            "enable-dynamic-resource-allocation": True,
            "expander": "least-waste",
            "skip-nodes-with-system-pods": False,
            # A GPU node is minutes old before its ResourceSlice appears (autoscaler #7530 saw ten).
            "max-node-provision-time": "25m",
            "scale-down-unneeded-time": "15m",
        },
    }
