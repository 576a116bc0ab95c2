"""What an edit did, by PyYAML and argparse: neither shares code with the editor."""

from __future__ import annotations

import argparse
import json
import re
import shlex
from collections.abc import Iterator
from typing import Any

import yaml

DRAFT_MOUNT = "/mnt/mpctl/draft"
_STAGED = ("storageUri", "storageUris", "volumes", "volumeMounts")


def documents(text: str) -> list[Any] | None:
    """The data of a file; None where PyYAML cannot read it."""
    try:
        return list(yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except (yaml.YAMLError, ValueError, TypeError, RecursionError):
        return None


def wrong(before: str, after: str, config: dict[str, Any] | None, *, staged: bool = False) -> str:
    """Why an edit is wrong; empty when it is right.

    Right is: one command line of one object reads ``config``, its other words are the ones before, and nothing outside
    of it changed but, with ``staged``, where the draft comes from.
    """
    left, right = documents(before), documents(after)
    if left is None:
        return ""  # cannot be judged
    if right is None:
        return "the result is not YAML"
    return "the number of documents changed" if len(left) != len(right) else _wrong(left, right, config, staged=staged)


def _wrong(left: list[Any], right: list[Any], config: dict[str, Any] | None, *, staged: bool) -> str:
    places = list(_changes(left, right, ()))
    lines = [place for place in places if _holder(place) is not None]
    others = [p for p in places if p not in lines and not (staged and any(key in _STAGED for key in p))]
    if others:
        return f"changed besides: {others[0]}"
    if not lines and config is not None and not any(_reads(document, config) for document in right):
        return f"the engine reads no {config}"
    holders = {_holder(place) for place in lines}
    if len(holders) > 1:
        return f"changed in {len(holders)} objects"
    for holder in holders:
        assert holder is not None
        was, now = _line(_at(left, holder)), _line(_at(right, holder))
        if now is None or was is None:
            return ""  # a shell or variables build it; the structure is all that can be judged
        (_, old), (found, new) = split(was), split(now)
        if found != config:
            return f"the engine reads {found}, expected {config}"
        if old != new:
            return f"other words changed: {old} became {new}"
    return ""


def split(words: list[str]) -> tuple[dict[str, Any] | None, list[str]]:
    """The speculative setting that argparse reads, and the words that it leaves."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--speculative-config", "--speculative_config", "-sc", dest="spec", action="append")
    dotted: dict[str, Any] = {}
    rest: list[str] = []
    words = list(words)
    while words:
        word = words.pop(0)
        match = re.fullmatch(r"(?:--speculative[-_]config|-sc)\.([\w.+-]+?)(?:=(.*))?", word, re.DOTALL)
        if match is None:
            rest.append(word)
            continue
        value = match[2] if match[2] is not None else (words.pop(0) if words else "")
        dotted[match[1]] = _value(value)
    known, others = parser.parse_known_args(rest)
    config = json.loads(known.spec[-1]) if known.spec else None
    if dotted:
        config = {**(config or {}), **dotted}
    return config, others


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _changes(left: Any, right: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    if isinstance(left, dict) and isinstance(right, dict):
        for key in {**left, **right}:
            if key not in left or key not in right:
                yield (*path, key)
            else:
                yield from _changes(left[key], right[key], (*path, key))
    elif isinstance(left, list) and isinstance(right, list) and not path:
        for number, (one, other) in enumerate(zip(left, right, strict=True)):
            yield from _changes(one, other, (number,))
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        for number, (one, other) in enumerate(zip(left, right, strict=True)):
            yield from _changes(one, other, (*path, number))
    elif not (type(left) is type(right) and left == right):
        yield path


def _holder(place: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """The container (or model) whose command line a place is in; None for any other place."""
    for key in ("args", "command"):
        if key in place:
            return place[: place.index(key)]
    if "env" in place or "value" in place:  # VLLM_ADDITIONAL_ARGS
        return place[: place.index("env")] if "env" in place else None
    return None


def _reads(value: Any, config: dict[str, Any]) -> bool:
    """Whether a command line below reads a setting, or may read it."""
    if isinstance(value, list):
        return any(_reads(inner, config) for inner in value)
    if not isinstance(value, dict):
        return False
    if isinstance(value.get("args"), list) or isinstance(value.get("command"), list):
        line = _line(value)
        if line is None or split(line)[0] == config:
            return True
    return any(_reads(inner, config) for inner in value.values())


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def _line(container: Any) -> list[str] | None:
    """The words of a command line; None where a variable or more than one command builds it."""
    words: list[str] = []
    if any(isinstance(e, dict) and e.get("name") == "VLLM_ADDITIONAL_ARGS" for e in container.get("env") or ()):
        return None
    for key in ("command", "args"):
        words += [word if isinstance(word, str) else str(word) for word in container.get(key) or ()]
    if any("$" in word for word in words):
        return None
    if len(words) > 2 and re.fullmatch(r"(.*/)?(ba|da|a|z|k)?sh", words[0]):
        return _script(words[-1])
    return words


def _script(text: str) -> list[str] | None:
    if re.search(r"[;&|`<>]|\s#", text) or "\n" in text.replace("\\\n", "").strip():
        return None
    try:
        return shlex.split(text.replace("\\\n", " "))
    except ValueError:
        return None
