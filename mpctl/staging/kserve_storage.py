"""KServe's storage, as a draft meets it: releases, kinds of images, and the directory that entries share.

Read from kserve/kserve at v0.19.0 and v0.20.0, the releases that mpctl stages drafts with
(inference_service_validation.go, storage_initializer_injector.go, pkg/utils/storage.go). Its rules for a whole manifest
are restated in tests/unit/support/kserve_rules.py, which holds every plan against them.
"""

from __future__ import annotations

from mpctl.methods import parse_version

Release = tuple[int, int]

OLDEST: Release = (0, 19)
NEWEST: Release = (0, 20)
SEVERAL_IMAGES: Release = (
    0,
    20,
)  # several entries with an image among them; images that the node mounts
MOST_IMAGES = 10
_NATIVE = "oci+native://"


def release(version: str | None) -> Release | None:
    """``(0, 20)`` of ``v0.20.0`` or ``0.20``; None where nothing is said."""
    parsed = parse_version(version)
    return None if parsed is None else parsed[:2]


def is_oci(uri: str) -> bool:
    """An image: ``oci://`` or ``oci+MODE://``."""
    return uri.startswith(("oci://", "oci+"))


def is_native(uri: str) -> bool:
    """An image that the node mounts, without a container."""
    return uri.startswith(_NATIVE)


def common_parent(paths: list[str]) -> str:
    """The deepest directory above all of them, ``/`` when there is none; of one path, itself."""
    parts = [path.strip("/").split("/") for path in paths]
    shared = []
    for level in zip(*parts, strict=False):
        if len(set(level)) > 1:
            break
        shared.append(level[0])
    return "/" + "/".join(shared)
