"""Kubernetes objects for one service, as plain mappings: claims, staging, and the KServe object they serve.

Pure: a service in, documents out. The serving stack hands them to Terraform, `python -m stacks.render` to
kubectl and to the scanners. Numbers of ports and paths follow KServe 0.20 in Standard mode.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from mpctl.methods.preflight.drain import (
    SHUTDOWN_TIMEOUT_SINCE,
    sleeping_hook,
    waiting_hook,
)
from mpctl.methods.versions import parse_version
from mpctl.staging.kserve_storage import OLDEST, SEVERAL_IMAGES
from stacks.services.documents import CONTAINER_SECURITY, named
from stacks.services.values import VOLUME, Service, drain_of, end_s

Document = dict[str, Any]

UID = 10001  # above the users of any node; fetching, serving and the model volume agree on it
GPU_TAINT = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
MODELS = "models"  # the name of the shared volume claim
ENGINE_CPUS, ENGINE_MEMORY_GIB = (
    6,
    24,
)  # limits where no machine is known: three quarters of 8 CPUs and 32 GiB
TOKEN = "/var/run/secrets/mpctl"
FETCH = "fetch-model"  # the ConfigMap with the download script
POD_SECURITY = {
    "runAsNonRoot": True,
    "runAsUser": UID,
    "runAsGroup": UID,
    "fsGroup": UID,
    "seccompProfile": {"type": "RuntimeDefault"},
}
# vLLM writes compiled graphs and tokenizer caches; a user without a passwd entry needs a name for them
# (torch asks getpass).
ENGINE_ENV = {
    "HOME": "/cache",
    "USER": "vllm",
    "VLLM_CACHE_ROOT": "/cache/vllm",
    "HF_HOME": "/cache/hf",
    "TRITON_CACHE_DIR": "/cache/triton",
}


def kserve_floor(service: Service) -> tuple[tuple[int, int], str]:
    """The oldest KServe release that can serve this, and why."""
    if service.staging == "oci":
        if any(artifact.scheme == "oci+native" for artifact in service.artifacts):
            return SEVERAL_IMAGES, "oci+native:// image volumes"
        if service.draft:
            return SEVERAL_IMAGES, "several OCI entries in storageUris"
    return OLDEST, "storageUris"


def require_kserve(service: Service, version: str) -> None:
    """Refuse a service that the installed KServe would accept and then serve without its files."""
    floor, why = kserve_floor(service)
    if tuple(int(part) for part in version.lstrip("v").split(".")[:2]) < floor:
        raise service.place.error(
            f"{why} need KServe {floor[0]}.{floor[1]}, the versions table installs {version}",
            "staging",
        )


def claim_template(service: Service, namespace: str) -> Document:
    """One GPU request per pod, chosen by the service's CEL selectors."""
    exactly: Document = {
        "deviceClassName": service.device_class,
        "allocationMode": "ExactCount",
        "count": service.gpus,
    }
    if service.selectors:
        exactly["selectors"] = [
            {"cel": {"expression": expression}} for expression in service.selectors
        ]
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    return named(
        "ResourceClaimTemplate",
        "resource.k8s.io/v1",
        f"{service.name}-gpu",
        namespace,
        spec={"spec": spec},
    )


def service_account(service: Service, namespace: str, annotations: Mapping[str, str]) -> Document:
    """The identity of fetching and serving. KServe finds the Hugging Face token through the account's
    secrets.
    """
    made = named(
        "ServiceAccount",
        "v1",
        service.service_account,
        namespace,
        automountServiceAccountToken=False,
    )
    if annotations:
        made["metadata"]["annotations"] = dict(annotations)
    if service.token_secret:
        made["secrets"] = [{"name": service.token_secret}]
    return made


def models_claim(
    services: tuple[Service, ...], namespace: str, storage_class: str, *, shared: bool
) -> Document:
    """The volume that fetch Jobs fill and servers read: on every node, or on one."""
    # Room for the next revision beside the present one, so that a rollout never deletes what still serves.
    size = 2 * sum(
        artifact.size_gib
        for service in services
        if service.staging == "pvc"
        for artifact in service.artifacts
    )
    spec = {
        "accessModes": ["ReadWriteMany" if shared else "ReadWriteOnce"],
        "storageClassName": storage_class,
        "resources": {"requests": {"storage": gibibytes(size)}},
    }
    return named("PersistentVolumeClaim", "v1", MODELS, namespace, spec=spec)


def gibibytes(size: int) -> str:
    """A quantity in the one form Kubernetes gives back: 1024Gi returns as 1Ti, and Terraform calls that
    inconsistent.
    """
    units = ["Gi", "Ti", "Pi"]
    while size and size % 1024 == 0 and len(units) > 1:
        size, units = size // 1024, units[1:]
    return f"{size}{units[0]}"


def fetch_job(service: Service, namespace: str, image: str, *, shared: bool) -> Document:
    """Download every artifact of *service*; the name carries a digest, because a Job's template cannot
    change.
    """
    container: Document = {
        "name": "fetch",
        "image": image,
        "imagePullPolicy": "Always",
        "command": ["python3", "/opt/fetch/fetch_model.py"],
        "args": [f"{a.uri}@{a.revision}={a.folder}" for a in service.artifacts],
        "workingDir": "/models",
        "env": [
            {"name": "PYTHONUNBUFFERED", "value": "1"},
            {"name": "FETCH_INTO", "value": "/models"},
        ],
        "resources": {
            "requests": {"cpu": "1", "memory": "512Mi"},
            "limits": {"cpu": "2", "memory": "1Gi"},
        },
        "securityContext": CONTAINER_SECURITY,
        "volumeMounts": [
            {"name": "models", "mountPath": "/models"},
            {"name": "script", "mountPath": "/opt/fetch", "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
    }
    volumes: list[Document] = [
        {"name": "models", "persistentVolumeClaim": {"claimName": MODELS}},
        {"name": "script", "configMap": {"name": FETCH}},
        {"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}},
    ]
    if service.token_secret:
        # A file, not a variable: variables show up in dumps and in every child process.
        container["env"].append({"name": "HF_TOKEN_FILE", "value": f"{TOKEN}/HF_TOKEN"})
        container["volumeMounts"].append({"name": "token", "mountPath": TOKEN, "readOnly": True})
        volumes.append(
            {"name": "token", "secret": {"secretName": service.token_secret, "defaultMode": 0o440}}
        )
    pod: Document = {
        "restartPolicy": "OnFailure",
        "serviceAccountName": service.service_account,
        "automountServiceAccountToken": False,
        "securityContext": POD_SECURITY,
        "containers": [container],
        "volumes": volumes,
    }
    if not shared:
        # A volume of one node has to be born on the node that serves.
        pod["nodeSelector"] = {"nvidia.com/gpu.present": "true"}
        pod["tolerations"] = [GPU_TAINT]
    template = {"metadata": {"labels": {"app.kubernetes.io/name": FETCH}}, "spec": pod}
    spec = {"backoffLimit": 6, "activeDeadlineSeconds": 4 * 3600, "template": template}
    digest = hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()[:8]
    return named("Job", "batch/v1", f"fetch-{service.name}-{digest}", namespace, spec=spec)


def storage_uris(service: Service) -> list[Document]:
    """The ``storageUris`` of the predictor for the chosen way."""
    if service.staging == "pvc":
        # One entry without a path: KServe reads the path of pvc://name/folder in storageUri alone and mounts the
        # root of the volume for every entry here (0.20, storage_initializer_injector.go).
        return [{"uri": f"pvc://{MODELS}", "mountPath": VOLUME}]
    return [
        {
            "uri": a.uri + (f":{a.revision}" if a.scheme == "hf" and a.revision != "main" else ""),
            "mountPath": a.mount,
        }
        for a in service.artifacts
    ]


def inference_service(service: Service, namespace: str) -> Document:
    """The KServe object that the other objects were made for. `mpctl rollout` owns it after its creation."""
    ends, hook = ending(service)
    mounts = [{"name": "cache", "mountPath": "/cache"}, {"name": "tmp", "mountPath": "/tmp"}]
    probe = {"httpGet": {"path": "/health", "port": 8080}}
    cpus, memory = service.cpus or ENGINE_CPUS, service.memory_gib or ENGINE_MEMORY_GIB
    model: Document = {
        "modelFormat": {"name": "vLLM"},
        "runtime": "kserve-vllmserver",
        "image": service.image,
        # The built-in runtime gives port, served name and a memory-backed /dev/shm; the last --model wins
        # over its own.
        "args": [f"--model={service.path(service.target)}", *service.args, *ends],
        "lifecycle": {"preStop": hook},
        "env": [{"name": key, "value": value} for key, value in ENGINE_ENV.items()],
        "resources": {
            "requests": {
                "cpu": str(max(1, cpus * 2 // 3)),
                "memory": f"{max(1, memory * 2 // 3)}Gi",
            },
            "limits": {"cpu": str(cpus), "memory": f"{memory}Gi"},
            "claims": [{"name": "gpu"}],
        },
        "securityContext": CONTAINER_SECURITY,
        # Model loading takes minutes: 60 x 30 s before the first liveness check, as the built-in runtime
        # has it.
        "startupProbe": {**probe, "periodSeconds": 30, "failureThreshold": 60},
        "readinessProbe": {**probe, "periodSeconds": 10, "timeoutSeconds": 5},
        "livenessProbe": {**probe, "periodSeconds": 15, "timeoutSeconds": 5, "failureThreshold": 8},
        "volumeMounts": mounts,
    }
    predictor: Document = {
        "serviceAccountName": service.service_account,
        "automountServiceAccountToken": False,
        "minReplicas": service.autoscaling.minimum,
        "timeout": service.timeout_s,
        "terminationGracePeriodSeconds": end_s(service),
        "securityContext": POD_SECURITY,
        "tolerations": [GPU_TAINT],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": f"{service.name}-gpu"}],
        "storageUris": storage_uris(service),
        "model": model,
        "volumes": [
            {"name": "cache", "emptyDir": {"sizeLimit": "20Gi"}},
            {"name": "tmp", "emptyDir": {"sizeLimit": "2Gi"}},
        ],
    }
    made = named(
        "InferenceService",
        "serving.kserve.io/v1beta1",
        service.name,
        namespace,
        spec={"predictor": predictor},
    )
    made["metadata"]["annotations"] = {
        "serving.kserve.io/deploymentMode": "Standard",
        "serving.kserve.io/autoscalerClass": "external",
    }
    return made


def ending(service: Service) -> tuple[list[str], Document]:
    """Arguments and preStop hook with which a pod that stops finishes what it serves. An engine without the argument
    gets a hook that waits for it.
    """
    if drain_of(service.args):
        return [], sleeping_hook()
    version = parse_version(service.image)
    if (
        version is None or version < SHUTDOWN_TIMEOUT_SINCE
    ):  # an unknown argument would end the engine at its start
        return [], waiting_hook(8080)
    return [f"--shutdown-timeout={service.drain_s}"], sleeping_hook()


def disruption_budget(service: Service, namespace: str) -> Document:
    """Evictions take one pod of the service at a time. A single replica may be evicted: with ``minAvailable: 1`` no
    node that runs one could ever be drained.
    """
    pods = {"matchLabels": {"serving.kserve.io/inferenceservice": service.name}}
    spec = {"maxUnavailable": 1, "selector": pods, "unhealthyPodEvictionPolicy": "AlwaysAllow"}
    return named(
        "PodDisruptionBudget", "policy/v1", f"{service.name}-predictor", namespace, spec=spec
    )


def service_documents(
    service: Service, namespace: str, image: str, *, shared: bool
) -> list[Document]:
    """Return the objects that must exist beside the KServe object."""
    made = [claim_template(service, namespace), disruption_budget(service, namespace)]
    if service.staging == "pvc":
        made.append(fetch_job(service, namespace, image, shared=shared))
    return made
