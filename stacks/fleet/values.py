"""A fleet manifest as frozen values, each with its place for error messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mpctl.yaml_lines import FilePosition


@dataclass(frozen=True)
class Device:
    """One kind of device on every node of a class, as its DRA driver publishes it."""

    name: str
    driver: str
    device_class: str
    count: int
    claim: str = "DRA"
    attributes: Mapping[str, str | int | bool] = field(default_factory=dict)
    capacity: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class InferenceClass:
    """A hardware shape: the machine and the devices on it."""

    name: str
    provider: str
    machine: str
    disk_gb: int
    accelerator: str
    accelerator_count: int
    devices: tuple[Device, ...]
    place: FilePosition


@dataclass(frozen=True)
class Taint:
    """A node taint in Kubernetes words (``NoSchedule``)."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True)
class NodePool:
    """Nodes of one class. Without a maximum the pool has a fixed size."""

    name: str
    hardware: InferenceClass
    nodes: int
    minimum: int
    maximum: int
    zones: tuple[str, ...]
    taints: tuple[Taint, ...]
    capacity_block: str | None
    place: FilePosition


@dataclass(frozen=True)
class InferenceCluster:
    """One cluster: its cloud, region and GPU pools. ``project`` and ``version`` may be left to the
    settings.
    """

    name: str
    provider: str
    region: str
    labels: Mapping[str, str]
    project: str | None
    version: str | None
    pools: tuple[NodePool, ...]
    place: FilePosition


@dataclass(frozen=True)
class Fleet:
    """Everything that one set of manifests describes."""

    classes: tuple[InferenceClass, ...]
    clusters: tuple[InferenceCluster, ...]
