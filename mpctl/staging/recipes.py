"""Preparations before a draft can be mounted: a Job that downloads it, or an image that holds it."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from mpctl.manifest import Service
from mpctl.methods import parse_version
from mpctl.methods.versions import show
from mpctl.staging.modes import Cluster, hub_name

# KServe's own downloader, of the release that is installed; it takes a source and a path, as in its init container.
INITIALIZER = "kserve/storage-initializer"
INITIALIZER_VERSION = "v0.20.0"
_USER = 1000  # the initializer image's user
# A Modelcar is any image with the files below /models and a shell that has ln and sleep (KServe docs, Modelcars).
BASE = "docker.io/library/busybox:1.37"

# The restricted Pod Security Standard's requirements for every container, and a read-only root.
CONTAINER_SECURITY = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def folder_of(uri: str, revision: str) -> str:
    """The folder on a claim; the revision keeps two versions apart."""
    return f"{uri.split('://', 1)[-1].strip('/').replace('/', '--')}@{revision}".lower()


def image_name(registry: str, uri: str, revision: str, *, target: str | None = None) -> str:
    """``registry.example/models/org/draft:main``; with ``target`` in it, its name and a digest of both are added, so
    that no other target and no newer one is pushed over it.
    """
    path = re.sub(r"[^a-z0-9._/-]", "-", uri.split("://", 1)[-1].strip("/").lower())
    tag = re.sub(r"[^\w.-]", "-", revision)[:119]
    if target is not None:
        last = re.split(r"[:@]", target.split("://", 1)[-1].strip("/").rpartition("/")[2].lower())[0]
        path += f"-with-{re.sub(r'[^a-z0-9]+', '-', last).strip('-') or 'target'}"
        tag += f"-{hashlib.sha256(json.dumps([uri, revision, target]).encode()).hexdigest()[:8]}"
    return f"{registry.rstrip('/')}/{path}:{tag}"


def containerfile(source: str, *, target: str | None = None, base: str | None = None) -> str:
    """The recipe for a Modelcar with the draft, and with ``target`` the draft below the target's files. ``base``: the
    image to build on, where it is not the target's."""
    base = base or BASE
    lines = [f"# Before: {_fetch(source, 'draft')}"]
    if target is None:
        lines += [f"FROM {base}", "COPY --chmod=755 draft/ /models/"]
    elif target.startswith("oci"):
        lines += [f"FROM {target.split('://', 1)[1]}", "COPY --chmod=755 draft/ /models/draft/"]
    else:
        lines += [f"# Before: {_fetch(target, 'target')}", f"FROM {base}", "COPY --chmod=755 target/ /models/"]
        lines += ["COPY --chmod=755 draft/ /models/draft/"]
    return "\n".join(lines) + "\n"


def _fetch(uri: str, folder: str) -> str:
    if not uri.startswith("hf://"):
        return f"copy {uri} into the directory {folder}"
    repository, revision = hub_name(uri)
    return f"hf download {repository}{f' --revision {revision}' if revision else ''} --local-dir {folder}"


def download_job(service: Service, source: str, claim: str, folder: str, cluster: Cluster) -> dict[str, Any]:
    """A Job that downloads ``source`` into ``folder`` of the claim with KServe's own initializer.

    The name carries a digest, because a Job's template cannot be changed. The cluster's ``token_secret`` is a Secret
    whose key HF_TOKEN is given to the downloader.
    """
    kserve_version, token_secret = parse_version(cluster.kserve), cluster.token_secret
    version = f"v{show(kserve_version)}" if kserve_version else INITIALIZER_VERSION
    container: dict[str, Any] = {
        "name": "fetch",
        "image": cluster.staging_image or f"{INITIALIZER}:{version}",
        "args": [source, f"/models/{folder}"],
        "env": [{"name": "HOME", "value": "/tmp"}, {"name": "HF_HOME", "value": "/tmp/hf"}],
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "4Gi"}},
        "securityContext": CONTAINER_SECURITY,
        "volumeMounts": [{"name": "models", "mountPath": "/models"}, {"name": "tmp", "mountPath": "/tmp"}],
    }
    if token_secret:
        reference = {"secretKeyRef": {"name": token_secret, "key": "HF_TOKEN"}}
        container["env"].append({"name": "HF_TOKEN", "valueFrom": reference})
    pod = {
        "restartPolicy": "OnFailure",
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "fsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [
            {"name": "models", "persistentVolumeClaim": {"claimName": claim}},
            {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}},
        ],
    }
    labels = {"app.kubernetes.io/name": "fetch-draft"}
    spec = {
        "backoffLimit": 6,
        "activeDeadlineSeconds": 4 * 3600,
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    digest = hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()[:8]
    return named("Job", "batch/v1", f"fetch-draft-{service.name[:40]}-{digest}", service.namespace, spec=spec)


def named(kind: str, api: str, name: str, namespace: str | None, **body: Any) -> dict[str, Any]:
    """Return a Kubernetes object with mpctl's labels; without a namespace for a cluster's own."""
    meta: dict[str, Any] = {"name": name} if namespace is None else {"name": name, "namespace": namespace}
    labels = {"app.kubernetes.io/managed-by": "mpctl", "app.kubernetes.io/part-of": "inference"}
    return {"apiVersion": api, "kind": kind, "metadata": {**meta, "labels": labels}, **body}
