"""The third question of a change: which settings?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mpctl.app.change.draft import Selection
from mpctl.app.files import read_file
from mpctl.app.requests import SpeculationRequest
from mpctl.methods import Finding, Spec, build, parse_config


def read_config(text: str | None) -> dict[str, Any]:
    """The settings of ``--spec-config``: JSON, or ``@FILE`` with it; empty without one.

    Raises:
        InputError: it is no JSON object, or the file cannot be read.
    """
    if text is None:
        return {}
    file = text[1:] if text.startswith("@") else None
    return dict(parse_config(read_file(file, "--spec-config") if file else text, file=file))


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
