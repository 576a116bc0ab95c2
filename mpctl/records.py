"""Read stored records; a damaged one is reported by its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from mpctl.errors import MpctlError

_Value = TypeVar("_Value")


def restored(what: object, read: Callable[[Any], _Value], record: Any, *, hint: str) -> _Value:
    """What ``read`` makes of a stored record.

    Raises:
        MpctlError: it is no such record; the message names ``what``.
    """
    try:
        return read(record)
    except KeyError as error:
        reason = f"it has no {error}"
        raise MpctlError(f"{what} is damaged: {reason}", hint=hint) from error
    except (MpctlError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise MpctlError(f"{what} is damaged: {error}", hint=hint) from error
