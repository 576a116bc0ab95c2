"""The engines of the arms of a measurement: their conditions are noted once, and blocks are sent to warm engines."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from secrets import token_hex

from mpctl.errors import MpctlError
from mpctl.experiment.answers import Answer, Ask, Scored
from mpctl.experiment.block import BASELINE
from mpctl.experiment.cell import Cell
from mpctl.experiment.counters import CounterError
from mpctl.experiment.prefixes import PrefixCache
from mpctl.experiment.prompt_files import Prompt
from mpctl.experiment.run import ArmConditions
from mpctl.experiment.users import Placement
from mpctl.gate.arms import require_alike
from mpctl.manifest import redacted
from mpctl.methods import METHODS, Spec, spec_text
from mpctl.rollout.measurement_records import MeasurementRecords
from mpctl.rollout.ports import BlockLost, Endpoint, LoadOrder, Meter, Progress, SentBlock

# An engine with LoRA dies of a request for log probabilities of its prompt (vLLM #29955, #16668).
_LORA = frozenset({"--enable-lora", "--lora-modules"})


@dataclass(frozen=True)
class MeasuredEngine:
    """An arm as it runs now."""

    endpoint: Endpoint
    spec: Spec | None  # None where nobody read it
    argv: tuple[str, ...] = ()  # of the engine's process, where it is known
    kv_pool_tokens: int | None = None
    start: int = 0  # number of the engine start, where arms take turns
    find_device: Callable[[], str] = (
        str  # asked once per measurement where the engine does not report its device
    )
    model_revision: str = ""  # as pinned by the manifest
    name: str = ""  # of an engine that mpctl did not start
    image: str = ""  # as the platform runs it

    @property
    def engine(self) -> str:
        """The running engine, which another one at the same address is not."""
        return f"{self.endpoint.address} {self.start}" if self.start else self.endpoint.address


@dataclass(frozen=True)
class ArmEngines:
    """The engine of each arm, asked for with every block: it may have moved since the last one."""

    records: MeasurementRecords
    meter: Meter
    progress: Progress
    engine_of: Callable[[str], MeasuredEngine]
    warm: set[tuple[Cell, str, str]] = field(default_factory=set)
    """Cells and arms, with the address of the engine: another pod of the arm is a cold engine."""
    _attempt: str = field(default_factory=lambda: token_hex(8))
    _caches: dict[tuple[str, str], PrefixCache] = field(default_factory=dict)
    """By the address of the engine and the salt, which another process of mpctl does not use again."""

    def endpoint(self, arm: str) -> Endpoint:
        """Return the endpoint of an arm's engine."""
        return self.engine_of(arm).endpoint

    def salt(self, arm: str, attempt: str = "") -> str:
        """The salt of the prefix cache. An engine that answered the same prompts in an earlier measurement, or in a
        block that was cut off, would answer them from its cache here, and look faster than it is."""
        named = f"{self.records.id}\n{self.records.created}\n{arm}\n{self._attempt}{attempt}"
        return hashlib.sha256(named.encode()).hexdigest()[:32]

    def note_conditions(self, arm: str) -> None:
        """Read the conditions of an arm, once: what is sent before changes what the engine has generated."""
        name = f"conditions-{arm}"
        if self.records.read(name, ArmConditions.from_record) is not None:
            return
        engine = self.engine_of(arm)
        spec = engine.spec
        try:
            facts = self.meter.describe(engine.endpoint, spec.draft if spec else None)
        except CounterError as error:
            raise MpctlError(f"the {arm} does not tell its metrics: {error}") from error
        # A draft that reads the states of the prompt has sparse ones kept one unit before the prompt's end.
        keeps_ends = spec is not None and (
            spec.is_none or (spec.known is not None and not spec.known.prompt_states)
        )
        conditions = ArmConditions(
            spec=engine.name or spec_text(spec),
            engine_version=facts.engine_version,
            argv=redacted(engine_arguments(engine.argv)),
            model=facts.model or engine.endpoint.model,
            model_digest=facts.model_digest or engine.model_revision,
            device=facts.device or engine.find_device(),
            kv_pool_tokens=engine.kv_pool_tokens or facts.kv_pool_tokens,
            served_tokens=facts.served_tokens,
            speculation=spec,
            context_tokens=facts.context_tokens,
            draft_digest=facts.draft_digest or str((spec and spec.settings.get("revision")) or ""),
            image=engine.image,
            cache_unit=facts.cache_unit,
            cache_sparse=facts.cache_sparse and keeps_ends,
            started=facts.started,
            cache_use=facts.cache_use,
        )
        self.records.add(name, conditions)
        if self.records.placement is Placement.TURNS:  # an arm is known from its first turn on
            self.require_alike()

    def require_alike(self) -> None:
        """Refuse arms that differ in more than speculation."""
        require_alike(self.records.conditions(), self.records.workload.accepted)

    def unscorable(self) -> str:
        """Return why the serving baseline cannot score, "" where it can."""
        baseline = self.engine_of(BASELINE)
        adapters = any(
            kind.variant is not None and kind.variant.adapter
            for kind in self.records.workload.traffic
        )
        return why_unscorable(baseline.spec, baseline.argv, adapters=adapters)

    def ask(
        self, arm: str, asks: Sequence[Ask], *, attempt: str, concurrency: int, alternatives: int
    ) -> tuple[Answer, ...]:
        """Return an arm's answers; where it tells no ids, with those of their texts, if alternatives are asked for."""
        self.note_conditions(arm)
        endpoint, salt = self.endpoint(arm), self.salt(arm, attempt)
        self.records.count_sent(arm, len(asks))
        answers = self.meter.ask(
            endpoint, asks, concurrency=concurrency, salt=salt, alternatives=alternatives
        )
        if not alternatives or all(answer.ids or answer.error for answer in answers):
            return answers
        return self.meter.tokenize(endpoint, asks, answers, concurrency=concurrency)

    def score(
        self, answers: Sequence[Answer | None], *, attempt: str, concurrency: int, alternatives: int
    ) -> list[Scored | None]:
        """Return the baseline's scores of the answers with token ids, in their places; None for all others."""
        scorable = [
            answer for answer in answers if answer is not None and answer.ids and answer.prompt_ids
        ]
        scores: Iterator[Scored | None] = iter(())
        if scorable:
            endpoint, salt = self.endpoint(BASELINE), self.salt(BASELINE, attempt)
            self.records.count_sent(BASELINE, len(scorable))
            scores = iter(
                self.meter.score(
                    endpoint,
                    scorable,
                    alternatives=alternatives,
                    concurrency=concurrency,
                    salt=salt,
                )
            )
        return [
            next(scores) if answer is not None and answer.ids and answer.prompt_ids else None
            for answer in answers
        ]

    def send(
        self, arm: str, prompts: tuple[Prompt, ...], cell: Cell, *, key: str, ids: bool
    ) -> SentBlock:
        """Send a block; one of which a part of the load client was lost is invalid and is sent again. ``ids``: with
        token ids, which an engine that tells its cache's unit gives in any case."""
        try:
            return self._send(arm, prompts, cell, key, self.salt(arm), ids)
        except BlockLost as lost:
            self.progress.note(f"{lost.message}; the block is invalid and is sent again")
        return self._send(arm, prompts, cell, key, self.salt(arm, "again"), ids)

    def _send(
        self, arm: str, prompts: tuple[Prompt, ...], cell: Cell, key: str, salt: str, ids: bool
    ) -> SentBlock:
        """Send prompts to the arm's engine, warmed up where they are a block, which has a key."""
        measured = self._warm_engine(arm, cell) if key else self.engine_of(arm)
        conditions, limit = self.records.conditions().get(arm), self.records.workload.max_tokens
        unit = None if conditions is None else conditions.cache_unit
        order = LoadOrder(prompts, cell, limit, key, salt, ids or bool(unit))
        self.records.count_sent(arm, len(prompts))
        sent = self.meter.send(measured.endpoint, order)
        if conditions is None or not unit:
            return sent
        cache = self._caches.setdefault(
            (measured.engine, salt), PrefixCache(unit, sparse=conditions.cache_sparse)
        )
        return replace(sent, expected_hits=cache.hits(sent.result.requests))

    def _warm_engine(self, arm: str, cell: Cell) -> MeasuredEngine:
        """The arm's engine, warmed up for the cell: it may have moved to another node since the last block."""
        workload, measured = self.records.workload, self.engine_of(arm)
        engine = measured.engine
        if self.records.placement is Placement.TURNS:
            self.note_conditions(arm)
        if workload.warmup and (cell, arm, engine) not in self.warm:
            warm_engines = {other for _, name, other in self.warm if name == arm}
            if warm_engines and engine not in warm_engines and not measured.start:
                self.progress.note(
                    f"the {arm} is another engine since the last block; it is warmed up first"
                )
            self._send(arm, workload.warmup_prompts(cell), cell, "", self.salt(arm), ids=False)
            self.note_warm(arm, (cell,))
        return measured

    def note_warm(self, arm: str, cells: Iterable[Cell]) -> None:
        """The arm's engine, as it runs now, answered enough requests like those of the cells to need no warm-up."""
        self.warm.update((cell, arm, self.engine_of(arm).engine) for cell in cells)


def why_unscorable(spec: Spec | None, argv: Sequence[str], *, adapters: bool = False) -> str:
    """Return why an engine's scores of a prompt cannot be used, by its spec and its arguments; "" where they can.
    ``adapters``: requests name some."""
    if adapters or any(word.partition("=")[0] in _LORA for word in argv):
        return "a baseline with LoRA may stop when it scores (vllm-project/vllm#29955)"
    thread = (
        METHODS[spec.method].foreign_logprobs if spec is not None and spec.method in METHODS else ""
    )
    return (
        f"a baseline with {spec.method} may score other tokens ({thread})"
        if spec is not None and thread
        else ""
    )


def engine_arguments(argv: tuple[str, ...]) -> tuple[str, ...]:
    """The arguments after ``vllm serve`` in an engine's command line."""
    return argv[argv.index("serve") + 1 :] if "serve" in argv else argv
