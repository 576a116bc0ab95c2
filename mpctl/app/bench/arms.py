"""The arms of a measurement as values, wherever they run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from mpctl.app.workload import Loader
from mpctl.errors import Cancelled
from mpctl.gate.power import Noise
from mpctl.rollout.measurement import Target
from mpctl.rollout.ports import Meter

INTERRUPTED = Cancelled("interrupted; nothing that serves was changed", hint="the same command continues")


@dataclass(frozen=True, slots=True)
class Arms:
    """The arms of a measurement, and how each is reached.

    ``identity`` names what is measured, so that the same command continues an interrupted measurement. ``speculates``:
    the candidate is expected to. ``running`` starts what does not run yet and stops it again. ``noise``: of an earlier
    rollout of the baseline's service, None without one.
    """

    identity: str
    names: tuple[str, ...]
    meter: Meter
    load: Loader
    target: Callable[[str], Target]
    speculates: bool = True
    running: Callable[[], AbstractContextManager[None]] = nullcontext
    noise: Callable[[], Noise | None] = lambda: None
