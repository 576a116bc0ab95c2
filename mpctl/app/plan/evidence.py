"""Evidence about a service before its plan: acceptance, measured pairs, lengths, devices, and their sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from mpctl.app.change import Change
from mpctl.app.change.catalogue import load_catalogue
from mpctl.app.change.source import Source
from mpctl.app.plan.candidate import measure_candidates
from mpctl.app.plan.cells import acceptance_of
from mpctl.app.plan.measure import counters_of, replay_transcripts
from mpctl.app.plan.runs import Learned, learned_from
from mpctl.app.requests import PlanRequest
from mpctl.app.session.base import Session
from mpctl.errors import InputError
from mpctl.estimate.payoff.acceptance import Acceptance, check_rates
from mpctl.estimate.payoff.cell import Cell
from mpctl.estimate.payoff.constants import Posterior
from mpctl.estimate.payoff.evidence import Pair
from mpctl.estimate.payoff.predict import predict
from mpctl.estimate.payoff.question import class_acceptance

Pools = tuple[float | None, float | None]


@dataclass(frozen=True)
class Evidence:
    """``measured``: acceptance by method, each with its source; ``tokens_per_s`` of the baseline by concurrency."""

    measured: Mapping[str, tuple[Acceptance, str]] = field(default_factory=dict)
    pairs: Sequence[Pair] = ()
    tokens_per_s: Mapping[float, float] = field(default_factory=dict)
    pools: Mapping[str, Pools] = field(default_factory=dict)
    devices: tuple[str, ...] = ()
    prompt_tokens: float | None = None
    output_tokens: float | None = None
    notes: tuple[str, ...] = ()

    def pairs_of(self, method: str) -> tuple[Pair, ...]:
        """The measured pairs of a method."""
        return tuple(pair for pair in self.pairs if pair.method == method)

    def describe(self, method: str, acceptance: Acceptance) -> str:
        """Describe the source of an acceptance."""
        acceptance_source = self.measured.get(method)
        if acceptance_source is not None and acceptance_source[0] == acceptance:
            return f"acceptance from {acceptance_source[1]}"
        words = {"measured": "given", "published": "published of this draft", "class": "of a class of traffic"}
        return f"acceptance {words[acceptance.origin]}"

    def learned(self, cell: Cell, posterior: Posterior, pairs: Sequence[Pair]) -> str:
        """Describe how measured pairs moved the prediction and its band, at the largest measured concurrency."""
        if not pairs:
            return ""
        at = replace(cell, concurrency=max(pair.concurrency for pair in pairs))
        before, after = (predict(at, posterior, known).throughput for known in ((), pairs))
        return (
            f"{len(pairs)} measured pairs: at concurrency {at.concurrency:g} and K={at.k} the throughput ratio "
            f"{before.text()} became {after.text()}"
        )


def gather(source: Source, request: PlanRequest, methods: Sequence[str]) -> Evidence:
    """Gather evidence from earlier measurements, transcripts or an engine, or measure a candidate of each method.

    Raises:
        InputError: a file or an address cannot be used, or no engine serves that a candidate could run next to.
    """
    learned = learned_from(source if isinstance(source, Session) else None, request.runs)
    evidence = _of_runs(learned)
    if request.transcripts is not None:
        replayed = replay_transcripts(source, request)
        return replace(
            evidence,
            measured={**evidence.measured, **replayed.measured},
            prompt_tokens=replayed.prompt_tokens,
            output_tokens=replayed.output_tokens,
        )
    if request.url is not None:
        method, acceptance, words = counters_of(request.url, request.methods)
        return replace(evidence, measured={**evidence.measured, method: (acceptance, words)})
    if request.measure:
        if not isinstance(source, Session):
            raise InputError(
                "nothing serves here: a file has no engine to start a candidate beside",
                field="--measure",
                hint="name the service instead of -f, or measure with --transcripts FILE or --url URL",
            )
        measured, notes = measure_candidates(source, request, methods)
        return replace(evidence, measured={**evidence.measured, **measured}, notes=(*evidence.notes, *notes))
    return evidence


def _of_runs(learned: Sequence[Learned]) -> Evidence:
    """Later measurements replace the acceptance of earlier ones; pairs add up."""
    measured = {run.spec.method: (run.acceptance, f"{run.name}") for run in learned if run.acceptance is not None}
    lengths = [run.output_tokens for run in learned if run.output_tokens]
    names = ", ".join(run.name for run in learned)
    return Evidence(
        measured=measured,
        pairs=tuple(pair for run in learned for pair in run.pairs),
        tokens_per_s={at: rate for run in learned for at, rate in run.tokens_per_s.items()},
        pools={run.spec.method: run.pools for run in learned if run.pools[0]},
        devices=tuple(dict.fromkeys(device for run in learned for device in run.devices)),
        output_tokens=lengths[-1] if lengths else None,
        notes=(f"evidence of {len(learned)} measurements: {names}",) if learned else (),
    )


def acceptance_for(request: PlanRequest, change: Change, evidence: Evidence, k: int) -> Acceptance | None:
    """Return the acceptance of a method: as given, as measured, as published for its draft, or of a class of traffic.

    Raises:
        InputError: the given rates are impossible.
    """
    method = change.spec.method
    if request.rates:
        wrong = check_rates(request.rates)
        if wrong is not None:
            raise InputError(wrong, field="--acceptance", hint="one share from 0 to 1 per position: 0.7,0.5,0.3")
        return Acceptance(request.rates, request.coverage or 1.0)
    if method in evidence.measured:
        return evidence.measured[method][0]
    entry = change.selection.entry
    if entry is None and change.spec.draft:
        entry = load_catalogue(None).published(change.spec.draft, None)
    published = acceptance_of(entry, k) if entry is not None and request.traffic is None else None
    if published is not None:
        return published
    return None if request.traffic is None else class_acceptance(method, request.traffic, k)
