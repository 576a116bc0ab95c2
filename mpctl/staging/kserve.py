"""KServe's rules, release by release, restated so that a manifest is checked before a server sees it.

Read from kserve/kserve at v0.15.2, v0.16.0, v0.17.0, v0.19.0 and v0.20.0 (inference_service_validation.go,
storage_initializer_injector.go, pkg/utils/storage.go, config/crd/full) and checked against verdicts of a running
v0.20.0. Besides what the schema and the webhook refuse there is what they accept and the controller then does not
serve: those rules are marked ``silent``, and are why this exists.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mpctl.methods import parse_version

Release = tuple[int, int]
Isvc = Mapping[str, Any]

STORAGE_URIS: Release = (0, 16)
OCI_ENTRY: Release = (0, 19)
OCI_BESIDE: Release = (0, 20)  # several entries with an image among them
NATIVE: Release = (0, 20)
NATIVE_KUBERNETES: Release = (1, 33)  # image volumes with a sub-path, on without a feature gate
MODELS = "/mnt/models"
MOST_IMAGES = 10
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SCALERS = ("hpa", "keda", "external", "none")
_METRICS = ("cpu", "memory", "concurrency", "rps")


@dataclass(frozen=True)
class Problem:
    """A reason why KServe refuses a manifest, or accepts and does not serve it (``silent``); ``field``: the place."""

    rule: str
    field: str
    text: str
    silent: bool = False


def release(version: str | None) -> Release | None:
    """``(0, 20)`` of ``v0.20.0`` or ``0.20``; None where nothing is said."""
    parsed = parse_version(version)
    return None if parsed is None else parsed[:2]


def problems(isvc: Isvc, kserve: str) -> tuple[Problem, ...]:
    """Every rule that ``isvc`` breaks on this KServe; an unknown version is judged as the newest known."""
    at = release(kserve) or (0, 20)
    spec = isvc.get("spec") or {}
    predictor = spec.get("predictor")
    if not isinstance(predictor, Mapping) or not predictor:
        return (Problem("predictor-missing", "spec.predictor", "there is no predictor; the webhook fails on it"),)
    return tuple(problem for rule in _RULES for problem in rule(isvc, predictor, at))


def entries(predictor: Isvc) -> list[tuple[str, str]]:
    """``storageUris`` as (uri, mountPath), with the path the schema fills in."""
    return [
        (str(entry.get("uri", "")), str(entry.get("mountPath", MODELS))) for entry in predictor.get("storageUris") or ()
    ]


def is_oci(uri: str) -> bool:
    """An image: ``oci://`` or ``oci+MODE://``."""
    return uri.startswith(("oci://", "oci+"))


def common_parent(paths: list[str]) -> str:
    """The deepest directory above all of them, ``/`` when there is none; of one path, itself."""
    parts = [path.strip("/").split("/") for path in paths]
    shared = []
    for level in zip(*parts, strict=False):
        if len(set(level)) > 1:
            break
        shared.append(level[0])
    return "/" + "/".join(shared)


def _fields(isvc: Isvc, predictor: Isvc, at: Release) -> Iterator[Problem]:
    if "storageUris" in predictor and at < STORAGE_URIS:
        yield Problem("storage-uris-unknown", "spec.predictor.storageUris", "storageUris came with KServe 0.16")
    listed = predictor.get("storageUris")
    if listed is not None and not listed:
        yield Problem("storage-uris-empty", "spec.predictor.storageUris", "an empty list is refused")
    for index, (uri, path) in enumerate(entries(predictor)):
        field = f"spec.predictor.storageUris[{index}]"
        if not uri:
            yield Problem("uri-empty", f"{field}.uri", "the uri is empty")
        if not path.startswith("/") or len(path) > 255:
            yield Problem(
                "path-relative", f"{field}.mountPath", f"{path} is no absolute path of at most 255 characters"
            )
        elif not path.strip("/"):
            yield Problem("path-root", f"{field}.mountPath", "the root cannot be a mount path")
        if ".." in path:
            yield Problem("path-climbs", f"{field}.mountPath", f"{path} contains '..'")


def _paths(isvc: Isvc, predictor: Isvc, at: Release) -> Iterator[Problem]:
    field = "spec.predictor.storageUris"
    claims = [path for uri, path in entries(predictor) if uri.startswith("pvc://")]
    others = [path for uri, path in entries(predictor) if not uri.startswith("pvc://")]
    if len(set(claims)) < len(claims):
        # The webhook looks at this only beside two other entries; the pod would be refused later all the same.
        yield Problem("claim-paths", field, "two volume claims have the same mount path", silent=len(others) < 2)
    if len(others) > 1 and common_parent(others) == "/":
        yield Problem("no-common-parent", field, f"{', '.join(others)} have no directory in common below /")
    for uri, _ in entries(predictor):
        if uri.startswith("pvc://") and "/" in uri.removeprefix("pvc://").strip("/"):
            yield Problem(
                "claim-sub-path",
                field,
                f"{uri}: in this list the root of the claim is mounted, not the folder",
                silent=True,
            )
    mounted = [*claims, *([common_parent(others)] if others else [])]
    for path in mounted:
        name = path.strip("/").replace("/", "-")
        if path.strip("/") and ".." not in path and not _LABEL.fullmatch(name):
            yield Problem(
                "path-makes-no-name", field, f"{path} makes the volume name {name}, which is refused", silent=True
            )


def _exclusive(isvc: Isvc, predictor: Isvc, at: Release) -> Iterator[Problem]:
    model = predictor.get("model") or {}
    storage_uri = model.get("storageUri") or predictor.get("storageUri")
    for container in predictor.get("containers") or ():
        for variable in container.get("env") or ():
            storage_uri = storage_uri or (variable.get("value") if variable.get("name") == "STORAGE_URI" else None)
    if storage_uri and predictor.get("storageUris"):
        yield Problem("both-storages", "spec.predictor", "storageUri and storageUris exclude each other")
    if predictor.get("storageUri"):
        yield Problem("storage-uri-place", "spec.predictor.storageUri", "storageUri belongs into predictor.model")
    if model.get("name"):
        yield Problem("model-name", "spec.predictor.model.name", "the model's container cannot be named")


def _images(isvc: Isvc, predictor: Isvc, at: Release) -> Iterator[Problem]:
    field = "spec.predictor.storageUris"
    listed = entries(predictor)
    images = [(uri, path) for uri, path in listed if is_oci(uri)]
    single = str((predictor.get("model") or {}).get("storageUri") or "")
    native = [path for uri, path in images if uri.startswith("oci+native://")]
    if (native or single.startswith("oci+native://")) and at < NATIVE:
        yield Problem("native-unknown", field, "oci+native:// came with KServe 0.20", silent=True)
    if images and at < OCI_ENTRY:
        yield Problem("image-entry", field, "an image in storageUris is mounted since KServe 0.19", silent=True)
    elif images and len(listed) > 1 and at < OCI_BESIDE:
        what = "a second image" if len(images) > 1 else "an entry beside an image"
        yield Problem("image-beside", field, f"{what} is left out before KServe 0.20", silent=True)
    if len(images) > MOST_IMAGES:
        yield Problem("too-many-images", field, f"{len(images)} images, at most {MOST_IMAGES}", silent=True)
    parents = [path.rstrip("/").rpartition("/")[0] for uri, path in images if not uri.startswith("oci+native://")]
    if len(set(parents)) < len(parents):
        yield Problem(
            "image-parents", field, "two images are mounted in one directory and hide each other", silent=True
        )
    if len(set(native)) < len(native):
        yield Problem("native-paths", field, "two images have the same mount path", silent=True)


def _claims(isvc: Isvc, predictor: Isvc, at: Release) -> Iterator[Problem]:
    named = set()
    for index, claim in enumerate(predictor.get("resourceClaims") or ()):
        field = f"spec.predictor.resourceClaims[{index}]"
        named.add(claim.get("name"))
        if "source" in claim:
            yield Problem("claim-source", field, "the form with source is gone since Kubernetes 1.31")
        if "resourceClaimName" in claim and "resourceClaimTemplateName" in claim:
            yield Problem("claim-twice", field, "names a claim and a template; the pod is refused", silent=True)
    homes = [predictor.get("model") or {}, *(predictor.get("containers") or ())]
    for home in homes:
        for claim in (home.get("resources") or {}).get("claims") or ():
            if claim.get("name") not in named:
                yield Problem(
                    "claim-unknown",
                    "spec.predictor",
                    f"a container asks for the claim {claim.get('name')}, which the pod does not have",
                    silent=True,
                )


def _scaling(isvc: Isvc, predictor: Isvc, at: Release) -> Iterator[Problem]:
    metadata = isvc.get("metadata") or {}
    scaler = (metadata.get("annotations") or {}).get("serving.kserve.io/autoscalerClass")
    if scaler is not None and scaler not in _SCALERS:
        yield Problem("autoscaler-class", "metadata.annotations", f"{scaler} is none of {', '.join(_SCALERS)}")
    metric = predictor.get("scaleMetric")
    if metric is not None and metric not in _METRICS:
        yield Problem("scale-metric", "spec.predictor.scaleMetric", f"{metric} is none of {', '.join(_METRICS)}")
    name = str(metadata.get("name", ""))
    if name and not _NAME.fullmatch(name):
        yield Problem("name", "metadata.name", f"{name} is not lower-case letters, digits and dashes")


def _canary(isvc: Isvc, predictor: Isvc, at: Release) -> Iterator[Problem]:
    spec = isvc.get("spec") or {}
    if spec.get("canary") and predictor.get("storageUris"):
        yield Problem(
            "canary-storage", "spec.canary", "KServe's canary gets no storageUris: its pod has no files", silent=True
        )
    if predictor.get("workerSpec") and predictor.get("storageUris"):
        yield Problem("worker-storage", "spec.predictor.workerSpec", "several nodes need model.storageUri, pvc or oci")


_RULES: tuple[Callable[[Isvc, Isvc, Release], Iterator[Problem]], ...] = (
    _fields,
    _paths,
    _exclusive,
    _images,
    _claims,
    _scaling,
    _canary,
)
