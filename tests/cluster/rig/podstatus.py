"""A pod's status, from what is known of it. Pure but for the time of a change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .behave import Unit, now


@dataclass(frozen=True)
class Known:
    """``node``: its node's address; ``inits``: the specs of its init containers; ``init_state``: state, last state and
    restarts of the first one while it fails; ``init_units``: those that run as processes."""

    uid: str
    address: str
    node: str
    began: str
    generation: int | None
    units: list[Unit]
    inits: list[dict]
    initialized: bool
    init_state: tuple[dict, dict | None, int] | None
    init_units: list[Unit]


def status_of(pod: Known, before: dict[str, Any]) -> dict[str, Any]:
    """What a kubelet would report of ``pod``; a condition that holds since ``before`` keeps its time."""
    states = [u.state or {} for u in pod.units]
    ready = all(u.ready for u in pod.units)
    ended = [s["terminated"]["exitCode"] for s in states if "terminated" in s]
    done = len(ended) == len(pod.units)
    phase = "Pending"
    if any((u.state or {}).get("terminated", {}).get("exitCode") for u in pod.init_units):
        phase = "Failed"
    elif done:
        phase = "Failed" if any(ended) else "Succeeded"
    elif any("running" in s or "terminated" in s for s in states) or any(
        u.restarts or u.last for u in pod.units
    ):
        phase = "Running"
    unready = [u.name for u in pod.units if not u.ready]
    reason: dict[str, Any] = (
        {"reason": None}
        if ready
        else {"reason": "PodCompleted" if phase == "Succeeded" else "ContainersNotReady"}
    )
    text: dict[str, Any] = (
        {"message": None}
        if ready
        else {"message": f"containers with unready status: [{' '.join(unready)}]"}
    )
    flags = [
        ("PodReadyToStartContainers", True, {}),
        ("Initialized", pod.initialized or not pod.inits, {}),
    ]
    flags += [("ContainersReady", ready, reason | text), ("Ready", ready, reason | text)]
    known = {c["type"]: c for c in before.get("conditions", ())}
    conditions = []
    for kind, value, extra in flags:
        status = "True" if value else "False"
        old = known.get(kind, {})
        since = old["lastTransitionTime"] if old.get("status") == status else now()
        conditions.append({"type": kind, "status": status, "lastTransitionTime": since, **extra})
    return {
        "phase": phase,
        "hostIP": pod.node,
        "hostIPs": [{"ip": pod.node}],
        "podIP": pod.address,
        "podIPs": [{"ip": pod.address}],
        "startTime": pod.began,
        "observedGeneration": pod.generation,
        "conditions": conditions,
        "containerStatuses": [_container(pod, u) for u in pod.units],
        **({"initContainerStatuses": [_init(pod, c) for c in pod.inits]} if pod.inits else {}),
    }


def _container(pod: Known, unit: Unit) -> dict[str, Any]:
    running = "running" in (unit.state or {})
    return {
        "name": unit.name,
        "image": unit.spec.get("image", ""),
        "imageID": unit.spec.get("image", "") if running else "",
        "containerID": f"rig://{pod.uid}/{unit.name}/{unit.restarts}" if running else "",
        "ready": unit.ready,
        "started": running,
        "restartCount": unit.restarts,
        "state": unit.state or {},
        "lastState": unit.last or {},
    }


def _init(pod: Known, container: dict) -> dict[str, Any]:
    state: dict[str, Any] = {"waiting": {"reason": "PodInitializing"}}
    last: dict[str, Any] | None = None
    restarts = 0
    unit = next((u for u in pod.init_units if u.name == container["name"]), None)
    if unit is not None:
        state = unit.state or state
    elif pod.initialized:
        done = {
            "exitCode": 0,
            "reason": "Completed",
            "startedAt": pod.began,
            "finishedAt": pod.began,
        }
        state = {"terminated": done}
    elif pod.init_state and container is pod.inits[0]:
        state, last, restarts = pod.init_state
    return {
        "name": container["name"],
        "image": container.get("image", ""),
        "imageID": "",
        "ready": pod.initialized,
        "restartCount": restarts,
        "state": state,
        "lastState": last or {},
    }
