"""The third question of a change: which settings?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mpctl.app.change.draft import Selection
from mpctl.app.files import read_file
from mpctl.app.requests import SpeculationRequest
from mpctl.errors import InputError
from mpctl.methods import Finding, Spec, build, from_config, parse_config


def read_config(text: str | None) -> dict[str, Any]:
    """The settings of ``--spec-config``: JSON, or ``@FILE`` with it; empty without one.

    Raises:
        InputError: the text is not a JSON object, or the file cannot be read.
    """
    if text is None:
        return {}
    file = text[1:] if text.startswith("@") else None
    return dict(parse_config(read_file(file, "--spec-config") if file else text, file=file))


def spec_of_file(path: str, request: SpeculationRequest | None = None) -> SpeculationRequest:
    """Return the change in the file of ``--spec @FILE``: a method with its settings, as vLLM takes them.
    ``request``: everything else that is asked for.

    Raises:
        InputError: the file cannot be read, or names no method.
    """
    spec = from_config(read_config(f"@{path}"))
    if not spec.written and spec.written is not None:
        raise InputError("names no method", file=path, field="method", hint='write {"method": "ngram", ...}')
    asked = request or SpeculationRequest(spec.method)
    return replace(asked, method=spec.method, config=None if spec.is_none else f"@{path}")


def build_spec(
    request: SpeculationRequest, selection: Selection, config: Mapping[str, Any]
) -> tuple[Spec, tuple[Finding, ...]]:
    """The spec and notes on its settings. What the user wrote wins over what the draft's model card says.

    Raises:
        InputError: a setting is unknown or has a wrong value.
    """
    written = {key.replace("-", "_") for key in config}
    of_card = {key: value for key, value in selection.settings.items() if key not in written}
    spec, notes = build(
        request.method, draft=selection.draft, sets=request.settings, config={**of_card, **config} or None
    )
    return spec, tuple(notes)
