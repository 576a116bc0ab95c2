"""Pin the autoscaler for the time of an operation, and unpin it."""

from __future__ import annotations

from typing import Any

from mpctl.rollout.context import Context
from mpctl.rollout.operation import Operation


def pin(context: Context, operation: Operation) -> dict[str, Any]:
    """Hold the autoscaler, which would answer measurements and new pods with more pods."""
    scaling = operation.scaling
    assert scaling is not None  # else there is no such step
    context.progress.step("pin", f"holding the autoscaler at {scaling['replicas']}")
    context.scaler.pin(scaling)
    return {}


def unpin(context: Context, operation: Operation) -> dict[str, Any]:
    """Put the autoscaler back as it was found."""
    scaling = operation.scaling
    assert scaling is not None
    context.progress.step("unpin", "putting the autoscaler back")
    left = context.scaler.unpin(scaling)
    for line in left:
        context.progress.note(line)
    return {"left": list(left)}
