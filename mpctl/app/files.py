"""Files that a user named."""

from __future__ import annotations

import sys
from pathlib import Path

from mpctl.errors import InputError
from mpctl.gate.policy import Policy


def read_file(path: str, subject: str) -> str:
    """The text of a file, ``-`` for standard input; UTF-8, line ends kept.

    Raises:
        InputError: it cannot be read; the message names ``subject``.
    """
    try:
        return (sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InputError(f"{subject} cannot be read: {reason}", file=path) from error


def read_policy(path: str | None) -> Policy:
    """Return the policy of a file, or mpctl's own.

    Raises:
        InputError: the file is not a mapping of known thresholds to numbers.
    """
    return Policy() if path is None else Policy.parse(read_file(path, "the policy"), file=path)
