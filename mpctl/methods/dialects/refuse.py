"""Refusals of a dialect: methods and settings that an engine does not have."""

from __future__ import annotations

from collections.abc import Mapping

from mpctl.errors import InputError
from mpctl.methods.spec import Spec
from mpctl.methods.table import METHODS


def names_in(engine: str) -> Mapping[str, str]:
    """The engine's names of our methods."""
    return {row.name: name for row in METHODS.values() for key, name in row.engines if key == engine}


def need_method(spec: Spec, engine: str, title: str) -> str:
    """Return the engine's name of the spec's method.

    Raises:
        InputError: the engine lacks it; the message gives the reason.
    """
    names = names_in(engine)
    if spec.method in names:
        return names[spec.method]
    reason = dict(spec.known.missing_in if spec.known else ()).get(engine, "it has no such method")
    raise InputError(
        f"{title} cannot run {spec.method}: {reason}", field="spec", hint=f"it runs: {', '.join(sorted(names))}"
    )


def need_keys(spec: Spec, engine: str, allowed: set[str]) -> None:
    """Refuse a setting the engine has no word for; a default of ours is left to the engine's own.

    Raises:
        InputError: naming every such setting.
    """
    defaults = dict(METHODS[spec.method].defaults)
    unknown = sorted(key for key in set(spec.settings) - allowed if defaults.get(key) != spec.settings[key])
    if unknown:
        raise InputError(
            f"{engine} has no setting for {', '.join(unknown)}",
            field=unknown[0],
            hint=f"remove it with --set {unknown[0]}=null",
        )


def need_k(spec: Spec, engine: str) -> int:
    """The number of drafted tokens.

    Raises:
        InputError: it is left to the checkpoint.
    """
    if spec.k is None:
        raise InputError(
            f"{engine} needs the number of tokens",
            field="num_speculative_tokens",
            hint="--set num_speculative_tokens=3",
        )
    return spec.k


def need_draft(spec: Spec, engine: str) -> str:
    """The draft's path or repository.

    Raises:
        InputError: none is named.
    """
    if spec.draft is None:
        raise InputError(f"{engine} needs a draft for {spec.method}", field="draft", hint="name it with --draft")
    return spec.draft
