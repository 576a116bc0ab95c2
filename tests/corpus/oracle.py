"""What an edit did, by PyYAML, argparse and shlex: none of them shares code with the editor."""

from __future__ import annotations

import argparse
import copy
import json
import re
import shlex
from collections.abc import Iterator
from typing import Any

import yaml

DRAFT_MOUNT = "/mnt/mpctl/draft"
_STAGED = ("storageUri", "storageUris", "volumes", "volumeMounts")
_VARIABLE = "VLLM_ADDITIONAL_ARGS"
_LISTS = ("args", "command", "extraArgs", _VARIABLE)
_KEYS = ("speculative-config", "speculative_config")  # in a ConfigMap of KAITO's
_SHORT = {
    "--spec-method": "method",
    "--spec-model": "model",
    "--spec-tokens": "num_speculative_tokens",
}
_SEVERAL = ("LeaderWorkerSet", "LLMInferenceService")  # leader and workers are one engine
_BOTH_ENDS = (
    "eagle",
    "eagle3",
    "mtp",
    "dflash",
    "dspark",
    "draft_model",
)  # of prefill and decode pods


def documents(text: str) -> list[Any] | None:
    """The data of a file; None where PyYAML cannot read it."""
    try:
        return list(yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except (yaml.YAMLError, ValueError, TypeError, RecursionError):
        return None


def wrong(before: str, after: str, config: dict[str, Any] | None, *, staged: bool = False) -> str:
    """Why an edit is wrong; empty when it is right.

    Right is: the command line of one engine reads ``config``, its other words are the ones before, and nothing outside
    of it changed but, with ``staged``, where the draft comes from.
    """
    actual_documents, right = documents(before), documents(after)
    if actual_documents is None:
        return ""  # cannot be judged
    if right is None:
        return "the result is not YAML"
    if len(actual_documents) != len(right):
        return "the number of documents changed"
    return _wrong(
        [_plain(one) for one in actual_documents],
        [_plain(one) for one in right],
        config,
        staged=staged,
    )


def _formats(runtime: dict[str, Any]) -> list[dict[str, Any]]:
    return list(runtime["spec"].get("supportedModelFormats") or ())


def _wrong(
    left: list[Any], right: list[Any], config: dict[str, Any] | None, *, staged: bool
) -> str:
    places = list(_changes(left, right, ()))
    keyed = [place for place in places if place[-1] in _KEYS]
    for place in keyed:
        written = _at(right, place[:-1]).get(place[-1])
        if (_value(written) if isinstance(written, str) else written) != config:
            return f"{place} is {written}"
    places = [place for place in places if place not in keyed]
    lines = [place for place in places if _holder(place) is not None]
    others = [
        p for p in places if p not in lines and not (staged and any(key in _STAGED for key in p))
    ]
    if others:
        return f"changed besides: {others[0]}"
    if (
        not lines
        and not keyed
        and config is not None
        and not any(_reads(document, config) for document in right)
    ):
        return f"the engine reads no {config}"
    holders = {_holder(place) for place in lines}
    both = config is not None and config.get("method") in _BOTH_ENDS
    if (
        len(holders) > 1
        and _kind(left[next(iter(lines))[0]]) not in _SEVERAL
        and not (both or config is None)
    ):
        return f"changed in {len(holders)} objects"
    if both and any(_is_half(right[number], config) for number in {place[0] for place in lines}):
        return "the prefill pods do not read the setting"
    return next(
        (why for holder in holders if holder and (why := _judged(left, right, holder, config))), ""
    )


def _is_half(document: Any, config: dict[str, Any] | None) -> bool:
    """Whether an LLMInferenceService has prefill pods without a setting of both ends."""
    prefill = (
        (document.get("spec") or {}).get("prefill")
        if _kind(document) == "LLMInferenceService"
        else None
    )
    return prefill is not None and config is not None and not _reads(prefill, config)


def _judged(
    left: list[Any], right: list[Any], holder: tuple[Any, ...], config: dict[str, Any] | None
) -> str:
    was, now = _line(_at(left, holder)), _line(_at(right, holder))
    if now is None or was is None:
        return ""  # a shell or variables build it; the structure is all that can be judged
    (_, old), (found, new) = split(was), split(now)
    if found != config:
        return f"the engine reads {found}, expected {config}"
    return "" if old == new else f"other words changed: {old} became {new}"


def split(words: list[str]) -> tuple[dict[str, Any] | None, list[str]]:
    """The speculative setting that argparse reads, and the words that it leaves."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument(
        "--speculative-config", "--speculative_config", "-sc", dest="spec", action="append"
    )
    for flag, key in _SHORT.items():
        parser.add_argument(flag, dest=key, type=int if "tokens" in flag else str)
    dotted: dict[str, Any] = {}
    items: list[str] = []
    words = list(words)
    while words:
        item = words.pop(0)
        match = re.fullmatch(r"(?:--speculative[-_]config|-sc)\.([^=]+)(?:=(.*))?", item, re.DOTALL)
        if match is None:
            items.append(item)
            if re.fullmatch(
                r"-+[a-zA-Z][^=]*\.[^=]*", item
            ):  # vLLM: a dotted flag takes the next word, whatever it is
                items += words[:1]
                del words[:1]
            continue
        value = match[2] if match[2] is not None else (words.pop(0) if words else "")
        dotted[match[1].replace("-", "_")] = _value(value)
    known, others = parser.parse_known_args(items)
    config = _value(known.spec[-1]) if known.spec else None
    short = {key: getattr(known, key) for key in _SHORT.values() if getattr(known, key) is not None}
    if dotted or short:
        config = {**(config or {}), **short, **dotted}
    return config, others


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _kind(document: Any) -> Any:
    return document.get("kind") if isinstance(document, dict) else None


def _plain(document: Any) -> Any:
    """An LLMInferenceService with its variable for arguments as a field of container ``main``, there or not."""
    if _kind(document) == "ConfigMap" and isinstance(document.get("data"), dict):
        return {
            **document,
            "data": {key: _parsed(value) for key, value in document["data"].items()},
        }
    spec = document.get("spec") if _kind(document) == "LLMInferenceService" else None
    if not isinstance(spec, dict):
        return document
    document = copy.deepcopy(document)
    prefill = document["spec"].get("prefill")
    homes = [document["spec"], *([prefill] if isinstance(prefill, dict) else [])]
    for home, key in ((home, key) for home in homes for key in ("template", "worker")):
        pod = home.get(key) or {}
        containers = pod.get("containers") or [] if isinstance(pod, dict) else None
        if not isinstance(containers, list):
            continue
        main = next(
            (one for one in containers if isinstance(one, dict) and one.get("name") == "main"), None
        )
        if main is None:
            main = {"name": "main"}
            containers = [*containers, main]
        env = main.get("env") or []
        main[_VARIABLE] = [
            one.get("value")
            for one in env
            if isinstance(one, dict) and one.get("name") == _VARIABLE
        ]
        main["env"] = [
            one for one in env if not (isinstance(one, dict) and one.get("name") == _VARIABLE)
        ]
        home[key] = {**pod, "containers": containers}
    return document


def _parsed(text: Any) -> Any:
    """A text of a ConfigMap as data, where it is a mapping in YAML."""
    data = documents(text) if isinstance(text, str) else None
    return data[0] if data and len(data) == 1 and isinstance(data[0], dict) else text


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
    return next((place[: place.index(key)] for key in _LISTS if key in place), None)


def _reads(value: Any, config: dict[str, Any]) -> bool:
    """Whether a command line below reads a setting, or may read it."""
    if isinstance(value, list):
        return any(_reads(inner, config) for inner in value)
    if not isinstance(value, dict):
        return False
    if any(isinstance(value.get(key), list) for key in _LISTS):
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
    for key in ("command", "args", "extraArgs"):
        words += [word if isinstance(word, str) else str(word) for word in container.get(key) or ()]
    if container.get(_VARIABLE) is not None and not container.get("command"):
        return _evaluated([*map(str, container[_VARIABLE]), *words])
    if any("$" in word for word in words):
        return None
    shell = next(
        (at for at, word in enumerate(words) if word not in ("tini", "dumb-init", "env", "--")),
        len(words),
    )
    if re.fullmatch(r"(.*/)?(ba|da|a|z|k)?sh", "".join(words[shell : shell + 1])):
        return _script(_after_options(words[shell + 1 :]))
    return words


def _after_options(words: list[str]) -> str:
    """The script of a shell: the first word behind its options; words behind it are the script's own arguments."""
    takes_name = False
    for word in words:
        if not takes_name and not word.startswith("-"):
            return word
        takes_name = word.startswith("-") and word.endswith("o")
    return ""


def _evaluated(words: list[str]) -> list[str] | None:
    """What ``eval`` makes of each word; braces that it would expand come back as they are, so the setting differs."""
    if any("$" in word for word in words):
        return None
    try:
        return [one for word in words for one in shlex.split(word)]
    except ValueError:
        return None


def _script(text: str) -> list[str] | None:
    if re.search(r"[;&|`<>]|\s#", text) or "\n" in text.replace("\\\n", "").strip():
        return None
    try:
        return shlex.split(text.replace("\\\n", " "))
    except ValueError:
        return None
