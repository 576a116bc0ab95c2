"""Acceptance without a rollout: of replayed transcripts, of an engine's counters, of a candidate for a minute."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from secrets import token_hex

from mpctl.app.bench.arms import find_server, open_side_by_side, place_client
from mpctl.app.bench_requests import BenchRequest
from mpctl.app.files import read_file
from mpctl.app.planned_workload import read_classes_of
from mpctl.app.requests import MeasurementRequest
from mpctl.app.session.base import Session, Source
from mpctl.errors import Cancelled, Conflict, InputError, MpctlError, NotPermitted
from mpctl.experiment.block import CANDIDATE, BlockError
from mpctl.experiment.cell import Cell
from mpctl.experiment.counters import CounterError, Counters, Window
from mpctl.experiment.prompt_files import Prompt
from mpctl.lab.payoff.scenario import FREE, LOOKUPS, Acceptance, check_rates, from_length
from mpctl.lab.replay import (
    Conversation,
    Counts,
    PromptLookup,
    Proposer,
    SuffixLookup,
    Transcript,
    read_transcripts,
    replay,
)
from mpctl.lab.requests import PlanRequest
from mpctl.methods import METHODS
from mpctl.platform import http
from mpctl.platform.checkpoints import Tokenizer, of_directory, of_engine
from mpctl.rollout.context import Context
from mpctl.rollout.ports import LoadOrder

_SECONDS = 60.0
_AT_ONCE = 4  # prompts between two looks at the clock
_TOKENS = 384
_INTERRUPTED = Cancelled("interrupted; nothing that serves was changed")
_FATAL = (Cancelled, Conflict, NotPermitted)
Measured = dict[str, tuple[Acceptance, str]]
_SUFFIX_K = 24


@dataclass(frozen=True)
class Replayed:
    """Acceptance by method with its source, and mean tokens of prompts and answers."""

    measured: dict[str, tuple[Acceptance, str]]
    prompt_tokens: float
    output_tokens: float


def replay_transcripts(source: Source | None, request: PlanRequest) -> Replayed:
    """Replay the lookups over a file of prompts and answers.

    Raises:
        InputError: the file cannot be used, or no tokenizer of the target is available.
    """
    assert request.transcripts is not None
    logged = read_transcripts(
        read_file(request.transcripts, "the transcripts"), request.transcripts
    )
    conversations = _conversations(source, request, logged)
    words = f"{len(conversations)} transcripts of {request.transcripts}, replayed"
    measured = {}
    methods = FREE if request.methods == ("all",) else request.methods
    for method in (lookup for lookup in LOOKUPS if lookup in methods):
        k, proposer = _proposer(method, request)
        counts = replay(conversations, proposer, k)
        measured[method] = (
            acceptance_of_counts(counts, fixed=METHODS[method].k_from != "method"),
            f"{words}: {describe_counts(counts)}",
        )
    count = len(conversations)
    return Replayed(
        measured,
        sum(len(conversation.prompt) for conversation in conversations) / count,
        sum(len(conversation.answer) for conversation in conversations) / count,
    )


def acceptance_of_counts(counts: Counts, *, fixed: bool = True) -> Acceptance:
    """Counts as acceptance; no draft at all is none accepted. Where the length of drafts is not ``fixed``, the rates
    are those of drafts of the mean length that accept as many tokens."""
    if not counts.drafts:
        return Acceptance((0.0,), counts.coverage)
    rates = counts.rates
    if not fixed:
        length = max(math.ceil(counts.drafted / counts.drafts), 1)
        rates = from_length(1 + counts.accepted / counts.drafts, length)
    return Acceptance(rates, counts.coverage, drafts=counts.drafts)


def describe_counts(counts: Counts) -> str:
    """``2.31 tokens per step, coverage 61 %``."""
    return f"{counts.tokens_per_step:.2f} tokens per step, coverage {counts.coverage:.0%}"


def _proposer(method: str, request: PlanRequest) -> tuple[int, Proposer]:
    """The proposer with the settings of the request."""
    settings = {**dict(METHODS[method].defaults)}
    for setting in request.speculation.settings:
        key, _, value = setting.partition("=")
        if value.isdecimal():
            settings[key.replace("-", "_")] = int(value)
    if METHODS[method].remembers_answers:
        k = int(settings.get("num_speculative_tokens", _SUFFIX_K))
        return k, SuffixLookup(
            k, depth=int(settings.get("suffix_decoding_max_tree_depth", _SUFFIX_K))
        )
    k = int(settings["num_speculative_tokens"])
    return k, PromptLookup(
        k, int(settings["prompt_lookup_min"]), int(settings["prompt_lookup_max"])
    )


def _conversations(
    source: Source | None, request: PlanRequest, logged: tuple[Transcript, ...]
) -> tuple[Conversation, ...]:
    unread = [transcript for transcript in logged if transcript.tokens is None]
    conversations = [
        (
            transcript.messages or ({"role": "user", "content": transcript.prompt},),
            transcript.answer,
        )
        for transcript in unread
    ]
    tokens = iter(_tokenizer(source, request)(conversations) if unread else ())
    rows = (transcript.tokens or next(tokens) for transcript in logged)
    return tuple(Conversation(tuple(prompt), tuple(answer)) for prompt, answer in rows)


def _tokenizer(source: Source | None, request: PlanRequest) -> Tokenizer:
    """The one named, an engine's, or that of the target where its files are here."""
    if request.tokenizer is not None:
        return of_directory(Path(request.tokenizer))
    target = source.target_of(source.service()) if source is not None else None
    if request.url is not None:
        return of_engine(request.url, find_server(request.url, None).model)
    if target is not None and Path(target).is_dir():
        return of_directory(Path(target))
    raise InputError(
        f"the tokens of {target or 'the target'} are unknown: its tokenizer is not on this machine",
        field="--transcripts",
        hint="--tokenizer DIR with its tokenizer.json; --url of an engine that serves it; or token ids in the file",
    )


def counters_of(url: str, methods: tuple[str, ...]) -> tuple[str, Acceptance, str]:
    """Return method, acceptance and source from the counters of a speculating engine since its start.

    Raises:
        InputError: several methods are asked for, or the engine does not speculate or has drafted nothing yet.
        NoAnswer: it does not answer.
    """
    if len(methods) != 1 or methods == ("all",):
        raise InputError(
            "counters belong to one method", field="--url", hint="name it: --spec eagle3"
        )
    page = http.metrics(url)
    try:
        now = Counters.parse(page)
        since = Counters(0, drafts=0, draft_tokens=0, accepted=0, started=now.started)
        window = None if now.drafts is None else Window.between(since, now)
    except CounterError as error:
        raise InputError(f"{url}/metrics: {error}", field="--url") from error
    acceptance = acceptance_in(window, methods[0]) if window else None
    if window is None or acceptance is None:
        raise InputError(
            f"{url}: the engine {'does not speculate' if window is None else 'has drafted nothing since it started'}",
            field="--url",
            hint="send it your own prompts with speculation on, or measure offline: --transcripts FILE",
        )
    return methods[0], acceptance, f"the counters of {url}, {window.drafts:.0f} drafts"


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
            "needs the prompts of your traffic",
            field="--measure",
            hint="--prompts FILE, or --transcripts FILE",
        )
    kinds = [
        [(kind.name, prompt) for prompt in kind.prompts]
        for text in request.prompts
        for kind in read_classes_of(text)
    ]
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
    prompts: Sequence[tuple[str, Prompt]],
) -> tuple[Acceptance, str]:
    settings = request.speculation.settings
    if request.ks:
        settings = (*settings, f"num_speculative_tokens={max(request.ks)}")
    arms = open_side_by_side(
        session, context, bench, replace(request.speculation, method=method, settings=settings)
    )
    with arms.running():
        session.console.step("measure", f"{method}, one request at a time, {_SECONDS:.0f} s")
        endpoint, began, salt = (
            arms.engine_of(CANDIDATE).endpoint,
            context.clock.now(),
            token_hex(16),
        )
        windows: list[Window] = []
        sent = 0
        for kind, texts in _blocks(prompts):
            cell = Cell(kind, 1, request.temperature)
            block = context.meter.send(endpoint, LoadOrder(texts, cell, _TOKENS, salt=salt))
            try:
                windows.append(block.block(cell, arm=CANDIDATE, repeat=sent, prompts=texts).window)
            except BlockError as error:
                raise MpctlError(
                    f"the candidate's answers cannot be used: {error}", hint=error.hint
                ) from error
            sent += len(texts)
            if (context.clock.now() - began).total_seconds() >= _SECONDS:
                break
    acceptance = acceptance_in(Window.total(tuple(windows)), method)
    if acceptance is None:
        raise MpctlError(f"the candidate drafted nothing in {sent} requests")
    return (
        acceptance,
        f"a candidate that answered {sent} of your prompts, {acceptance.drafts} drafts",
    )


def _blocks(prompts: Sequence[tuple[str, Prompt]]) -> Iterator[tuple[str, tuple[Prompt, ...]]]:
    """A few prompts of one class after the other."""
    by_kind: dict[str, list[Prompt]] = {}
    for kind, prompt in prompts:
        block = by_kind.setdefault(kind, [])
        block.append(prompt)
        if len(block) == _AT_ONCE:
            yield kind, tuple(block)
            block.clear()
    for kind, block in by_kind.items():
        if block:
            yield kind, tuple(block)


def acceptance_in(window: Window, method: str) -> Acceptance | None:
    """Return the acceptance from an engine's counters; None without a draft."""
    if not window.drafts or not window.per_position:
        return None
    rates = tuple(min(count / window.drafts, 1.0) for count in window.per_position)
    if check_rates(rates) is not None:
        return None
    coverage = min(window.coverage or 1.0, 1.0) if method in LOOKUPS else 1.0
    return Acceptance(rates, coverage, drafts=int(window.drafts))
