"""A finding of the doctor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["fail", "warn", "note", "ok"]

# The order in which a person should read them.
SEVERITIES: tuple[Severity, ...] = ("fail", "warn", "note", "ok")


@dataclass(frozen=True)
class Finding:
    """``id`` is stable, for scripts. ``subject``: the object, as ``kind namespace/name``. ``cause``: the state and
    why it matters. ``fix``: the next step, empty for ``ok``. ``source``: the issue, document or measurement behind it.

    ``fail``: a rollout, or the service itself, does not work like this. ``warn``: it works until something happens.
    ``note``: worth knowing, or something could not be read.
    """

    id: str
    severity: Severity
    subject: str
    cause: str
    fix: str = ""
    source: str = ""
