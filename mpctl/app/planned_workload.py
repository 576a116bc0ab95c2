"""Workload of a measurement: the classes of traffic, read from files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from mpctl.app.console import Console
from mpctl.app.files import read_file
from mpctl.app.requests import MeasurementRequest
from mpctl.errors import InputError, MpctlError
from mpctl.experiment.prompt_files import (
    BUILT_IN,
    CONVERSATIONS,
    built_in_prompts,
    read_classes,
    read_prompts,
)
from mpctl.experiment.workload import Traffic, Workload
from mpctl.platform.state_files import part_of_path, read_json, state_root, write_json

_NAMED = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)=(?P<rest>.+)", re.DOTALL)
_SHARED = re.compile(r"(?P<rest>.+):(?P<share>\d+(?:\.\d*)?|\.\d+)", re.DOTALL)


def read_workload(request: MeasurementRequest) -> Workload:
    """Return the classes of traffic and how they are sent.

    Raises:
        InputError: an option or a file cannot be used, or there are too few distinct prompts.
    """
    named = request.prompts or (CONVERSATIONS if request.warm else BUILT_IN[0],)
    traffic = tuple(kind for text in named for kind in read_classes_of(text))
    if request.warm and all(kind == kind.single_turns() for kind in traffic):
        raise InputError(
            f"no prompt of {', '.join(kind.name for kind in traffic)} continues another one",
            field="MPCTL_WARM",
            hint=f"give a log of whole conversations, or --prompts {CONVERSATIONS}",
        )
    if request.warm is False:
        traffic = tuple(kind.single_turns() for kind in traffic)
    planned = Workload(
        traffic=traffic,
        repeats=request.rounds or 1,
        requests=request.requests,
        concurrency=request.concurrency or (() if request.requests_per_s else (1,)),
        rates=request.requests_per_s,
        temperatures=request.temperatures,
        max_tokens=request.max_tokens,
        max_time_s=request.time_limit_s,
        reuse=request.reuse_prompts,
    )
    return planned if request.rounds else replace(planned, repeats=planned.default_rounds)


def read_workload_with_notes(
    console: Console, request: MeasurementRequest, accepted: tuple[str, ...]
) -> Workload:
    """Return the workload as :func:`read_workload` does, and report what of its files is left out or not sent.
    ``accepted``: findings, among them differences between the arms."""
    workload = replace(read_workload(request), accepted=accepted)
    for kind in workload.traffic:
        for note in kind.notes:
            console.note(f"prompts of {kind.name}: {note}")
        if kind.repeated:
            console.note(f"{kind.repeated} prompts of {kind.name} are duplicates and are sent once")
    return workload


def read_traffic(text: str) -> Traffic:
    """Read ``edits``, ``FILE`` or ``NAME=FILE``, each optionally followed by ``:SHARE``.

    Raises:
        InputError: the file cannot be used, or the name or the share is invalid.
    """
    source, share = _share(text)
    if not Path(source).is_file() and (built_in := built_in_prompts(source)) is not None:
        prompts, repeated = built_in
        return Traffic(source, prompts, share, repeated)
    name, path = _named(source)
    read = read_prompts(read_file(path, "the prompts"), file=path)
    return Traffic(name, read.texts, share, read.repeated, notes=read.notes)


def read_classes_of(text: str) -> tuple[Traffic, ...]:
    """Read a value of ``--prompts``: every class of ``@FILE``, or the one of :func:`read_traffic`."""
    return _read_split(text[1:]) if text.startswith("@") else (read_traffic(text),)


def _read_split(file: str) -> tuple[Traffic, ...]:
    """Read the classes of a file; the share of each is its part of the requests."""
    classes = read_classes(read_file(file, "the requests"), file=file)
    named: dict[str, Traffic] = {}
    for name, prompts in classes.items():
        kind = Traffic(
            _class_name(name),
            prompts.texts,
            float(prompts.count),
            prompts.repeated,
            notes=prompts.notes,
        )
        if kind.name in named:
            raise InputError(f"two categories are the class {kind.name}", file=file)
        named[kind.name] = kind
    return tuple(named.values())


def remember_files(record: str, request: MeasurementRequest) -> None:
    """Keep where a rollout's prompts lie, on this machine alone and by the name of its workload's record, so that
    ``resume`` reads the same files. Without a place to write, ``resume`` asks for them."""
    files = list(_files_of(request.prompts))
    if files:
        with suppress(OSError, MpctlError):
            write_json(_remembered(record), {"prompts": files})


def remembered_classes(record: str) -> Iterator[tuple[Traffic, str]]:
    """The classes of traffic of a workload's record with their files, as far as this machine still has them. Whether
    they still hold the same prompts is for the caller to compare."""
    with suppress(OSError, MpctlError):
        for text in (read_json(_remembered(record)) or {}).get("prompts", []):
            file = text[1:] if text.startswith("@") else text.partition("=")[2]
            with suppress(MpctlError):
                yield from ((kind, file) for kind in read_classes_of(text))


def _remembered(record: str) -> Path:
    return state_root() / "prompts" / f"{part_of_path(record)}.json"


def _files_of(texts: tuple[str, ...]) -> Iterator[str]:
    """Yield the values that name files, with absolute paths."""
    for text in texts:
        source, _ = _share(text)
        if text.startswith("@"):
            yield f"@{Path(text[1:]).absolute()}"
        elif Path(source).is_file() or built_in_prompts(source) is None:
            name, path = _named(source)
            if path != "-":
                yield f"{name}={Path(path).absolute()}"


def _share(text: str) -> tuple[str, float]:
    shared = None if Path(text).exists() else _SHARED.fullmatch(text)
    return (shared["rest"], float(shared["share"])) if shared else (text, 1.0)


def _named(source: str) -> tuple[str, str]:
    """A class's name and file; a file without a name gives it its own."""
    named = None if Path(source).is_file() else _NAMED.fullmatch(source)
    if named:
        return _class_name(named["name"]), named["rest"]
    stem = "prompts" if source == "-" else Path(source).stem
    return _class_name(stem), source


def _class_name(text: str) -> str:
    """Lower-case letters, digits and hyphens, as cells are named."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "prompts"


def describe_workload(workload: Workload) -> str:
    """Describe the requests to an arm in a phrase: ``at most 24 rounds of 4 prompts (edits) at concurrency 1``."""
    kinds = ", ".join(
        f"{n} {s:.0%}" if len(workload.shares) > 1 else n for n, s in workload.shares.items()
    )
    loops = []
    if workload.concurrency:
        loops.append(f"concurrency {_listed(workload.concurrency)}")
    if workload.rates:
        loops.append(f"{_listed(workload.rates)} requests/s")
    warm = (
        "" if workload.temperatures == (0.0,) else f", temperature {_listed(workload.temperatures)}"
    )
    rounds = f"at most {workload.repeats} rounds of {workload.per_round} prompts ({kinds})"
    return f"{rounds} at {' and '.join(loops)}{warm}"


def _listed(values: tuple[float, ...]) -> str:
    return ", ".join(f"{v:g}" for v in values)


def prompts_of(files: Mapping[str, str]) -> tuple[str, ...]:
    """Files by class of traffic, as a measurement takes them; a class that is its own file is a built-in set."""
    return tuple(name if name == file else f"{name}={file}" for name, file in dict(files).items())
