"""Speculation methods, in vLLM's words and in those of other engines."""

from __future__ import annotations

import json
from dataclasses import dataclass

from mpctl.app.requests import MethodRequest
from mpctl.errors import InputError
from mpctl.methods import METHODS, Spec, build
from mpctl.methods.dialects import DIALECTS


@dataclass(frozen=True, slots=True)
class MethodSetting:
    """The setting of one method, as an engine takes it; ``where`` it is written."""

    engine: str
    text: str
    where: str
    source: str


@dataclass(frozen=True, slots=True)
class Support:
    """Methods that an engine can run; each with the reason why not, None where there is none."""

    engine: str
    title: str
    source: str
    unsupported: dict[str, str | None]


def write_setting(request: MethodRequest) -> MethodSetting:
    """Return the setting of a method in the words of an engine.

    Raises:
        InputError: the method is unknown, or the engine cannot express the setting.
    """
    spec, _ = build(request.method, draft=request.draft, sets=request.settings)
    if request.engine == "vllm":
        text = json.dumps(spec.config())
        return MethodSetting("vllm", text, "argument of --speculative-config", "vLLM docs, Speculative Decoding")
    dialect = DIALECTS[request.engine]
    return MethodSetting(request.engine, dialect.text(spec), dialect.where, dialect.source)


def support_of(engine: str) -> Support:
    """Return the methods that an engine other than vLLM can run, and why it cannot run the others."""
    dialect = DIALECTS[engine]
    return Support(
        dialect.name,
        dialect.title,
        dialect.source,
        {name: dialect.unsupported(_example(name)) for name in METHODS},
    )


def _example(method: str) -> Spec:
    if method == "none":
        return Spec("none")
    draft = {"model": "draft"} if METHODS[method].needs_draft in ("head", "model") else {}
    return Spec(method, {"num_speculative_tokens": 3, **draft})


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
