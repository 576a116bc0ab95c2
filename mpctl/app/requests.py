"""Requests of users, one frozen value per command; built by the command line, read by the use cases. Here: changes,
measurements, and what is read about them; clusters, the watch and this machine are in ``environment_requests``."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any

from mpctl.app.option import (
    SETTINGS,
    AboveZero,
    Contexts,
    Duration,
    File,
    Names,
    Numbers,
    Percentages,
    Whole,
    group,
    option,
)
from mpctl.errors import InputError
from mpctl.json_types import JsonView

if TYPE_CHECKING:
    from mpctl.staging.modes import StagingFacts

# Copies of values whose modules take too long to load for --help; tests/unit/cli/test_cli_options.py compares them.

STRATEGIES = ("side-by-side", "in-place")  # rollout.plan.Strategy


MOST_ROUNDS = 1000  # stats.sequential.MOST_LOOKS


FIDELITIES = ("quick", "full", "off")  # experiment.answer_sets.FIDELITIES


# Of mpctl.methods.preflight.drain; a service that passes them loses no request of a user.


_PATH_WARNINGS = ("answers-cut", "requests-lost", "no-disruption-budget")


_speculation = partial(option, section="Speculation")


_draft = partial(option, section="Draft and staging")


_measurement = partial(option, section="Measurement")


_traffic = partial(option, section="Traffic")


_execution = partial(option, section="Execution")


_setting = partial(option, section=SETTINGS)


class DryRun(StrEnum):
    """none: act. client: all checks and the change, nothing is done. server: the same on a cluster."""

    NONE = "none"
    CLIENT = "client"
    SERVER = "server"


def require_server(dry_run: DryRun, platform: str) -> None:
    """Refuse a dry run that the platform cannot make.

    Raises:
        InputError: a server is asked for where there is none.
    """
    if dry_run is DryRun.SERVER and platform == "local":
        raise InputError(
            "the local platform has no server to ask",
            field="--dry-run",
            hint="--dry-run=client makes the same checks",
        )


def _dry_run() -> Any:
    return _execution(
        "--dry-run",
        type=DryRun,
        default="none",
        unused=DryRun.NONE,
        help="Print the change, do nothing.",
    )


def _downtime() -> Any:
    return _execution(
        "--accept-downtime",
        type=bool,
        help="If no GPU is free, stop the old pod before starting the new one.",
    )


def price_setting() -> Any:
    """The price of an engine."""
    return _setting(
        "--price-per-hour",
        type=AboveZero(),
        metavar="USD",
        help="Price of one engine's GPUs, to print $ per 1M output tokens.",
    )


def timeout_option(default: str | None = None) -> Any:
    derived = "" if default else " (default: 10m, or three measured starts)"
    text = f"Time for an engine to become ready{derived}."
    return _execution("--timeout", type=Duration(), default=default, help=text)


def _methods(text: str) -> list[str]:
    from mpctl.methods.table import METHODS

    return [name for name in METHODS if name.startswith(text)]


class StagingFile(File):
    """A YAML file of staging facts; the user's settings hold the facts themselves."""

    name = "file"

    def parse(self, value: Any) -> StagingFacts:
        """Return the facts. Raises :class:`InputError` with file, line and field."""
        from mpctl.app.change.staging import read_staging_file

        return read_staging_file(value) if isinstance(value, str) else value


@dataclass(frozen=True)
class SpeculationRequest:
    """A method with its settings and its draft; without a method no change."""

    method: str = _speculation(
        "--spec",
        metavar="METHOD",
        unused="",
        shell_complete=lambda _c, _p, text: _methods(text),
        help="Method such as ngram; none removes it; auto: the plan's best.",
    )
    settings: tuple[str, ...] = _speculation(
        "--set", multiple=True, metavar="KEY=VALUE", help="Setting of the method (repeatable)."
    )
    config: str | JsonView | None = _speculation(
        "--spec-config",
        metavar="JSON|@FILE",
        help="Settings as vLLM's --speculative-config takes them.",
    )
    accepted: tuple[str, ...] = _speculation(
        "--accept",
        multiple=True,
        metavar="FINDING",
        help="Preflight finding, or difference between the arms (device, --FLAG), to accept; repeatable.",
    )
    refused: tuple[str, ...] = _speculation(
        "--refuse",
        multiple=True,
        type=_PATH_WARNINGS,
        metavar="FINDING",
        help=f"Warning that stops the change: {', '.join(_PATH_WARNINGS)}.",
    )
    known_bad: str | None = _setting(
        "--known-bad",
        type=File,
        help="Known-bad combinations to check (default: mpctl's own rows).",
    )
    draft: str | None = _draft(
        "--draft",
        metavar="PATH|REPO|URI",
        help="Draft (default: the first of 'mpctl drafts').",
    )
    catalogue: str | None = _setting(
        "--drafts", type=File, help="Your draft catalogue, over mpctl's own."
    )
    draft_listing: str | None = _setting(
        "--draft-listing",
        type=File,
        help="Listing of a draft that cannot be read from here (docs/how-to/drafts.md).",
    )
    target_listing: str | None = _setting(
        "--target-listing", type=File, help="The same for the target."
    )
    engine_version: str | None = _setting(
        "--engine-version",
        metavar="VERSION",
        help="vLLM's release, such as 0.32.0 (default: by the image, its labels, or the running engine).",
    )
    gpu: str | None = _draft(
        "--gpu", metavar="NAME", help="GPU, to estimate the KV pool: L4, H100-SXM."
    )
    staging: StagingFacts | None = _draft(
        "--staging",
        type=StagingFile(),
        help="Facts that decide how the draft gets into the pod (docs/how-to/staging.md).",
    )


@dataclass(frozen=True)
class MeasurementRequest:
    """The traffic of a measurement, its rate and its duration."""

    prompts: tuple[str, ...] = _measurement(
        "--prompts",
        type=File,
        multiple=True,
        metavar="[NAME=]FILE|@FILE|SET[:SHARE]",
        help="JSONL file, or edits (default), rag, chat, math, fresh; @FILE: its categories; repeatable.",
    )
    warm: bool | None = _setting(
        "--warm/--no-warm",
        type=bool,
        default=None,
        help="Conversations turn by turn, as the prefix cache has them, or one turn of each.",
    )
    contexts: tuple[int, ...] = _setting(
        "--contexts",
        type=Contexts(),
        unused=(),
        metavar="N[k][,N[k]...]",
        help="Lengths in tokens, answer included, each with a verdict.",
    )
    thinking: str | None = _setting(
        "--thinking",
        type=("on", "off", "both"),
        help="Thinking on or off; both: each with a verdict.",
    )
    adapters: tuple[str, ...] = _setting(
        "--adapters",
        type=Names(),
        unused=(),
        metavar="all|NAME[,NAME...]",
        help="Served LoRA adapters, each with a verdict.",
    )
    concurrency: tuple[int, ...] = _measurement(
        "--concurrency",
        type=Numbers(whole=True, least=1),
        unused=(),
        metavar="N[,N...]",
        help="Requests in flight, each value measured (default: 1, or none with MPCTL_RATE).",
    )
    requests_per_s: tuple[float, ...] = _setting(
        "--rate",
        type=Numbers(whole=False, least=0, above=True),
        unused=(),
        metavar="R[,R...]",
        help="Requests per second, sent whether or not the engine keeps up (open loop).",
    )
    requests: int = _measurement(
        "--requests", type=Whole(1), metavar="N", default=2, help="Prompts per block."
    )
    rounds: int | None = _measurement(
        "--repeats",
        type=Whole(1, MOST_ROUNDS),
        metavar="N",
        help="Rounds at most (default: 48, fewer of larger blocks).",
    )
    time_limit_s: float = _measurement(
        "--max-time",
        type=Duration(),
        unused=0.0,
        help="Start no round after this time of measuring (default: no limit).",
    )
    temperatures: tuple[float, ...] = _setting(
        "--temperature",
        type=Numbers(whole=False, least=0),
        default="0",
        metavar="T[,T...]",
        help="Sampling temperatures; outputs are compared at 0.",
    )
    max_tokens: int = _measurement(
        "--max-tokens", type=Whole(1), metavar="N", default=384, help="Longest answer."
    )
    reuse_prompts: bool = _setting(
        "--reuse-prompts", type=bool, help="Send prompts again when there are too few."
    )
    load: str = _setting(
        "--load",
        type=("auto", "job", "local"),
        default="auto",
        help="Where the load client runs: a Job in the cluster or this machine.",
    )
    policy: str | None = option(
        "--policy",
        section="Gate",
        type=File,
        help="Gate limits, YAML (default: 'mpctl gate explain' prints them).",
    )
    limits: JsonView | None = None  # a record of the gate's limits, in place of the policy's file

    @property
    def asks_for_variants(self) -> bool:
        """Whether classes of traffic are divided by length, thinking or adapter."""
        return bool(self.contexts or self.thinking or self.adapters)


@dataclass(frozen=True)
class TrafficRequest:
    """The movement of production traffic to the candidate."""

    measure_on: str = _traffic(
        "--measure-on",
        type=("auto", "service", "pair", "mirror", "turns", "split"),
        default="auto",
        help="Engines to measure: the service, a pair without users, or users' requests.",
    )
    users_share_percent: int | None = _traffic(
        "--users-share",
        type=Whole(1, 100),
        metavar="PERCENT",
        help="Share of users' requests that may meet the candidate while it is measured.",
    )
    users_window_s: float = _setting(
        "--users-window",
        type=Duration(),
        default="10s",
        help="Time between the two readings that tell whether users are on the service.",
    )
    measure_limit_s: float = _setting(
        "--measure-limit",
        type=Duration(),
        default="3h",
        help="Refuse a measurement beside users that is predicted to take longer.",
    )
    mirror_percent: int = _traffic(
        "--mirror",
        type=Whole(1, 100),
        unused=0,
        metavar="PERCENT",
        help="Percentage of production requests copied to the candidate before promotion.",
    )
    steps_percent: tuple[int, ...] = _traffic(
        "--traffic-steps",
        type=Percentages(),
        unused=(),
        metavar="P[,P...]",
        help="Shares of production traffic for the candidate before promotion, such as 1,5,10,20.",
    )
    step_duration_s: float = _traffic(
        "--step-duration",
        type=Duration(),
        default="2m",
        help="How long a step, and the mirror, lasts.",
    )
    route: str | None = _setting(
        "--route", metavar="NAME", help="HTTPRoute to the service (default: the only one)."
    )
    keep_baseline: bool = _traffic(
        "--keep-baseline", type=bool, help="Keep the baseline running after promotion."
    )
    bake_s: float | None = _traffic(
        "--bake",
        type=Duration(zero=True),
        help="Time to watch the promoted engine (default: 10m side by side in a cluster, 2m without users).",
    )


@dataclass(frozen=True)
class SigningRequest:
    """The key that signs a verdict."""

    key: str | None = _setting(
        "--sign-with",
        metavar="KEY",
        help="Private key that signs the verdict: a PEM file, or a URI (awskms:, gcpkms:, azurekms:, hsm:).",
    )
    public_key: str | None = _setting(
        "--public-key", type=File, help="Public key, PEM, of a private key by URI."
    )


@dataclass(frozen=True)
class RolloutRequest:
    """A change of the speculation of a service, behind the gate."""

    speculation: SpeculationRequest = group(SpeculationRequest, required="--spec")
    measurement: MeasurementRequest = group(MeasurementRequest)
    traffic: TrafficRequest = group(TrafficRequest)
    fidelity: str | None = _measurement(
        "--fidelity",
        type=FIDELITIES,
        help="Compare answers before speed (default: quick; full for agents, hybrids and known-bad).",
    )
    strategy: str = _execution(
        "--strategy",
        type=("auto", *STRATEGIES),
        default="auto",
        help="Two engines, or one at a time.",
    )
    accept_downtime: bool = _downtime()
    force: bool = _execution(
        "--force", type=bool, help="Change a service that Argo CD, Flux or Helm manages."
    )
    dry_run: DryRun = _dry_run()
    ready_timeout_s: float | None = timeout_option()
    signing: SigningRequest = group(SigningRequest)
    bundle: str | None = _setting(
        "--bundle",
        type=File,
        help="File for the signed verdict of a promotion (default: SERVICE-ROLLOUT.intoto.jsonl).",
    )
    by: str = ""  # the program that decided it, empty for a person


@dataclass(frozen=True)
class RollbackRequest:
    """The revision to restore."""

    to_revision: int | None = option(
        "--to-revision", type=Whole(1), help="Revision to restore (default: the one before)."
    )
    strategy: str | None = _execution(
        "--strategy", type=STRATEGIES, help="Strategy (default: that of the undone rollout)."
    )
    exact: bool = _execution(
        "--exact",
        type=bool,
        help="Restore every byte, also what others changed since; the live manifest is recorded as a revision first.",
    )
    accept_downtime: bool = _downtime()
    dry_run: DryRun = _dry_run()
    ready_timeout_s: float | None = timeout_option()
    why: str = ""
    by: str = ""
