"""Lists of a manifest by the names of their items, so that a change of one item is no change of its neighbours.

An item of ``args`` or ``command`` is a flag with its values; other items are named by the key that Kubernetes merges
them by. A list whose items have no name of their own is one value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from mpctl.manifest.engine.command import canonical, parse

ARGUMENTS = ("args", "command")
_NAMED_BY = ("mountPath", "name", "uri")


class Missing:
    """The value of a field that a manifest does not have."""

    def __repr__(self) -> str:
        return "(not set)"


MISSING: Final = Missing()
Items = dict[str, Any]


def by_name(key: str, values: Sequence[Any]) -> tuple[Items, ...] | None:
    """Each of the lists as its items by name, in order; None where one of them must be compared as a whole.

    ``key``: the field that holds the lists. A missing list has no items.
    """
    lists = [[] if value is MISSING or value is None else value for value in values]
    if not all(isinstance(value, list) for value in lists):
        return None
    if key in ARGUMENTS:
        return tuple(_arguments(value) for value in lists) if all(map(_are_words, lists)) else None
    for name in _NAMED_BY:
        if all(_are_named(value, name) for value in lists):
            return tuple({str(item[name]): item for item in value} for value in lists)
    return None


def listed(key: str, items: Mapping[str, Any]) -> list[Any]:
    """The list of these items; undoes :func:`by_name`."""
    if key in ARGUMENTS:
        return [word for words in items.values() for word in (words if isinstance(words, list) else [words])]
    return list(items.values())


def ordered(chosen: Mapping[str, Any], *orders: Sequence[str]) -> Items:
    """The items in the order of the first of ``orders``; one that it lacks follows the neighbour that it has in
    another."""
    result = [name for name in orders[0] if name in chosen]
    for order in orders[1:]:
        for at, name in enumerate(order):
            if name not in chosen or name in result:
                continue
            before = next((n for n in reversed(order[:at]) if n in result), None)
            after = next((n for n in order[at + 1 :] if n in result), None)
            if before is not None:
                result.insert(result.index(before) + 1, name)
            else:
                result.insert(len(result) if after is None else result.index(after), name)
    return {name: chosen[name] for name in result}


def is_script(item: object) -> bool:
    """Return whether an item of ``args`` or ``command`` is a shell script rather than one word."""
    return isinstance(item, str) and not item.startswith("-") and bool(re.search(r"\s", item.strip()))


def _are_words(value: list[Any]) -> bool:
    return all(isinstance(item, str) for item in value)


def _are_named(value: list[Any], key: str) -> bool:
    names = [item.get(key) for item in value if isinstance(item, dict)]
    return len(names) == len(value) and None not in names and len(set(map(str, names))) == len(names)


def _arguments(words: list[str]) -> Items:
    """Flags by their long names, each with its values; words that belong to no flag by their place."""
    flags, positional = parse(words)
    begins = {flag.index: flag.name for flag in flags} | {at: f"word {n}" for n, at in enumerate(positional, 1)}
    arguments: Items = {}
    for begin, end in pairwise([*sorted(begins), len(words)]):
        name, count = canonical(begins[begin]) if words[begin].startswith("-") else begins[begin], 1
        unique = name
        while unique in arguments:
            count += 1
            unique = f"{name} ({count})"
        own = words[begin:end]
        arguments[unique] = own[0] if len(own) == 1 else own
    return arguments
