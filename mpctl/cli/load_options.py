"""Options of every command that measures: what is sent, how, and for how long."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from mpctl.cli.options import Duration, File, Word, option
from mpctl.errors import InputError
from mpctl.stats.alpha_spending import MOST_LOOKS

if TYPE_CHECKING:
    from mpctl.rollout.operation import Operation

F = TypeVar("F", bound=Callable[..., Any])
LOADS = ("job", "local")


class Numbers(click.ParamType[tuple[float, ...]]):
    """``1,8,32`` as numbers; ``whole`` ones, at least ``least``, or above it where ``above``."""

    name = "numbers"

    def __init__(self, *, whole: bool, least: float, above: bool = False) -> None:
        self._whole, self._least, self._above = whole, least, above

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        """The numbers, in their order."""
        if isinstance(value, tuple):
            return value
        words = value if isinstance(value, list) else str(value).split(",")
        found = []
        for word in words:
            try:
                number = int(str(word)) if self._whole else float(str(word))
            except ValueError:
                self.fail(f"{str(word).strip()!r} in {value!r} is no {'whole ' * self._whole}number", param, ctx)
            low = number <= self._least if self._above else number < self._least
            if low or not math.isfinite(number):
                self.fail(f"{word} must be {'above' if self._above else 'at least'} {self._least:g}", param, ctx)
            found.append(number)
        if len(set(found)) != len(found):
            self.fail(f"{value!r} names a number twice", param, ctx)
        return tuple(found)


class AboveZero(click.ParamType[float]):
    """A finite number above zero; click's own range lets "nan" through."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number."""
        (number,) = Numbers(whole=False, least=0, above=True).convert([value], param, ctx)
        return number


def load_of(asked: str, platform: str, *, unfinished: Operation | None = None) -> str:
    """Where the load client runs: as asked, else as an ``unfinished`` rollout has it, else a Job in a cluster, whose
    requests take the way that the service's clients take and need no vLLM on this machine.

    An unfinished way back measures nothing and says nothing of it; in a cluster the client of Jobs, where nothing else
    is asked for, removes the one that the undone rollout left.

    Raises:
        InputError: a Job is asked for where there is no cluster.
    """
    from mpctl.rollout.plan import Kind

    if asked == "job" and platform != "kubernetes":
        raise InputError("there is no cluster to run a Job in", field="--load", hint="--load local")
    if asked != "auto":
        return asked
    if unfinished is not None and unfinished.plan.kind is Kind.ROLLOUT:
        return unfinished.plan.load
    return "job" if platform == "kubernetes" else "local"


def load_options(function: F) -> F:
    """Declare them, in this order."""
    for decorator in reversed(_OPTIONS):
        function = decorator(function)
    return function


_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    option(
        "--prompts",
        type=File(),
        multiple=True,
        metavar="[NAME=]FILE|SET[:SHARE]",
        help="A class of traffic: JSONL with your own prompts, or a built-in set (edits, rag, chat, math, fresh; "
        "default edits). Repeatable; SHARE is its weight among your requests.",
    ),
    option(
        "--dataset",
        multiple=True,
        metavar="NAME=DATASET:PATH[:SHARE]",
        help="A class of traffic that vllm bench serve loads: sharegpt:FILE, hf:openai/gsm8k, ...",
    ),
    option(
        "--requests",
        default=8,
        type=click.IntRange(1),
        help="Prompts per block, or twice the concurrency.",
    ),
    option(
        "--repeats",
        default=12,
        type=click.IntRange(1, MOST_LOOKS),
        help="Rounds at most; the gate looks after each.",
    ),
    option("--max-time", type=Duration(), metavar="DURATION", help="No round begins after so much time of measuring."),
    option(
        "--concurrency",
        type=Numbers(whole=True, least=1),
        metavar="N[,N...]",
        help="Requests in flight; several are measured one after the other.  [default: 1, or none with --rate]",
    ),
    option(
        "--rate",
        type=Numbers(whole=False, least=0, above=True),
        metavar="R[,R...]",
        help="Open loop: requests per second that arrive whether or not the engine keeps up.",
    ),
    option(
        "--temperature",
        type=Numbers(whole=False, least=0),
        default="0",
        metavar="T[,T...]",
        help="Sampling temperatures; outputs are compared at 0.",
    ),
    option("--max-tokens", default=384, type=click.IntRange(1), help="Limit of an answer, in tokens."),
    option("--reuse-prompts", is_flag=True, help="Let prompts go round again when there are too few; reported."),
    option(
        "--load",
        type=Word(("auto", *LOADS)),
        default="auto",
        help="Where the load client runs: a Job of the engine's image in the cluster, or this machine. auto: a Job for "
        "a service in a cluster.",
    ),
    option(
        "--calibrate/--no-calibrate", default=True, help="Hold the load client against a server of known timing first."
    ),
)
