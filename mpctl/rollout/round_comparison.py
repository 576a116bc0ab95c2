"""Compare the token ids of timed greedy answers, which cost nothing: the baseline scores those that differ between
rounds, when nothing is timed. Ids and texts exist in memory until both arms' are compared; the record has none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from mpctl.experiment.answers import Answer, AnswerCheck, AnswerRule, Ask, Pair, Repeat, Scored, Tie
from mpctl.experiment.block import BASELINE, CANDIDATE, Block
from mpctl.experiment.prompt_files import Prompt
from mpctl.experiment.round_answers import RoundAnswers
from mpctl.experiment.users import Placement
from mpctl.gate.answer_tokens import other_end
from mpctl.gate.answers import confirm, examine, level_of, merged, to_confirm
from mpctl.rollout.arm_engines import ArmEngines

ROUNDS = "rounds"  # in place of the name of a set of requests
BASELINE_LEFT = "the baseline had left the GPU before the candidate answered"
_RULES = (AnswerRule.TOKENS, AnswerRule.RENDERING)
_CONTROL = (
    2  # equal answers of the baseline that it scores, where no pass has measured its rounding
)
_GAPS = 2  # alternatives
_AGAIN = 1  # at once, when a request is sent again alone
_MOST_AGAIN = 6  # findings of a measurement whose requests are sent again
_SCORED, _SHARE = (
    4,
    20,
)  # answers that are scored in any case, and one more for so many timed requests


@dataclass(frozen=True)
class RoundComparison:
    """Compares rounds. ``unscorable``: why the baseline cannot score, "" where it can; ``tie``: of the pass before
    the rounds; ``bounded``: only some of the answers that differ are scored, where many do."""

    engines: ArmEngines
    unscorable: str = ""
    tie: Tie | None = None
    bounded: bool = False

    def compare(
        self,
        answers: RoundAnswers,
        rounds: Iterable[tuple[Block, Block, Sequence[Prompt]]],
        max_tokens: int,
        *,
        before: AnswerCheck | None,
    ) -> AnswerCheck | None:
        """Return what the greedy answers of some rounds show, with those ``before``; None without one that both arms
        answered."""
        check = before
        for baseline, candidate, prompts in rounds:
            pairs = answers.pairs(baseline, candidate, prompts, max_tokens)
            judged = [
                self._with_ids(pair, answers, baseline, candidate)
                for pair in self._within_bound(pairs, check)
            ]
            answers.forget(baseline, candidate)
            if pairs:
                examined = self._examined(judged, check)
                unscored = len(pairs) - len(judged)
                check = merged(check, replace(examined, requests=len(prompts), unscored=unscored))
        return check

    def _with_ids(
        self, pair: Pair, answers: RoundAnswers, baseline: Block, candidate: Block
    ) -> Pair:
        """The pair with its texts tokenized, where they differ and the endpoint gave no ids."""
        blocks = ((pair.baseline, baseline), (pair.candidate, candidate))
        if (
            pair.baseline.text == pair.candidate.text
            or all(answer.ids for answer, _ in blocks)
            or self.unscorable
        ):
            return pair
        spoken = [
            replace(a, ids=(), prompt_ids=(), text=answers.texts(pair, block))
            for a, block in blocks
        ]
        both = self.engines.meter.tokenize(
            self.engines.endpoint(BASELINE), (pair.ask,) * 2, spoken, concurrency=_AGAIN
        )
        lengths = [block.samples[pair.number].tokens for _, block in blocks]
        if any(tokens - len(a.ids) not in (0, 1) for a, tokens in zip(both, lengths, strict=True)):
            return pair  # reasoning, a call, or another tokenization than the answer's: its end token has no text
        return replace(
            pair,
            baseline=replace(both[0], text=pair.baseline.text),
            candidate=replace(both[1], text=pair.candidate.text),
        )

    def _examined(self, pairs: Sequence[Pair], before: AnswerCheck | None) -> AnswerCheck:
        tie = before.tie if before is not None and before.tie is not None else self.tie
        level = level_of(answer for pair in pairs for answer in (pair.baseline, pair.candidate))
        if not self.unscorable:
            pairs = self._scored(pairs, control=tie is None)
        check = examine(
            pairs, fidelity=ROUNDS, level=level, rules=_RULES, tie=tie, unscorable=self.unscorable
        )
        sent = (
            sum(f.confirmed is not None or f.on_baseline for f in before.findings) if before else 0
        )
        numbers = to_confirm(check)[: max(_MOST_AGAIN - sent, 0)]
        return (
            confirm(check, pairs, self._repeats([p for p in pairs if p.number in numbers]))
            if numbers
            else check
        )

    def _within_bound(self, pairs: Sequence[Pair], before: AnswerCheck | None) -> list[Pair]:
        """Return the pairs to judge: all that need no score, and as many others as the bound allows."""
        sent, scored = (before.requests, before.scored) if before else (0, 0)
        room = _SCORED + 2 * (sent + len(pairs)) // _SHARE - scored
        judged = []
        for pair in pairs:
            free = (
                pair.equal
                or not self.bounded
                or other_end(pair.candidate, pair.baseline) is not None
            )
            if free or room > 0:
                judged.append(pair)
            room -= not free
        return judged

    def _scored(self, pairs: Sequence[Pair], *, control: bool) -> list[Pair]:
        """The pairs with the baseline's scores of the candidate's answers that differ, and of its own where a grammar
        may hold them. ``control``: nothing measured the baseline's rounding yet, so it scores some more of its own."""
        different = [pair.baseline.ids != pair.candidate.ids for pair in pairs]
        controls = _CONTROL if control and any(different) else 0
        wanted = [
            n < controls or (differs and p.ask.reshaped)
            for n, (p, differs) in enumerate(zip(pairs, different, strict=True))
        ]
        mine = self._score(
            [pair.baseline if want else None for pair, want in zip(pairs, wanted, strict=True)]
        )
        theirs = self._score(
            [p.candidate if differs else None for p, differs in zip(pairs, different, strict=True)]
        )
        return [
            replace(pair, own=mine, scored=its)
            for pair, mine, its in zip(pairs, mine, theirs, strict=True)
        ]

    def _score(
        self, answers: Sequence[Answer | None], *, attempt: str = "scores"
    ) -> list[Scored | None]:
        concurrency = self.engines.records.workload.most
        return self.engines.score(
            answers, attempt=attempt, concurrency=concurrency, alternatives=_GAPS
        )

    def _repeats(self, pairs: Sequence[Pair]) -> list[Repeat]:
        """Send the requests of findings again, one by one; an arm whose turn is over is not asked."""
        asks = [pair.ask for pair in pairs]
        baseline = self._ask(BASELINE, asks)
        turn_is_over = self.engines.records.placement is Placement.TURNS
        candidate = (
            (Answer(error="not asked"),) * len(asks) if turn_is_over else self._ask(CANDIDATE, asks)
        )
        baseline_scores, scored = (
            self._score(baseline, attempt="alone"),
            self._score(candidate, attempt="alone"),
        )
        again = self._score([pair.candidate for pair in pairs], attempt="again")
        return [
            Repeat(Pair(pair.number, pair.ask, *row), rescored)
            for pair, rescored, *row in zip(
                pairs, again, baseline, candidate, baseline_scores, scored, strict=True
            )
        ]

    def _ask(self, arm: str, asks: Sequence[Ask]) -> tuple[Answer, ...]:
        return self.engines.ask(arm, asks, attempt="alone", concurrency=_AGAIN, alternatives=_GAPS)
