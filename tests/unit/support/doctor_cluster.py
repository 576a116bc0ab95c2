"""A cluster in order as the doctor reads it, and what a fault added to it must make the checks say."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from mpctl.doctor import ClusterFacts, diagnose

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
LONG_AGO = (NOW - timedelta(days=3)).isoformat()
ISVC = "serving.kserve.io/inferenceservice"
GKE = "cloud.google.com/gke-nodepool"
CLAIM = {"name": "gpu", "resourceClaimTemplateName": "one-l4"}
PROBE = {"httpGet": {"path": "/v1/models", "port": 8080}}


def meta(name, namespace=None, *, labels=None, annotations=None, created=LONG_AGO, **more):
    fields = {
        "name": name,
        "labels": labels or {},
        "annotations": annotations or {},
        "creationTimestamp": created,
    }
    return {**fields, **({"namespace": namespace} if namespace else {}), **more}


def node(name, **labels):
    return {
        "metadata": meta(name, labels={"nvidia.com/gpu.present": "true", **labels}),
        "spec": {"taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "allocatable": {"cpu": "8"},
        },
    }


def slice_of(name, devices=1):
    fields = [{"name": f"gpu-{i}"} for i in range(devices)]
    return {
        "metadata": meta(f"{name}-gpu"),
        "spec": {
            "driver": "gpu.nvidia.com",
            "nodeName": name,
            "pool": {"name": name},
            "devices": fields,
        },
    }


def service(name="qwen"):
    return {
        "metadata": meta(
            name, "chat", annotations={"serving.kserve.io/autoscalerClass": "external"}
        ),
        "spec": {"predictor": {"minReplicas": 1, "resourceClaims": [dict(CLAIM)]}},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "deploymentMode": "Standard",
        },
    }


def deployment(name="qwen"):
    container = {
        "name": "kserve-container",
        "image": "vllm/vllm-openai:v0.28.0",
        "args": ["--shutdown-timeout=600"],
        "lifecycle": {"preStop": {"sleep": {"seconds": 15}}},
        "readinessProbe": PROBE,
        "startupProbe": {**PROBE, "failureThreshold": 60},
        "resources": {"claims": [{"name": "gpu"}], "limits": {"cpu": "2"}},
    }
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
    return {
        "metadata": meta(f"{name}-predictor", "chat"),
        "spec": {
            "strategy": rolling,
            "template": {
                "spec": {
                    "containers": [container],
                    "resourceClaims": [dict(CLAIM)],
                    "terminationGracePeriodSeconds": 630,
                }
            },
        },
        "status": {
            "conditions": [
                {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"}
            ]
        },
    }


def pod(name="qwen-predictor-1", of="qwen"):
    conditions = [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}]
    return {
        "metadata": meta(name, "chat", labels={ISVC: of, "component": "predictor"}),
        "spec": {"nodeName": "gpu-a", "resourceClaims": [dict(CLAIM)]},
        "status": {"phase": "Running", "conditions": conditions},
    }


def hpa(name="qwen-queue-wait"):
    metric = {"type": "Pods", "pods": {"metric": {"name": "queue_wait_ms"}}}
    return {
        "metadata": meta(name, "chat"),
        "spec": {
            "scaleTargetRef": {"kind": "Deployment", "name": "qwen-predictor"},
            "minReplicas": 1,
            "maxReplicas": 4,
            "metrics": [metric],
        },
        "status": {
            "conditions": [
                {"type": "ScalingActive", "status": "True", "reason": "ValidMetricFound"}
            ]
        },
    }


def webhook(name, *, bundle="Q0E="):
    client = {
        "service": {"name": "kserve-webhook-server-service", "namespace": "kserve"},
        "caBundle": bundle,
    }
    return {
        "metadata": meta("inferenceservice.serving.kserve.io"),
        "webhooks": [{"name": name, "clientConfig": client}],
    }


def healthy():
    image = {"name": "manager", "image": "kserve/kserve-controller:v0.20.0"}
    return {
        "nodes": [node("gpu-a"), node("gpu-b")],
        "resourceslices": [slice_of("gpu-a"), slice_of("gpu-b")],
        "resourceclaims": [],
        "resourceclaimtemplates": [{"metadata": meta("one-l4", "chat")}],
        "deviceclasses": [{"metadata": meta("gpu.nvidia.com")}],
        "dra-daemonsets": [
            {
                "metadata": meta("nvidia-dra-driver-gpu-kubelet-plugin", "nvidia-dra-driver-gpu"),
                "spec": {"template": {"spec": {"priorityClassName": "system-node-critical"}}},
                "status": {"numberReady": 2},
            }
        ],
        "kserve-deployments": [
            {
                "metadata": meta("kserve-controller-manager", "kserve"),
                "spec": {"template": {"spec": {"containers": [image]}}},
                "status": {"availableReplicas": 1},
            }
        ],
        "kserve-configmaps": [
            {
                "metadata": meta("inferenceservice-config", "kserve"),
                "data": {
                    "deploy": '{"defaultDeploymentMode": "Standard"}',
                    "ingress": '{"enableGatewayApi": true}',
                    "storageInitializer": '{"enableModelcar": true}',
                    "inferenceService": '{"serviceAnnotationDisallowedList": ["my.org/note"]}',
                },
            }
        ],
        "kserve-endpointslices": [
            {
                "metadata": meta(
                    "x",
                    "kserve",
                    labels={"kubernetes.io/service-name": "kserve-webhook-server-service"},
                ),
                "endpoints": [{"conditions": {"ready": True}}],
            }
        ],
        "mutatingwebhookconfigurations": [
            webhook("inferenceservice.kserve-webhook-server.defaulter")
        ],
        "validatingwebhookconfigurations": [
            webhook("inferenceservice.kserve-webhook-server.validator")
        ],
        "inferenceservices": [service()],
        "deployments": [deployment()],
        "pods": [pod()],
        "horizontalpodautoscalers": [hpa()],
        "scaledobjects": [],
        "leases": [],
    }


def facts(objects=None, **changes):
    base = ClusterFacts(
        now=NOW,
        groups={
            "resource.k8s.io": ("v1",),
            "gateway.networking.k8s.io": ("v1", "v1beta1"),
            "serving.kserve.io": ("v1beta1", "v1alpha1"),
            "custom.metrics.k8s.io": ("v1beta1",),
            "monitoring.coreos.com": ("v1",),
            "keda.sh": ("v1alpha1",),
        },
        objects=healthy() if objects is None else objects,
        denied=(),
    )
    return replace(base, **changes)


def said(found):
    return {(f.id, f.severity) for f in found if f.severity != "ok"}


def the(objects, resource, index=0):
    return objects[resource][index]


def container(objects):
    return the(objects, "deployments")["spec"]["template"]["spec"]["containers"][0]


def lease(renewed_s_ago):
    return {
        "metadata": meta(
            "mpctl-qwen",
            "chat",
            labels={"app.kubernetes.io/managed-by": "mpctl", "mpctl.dev/service": "qwen"},
        ),
        "spec": {
            "holderIdentity": "ann@laptop",
            "leaseDurationSeconds": 30,
            "renewTime": (NOW - timedelta(seconds=renewed_s_ago))
            .isoformat()
            .replace("+00:00", "Z"),
        },
    }


def faults(kept):
    """A decorator for a change to the healthy objects and the findings it must add, no other; collected in ``kept``."""

    def fault(*expected):
        def keep(change):
            kept[change.__name__] = (change, set(expected))
            return change

        return keep

    return fault


def check(change, expected):
    """What a change makes the doctor say, and that each finding is complete."""
    objects = healthy()
    change(objects)
    findings = diagnose(facts(objects))
    assert said(findings) == expected
    for finding in findings:
        if finding.severity != "ok":
            assert finding.subject and finding.cause
        if finding.severity in ("fail", "warn"):
            assert finding.fix and (finding.source)
