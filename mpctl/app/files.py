"""Files that a user named."""

from __future__ import annotations

import sys
from pathlib import Path

from mpctl.errors import InputError, MpctlError, nearest
from mpctl.experiment.run import Run
from mpctl.gate.policy import Policy
from mpctl.platform.state_files import part_of_path, state_root


def read_file(path: str, subject: str) -> str:
    """The text of a file, ``-`` for standard input; UTF-8, line ends kept.

    Raises:
        InputError: it cannot be read; the message names ``subject``.
    """
    try:
        return (sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        hint = _nearest(Path(path)) if isinstance(error, FileNotFoundError) else None
        raise InputError(f"{subject} cannot be read: {reason}", file=path, hint=hint) from error


def _nearest(missing: Path) -> str:
    """The hint for a file that does not exist: one with a similar name beside it, or where it was looked for."""
    if not missing.parent.is_dir():
        return f"create the directory {missing.parent.absolute()}, or name another file"
    names = (entry.name for entry in missing.parent.iterdir() if entry.is_file())
    near = nearest(missing.name, names)
    return (
        f"did you mean {missing.with_name(near)}"
        if near
        else "name an existing file, or - for standard input"
    )


def report_file(service: str, run: Run, extension: str) -> Path:
    """Return the file of this machine for the report on a measurement, in a folder that exists. ``service``:
    NAMESPACE/NAME, or empty; two clusters may have the same, so the time of the measurement is in the name.

    Raises:
        InputError: the id or the time, which may come from a file of others, would lead elsewhere.
        OSError: the folder cannot be made.
    """
    folder = state_root() / "reports" / service
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder / part_of_path(f"{run.id}-{run.created[:19]}{extension}".replace(":", ""))


def write_whole(path: Path, data: bytes, *, option: str) -> None:
    """Write a file so that a crash leaves the old one or the new one. ``option``: names the file.

    Raises:
        MpctlError: it cannot be written.
    """
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_bytes(data)
        part.replace(path)
    except OSError as error:
        raise MpctlError(
            f"{path} cannot be written: {error.strerror}", hint=f"choose another file with {option}"
        ) from error


def read_policy(path: str | None) -> Policy:
    """Return the policy of a file, or mpctl's own.

    Raises:
        InputError: the file is not a mapping of known thresholds to numbers.
    """
    return Policy() if path is None else Policy.parse(read_file(path, "the policy"), file=path)
