"""The one tree of errors, and the exit code each stands for.

::

    MpctlError             1  something failed that has no code of its own
    +-- InputError         2  a file, line, field or flag is wrong; nothing was changed
    +-- Cancelled          2  the user declined, or pressed Ctrl-C
    +-- Conflict           3  another operator, another writer, another plan
    |   +-- Tampered       3  a record was changed by another writer; nothing of it was obeyed
    +-- NotPermitted       4  the platform denied access
    +-- GateRejected       5  the gate rejected the candidate; the service is unchanged
    +-- Undecided          6  too few samples or missing data; the service is unchanged
    +-- RolledBack         7  a step failed and the service was restored
    +-- Refused            9  the preflight refused; nothing was changed

`mpctl help exit-codes` prints the same table from :data:`EXIT_CODES`. Only ``mpctl.cli.main`` turns an error into
an exit code, and only the terminal prints it. A message says what happened to which object; ``hint`` says what to do
next.
"""

from __future__ import annotations

from collections.abc import Iterable


class MpctlError(Exception):
    """Base of everything a user may see.

    ``message``: what happened, to which object, in sentence case without a full stop.
    ``hint``: the next thing to type or change, or None.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class InputError(MpctlError):
    """Input that cannot be used: ``file``, ``line`` (1-based) and ``field`` where they are known.

    The location is prefixed to the message as ``file:line: field: message``, or ``line N: ...`` without a file.
    """

    exit_code = 2

    def __init__(
        self,
        message: str,
        *,
        file: str | None = None,
        line: int | None = None,
        field: str | None = None,
        hint: str | None = None,
    ) -> None:
        where = (
            f"{file}:{line}"
            if file and line is not None
            else file or (f"line {line}" if line is not None else "")
        )
        full = ": ".join(part for part in (where, field, message) if part)
        super().__init__(full, hint=hint)
        self.file = file
        self.line = line
        self.field = field
        self.reason = message


class Cancelled(MpctlError):
    """The user declined a prompt or interrupted the command."""

    exit_code = 2


class Conflict(MpctlError):
    """Somebody or something else holds or changed what we wanted to change."""

    exit_code = 3


class Tampered(Conflict):
    """A record of ours was changed, replaced or forged by another writer. Nothing that it says is done."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(
            f"tampering: {message}",
            hint=hint
            or "nothing was changed; find out who wrote it before anything else, then restore it from a copy",
        )


class NotPermitted(MpctlError):
    """Credentials are missing or not enough."""

    exit_code = 4


class GateRejected(MpctlError):
    """The gate judged the candidate worse; the baseline was restored."""

    exit_code = 5


class Undecided(MpctlError):
    """The gate could not judge: missing data is never a pass. The baseline was restored."""

    exit_code = 6


class RolledBack(MpctlError):
    """A step failed after something was changed, and the recorded revision was restored."""

    exit_code = 7


class Refused(MpctlError):
    """A preflight finding forbids the change; nothing was changed."""

    exit_code = 9


EXIT_CODES: dict[int, str] = {
    0: "Done, or nothing to do",
    1: "Error",
    2: "Usage or input error, or cancelled by the user",
    3: "Conflict: another operator, another writer or another plan holds the service",
    4: "No permission, or not logged in",
    5: "The gate rejected the candidate; the service is unchanged",
    6: "Undecided: too few samples or missing data; the service is unchanged",
    7: "A step failed after a change; the service was restored",
    9: "Refused by the preflight; nothing was changed",
}


def nearest(word: str, words: Iterable[str]) -> str:
    """The most similar of some words, for a hint; empty where none is similar."""
    import difflib

    return next(iter(difflib.get_close_matches(word, list(words), n=1)), "")
