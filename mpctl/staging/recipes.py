"""Preparations before a draft can be mounted: a Job that downloads it, or an image that holds it."""

from __future__ import annotations

import hashlib
import json
import re
from importlib import resources
from string import Template

import yaml

from mpctl.json_types import Json
from mpctl.manifest import Service
from mpctl.methods import parse_version
from mpctl.methods.versions import show
from mpctl.staging.modes import StagingFacts, hub_name

# KServe's own downloader, of the release that is installed; it takes a source and a path, as in its init container.
_INITIALIZER = "kserve/storage-initializer"
_INITIALIZER_VERSION = "v0.20.0"
# A Modelcar is any image with the files below /models and a shell that has ln and sleep (KServe docs, Modelcars).
_CONTAINERFILE = """\
# Before: {fetch}
FROM {base}
COPY --chmod=755 draft/ /models/
"""
_BASE = "docker.io/library/busybox:1.37"


def folder_of(uri: str, revision: str) -> str:
    """The folder on a claim; the revision keeps two versions apart."""
    return f"{uri.split('://', 1)[-1].strip('/').replace('/', '--')}@{revision}".lower()


def image_name(registry: str, uri: str, revision: str) -> str:
    """``registry.example/models/org/draft:main``."""
    path = re.sub(r"[^a-z0-9._/-]", "-", uri.split("://", 1)[-1].strip("/").lower())
    tag = re.sub(r"[^\w.-]", "-", revision)[:119]
    return f"{registry.rstrip('/')}/{path}:{tag}"


def containerfile(source: str, base: str | None) -> str:
    """The recipe for a Modelcar with the draft, on ``base`` in place of the public image."""
    fetch = f"copy {source} into the directory draft"
    if source.startswith("hf://"):
        repository, revision = hub_name(source)
        fetch = f"hf download {repository}{f' --revision {revision}' if revision else ''} --local-dir draft"
    return _CONTAINERFILE.format(fetch=fetch, base=base or _BASE)


def download_job(
    service: Service, source: str, claim: str, folder: str, cluster: StagingFacts
) -> Json:
    """A Job that downloads ``source`` into ``folder`` of the claim with KServe's own initializer.

    The name carries a digest, because a Job's template cannot be changed. The cluster's ``token_secret`` is a Secret
    whose key HF_TOKEN is given to the downloader.
    """
    installed = parse_version(cluster.kserve)
    version = f"v{show(installed)}" if installed else _INITIALIZER_VERSION
    texts = {
        "IMAGE": cluster.image or f"{_INITIALIZER}:{version}",
        "SOURCE": source,
        "FOLDER": f"/models/{folder}",
        "CLAIM": claim,
    }
    template = (resources.files("mpctl.staging") / "download_job.yaml").read_text(encoding="utf-8")
    quoted = {name: json.dumps(text) for name, text in texts.items()}
    job: Json = yaml.safe_load(Template(template).substitute(quoted))
    if cluster.token_secret:
        reference = {"secretKeyRef": {"name": cluster.token_secret, "key": "HF_TOKEN"}}
        (container,) = job["spec"]["template"]["spec"]["containers"]
        container["env"].append({"name": "HF_TOKEN", "valueFrom": reference})
    digest = hashlib.sha256(json.dumps(job["spec"], sort_keys=True).encode()).hexdigest()[:8]
    namespace = {} if service.namespace is None else {"namespace": service.namespace}
    job["metadata"] = {
        "name": f"fetch-draft-{service.name[:40]}-{digest}",
        **namespace,
        **job["metadata"],
    }
    return job
