"""LeaderWorkerSet: one engine over the pods of a group, rolled group by group by its own controller. Pure.

It is a service itself, or KServe makes it of an LLMInferenceService on several nodes (``spec.worker``). The controller
(lws 0.8) makes the leaders from a StatefulSet of its name, and the workers of each group from one of their own. A
change stops a group before it starts it anew; with one group even ``maxSurge`` adds no second
(``rollingUpdateParameters`` releases the surge for the last group), so the service is down meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mpctl.errors import Refused
from mpctl.platform.kubernetes.service.shape import is_llm


def refuse_beside(title: str) -> Refused:
    """The error for a change side by side."""
    return Refused(
        f"{title} runs in groups of pods (LeaderWorkerSet): a candidate would need a second group of nodes",
        hint="use --strategy in-place --accept-downtime, which replaces group by group",
    )


def require_changeable(record: Mapping[str, Any], title: str, *, side_by_side: bool, downtime: bool) -> None:
    """Refuse what the controller cannot do with this service.

    Raises:
        Refused: with the reason and the remedy.
    """
    if side_by_side:
        raise refuse_beside(title)
    if not downtime and groups_of(record) < 2:
        raise Refused(
            f"{title} has one group of pods, which its controller stops before it starts it anew",
            hint="use --accept-downtime, or run two groups or more",
        )


def groups_of(record: Mapping[str, Any]) -> int:
    """Number of groups asked for; the default is 1, of both kinds."""
    return int(record["spec"].get("replicas", 1))


def unready_groups(record: Mapping[str, Any]) -> str:
    """Describe the groups that are not complete: a leader may be ready before its workers; empty when all are, and
    where KServe alone sees them."""
    if is_llm(record):
        return ""
    wanted, status = groups_of(record), record.get("status") or {}
    ready, updated = int(status.get("readyReplicas") or 0), int(status.get("updatedReplicas") or 0)
    return "" if min(ready, updated) >= wanted else f"{ready} of {wanted} groups ready, {updated} updated"
