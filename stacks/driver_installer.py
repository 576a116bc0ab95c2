"""The GPU driver on GKE nodes: the DaemonSet of driver_installer.yaml, with its image and the driver's version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from infra.templates import entries, filled


def daemonset(pause_image: str, driver: str) -> dict[str, Any]:
    """*driver* is what ``cos-gpu-installer --version`` takes: ``default``, ``latest`` or a version of the node's image.
    Without it the installer takes ``default``, which may be older than the engine's CUDA needs."""
    table = entries(Path(__file__).with_suffix(".yaml"))
    return dict(filled(table, {"pause_image": pause_image, "driver": driver}))
