"""Differences of the clouds above the cluster, in the table clouds.yaml: charts and manifests read it and never ask
which cloud it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.templates import entries


@dataclass(frozen=True)
class Cloud:
    """Facts of one cloud; the table says why each is so."""

    driver_root: str
    node_feature_discovery: bool
    critical_pods_quota: bool
    driver_installer: bool
    cluster_autoscaler: bool
    log_collector: bool
    core_dns: bool
    internal_gateway: Mapping[str, str]
    idle_timeout: tuple[str, int] | None
    disk_class: Mapping[str, Any]
    disk_key_parameter: str
    shared_key_parameter: str | None
    driver_on_host: bool
    shared_class: Mapping[str, Any]


_TABLE = entries(Path(__file__).with_suffix(".yaml"))
CLOUDS = {name: Cloud(**row) for name, row in _TABLE.items()}
