"""Result files of other load clients, two of them side by side: ``vllm bench serve``, AIPerf and GuideLLM.

A file holds the figures of one arm: no prompts, no answers with their token ids, and no second arm in alternation. So
ratios follow from two files, and no verdict.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec

from mpctl import bounded
from mpctl.app.bench.recorded import read_run
from mpctl.app.bench_requests import CompareRequest
from mpctl.errors import InputError

NO_VERDICT = "no verdict: the two results were measured apart, not in alternating blocks, and no answers were compared"
_ALIKE = 0.01  # relative difference of two totals of tokens that is no other data set
_ALIKE_FIGURES = ("answered", "prompt tokens", "answer tokens")
_NUMBER = Annotated[float, msgspec.Meta(ge=0, le=1e15)]  # excludes NaN and infinity
_TEXT = Annotated[str, msgspec.Meta(max_length=200)]


@dataclass(frozen=True)
class Tool:
    """A format of result files. ``paths``: where each value is, keys and places in lists joined by dots; ``loads``: the
    list of its loads, empty where a file has one; ``schema``: where its version is, and the major version that is
    known; ``e2e_ms``: milliseconds of its unit of E2E times; ``failed``: the number of failed requests that a file
    without one means, None where it is unknown."""

    name: str
    mark: str  # a path that only its files have
    paths: Mapping[str, str]
    loads: str = ""
    schema: tuple[str, str] | None = None
    e2e_ms: float = 1.0
    failed: float | None = None


def _paths(values: str, times: str, *names: str) -> dict[str, str]:
    """The paths of a tool. ``values``: those of everything but times, in order; ``times``: of mean, p50 and p99, with
    {} for each of ``names``, the tool's names of TTFT, time per token and E2E."""
    keys = (
        "model",
        "concurrency",
        "rate",
        *_ALIKE_FIGURES,
        "failed",
        "output tokens/s",
        "requests/s",
    )
    paths = dict(zip(keys, values.split(), strict=True))
    for time, name in zip(("TTFT", "time per token", "E2E"), names, strict=True):
        for figure, path in zip(("mean", "p50", "p99"), times.split(), strict=True):
            paths[f"{time} {figure}"] = path.format(name)
    return paths


_TOOLS = (
    Tool(
        "vllm bench",
        "output_throughput",
        _paths(
            "model_id max_concurrency request_rate completed total_input_tokens total_output_tokens failed "
            "output_throughput request_throughput",
            "mean_{}_ms median_{}_ms p99_{}_ms",
            "ttft",
            "tpot",
            "e2el",
        ),
    ),
    Tool(
        "AIPerf",
        "aiperf_version",
        _paths(
            "input_config.models.items.0.name input_config.phases.-1.concurrency input_config.phases.-1.rate "
            "request_count.avg total_isl.avg total_osl.avg error_request_count.avg output_token_throughput.avg "
            "request_throughput.avg",
            "{}.avg {}.p50 {}.p99",
            "time_to_first_token",
            "inter_token_latency",
            "request_latency",
        ),
        schema=("schema_version", "1"),
        failed=0.0,
    ),
    Tool(
        "GuideLLM",
        "metadata.guidellm_version",
        _paths(
            "config.backend.model config.strategy.max_concurrency config.strategy.rate "
            "metrics.request_totals.successful metrics.prompt_token_count.successful.total_sum "
            "metrics.output_token_count.successful.total_sum metrics.request_totals.errored "
            "metrics.output_tokens_per_second.successful.mean metrics.requests_per_second.successful.mean",
            "metrics.{0}.successful.mean metrics.{0}.successful.median metrics.{0}.successful.percentiles.p99",
            "time_to_first_token_ms",
            "inter_token_latency_ms",
            "request_latency",
        ),
        loads="benchmarks",
        schema=("metadata.version", "2"),
        e2e_ms=1000.0,
    ),
)


@dataclass(frozen=True)
class MeasuredLoad:
    """One load of a result file. ``figures``: counts, rates per second and times in ms by name; None where the file
    lacks one."""

    tool: str
    model: str  # empty where unknown
    load: str
    figures: Mapping[str, float | None]


@dataclass(frozen=True)
class SideBySide:
    """The loads of two files, pair by pair, and what differs between them."""

    pairs: tuple[tuple[MeasuredLoad, MeasuredLoad], ...]
    differences: tuple[str, ...]


def ratios(first: MeasuredLoad, second: MeasuredLoad) -> dict[str, float | None]:
    """The second's figures over the first's, by name; None where one is missing or the first is 0."""
    pairs = {name: (value, second.figures[name]) for name, value in first.figures.items()}
    return {
        name: None if value is None or not before else value / before
        for name, (before, value) in pairs.items()
    }


def compare_files(request: CompareRequest) -> SideBySide | None:
    """Put two result files side by side; None where neither is another tool's.

    Raises:
        InputError: a file cannot be used, is the only one of its kind, or was measured differently.
    """
    if request.second is None:
        if not _read_foreign(request.first):
            return None
        raise InputError(
            "holds one arm", file=request.first, hint="name a second result to compare it with"
        )
    files = (request.first, request.second)
    first, second = map(_read_foreign, files)
    if not (first or second):
        return None
    if not (first and second):
        own = files[bool(first)]
        read_run(own)  # raises what is wrong with it, unless it is a measurement of mpctl
        raise InputError(
            "is a measurement of mpctl, and the other file is not",
            file=own,
            hint="compare it with another measurement of mpctl",
        )
    if request.policy_file is not None:
        raise InputError(f"there is nothing to judge: {NO_VERDICT}", field="--policy")
    if len(first) != len(second):
        raise InputError(f"{' and '.join(files)} hold {len(first)} and {len(second)} loads")
    pairs = tuple(zip(first, second, strict=True))
    differences = tuple(dict.fromkeys(text for pair in pairs for text in _differences(*pair)))
    if differences and not request.force:
        raise InputError(
            f"{' and '.join(files)} were measured differently: {'; '.join(differences)}",
            hint="--force compares them anyway",
        )
    return SideBySide(pairs, differences)


def _differences(first: MeasuredLoad, second: MeasuredLoad) -> Iterator[str]:
    for name in ("tool", "model", "load"):
        text, other = getattr(first, name), getattr(second, name)
        if text and other and text != other:
            yield f"{name}: {text} and {other}"
    for name in _ALIKE_FIGURES:
        number, ratio = first.figures[name], ratios(first, second)[name]
        if number and ratio and abs(ratio - 1) > _ALIKE:
            yield f"{name}: {number:g} and {number * ratio:g}"


def _read_foreign(file: str) -> tuple[MeasuredLoad, ...]:
    """The loads of another tool's file; empty where it is none.

    Raises:
        InputError: the file is another tool's and cannot be used.
    """
    try:
        if Path(file).stat().st_size > bounded.RECORD_BYTES:
            return ()
        record = bounded.loads(Path(file).read_bytes())
    except (OSError, ValueError):  # reading it as a measurement says why
        return ()
    tool = next((tool for tool in _TOOLS if _at(record, tool.mark) is not None), None)
    if tool is None:
        return ()
    if tool.schema is not None:
        field, known = tool.schema
        version = str(_at(record, field))
        if version.partition(".")[0] != known:
            raise InputError(
                f"schema {version[:20]} of {tool.name} is not known; known: {known}",
                file=file,
                field=field,
            )
    if not tool.loads:
        return (_load_of(tool, file, record, ""),)
    numbers = range(len(_value(file, record, tool.loads, list) or ()))
    return tuple(_load_of(tool, file, record, f"{tool.loads}.{number}.") for number in numbers)


def _at(record: Any, path: str) -> Any:
    """The value at a path; None where it is absent, null, or stands for no limit."""
    for key in path.split("."):
        try:
            record = record[int(key) if isinstance(record, list) else key]
        except (LookupError, TypeError, ValueError):
            return None
    return None if record == "inf" else record


def _value(file: str, record: Any, path: str, kind: Any) -> Any:
    """The value at a path, None where it is absent.

    Raises:
        InputError: it is of another type, or out of range.
    """
    try:
        return msgspec.convert(_at(record, path), kind | None)
    except msgspec.ValidationError as error:
        raise InputError(str(error), file=file, field=path) from error


def _load_of(tool: Tool, file: str, record: Any, prefix: str) -> MeasuredLoad:
    model = _value(file, record, prefix + tool.paths["model"], _TEXT)
    figures: dict[str, float | None] = {
        name: _value(file, record, prefix + path, _NUMBER)
        for name, path in tool.paths.items()
        if name != "model"
    }
    if figures["answered"] is None:
        raise InputError("is missing", file=file, field=prefix + tool.paths["answered"])
    if figures["failed"] is None:
        figures["failed"] = tool.failed
    load = _load(figures.pop("concurrency"), figures.pop("rate"))
    for name, value in figures.items():
        if value is not None and name.startswith("E2E"):
            figures[name] = value * tool.e2e_ms
    return MeasuredLoad(tool.name, model or "", load, figures)


def _load(concurrency: float | None, rate: float | None) -> str:
    if rate is None:
        return "no limit stated" if concurrency is None else f"{concurrency:g} at once"
    at_most = "" if concurrency is None else f", at most {concurrency:g} at once"
    return f"{rate:g} per second{at_most}"
