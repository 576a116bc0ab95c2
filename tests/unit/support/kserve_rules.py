"""KServe's rules for storage, restated so that tests judge every staged manifest.

Read from kserve/kserve at v0.19.0 and v0.20.0, the releases that mpctl stages drafts with
(inference_service_validation.go, storage_initializer_injector.go, pkg/utils/storage.go), and checked against verdicts
of a running v0.20.0. These are the rules that one more artifact can break. Some the webhook refuses; others it accepts
and the controller then does not serve: those are marked ``silent``, and are why this exists.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mpctl.json_types import JsonView
from mpctl.staging.kserve_storage import (
    MOST_IMAGES,
    NEWEST,
    SEVERAL_IMAGES,
    Release,
    common_parent,
    is_native,
    is_oci,
    release,
)

Isvc = JsonView

_MODELS = "/mnt/models"
_FIELD = "spec.predictor.storageUris"
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True)
class Problem:
    """A reason why KServe refuses a manifest, or accepts and does not serve it (``silent``)."""

    rule: str
    field: str
    text: str
    silent: bool = False


def problems(isvc: Isvc, kserve: str) -> tuple[Problem, ...]:
    """Every rule that ``isvc`` breaks on this KServe; an unknown version is judged as the newest known."""
    installed = release(kserve) or NEWEST
    spec = isvc.get("spec") or {}
    return tuple(
        problem for rule in _RULES for problem in rule(spec, spec.get("predictor") or {}, installed)
    )


def _entries(predictor: Isvc) -> list[tuple[str, str]]:
    """``storageUris`` as (uri, mountPath), with the path the schema fills in."""
    listed = predictor.get("storageUris") or ()
    return [(str(entry.get("uri", "")), str(entry.get("mountPath", _MODELS))) for entry in listed]


def _paths(spec: Isvc, predictor: Isvc, installed: Release) -> Iterator[Problem]:
    claims = [path for uri, path in _entries(predictor) if uri.startswith("pvc://")]
    others = [path for uri, path in _entries(predictor) if not uri.startswith("pvc://")]
    if len(others) > 1 and common_parent(others) == "/":
        yield Problem(
            "no-common-parent", _FIELD, f"{', '.join(others)} have no directory in common below /"
        )
    for uri, _ in _entries(predictor):
        if uri.startswith("pvc://") and "/" in uri.removeprefix("pvc://").strip("/"):
            text = f"{uri}: in this list the root of the claim is mounted, not the folder"
            yield Problem("claim-sub-path", _FIELD, text, silent=True)
    for path in [*claims, *([common_parent(others)] if others else [])]:
        name = path.strip("/").replace("/", "-")
        if path.strip("/") and ".." not in path and not _LABEL.fullmatch(name):
            text = f"{path} makes the volume name {name}, which is refused"
            yield Problem("path-makes-no-name", _FIELD, text, silent=True)


def _exclusive(spec: Isvc, predictor: Isvc, installed: Release) -> Iterator[Problem]:
    storage_uri = (predictor.get("model") or {}).get("storageUri") or predictor.get("storageUri")
    if storage_uri and predictor.get("storageUris"):
        yield Problem(
            "both-storages", "spec.predictor", "storageUri and storageUris exclude each other"
        )
    if (predictor.get("model") or {}).get("storage") and predictor.get("storageUris"):
        text = "model.storage is not downloaded beside storageUris"  # predictor.go adds the initializer without it
        yield Problem("key-beside", "spec.predictor.model.storage", text, silent=True)


def _images(spec: Isvc, predictor: Isvc, installed: Release) -> Iterator[Problem]:
    listed = _entries(predictor)
    images = [(uri, path) for uri, path in listed if is_oci(uri)]
    native = [path for uri, path in images if is_native(uri)]
    if images and len(listed) > 1 and installed < SEVERAL_IMAGES:
        what = "a second image" if len(images) > 1 else "an entry beside an image"
        yield Problem("image-beside", _FIELD, f"{what} is left out before KServe 0.20", silent=True)
    if len(images) > MOST_IMAGES:
        yield Problem(
            "too-many-images", _FIELD, f"{len(images)} images, at most {MOST_IMAGES}", silent=True
        )
    parents = [path.rstrip("/").rpartition("/")[0] for uri, path in images if not is_native(uri)]
    if len(set(parents)) < len(parents):
        text = "two images are mounted in one directory and hide each other"
        yield Problem("image-parents", _FIELD, text, silent=True)
    if len(set(native)) < len(native):
        yield Problem("native-paths", _FIELD, "two images have the same mount path", silent=True)


def _canary(spec: Isvc, predictor: Isvc, installed: Release) -> Iterator[Problem]:
    if spec.get("canary") and predictor.get("storageUris"):
        text = "KServe's canary gets no storageUris: its pod has no files"
        yield Problem("canary-storage", "spec.canary", text, silent=True)


_RULES: tuple[Callable[[Isvc, Isvc, Release], Iterator[Problem]], ...] = (
    _paths,
    _exclusive,
    _images,
    _canary,
)
