"""What node pools of both clouds share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

GPU_TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE"}
EFFECTS = {
    "NoSchedule": "NO_SCHEDULE",
    "NoExecute": "NO_EXECUTE",
    "PreferNoSchedule": "PREFER_NO_SCHEDULE",
}
# Of a provider's own limit for the change of a pool: an hour on EKS, half an hour on GKE.
SHORTEST_MIN = 60
NODE_MIN = 10  # until a new node is ready: machine, system, driver


@dataclass(frozen=True)
class PoolPlan:
    """Settings of a node pool; ``accelerator`` and ``gpus`` are None and 0 for a system pool."""

    name: str
    machine: str
    disk_gb: int
    minimum: int
    initial: int
    maximum: int
    zones: Sequence[str]  # none: those of the system pool, which the cloud's network chooses
    accelerator: str | None = None
    gpus: int = 0
    spot: bool = False
    surge: bool = True
    drain_s: int = 0  # of the slowest pod
    disk_key: str | None = None
    reservation: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Mapping[str, str]] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    # EKS alone.
    capacity_block: str | None = None  # decides machine and market
    image_release: str | None = None  # of the node image; None: the newest, read at every plan
    # GKE alone.
    disk_type: str = "pd-balanced"
    secure_boot: bool = True
    image_streaming: bool = False
    location_policy: str = "BALANCED"
    flex_start: bool = False

    @property
    def address(self) -> str:
        """The name of its resources in the state."""
        return self.name.replace("-", "_")

    @property
    def all_taints(self) -> list[Mapping[str, str]]:
        """The GPU taint and those of the manifest, in the clouds' words."""
        own = [{**taint, "effect": EFFECTS[taint["effect"]]} for taint in self.taints]
        return [*([GPU_TAINT] if self.gpus else []), *own]


def timeouts(nodes: int, drain_s: int, limit_s: int) -> dict[str, str]:
    """How long Terraform waits for a pool: its nodes are replaced one after the other, each drained for *drain_s* at
    most, of which the cloud allows *limit_s*. With a provider's default a working upgrade would be reported as failed.
    """
    each_min = NODE_MIN + -(-min(drain_s, limit_s) // 60)
    wait = f"{max(SHORTEST_MIN, nodes * each_min)}m"
    return {"create": f"{SHORTEST_MIN}m", "update": wait, "delete": wait}
