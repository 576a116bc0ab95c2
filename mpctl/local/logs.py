"""The logs of engines: where they lie, their end, and the phase of a start by their words."""

from __future__ import annotations

from pathlib import Path

from mpctl.safe_text import without_requests

_LOG_BYTES = 65_536
# What vLLM 0.32 writes at the beginning of each phase of its start.
_PHASES = {
    "Starting to load model": "loading weights",
    "Loading drafter model": "loading the draft",
    "KV cache size": "warming up",
}


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


def start_phase(log: Path) -> str:
    """What an engine that starts is doing, by the words of its log that came last."""
    try:
        text = log_end(log)
    except FileNotFoundError:
        return ""
    position, phase = max((text.rfind(words), phase) for words, phase in _PHASES.items())
    return phase if position >= 0 else "starting"
