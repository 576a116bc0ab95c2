"""The logs of local engines: where they are, and their last lines."""

from __future__ import annotations

from pathlib import Path

from mpctl.quotations import without_requests

_LOG_BYTES = 65_536
_LINE_CHARACTERS = 160


def log_path(directory: Path, arm_id: str) -> Path:
    """Return the path of an engine's log."""
    return directory / "arms" / f"{arm_id}.log"


def log_end(log: Path) -> str:
    """Return the last ``_LOG_BYTES`` of a log, which may be of any size.

    Raises:
        FileNotFoundError: there is none.
    """
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _LOG_BYTES))
        return without_requests(file.read().decode(errors="replace"))


def last_log_line(log: Path) -> str:
    """The last line of a log that says something, without the logger's prefix."""
    try:
        lines = log_end(log).splitlines()
    except FileNotFoundError:
        return ""
    for line in reversed(lines):
        text = line.split("] ", 1)[-1].strip()
        if text:
            return text[:_LINE_CHARACTERS]
    return ""
