"""Requests of the commands that look at a service, a report or the methods, and change nothing."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from mpctl.app.option import AboveZero, File, Numbers, Whole, group, option
from mpctl.app.requests import TRAFFIC_CLASSES, SigningRequest, SpeculationRequest

_speculation = partial(option, section="Speculation")
_measurement = partial(option, section="Measurement")
_traffic = partial(option, section="Traffic")


@dataclass(frozen=True)
class ChangeRequest:
    """A change to check, or to prepare the draft of."""

    speculation: SpeculationRequest = group(SpeculationRequest, required="--spec")


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
        help="Requests in flight to plan for.",
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
    temperatures: tuple[float, ...] = _traffic(
        "--temperature",
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
        "--coverage", type=AboveZero(), metavar="SHARE", help="Share of steps with a proposal (ngram)."
    )
    traffic: str | None = _measurement(
        "--traffic", type=TRAFFIC_CLASSES, help="Class of traffic to screen with, where nothing is measured."
    )
    measure: bool = _measurement(
        "--measure",
        type=bool,
        help="Measure acceptance: a candidate answers --prompts for a minute; or --transcripts, --url.",
    )
    transcripts: str | None = _measurement(
        "--transcripts",
        type=File,
        metavar="FILE",
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
        metavar="FILE",
        help="Measurement of mpctl bench as evidence; repeatable. Rollouts of the service always are.",
    )

    @property
    def temperature(self) -> float:
        """The highest sampling temperature of the traffic."""
        return max(self.temperatures, default=0.0)


@dataclass(frozen=True)
class RenderRequest:
    """A change to print."""

    speculation: SpeculationRequest = group(SpeculationRequest, required="--spec")
    candidate: bool = option(
        "--candidate", type=bool, help="Print only the second InferenceService that runs the change."
    )


@dataclass(frozen=True)
class DiffRequest:
    """Compare the service with a revision, None for the one before, or with a change."""

    revision: int | None = option(
        "--revision", type=Whole(1), help="Revision to compare with (default: the one before)."
    )
    speculation: SpeculationRequest = group(SpeculationRequest)


@dataclass(frozen=True)
class MethodRequest:
    """A method whose setting is printed; without one the methods are listed."""

    method: str = ""
    draft: str | None = option("--draft", metavar="PATH|REPOSITORY", help="Draft to name in the setting of METHOD.")
    settings: tuple[str, ...] = option(
        "--set", multiple=True, metavar="KEY=VALUE", help="Setting of METHOD; repeatable."
    )
    lists_known_bad: bool = option(
        "--known-bad", type=bool, help="List the combinations that are known to fail, by release."
    )


@dataclass(frozen=True)
class DraftsRequest:
    """The published drafts to list."""

    target: str | None = None
    method: str | None = option("--method", metavar="METHOD", help="List only drafts for this method (default: all).")
    catalogue_file: str | None = option(
        "--drafts",
        type=File,
        metavar="FILE",
        help="Catalogue of your own, merged over the shipped one (docs/how-to/drafts.md).",
    )


@dataclass(frozen=True)
class ReportRequest:
    """A measurement to report: a file or the name of a rollout, None for the last rollout."""

    run: str | None = None
    service: str | None = option(
        "-s", "--service", metavar="NAME", help="Service of the rollout (default: the only one)."
    )
    output_file: str | None = option(
        "--output-file", type=File, metavar="FILE", help="File to write (default: standard output)."
    )
    force: bool = option("--force", type=bool, help="Overwrite a file that is not a report.")
    signing: SigningRequest = group(SigningRequest)
    policy_file: str | None = option(
        "--policy", type=File, metavar="FILE", help="Gate policy, YAML (default: the policy of the measurement)."
    )


@dataclass(frozen=True)
class ExplainRequest:
    """A measurement that the gate judges again; without one the policy alone is explained."""

    run: str | None = None
    policy_file: str | None = option(
        "--policy",
        type=File,
        metavar="FILE",
        help="Gate policy, YAML (default: the policy of RUN, else mpctl's).",
    )
    service: str | None = option(
        "--service", metavar="NAME", help="Service of the rollout RUN (default: the only one)."
    )
    weights_gb: float | None = option(
        "--weights-gb", type=AboveZero(), metavar="GB", help="Weights that a step reads, for the memory floor."
    )
    bandwidth_gb_s: float | None = option(
        "--bandwidth",
        type=AboveZero(),
        metavar="GB/S",
        help="Memory bandwidth of the device, from its data sheet, for the memory floor.",
    )
