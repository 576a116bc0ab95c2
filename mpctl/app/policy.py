"""The gate's policy that a user names."""

from __future__ import annotations

from mpctl.app.files import read_file
from mpctl.gate.policy import Policy


def read_policy(path: str | None) -> Policy:
    """Return the policy of a file, or mpctl's own.

    Raises:
        InputError: the file is not a mapping of known thresholds to numbers.
    """
    return Policy() if path is None else Policy.parse(read_file(path, "the policy"), file=path)
