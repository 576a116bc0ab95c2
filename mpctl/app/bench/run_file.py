"""Measurements as files: one JSON document, compressed where the name ends in ``.gz``."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

from mpctl import bounded
from mpctl.errors import InputError, MpctlError
from mpctl.experiment.run import Run

_GZIP = b"\x1f\x8b"
_WRITERS = "a bench writes measurements"


def read_run(path: str) -> Run:
    """Read a measurement that ``mpctl bench`` wrote.

    Raises:
        InputError: the file is missing, damaged, or no measurement.
    """
    try:
        data = Path(path).read_bytes()
        text = (bounded.gunzip(data) if data.startswith(_GZIP) else data).decode()
        record = bounded.loads(text)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=path) from error
    except ValueError as error:
        raise InputError(f"not a measurement: {error}", file=path, hint=_WRITERS) from error
    if not isinstance(record, dict):
        raise InputError("not a measurement: not a JSON object", file=path, hint=_WRITERS)
    return Run.from_record(record, file=path)


def write_run(path: str, run: Run) -> None:
    """Write a measurement so that a crash leaves the old file or the new one.

    Raises:
        MpctlError: the file cannot be written.
    """
    target = Path(path)
    data = json.dumps(run.to_record(), allow_nan=False).encode()
    temporary = target.with_name(f".{target.name}.part")
    try:
        temporary.write_bytes(gzip.compress(data, mtime=0) if target.suffix == ".gz" else data)
        temporary.replace(target)
    except OSError as error:
        raise MpctlError(
            f"{path} cannot be written: {error.strerror}", hint="choose another file with --run"
        ) from error


def choose_file(path: str | None, run_id: str) -> str:
    """Return the file for a measurement; checked before anything is measured.

    Raises:
        InputError: the directory cannot be written to, or the file exists and is not this measurement.
    """
    file = path or f"{run_id}.json.gz"
    parent = Path(file).absolute().parent
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise InputError(f"{parent} is not a writable directory", field="--run")
    if Path(file).exists() and not _holds(file, run_id):
        raise InputError("exists already and is not this measurement", file=file, hint="choose another file with --run")
    return file


def _holds(file: str, run_id: str) -> bool:
    """Return whether the file holds this measurement, written before the command was killed."""
    try:
        return read_run(file).id == run_id
    except InputError:
        return False
