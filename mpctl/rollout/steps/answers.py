"""Compare the answers of both arms before any speed: ask, let the baseline score, confirm, and ask the gate.

Answers are in memory only. The record of a pass has counts and findings without texts; a command that died in the
middle asks again, since nothing of it changes what is served.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from mpctl.errors import MpctlError
from mpctl.experiment.answer_sets import QUICK, SENTINELS, asks_of
from mpctl.experiment.answers import (
    Answer,
    AnswerCheck,
    AnswerRule,
    Ask,
    BaselineAnswers,
    Pair,
    Repeat,
    Scored,
    behind,
    scored_by,
)
from mpctl.experiment.block import BASELINE, CANDIDATE
from mpctl.experiment.counters import CounterError
from mpctl.experiment.run import Burst, Reply
from mpctl.experiment.users import Placement
from mpctl.gate.answers import confirm, examine, level_of, promises, to_confirm
from mpctl.gate.rule import Outcome
from mpctl.rollout.arm_engines import ArmEngines, why_unscorable
from mpctl.rollout.burst import send_bursts
from mpctl.rollout.context import Context
from mpctl.rollout.measurement_records import BURST
from mpctl.rollout.operation import NoResult, Operation, StepResult
from mpctl.rollout.plan import Strategy
from mpctl.rollout.steps.candidate import ReadinessResult, wait_ready
from mpctl.rollout.steps.measure import AnswersResult, engines_in_turns, engines_of, measurement
from mpctl.watch.sentinel import AGAIN, Check, first_check

_AT_ONCE = 24  # at least: some faults need 8 rows in a batch or more
_CONTEXT = 4096  # tokens, where the engine does not tell
# Alternatives of a token: to know its gap to the next one, and the law that it was drawn from.
_GAPS = 2
_LAW = 20
_FURTHER = 3  # times at most that the sampled requests are asked again, while their e-value hints at a fault
_STOPS = (Outcome.FAIL, Outcome.UNDECIDED, Outcome.MISSING)  # no round of speed changes them


@dataclass(frozen=True)
class _Pass:
    """``leaves``: the baseline ends before the candidate starts."""

    context: Context
    operation: Operation
    engines: ArmEngines
    leaves: bool = False

    @property
    def _concurrency(self) -> int:
        most = self.engines.records.workload.most
        if self.operation.plan.users.placement.users_set_load:
            return most
        return max(most, _AT_ONCE)

    def _ask(self, arm: str, asks: Sequence[Ask], *, alone: bool = False) -> tuple[Answer, ...]:
        return self.engines.ask(
            arm,
            asks,
            attempt="alone" if alone else "answers",
            concurrency=1 if alone else self._concurrency,
            alternatives=_LAW if self.leaves and arm == BASELINE else _GAPS,
        )

    def _score(self, answers: Sequence[Answer | None], alternatives: int) -> list[Scored | None]:
        """Return the baseline's scores of the answers; None for each if it cannot score."""
        scorable = (None,) * len(answers) if self.engines.unscorable() else answers
        return self.engines.score(
            scorable,
            attempt="scores",
            concurrency=self._concurrency,
            alternatives=alternatives,
        )

    def ask_baseline(self) -> BaselineAnswers:
        """Ask the baseline, and let it score its own greedy answers as a control."""
        workload, fidelity = self.engines.records.workload, self.operation.plan.fidelity
        asks = asks_of(workload, fidelity, context_tokens=self._context_tokens())
        self.context.progress.step(
            "answers", f"{len(asks)} requests to the baseline, {self._concurrency} at once"
        )
        answers = self._ask(BASELINE, asks)
        refused = _refused_kinds(asks, answers)
        rows = [
            (ask, answer)
            for ask, answer in zip(asks, answers, strict=True)
            if ask.kind not in refused
        ]
        controls = [answer if ask.greedy and not ask.reshaped else None for ask, answer in rows]
        scores = self._score(controls, _GAPS)
        return BaselineAnswers(
            tuple(ask for ask, _ in rows),
            tuple(answer for _, answer in rows),
            tuple(scores),
            refused,
        )

    def _context_tokens(self) -> int:
        """Return the longest request of the baseline; a usual one if its engine does not tell."""
        try:
            facts = self.context.meter.describe(self.engines.endpoint(BASELINE))
        except CounterError:
            return _CONTEXT
        return facts.context_tokens or _CONTEXT

    def compare(self, baseline: BaselineAnswers) -> tuple[AnswerCheck, Burst]:
        """Let the candidate answer as well, and examine both; with the failures of both."""
        progress = self.context.progress
        progress.step(
            "answers",
            f"{len(baseline.asks)} requests to the candidate, {self._concurrency} at once",
        )
        candidate = behind(baseline.answers, self._ask(CANDIDATE, baseline.asks))
        rows = enumerate(zip(baseline.asks, baseline.answers, candidate, baseline.own, strict=True))
        pairs = self._scored([Pair(number, *row) for number, row in rows])
        check = self._examined(pairs)
        for _ in range(0 if self.operation.plan.users.placement is Placement.TURNS else _FURTHER):
            if not promises(check):
                break
            pairs += self._sampled_again(pairs)
            check = self._examined(pairs)
        if numbers := to_confirm(check):
            progress.update(f"{len(numbers)} requests are sent again alone")
            check = confirm(check, pairs, self._repeats([pairs[number] for number in numbers]))
        failures = Burst.of(_replies(baseline.answers), _replies(candidate))
        return replace(check, skipped={**baseline.skipped, **check.skipped}), failures

    def _examined(self, pairs: Sequence[Pair]) -> AnswerCheck:
        plan = self.operation.plan
        unscorable = (
            why_unscorable(plan.baseline_spec, ()) if self.leaves else self.engines.unscorable()
        )
        return examine(
            pairs,
            fidelity=plan.fidelity,
            level=level_of(answer for p in pairs for answer in (p.baseline, p.candidate)),
            gone=self.leaves,
            unscorable=unscorable,
        )

    def _sampled_again(self, pairs: Sequence[Pair]) -> list[Pair]:
        """Both arms' answers to the sampled requests once more, scored; a request that comes several times in the
        pass comes once, and one with a seed not at all: its answer would be the same."""
        drawn = {
            p.ask.digest: p.ask for p in pairs if not p.ask.greedy and "seed" not in p.ask.body
        }
        asks = tuple(drawn.values())
        self.context.progress.update(f"{len(asks)} sampled requests are sent again")
        rows = zip(asks, self._ask(BASELINE, asks), self._ask(CANDIDATE, asks), strict=True)
        return self._scored([Pair(n, *row) for n, row in enumerate(rows, start=len(pairs))])

    def _scored(self, pairs: Sequence[Pair]) -> list[Pair]:
        """The pairs with the baseline's scores of the candidate's answers: of greedy ones that differ, as of its own,
        and of all sampled ones."""
        if self.leaves:
            return [
                replace(p, scored=scored_by(p.baseline, p.candidate)) if p.ask.greedy else p
                for p in pairs
            ]
        differ = [p.ask.greedy and p.candidate.ids != p.baseline.ids for p in pairs]
        rows = list(zip(pairs, differ, strict=True))
        greedy = self._score([p.candidate if differs else None for p, differs in rows], _GAPS)
        own = self._score(
            [p.baseline if differs and not p.own else None for p, differs in rows], _GAPS
        )
        sampled = self._score([None if p.ask.greedy else p.candidate for p in pairs], _LAW)
        return [
            replace(pair, own=pair.own or mine, scored=theirs or drawn)
            for pair, mine, theirs, drawn in zip(pairs, own, greedy, sampled, strict=True)
        ]

    def _repeats(self, pairs: Sequence[Pair]) -> list[Repeat]:
        """Send the requests of findings again: one by one, and as many at once as in the pass. Where arms take turns,
        each has one turn for it. A baseline that has left stands by what it answered."""
        asks = [pair.ask for pair in pairs]
        times_at_once = math.ceil(self._concurrency / max(len(asks), 1))
        candidate_alone = self._ask(CANDIDATE, asks, alone=True)
        candidate_loaded = self._ask(CANDIDATE, asks * times_at_once)[: len(asks)]
        if self.leaves:
            rescored = [pair.scored for pair in pairs]
            baseline_alone = baseline_loaded = tuple(pair.baseline for pair in pairs)
        else:
            baseline_alone = self._ask(BASELINE, asks, alone=True)
            baseline_loaded = self._ask(BASELINE, asks * times_at_once)[: len(asks)]
            rescored = self._score([pair.candidate for pair in pairs], _LAW)
        alone = self._fresh(pairs, baseline_alone, candidate_alone)
        loaded = self._fresh(pairs, baseline_loaded, candidate_loaded)
        return [Repeat(*row) for row in zip(alone, rescored, loaded, strict=True)]

    def _fresh(
        self, pairs: Sequence[Pair], own: Sequence[Answer], theirs: Sequence[Answer]
    ) -> list[Pair]:
        """The pairs with other answers of both arms, scored."""
        if self.leaves:
            return [
                replace(p, candidate=answer, scored=scored_by(p.baseline, answer))
                for p, answer in zip(pairs, theirs, strict=True)
            ]
        scores = self._score(own, _GAPS), self._score(behind(own, theirs), _LAW)
        rows = zip(own, theirs, *scores, strict=True)
        return [Pair(pair.number, pair.ask, *row) for pair, row in zip(pairs, rows, strict=True)]


def _refused_kinds(asks: Sequence[Ask], answers: Sequence[Answer]) -> dict[str, str]:
    """Return the kinds of requests that the engine refuses altogether, each with its errors: an engine without a tool
    parser refuses tools."""
    errors: dict[str, set[str]] = {}
    for ask, answer in zip(asks, answers, strict=True):
        errors.setdefault(ask.kind, set()).add(answer.error)
    return {
        kind: f"the baseline answers {', '.join(sorted(reasons))}"
        for kind, reasons in errors.items()
        if "" not in reasons
    }


def _replies(answers: Sequence[Answer]) -> list[Reply]:
    """Return the errors of answers, whose times nobody took."""
    return [(answer.error, 0.0) for answer in answers]


def ask_baseline(context: Context, operation: Operation) -> NoResult:
    """Ask the baseline while it runs; its answers are kept in memory."""
    engines = engines_of(context, operation)
    context.answers[operation.id] = _Pass(context, operation, engines, leaves=True).ask_baseline()
    return NoResult()


def ask_and_wait(context: Context, operation: Operation) -> ReadinessResult:
    """Do what needs no candidate while it starts: ask the baseline, which serves already, send it the untimed requests,
    and calibrate the load client. Then wait for the candidate."""
    measured = measurement(context, operation)
    with measured.records.writing():  # also what was sent before a request failed
        asked = _Pass(context, operation, measured.engines).ask_baseline()
        context.answers[operation.id] = asked
        measured.records.add(BURST, Burst(len(asked.asks)))  # until the candidate answers them, too
        send_bursts(measured.engines, (BASELINE,))
        measured.calibrate()
    measured.records.write()
    return wait_ready(context, operation)


def compare_answers(context: Context, operation: Operation) -> AnswersResult:
    """Compare the answers of both arms, and let the gate say whether they decide before any speed."""
    plan = operation.plan
    turns, leaves = plan.users.placement is Placement.TURNS, plan.strategy is Strategy.IN_PLACE
    engines = (engines_in_turns if turns and not leaves else engines_of)(context, operation)
    comparison = _Pass(context, operation, engines, leaves=leaves)
    baseline = context.answers.pop(operation.id, None)
    if baseline is None and not leaves:
        baseline = comparison.ask_baseline()
    if baseline is None:
        reason = "the baseline's answers were lost with an interrupted command"
        baseline = BaselineAnswers((), (), (), {"every kind": reason})
    check, burst = comparison.compare(baseline)
    verdict = engines.records.judge_answers(check, burst)
    decides = any(r.rule in frozenset(AnswerRule) and r.outcome in _STOPS for r in verdict.rules)
    return AnswersResult(check.requests, check.scored, check.level, verdict if decides else None)


@dataclass(frozen=True)
class RestartAnswers(StepResult):
    """Requests to another start of the candidate."""

    requests: int


def compare_starts(context: Context, operation: Operation) -> RestartAnswers:
    """Ask the candidate, started again since the pass, requests whose answers no rounding changes.

    Raises:
        MpctlError: an answer differs from that of before, also when it is asked again.
    """
    plan, engines = operation.plan, engines_of(context, operation)
    run, workload = engines.records.run(0), engines.records.workload
    if run.answers is None or workload.missing:  # a resumed command that needs no prompts has none
        return RestartAnswers(0)
    tokens = run.arms[BASELINE].context_tokens if BASELINE in run.arms else None
    settled = run.answers.settled
    asks = [
        ask
        for ask in asks_of(workload, plan.fidelity, context_tokens=tokens or _CONTEXT)
        if ask.digest in settled
    ][: SENTINELS if plan.fidelity == QUICK else None]
    if not asks:
        return RestartAnswers(0)
    context.progress.step(
        "answers", f"{len(asks)} requests to the candidate's new engine, far from every tie"
    )

    def ask(chosen: Sequence[Ask]) -> list[Check]:
        answers = engines.ask(
            CANDIDATE, chosen, attempt="another start", concurrency=_AT_ONCE, alternatives=0
        )
        return [
            first_check(settled[sent.digest], answer)
            for sent, answer in zip(chosen, answers, strict=True)
        ]

    checks = ask(asks)
    wrong = [sent for sent, check in zip(asks, checks, strict=True) if check is Check.WRONG]
    repeated = ask(wrong * AGAIN).count(Check.WRONG) if wrong else 0
    engines.records.write()
    if repeated:
        raise MpctlError(
            f"the candidate's new engine answers {len(wrong)} of {len(asks)} requests otherwise than the one that was "
            f"measured, far from every tie, and {repeated} of {len(wrong) * AGAIN} when they are asked again"
        )
    if wrong:
        context.progress.note(
            f"{len(wrong)} of {len(asks)} answers of the new engine differed once, and not again"
        )
    return RestartAnswers(len(asks))
