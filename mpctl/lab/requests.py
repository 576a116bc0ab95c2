"""Requests of the annex."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from mpctl.app.option import SETTINGS, AboveZero, File, Numbers, group, option
from mpctl.app.requests import SpeculationRequest

TRAFFIC_CLASSES = (
    "code",
    "chat",
    "math",
    "summary",
    "edits",
    "agents",
)  # lab.payoff.scenario.TRAFFIC

_speculation = partial(option, section="Speculation")
_measurement = partial(option, section="Measurement")
_traffic = partial(option, section="Traffic")


@dataclass(frozen=True)
class PlanRequest:
    """A plan of one or several methods, which the change has in turn."""

    methods: tuple[str, ...] = ()
    speculation: SpeculationRequest = group(SpeculationRequest)
    concurrency: tuple[int, ...] = _traffic(
        "--concurrency",
        type=Numbers(whole=True, least=1),
        default="1,8,32,64",
        metavar="N[,N...]",
        help="Requests in flight.",
    )
    ks: tuple[int, ...] = _speculation(
        "--k",
        type=Numbers(whole=True, least=1),
        unused=(),
        metavar="K[,K...]",
        help="Draft lengths to compare (default: 1 to 7).",
    )
    prompt_tokens: float | None = _traffic(
        "--prompt-tokens", type=AboveZero(), metavar="N", help="Mean tokens of a prompt."
    )
    output_tokens: float | None = _traffic(
        "--output-tokens", type=AboveZero(), metavar="N", help="Mean tokens of an answer."
    )
    prompts: tuple[str, ...] = _traffic(
        "--prompts",
        type=File,
        multiple=True,
        metavar="[NAME=]FILE|SET[:SHARE]",
        help="Prompts whose lengths are used: JSONL files, or edits, rag, chat, math, fresh.",
    )
    temperatures: tuple[float, ...] = option(
        "--temperature",
        section=SETTINGS,
        type=Numbers(whole=False, least=0),
        default="0",
        metavar="T[,T...]",
        help="Sampling temperatures of your traffic; the highest counts.",
    )
    rates: tuple[float, ...] = _measurement(
        "--acceptance",
        type=Numbers(whole=False, least=0, repeat=True),
        unused=(),
        metavar="RATE[,RATE...]",
        help="Acceptance rate per position, measured on your own traffic, as vLLM logs it.",
    )
    coverage: float | None = _measurement(
        "--coverage",
        type=AboveZero(),
        metavar="SHARE",
        help="Share of steps with a proposal (ngram).",
    )
    traffic: str | None = _measurement(
        "--traffic",
        type=TRAFFIC_CLASSES,
        help="Class of traffic to screen with, where nothing is measured.",
    )
    measure: bool = _measurement(
        "--measure",
        type=bool,
        help="Measure acceptance: a candidate answers --prompts for a minute; or --transcripts, --url.",
    )
    transcripts: str | None = _measurement(
        "--transcripts",
        type=File,
        help="JSONL of prompts and answers: ngram and suffix are replayed on them, without an engine.",
    )
    tokenizer: str | None = _measurement(
        "--tokenizer", type=File, metavar="DIR", help="Directory with the target's tokenizer.json."
    )
    url: str | None = _measurement(
        "--url", metavar="URL", help="Engine that runs anywhere: its counters, or its tokenizer."
    )
    runs: tuple[str, ...] = _measurement(
        "--run",
        type=File,
        multiple=True,
        help="Measurement of mpctl bench as evidence; repeatable. Rollouts of the service always are.",
    )

    @property
    def temperature(self) -> float:
        """The highest sampling temperature of the traffic."""
        return max(self.temperatures, default=0.0)
