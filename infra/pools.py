"""What node pools of both clouds share."""

from __future__ import annotations

GPU_TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE"}
EFFECTS = {
    "NoSchedule": "NO_SCHEDULE",
    "NoExecute": "NO_EXECUTE",
    "PreferNoSchedule": "PREFER_NO_SCHEDULE",
}
# Of a provider's own limit for the change of a pool: an hour on EKS, half an hour on GKE.
SHORTEST_MIN = 60
NODE_MIN = 10  # until a new node is ready: machine, system, driver


def timeouts(nodes: int, drain_s: int, limit_s: int) -> dict[str, str]:
    """How long Terraform waits for a pool: its nodes are replaced one after the other, each drained for *drain_s* at
    most, of which the cloud allows *limit_s*. With a provider's default a working upgrade would be reported as failed.
    """
    each_min = NODE_MIN + -(-min(drain_s, limit_s) // 60)
    wait = f"{max(SHORTEST_MIN, nodes * each_min)}m"
    return {"create": f"{SHORTEST_MIN}m", "update": wait, "delete": wait}
