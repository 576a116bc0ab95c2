"""Speculation methods and their settings."""

from __future__ import annotations

import json
from dataclasses import dataclass

from mpctl.app.requests import MethodRequest
from mpctl.errors import InputError
from mpctl.methods import METHODS, build


@dataclass(frozen=True, slots=True)
class MethodSetting:
    """The setting of one method, as vLLM takes it; ``where`` it is written."""

    text: str
    where: str = "argument of --speculative-config"
    source: str = "vLLM docs, Speculative Decoding"


def write_setting(request: MethodRequest) -> MethodSetting:
    """Return the setting of a method.

    Raises:
        InputError: the method or a setting is unknown.
    """
    spec, _ = build(request.method, draft=request.draft, sets=request.settings)
    return MethodSetting(json.dumps(spec.config()))


def require_method(name: str | None, field: str) -> None:
    """Refuse an unknown method, with the nearest known name.

    Raises:
        InputError: the method is unknown.
    """
    if name is None or name in METHODS:
        return
    import difflib

    near = difflib.get_close_matches(name, list(METHODS), n=1)
    hint = f"did you mean {near[0]}?" if near else f"methods: {', '.join(METHODS)}"
    raise InputError(f"unknown method {name!r}", field=field, hint=hint)
