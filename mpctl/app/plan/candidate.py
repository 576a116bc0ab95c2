"""Acceptance of a candidate: an engine with the speculation runs side by side with the service for a minute of prompts,
one at a time, and is stopped. What serves gets none of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from secrets import token_hex

from mpctl.app.bench.services import place_client
from mpctl.app.bench.side_by_side import open_side_by_side
from mpctl.app.plan.runs import acceptance_in
from mpctl.app.requests import BenchRequest, MeasurementRequest, PlanRequest
from mpctl.app.session.base import Session
from mpctl.app.workload import read_traffic
from mpctl.errors import Cancelled, Conflict, InputError, MpctlError, NotPermitted
from mpctl.estimate.payoff.acceptance import Acceptance
from mpctl.experiment.arm import CANDIDATE
from mpctl.experiment.cell import Cell
from mpctl.experiment.counters import Window
from mpctl.rollout.context import Context

_SECONDS = 60.0
_AT_ONCE = 4  # prompts between two looks at the clock
_TOKENS = 384
_INTERRUPTED = Cancelled("interrupted; nothing that serves was changed")
_FATAL = (Cancelled, Conflict, NotPermitted)

Measured = dict[str, tuple[Acceptance, str]]


def measure_candidates(
    session: Session, request: PlanRequest, methods: Sequence[str]
) -> tuple[Measured, tuple[str, ...]]:
    """Return the acceptance of each method with its source, and the reasons for methods that could not be measured.

    Raises:
        InputError: no prompts are given, or they cannot be read.
        Conflict: the service has an unfinished operation or a retained baseline.
        Cancelled: Ctrl-C was pressed; the candidate is stopped.
    """
    if not request.prompts:
        raise InputError(
            "needs the prompts of your traffic", field="--measure", hint="--prompts FILE, or --transcripts FILE"
        )
    kinds = [[(kind.name, prompt) for prompt in kind.prompts] for kind in map(read_traffic, request.prompts)]
    prompts = [prompt for row in zip_longest(*kinds) for prompt in row if prompt is not None]
    bench = BenchRequest(measurement=MeasurementRequest(prompts=request.prompts))
    place_client(session, bench)
    measured: Measured = {}
    notes = []
    with session.context(interrupted=_INTERRUPTED) as context:
        for method in methods:
            try:
                measured[method] = _measure(session, context, request, bench, method, prompts)
            except _FATAL:
                raise
            except MpctlError as error:
                notes.append(f"{method} was not measured: {error.message}")
    return measured, tuple(notes)


def _measure(
    session: Session,
    context: Context,
    request: PlanRequest,
    bench: BenchRequest,
    method: str,
    prompts: Sequence[tuple[str, str]],
) -> tuple[Acceptance, str]:
    settings = request.speculation.settings
    if request.ks:
        settings = (*settings, f"num_speculative_tokens={max(request.ks)}")
    arms = open_side_by_side(session, context, bench, replace(request.speculation, method=method, settings=settings))
    with arms.running():
        session.console.step("measure", f"{method}, one request at a time, {_SECONDS:.0f} s")
        endpoint, began, salt = arms.target(CANDIDATE).endpoint, context.clock.now(), token_hex(16)
        windows: list[Window] = []
        sent = 0
        for kind, texts in _blocks(prompts):
            block = context.meter.send(endpoint, texts, Cell(kind, 1, request.temperature), _TOKENS, salt=salt)
            windows.append(Window.between(block.before, block.after))
            sent += len(texts)
            if (context.clock.now() - began).total_seconds() >= _SECONDS:
                break
    acceptance = acceptance_in(Window.total(tuple(windows)), method)
    if acceptance is None:
        raise MpctlError(f"the candidate drafted nothing in {sent} requests")
    return acceptance, f"a candidate that answered {sent} of your prompts, {acceptance.drafts} drafts"


def _blocks(prompts: Sequence[tuple[str, str]]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """A few prompts of one class after the other."""
    by_kind: dict[str, list[str]] = {}
    for kind, prompt in prompts:
        block = by_kind.setdefault(kind, [])
        block.append(prompt)
        if len(block) == _AT_ONCE:
            yield kind, tuple(block)
            block.clear()
    for kind, block in by_kind.items():
        if block:
            yield kind, tuple(block)
