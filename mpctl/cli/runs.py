"""Measurements as files: one JSON document, compressed where the name ends in ``.gz``."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path

from mpctl.errors import InputError, MpctlError
from mpctl.experiment.run import Run

_GZIP = b"\x1f\x8b"


def read_run(path: str) -> Run:
    """A measurement that ``mpctl bench`` wrote.

    Raises:
        InputError: the file is not there, damaged, or something else.
    """
    try:
        data = Path(path).read_bytes()
        text = (gzip.decompress(data) if data.startswith(_GZIP) else data).decode()
        record = json.loads(text)
    except OSError as error:
        # gzip's own complaints are OSErrors without a number
        raise InputError(f"cannot be read: {error.strerror or error}", file=path) from error
    except (EOFError, zlib.error, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise InputError(f"is no measurement: {error}", file=path, hint="mpctl bench writes them") from error
    if not isinstance(record, dict):
        raise InputError("is no measurement: not a JSON object", file=path, hint="mpctl bench writes them")
    return Run.from_record(record, file=path)


def write_run(path: str, run: Run) -> None:
    """Write a measurement so that a crash leaves the old file or the new one.

    Raises:
        MpctlError: it cannot be written.
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
