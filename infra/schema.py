"""Arguments of a Terraform element checked against the vendored schemas, before anything is synthesised.

The prebuilt provider classes drop a snake_case key inside a list of blocks without a word; Terraform itself
finds the mistake only at plan time, with credentials. Here every name, type, required argument and known
enumeration is checked at construction, with the nearest right name in the message. A string that holds a
Terraform expression (``${...}``) passes for every scalar type, because its type is known only to Terraform.
Not checked: limits of list length and arguments that exclude one another; the packages do not carry them.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from mpctl.errors import InputError

FOLDER = Path(__file__).parent / "schemas"
PROVIDERS = ("aws", "google", "helm", "kubernetes")
# Built into Terraform itself: no provider package describes it.
BUILT_IN = {
    "resource": {
        "terraform_data": {
            "args": {"input": "any", "triggers_replace": "any"},
            "attrs": ["id", "output"],
        }
    }
}


@dataclass(frozen=True)
class Element:
    """One resource, data source or provider: its arguments and the names it computes."""

    name: str
    args: Mapping[str, Any]
    attrs: frozenset[str]

    @property
    def names(self) -> frozenset[str]:
        return frozenset(key.rstrip("!") for key in self.args) | self.attrs | {"id"}


@cache
def enums() -> dict[str, frozenset[str]]:
    """Element and argument path -> what the API takes."""
    rows = yaml.safe_load(Path(__file__).with_name("enums.yaml").read_text("utf-8"))
    return {path: frozenset(values) for path, values in rows.items()}


@cache
def document(provider: str) -> dict[str, Any]:
    """The vendored schema of one provider."""
    loaded: dict[str, Any] = json.loads((FOLDER / f"{provider}.json").read_text("utf-8"))
    return loaded


@cache
def element(kind: str, name: str) -> Element:
    """The schema of *name*; *kind* is ``resource``, ``data`` or ``provider``."""
    if kind == "provider":
        definition = document(name)["provider"]
    elif name in BUILT_IN.get(kind, {}):
        definition = BUILT_IN[kind][name]
    else:
        known = {n: s for provider in PROVIDERS for n, s in document(provider)[kind].items()}
        if name not in known:
            raise InputError(
                f"no {kind} of this type in infra/schemas{nearest(name, known)}",
                field=name,
                hint="add it to infra/schemas/wanted.json and run scripts/vendor-schemas",
            )
        definition = known[name]
    return Element(name, definition["args"], frozenset(definition["attrs"]))


def check(schema: Element, label: str, args: Mapping[str, Any]) -> None:
    """Raise :class:`InputError` naming every finding in *args*."""
    if problems := list(findings(schema.args, args, schema.name)):
        first, _, reason = problems[0].partition(": ")
        message = "; ".join([reason, *problems[1:]])
        raise InputError(message, field=first.replace(schema.name, f"{schema.name}.{label}", 1))


def findings(schema: Mapping[str, Any], args: Mapping[str, Any], path: str) -> Iterator[str]:
    """Every mistake in one block as ``path: message``."""
    known = {key.rstrip("!"): spec for key, spec in schema.items()}
    for name in args:
        if name not in known:
            yield f"{path}.{name}: unknown argument{nearest(name, known)}"
    for key in schema:
        if key.endswith("!") and args.get(key[:-1]) is None:
            yield f"{path}.{key[:-1]}: required argument is missing"
    for name, value in args.items():
        if name in known and value is not None:
            yield from mismatches(known[name], value, f"{path}.{name}")


def mismatches(spec: Any, value: Any, path: str) -> Iterator[str]:
    """Type and enumeration mistakes of one value."""
    if is_expression(value) or spec == "any":
        return
    if isinstance(spec, str):
        if not is_scalar(spec, value):
            yield f"{path}: expected {spec}, got {type(value).__name__} {value!r}"
        elif (allowed := enums().get(path)) and value not in allowed:
            names = ", ".join(sorted(allowed))
            yield f"{path}: {value!r} is not one of {names}{nearest(str(value), allowed)}"
    elif isinstance(spec, list):
        if not isinstance(value, list | tuple):
            yield f"{path}: expected a list, got {type(value).__name__} {value!r}"
            return
        for item in value:
            yield from mismatches(spec[0], item, path)
    elif not isinstance(value, Mapping):
        yield f"{path}: expected a block, got {type(value).__name__} {value!r}"
    elif "*" in spec:
        for key, item in value.items():
            yield from mismatches(spec["*"], item, f"{path}.{key}")
    else:
        yield from findings(spec, value, path)


def is_expression(value: Any) -> bool:
    return isinstance(value, str) and "${" in value


def is_scalar(spec: str, value: Any) -> bool:
    if spec == "bool":
        return isinstance(value, bool)
    if spec == "number":
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, str)


def nearest(name: str, known: Mapping[str, Any] | frozenset[str]) -> str:
    """A did-you-mean clause, empty when nothing is near."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f", did you mean {close[0]}?" if close else ""
