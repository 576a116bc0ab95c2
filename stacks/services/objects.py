"""Kubernetes objects for one service, as plain mappings: claims, staging, and the KServe object they serve.

Pure: a service in, documents out. The serving stack hands them to Terraform, `python -m stacks.render` to
kubectl and to the scanners. Numbers of ports and paths follow KServe 0.20 in Standard mode.
"""

from __future__ import annotations

import hashlib
import json

from infra.templates import entries
from mpctl.methods.preflight.drain import SHUTDOWN_TIMEOUT_SINCE, sleeping_hook, waiting_hook
from mpctl.methods.versions import parse_version
from mpctl.staging.kserve_storage import OLDEST, SEVERAL_IMAGES
from stacks.services.documents import OBJECTS, Document, written
from stacks.services.values import VOLUME, Service, drain_of, end_s

UID: int = entries(OBJECTS)["pod_security"]["runAsUser"]  # of every pod that reads or writes models
GPU_TOLERATION = entries(OBJECTS)["gpu_toleration"]
MODELS = "models"  # the name of the shared volume claim
# Limits where no machine is known: three quarters of 8 CPUs and 32 GiB.
ENGINE_CPUS, ENGINE_MEMORY_GIB = 6, 24
TOKEN = "/var/run/secrets/mpctl"
FETCH = "fetch-model"  # the ConfigMap with the download script


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
    made = written(
        "claim_template",
        name=service.name,
        namespace=namespace,
        device_class=service.device_class,
        gpus=service.gpus,
    )
    if service.selectors:
        (request,) = made["spec"]["spec"]["devices"]["requests"]
        request["exactly"]["selectors"] = [
            {"cel": {"expression": expression}} for expression in service.selectors
        ]
    return made


def service_account(service: Service, namespace: str) -> Document:
    """The identity of fetching and serving. KServe finds the Hugging Face token through the account's
    secrets.
    """
    made = written("service_account", name=service.service_account, namespace=namespace)
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
    return written(
        "models_claim",
        namespace=namespace,
        mode="ReadWriteMany" if shared else "ReadWriteOnce",
        storage_class=storage_class,
        size=gibibytes(size),
    )


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
    job = written(
        "fetch_job",
        name=service.name,
        namespace=namespace,
        service_account=service.service_account,
        image=image,
        args=[f"{a.uri}@{a.revision}={a.folder}" for a in service.artifacts],
    )
    pod = job["spec"]["template"]["spec"]
    if service.token_secret:
        # A file, not a variable: variables show up in dumps and in every child process.
        (container,) = pod["containers"]
        container["env"].append({"name": "HF_TOKEN_FILE", "value": f"{TOKEN}/HF_TOKEN"})
        container["volumeMounts"].append({"name": "token", "mountPath": TOKEN, "readOnly": True})
        secret = {"secretName": service.token_secret, "defaultMode": 0o440}
        pod["volumes"].append({"name": "token", "secret": secret})
    if not shared:
        # A volume of one node has to be born on the node that serves.
        pod["nodeSelector"] = {"nvidia.com/gpu.present": "true"}
        pod["tolerations"] = [GPU_TOLERATION]
    digest = hashlib.sha256(json.dumps(job["spec"], sort_keys=True).encode()).hexdigest()[:8]
    job["metadata"]["name"] += f"-{digest}"
    return job


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
    cpus, memory = service.cpus or ENGINE_CPUS, service.memory_gib or ENGINE_MEMORY_GIB
    return written(
        "inference_service",
        name=service.name,
        namespace=namespace,
        service_account=service.service_account,
        minimum=service.autoscaling.minimum,
        timeout_s=service.timeout_s,
        end_s=end_s(service),
        storage_uris=storage_uris(service),
        image=service.image,
        args=[f"--model={service.path(service.target)}", *service.args, *ends],
        hook=hook,
        cpus=str(max(1, cpus * 2 // 3)),
        memory=f"{max(1, memory * 2 // 3)}Gi",
        most_cpus=str(cpus),
        most_memory=f"{memory}Gi",
    )


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


def service_documents(
    service: Service, namespace: str, image: str, *, shared: bool
) -> list[Document]:
    """Return the objects that must exist next to the KServe object."""
    budget = written("disruption_budget", name=service.name, namespace=namespace)
    made = [claim_template(service, namespace), budget]
    if service.staging == "pvc":
        made.append(fetch_job(service, namespace, image, shared=shared))
    return made
