"""Pin the autoscaler for the time of an operation, and unpin it."""

from __future__ import annotations

from dataclasses import dataclass

from mpctl.rollout.context import Context
from mpctl.rollout.operation import Nothing, Operation, StepResult


@dataclass(frozen=True)
class Unpinned(StepResult):
    """Fields of the autoscaler that were left as they are because another writer changed them."""

    left: tuple[str, ...] = ()


def pin(context: Context, operation: Operation) -> Nothing:
    """Pin the autoscaler, which would answer measurements and new pods with more pods."""
    scaling = operation.scaling
    assert scaling is not None  # else there is no such step
    context.progress.step("pin", f"pinning the autoscaler at {scaling['replicas']}")
    context.scaler.pin(scaling)
    return Nothing()


def unpin(context: Context, operation: Operation) -> Unpinned:
    """Restore the autoscaler as it was before the operation."""
    scaling = operation.scaling
    assert scaling is not None
    context.progress.step("unpin", "unpinning the autoscaler")
    unrestored = context.scaler.unpin(scaling)
    for line in unrestored:
        context.progress.note(line)
    return Unpinned(unrestored)
