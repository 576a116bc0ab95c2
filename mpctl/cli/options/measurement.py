"""Options of every command that measures: what is sent, how, for how long, and the gate's limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

import click

from mpctl.cli.options.types import Duration, File, Numbers, Percentage, Word, all_of, option
from mpctl.errors import InputError
from mpctl.stats.sequential import MOST_LOOKS

if TYPE_CHECKING:
    from mpctl.app.requests import MeasurementRequest

_SECTION: dict[str, Any] = {"section": "Measurement"}


class MeasurementOptions(TypedDict):
    """The options as click hands them over."""

    prompts: tuple[str, ...]
    dataset: tuple[str, ...]
    workload: tuple[str, ...]
    requests: int
    repeats: int | None
    detect: float | None
    max_time: float | None
    concurrency: tuple[int, ...] | None
    rate: tuple[float, ...] | None
    temperature: tuple[float, ...]
    max_tokens: int
    reuse_prompts: bool
    load: str
    load_pods: int | None
    calibrate: bool
    policy: str | None


measurement_options = all_of(
    option(
        "--prompts",
        type=File(),
        multiple=True,
        metavar="[NAME=]FILE|SET[:SHARE]",
        help="Traffic class: a JSONL file, or edits (default), rag, chat, math, fresh; repeatable.",
        **_SECTION,
    ),
    option(
        "--workload",
        type=File(),
        multiple=True,
        metavar="FILE",
        help="Traffic classes of one file, by category or kind; each share is its part of the requests.",
        **_SECTION,
    ),
    option(
        "--dataset",
        multiple=True,
        metavar="NAME=DATASET:PATH[:SHARE]",
        help="Traffic class that vLLM's bench client loads: sharegpt:FILE, hf:openai/gsm8k, ...",
        **_SECTION,
    ),
    option(
        "--concurrency",
        type=Numbers(whole=True, least=1),
        metavar="N[,N...]",
        help="Requests in flight, each value measured (default: 1, or none with --rate).",
        **_SECTION,
    ),
    option(
        "--rate",
        type=Numbers(whole=False, least=0, above=True),
        metavar="R[,R...]",
        help="Requests per second, sent whether or not the engine keeps up (open loop).",
        **_SECTION,
    ),
    option("--requests", metavar="N", default=4, type=click.IntRange(1), help="Prompts per block.", **_SECTION),
    option(
        "--repeats",
        metavar="N",
        type=click.IntRange(1, MOST_LOOKS),
        help="Rounds at most (default: 24, fewer of larger blocks).",
        **_SECTION,
    ),
    option(
        "--detect",
        type=Percentage(),
        metavar="PERCENT",
        help="Choose the rounds that find so much less time per token in 9 of 10 measurements.",
        **_SECTION,
    ),
    option(
        "--max-time",
        type=Duration(),
        metavar="DURATION",
        help="Start no round after this time of measuring (default: no limit).",
        **_SECTION,
    ),
    option(
        "--temperature",
        type=Numbers(whole=False, least=0),
        default="0",
        metavar="T[,T...]",
        help="Sampling temperatures; outputs are compared at 0.",
        **_SECTION,
    ),
    option("--max-tokens", metavar="N", default=384, type=click.IntRange(1), help="Longest answer.", **_SECTION),
    option("--reuse-prompts", is_flag=True, help="Send prompts again when there are too few.", **_SECTION),
    option(
        "--load",
        type=Word(("auto", "job", "local")),
        default="auto",
        help="Where the load client runs: a Job in the cluster or this machine.",
        **_SECTION,
    ),
    option(
        "--load-pods",
        metavar="N",
        type=click.IntRange(1, 99),
        help="Pods of the Job that share the requests of a block (default: 1).",
        **_SECTION,
    ),
    option(
        "--calibrate/--no-calibrate",
        default=True,
        help="Check the load client against a server of known timing first.",
        **_SECTION,
    ),
    option(
        "--policy",
        section="Gate",
        type=File(),
        metavar="FILE",
        help="Gate limits, YAML (default: 'mpctl gate explain' prints them).",
    ),
)


def measurement_request(given: MeasurementOptions) -> MeasurementRequest:
    """The request of these options.

    Raises:
        InputError: two options exclude each other.
    """
    from mpctl.app.requests import MeasurementRequest

    if given["detect"] is not None and given["repeats"] is not None:
        raise InputError("cannot be combined with --repeats, which it chooses", field="--detect")
    return MeasurementRequest(
        prompts=given["prompts"],
        datasets=given["dataset"],
        workloads=given["workload"],
        requests=given["requests"],
        rounds=given["repeats"],
        detect=given["detect"],
        time_limit_s=given["max_time"] or 0.0,
        concurrency=given["concurrency"] or (),
        requests_per_s=given["rate"] or (),
        temperatures=given["temperature"] or (0.0,),
        max_tokens=given["max_tokens"],
        reuse_prompts=given["reuse_prompts"],
        load=given["load"],
        load_pods=given["load_pods"],
        calibrate=given["calibrate"],
        policy=given["policy"],
    )
