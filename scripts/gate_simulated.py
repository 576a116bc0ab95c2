"""Simulated measurements that scripts/gate_tricks.py lists. Each is judged by the gate, round by round, as a rollout
does, or by the gate's copy in NumPy.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import gate_noise
import numpy as np
from numpy.typing import NDArray

from mpctl.errors import MpctlError
from mpctl.experiment.answers import AnswerCheck, AnswerRule, Level, RuleCount
from mpctl.experiment.block import BASELINE, CANDIDATE, Block, Sample
from mpctl.experiment.cell import Cell
from mpctl.experiment.counters import CounterError, Counters, Window
from mpctl.experiment.run import ArmConditions, Burst, PromptSet, Run, combine
from mpctl.experiment.users import Placement
from mpctl.experiment.workload import Traffic
from mpctl.gate.answers import examine
from mpctl.gate.arms import require_alike
from mpctl.gate.assess import is_futile, judge_run
from mpctl.gate.first_position import judge_served_drafts
from mpctl.gate.policy import Policy
from mpctl.gate.rule import Outcome, more_to_pass
from mpctl.gate.verdict import Verdict
from mpctl.methods import Spec
from mpctl.stats.sequential import FEWEST, FIRST_LOOK
from tests.simulation.answers import FAULTS, simulated_pass
from tests.simulation.measurements import TOKENS, Truth, rounds

ROUNDS, PROMPTS = 48, 2  # of the default plan
TURNS = 6  # rounds, of 16 prompts, where the arms take turns on a GPU
MOST_BEFORE = 200  # untimed requests to an arm
ALIKE = ArmConditions(
    "none", "0.32.0", ("vllm", "serve", "org/model"), "model", "a" * 64, "NVIDIA L4", 28_000
)
ARMS = {BASELINE: ALIKE, CANDIDATE: replace(ALIKE, speculation=Spec("ngram", {}))}
GPU = {"block_sigma": 0.005, "request_sigma": 0.02}
QUIET_GPU = {"block_sigma": 0.01, "request_sigma": 0.05}
WORDS = {Outcome.PROMOTE: "promoted", Outcome.REJECT: "rejected", Outcome.UNDECIDED: "undecided"}
Make = Callable[[int], Run]
Arms = tuple[gate_noise.Times, gate_noise.Times]


@dataclass(frozen=True)
class Attempt:
    """Measurements of as many pairs; ``number``: of earlier measurements of the same pairs."""

    base: gate_noise.Times
    cand: gate_noise.Times
    before: gate_noise.Times
    pod_gap: float
    number: int
    tokens: NDArray[np.float64] | None


Judge = Callable[[Attempt, Any], tuple[NDArray[np.int64], NDArray[np.int64], Any]]
"""Outcomes and rounds of measurements, and what the next ones of the same pairs carry on."""


def truth(**changes: object) -> Truth:
    """A candidate that is 20 % faster, on a usual machine."""
    return Truth(**{"tpot": 0.8, "prompts": PROMPTS, "accepted": 0.6, **changes})  # type: ignore[arg-type]


def blocks_of(kind: Truth, seed: int, count: int = ROUNDS) -> list[Block]:
    return [block for both in rounds(kind, count, seed) for block in both]


def run_of(blocks: Iterable[Block], *, policy: Policy | None = None, **changes: object) -> Run:
    """A measurement; before its rounds 60 untimed requests were answered by both arms."""
    blocks = tuple(blocks)
    count = max(block.repeat for block in blocks) + 1
    record = (policy or Policy()).to_record()
    bursts = {block.cell.traffic: Burst(requests=60) for block in blocks}
    run = Run(
        "simulated", "", "", "", ARMS, {}, {}, None, record, blocks, planned=count, bursts=bursts
    )
    return replace(run, **changes)  # type: ignore[arg-type]


def ended(run: Run) -> tuple[Verdict, int]:
    """The verdict of a measurement and its round, as its plan ends it."""
    policy = Policy.from_record(run.policy)
    for look in range(FEWEST, run.planned + 1):
        part = replace(run, blocks=tuple(block for block in run.blocks if block.repeat < look))
        analysis, verdict = judge_run(part, policy, rounds=look, planned=run.planned)
        if verdict.outcome is not Outcome.UNDECIDED or is_futile(analysis, verdict):
            break
    return verdict, look


def verdicts(make: Make) -> Callable[[int], str]:
    """Say how often measurements end with each verdict, after how many rounds on average, and which rules are behind
    the most frequent one."""

    def judged(repetitions: int) -> str:
        ends = [ended(make(seed)) for seed in range(repetitions)]
        counts = Counter(verdict.outcome for verdict, _ in ends).most_common()
        shares = ", ".join(
            f"{WORDS[outcome]} {count / repetitions:.0%}".replace(" 100%", "")
            for outcome, count in counts
        )
        rules = Counter(
            rule
            for verdict, _ in ends
            if verdict.outcome is counts[0][0]
            for rule in decisive(verdict)
        )
        names = [rule for rule, count in rules.most_common(2) if count >= counts[0][1] / 2]
        return f"{shares}; {np.mean([look for _, look in ends]):.0f} rounds{'; ' if names else ''}{', '.join(names)}"

    return judged


def decisive(verdict: Verdict) -> set[str]:
    """The rules that failed, else those without data, else that arms cannot be compared, else those that are open."""
    for outcome in (Outcome.FAIL, Outcome.MISSING, Outcome.UNDECIDED):
        names = {result.rule for result in verdict.rules if result.outcome is outcome}
        if names and verdict.outcome is not Outcome.PROMOTE:
            return names & {"comparable"} or names
    return set()


def changed(
    blocks: Sequence[Block],
    *,
    sample: Callable[[Sample], Sample] | None = None,
    window: Callable[[Block], Window] | None = None,
    arm: str = CANDIDATE,
    since: int = 0,
) -> list[Block]:
    """The blocks with other requests, or with other counters, of one arm from a round on."""

    def of(block: Block) -> Block:
        samples = tuple(map(sample, block.samples)) if sample else block.samples
        return replace(block, samples=samples, window=window(block) if window else block.window)

    return [of(block) if block.arm == arm and block.repeat >= since else block for block in blocks]


def failed(sample: Sample) -> Sample:
    return Sample(None, None, 0, "", "HTTP 500", sample.prompt)


def burst(rng: random.Random, baseline: float, candidate: float) -> Burst:
    """Untimed requests, of which these shares fail, as many as a rollout sends: until no more than the limit can fail,
    or until 200 are sent."""
    total, sent, timed = Burst(), 0, FIRST_LOOK * PROMPTS
    while True:
        failures = total.newly_failed, total.newly_answered
        wanted = (
            more_to_pass(
                *failures, total.requests + timed - 1, Policy().max_failed_excess, failing=False
            )
            or 0
        ) - 1
        wanted = min(wanted, MOST_BEFORE - sent)
        if wanted <= 0:
            return total
        replies = [
            [("error" if rng.random() < rate else "", 0.0) for _ in range(wanted)]
            for rate in (baseline, candidate)
        ]
        total, sent = total + Burst.of(*replies), sent + wanted


def failing(baseline: float, candidate: float) -> Make:
    """A candidate twice as fast; these shares of requests fail, before the rounds and in them."""

    def make(seed: int) -> Run:
        rng = random.Random(seed)
        blocks = blocks_of(truth(tpot=0.5), seed)
        for arm, share in ((BASELINE, baseline), (CANDIDATE, candidate)):
            blocks = changed(
                blocks,
                sample=lambda s, share=share: failed(s) if rng.random() < share else s,
                arm=arm,
            )
        blocks = [
            replace(b, window=replace(b.window, generation_tokens=float(b.output_tokens)))
            for b in blocks
        ]
        return run_of(blocks, bursts={"simulated": burst(rng, baseline, candidate)})

    return make


@dataclass(frozen=True)
class Simulated:
    """A trick of speed alone, which is judged in NumPy, ten times as often as the gate itself judges the others.

    ``measure`` returns the times of so many measurements and the tokens of their answers, None where all have as many;
    ``kind``: whose prompts stall; ``attempts``: as often is a pair measured, until a measurement decides."""

    measure: Callable[[int], tuple[Arms, NDArray[np.float64] | None]]
    kind: Truth
    pod_gap: float = Policy().max_pod_gap
    attempts: int = 1

    def __call__(self, repetitions: int) -> str:
        return self.judged(repetitions, by_the_gate)

    def judged(self, repetitions: int, judge: Judge) -> str:
        """Say how often measurements end with each verdict, and after how many rounds on average."""
        count, state = 10 * repetitions, None
        (base, cand), tokens = self.measure(count)
        before = gate_noise.sent_before(self.kind, count, np.random.default_rng(31))
        tries = []
        for number in range(self.attempts):
            part = slice(number, None, self.attempts)
            attempt = Attempt(
                (base[0][part], base[1][part]),
                (cand[0][part], cand[1][part]),
                (before[0][part], before[1][part]),
                self.pod_gap,
                number,
                None if tokens is None else tokens[part],
            )
            outcomes, used, state = judge(attempt, state)
            tries.append((outcomes, used))
        outcomes, used = (np.stack(figures, 1) for figures in zip(*tries, strict=True))
        first = outcomes[np.arange(len(outcomes)), (outcomes != 0).argmax(1)]
        after = f"; {used.mean():.0f} rounds" if self.attempts == 1 else ""
        return f"promoted {(first == 1).mean():.1%}, rejected {(first == -1).mean():.1%}{after}"


def by_the_gate(attempt: Attempt, _: Any) -> tuple[NDArray[np.int64], NDArray[np.int64], Any]:
    """Outcomes and rounds by the gate's copy in NumPy."""
    outcomes, used = gate_noise.verdicts(
        attempt.base,
        attempt.cand,
        before=attempt.before,
        pod_gap=attempt.pod_gap,
        repetition=attempt.number,
        tokens=attempt.tokens,
    )
    return outcomes, used, None


def in_numpy(pod_gap: float, attempts: int = 1, **kind: object) -> Simulated:
    """Measurements of one kind of noise."""
    noise = truth(**kind)
    return Simulated(
        lambda count: (gate_noise.measured(noise, count, 29), None), noise, pod_gap, attempts
    )


def stalling(share: float, factor: float) -> Simulated:
    """Some prompts are slower on the candidate alone, before the rounds as well; the others take 0.6x."""
    return in_numpy(Policy().max_pod_gap, tpot=0.6, hit=share, hit_factor=factor)


def short_and_long(pod_gap: float, longer: float, prompts: int = PROMPTS) -> Simulated:
    """Half of the answers have 16 tokens and take 0.3x, half have 400 and take longer."""
    noise = truth(tpot=1.0, prompts=prompts)

    def measure(count: int) -> tuple[Arms, NDArray[np.float64]]:
        base, (first, later) = gate_noise.measured(noise, count, 29)
        short = np.random.default_rng(31).random(later.shape) < 0.5
        cand = first, later * np.where(short, 0.3, longer)
        return (base, cand), np.where(short, 16.0, 400.0)

    return Simulated(measure, noise, pod_gap)


def drifting(start: float, end: float, **noise: float) -> Simulated:
    """The time per token goes from ``start`` to ``end`` over the planned rounds."""
    return changing(np.geomspace(start, end, ROUNDS), **noise)


def fast_for(count: int, **noise: float) -> Simulated:
    """The time per token is 0.6x for so many rounds, then 1.08x."""
    return changing(np.where(np.arange(ROUNDS) < count, 0.6, 1.08), **noise)


def changing(factors: NDArray[np.float64], **noise: float) -> Simulated:
    """The time per token is another in each round."""
    kind = truth(tpot=1.0, **noise)

    def measure(count: int) -> tuple[Arms, None]:
        base, (first, later) = gate_noise.measured(kind, count, 29)
        return (base, (first, later * factors[None, :, None])), None

    return Simulated(measure, kind)


def open_loop(requests: int, count: int) -> Make:
    """12 requests a second; the candidate takes 480 ms instead of 600 and has 4 slots instead of 8."""

    def block(arm: str, repeat: int, rng: np.random.Generator) -> Block:
        slots, service = ([0.0] * 8, 600.0) if arm == BASELINE else ([0.0] * 4, 480.0)
        arrivals = np.cumsum(rng.exponential(1000 / 12, requests))
        waits, samples = [], []
        for n, (at, takes) in enumerate(
            zip(arrivals, service * rng.lognormal(0.0, 0.1, requests), strict=True)
        ):
            free = slots.index(min(slots))
            waits.append(max(slots[free] - at, 0.0))
            slots[free] = at + waits[-1] + takes
            samples.append(
                Sample(waits[-1] + 50.0, waits[-1] + takes, TOKENS, "text", prompt=f"{repeat}-{n}")
            )
        tokens, number = float(requests * TOKENS), float(requests)
        drafts = (
            {}
            if arm == BASELINE
            else {"drafts": tokens / 5, "draft_tokens": tokens, "accepted": 0.6 * tokens}
        )
        counted = Window(
            tokens,
            0.0,
            sum(waits) / 1000,
            number,
            **{
                "drafts": None,
                "draft_tokens": None,
                "accepted": None,
                "per_position": (),
                **drafts,
            },
            ttft_seconds=sum(s.ttft_ms for s in samples) / 1000,
            ttft_count=number,
            tpot_seconds=sum(s.tpot_ms for s in samples) / 1000,
            tpot_count=number,
        )
        started = "2026-01-01T00:00:00+00:00"
        return Block(
            arm,
            Cell("chat", 256, rate=12.0),
            repeat,
            started,
            max(slots) / 1000,
            tuple(samples),
            counted,
        )

    def make(seed: int) -> Run:
        rng = np.random.default_rng(seed)
        return run_of(
            block(arm, repeat, rng) for repeat in range(count) for arm in (BASELINE, CANDIDATE)
        )

    return make


def two_classes(large: dict[str, object], small: dict[str, object], share: float) -> Make:
    """Two classes of traffic, the second of them with this share."""

    def make(seed: int) -> Run:
        kinds = truth(traffic="large", **large), truth(traffic="small", **small)
        blocks = [block for n, kind in enumerate(kinds) for block in blocks_of(kind, 2 * seed + n)]
        return run_of(blocks, shares={"large": 1 - share, "small": share})

    return make


def waiting(mean_ms: float, sd: float) -> Make:
    """The candidate's requests wait for their first token, in few rounds for long."""

    def make(seed: int) -> Run:
        rng = np.random.default_rng(seed)
        waits = mean_ms * rng.lognormal(-sd * sd / 2, sd, ROUNDS)

        def window(block: Block) -> Window:
            seconds = PROMPTS * waits[block.repeat] / 1000
            return replace(
                block.window,
                queue_seconds=seconds,
                ttft_seconds=(block.window.ttft_seconds or 0.0) + seconds,
            )

        blocks = changed(blocks_of(truth(tpot=0.5, block_sigma=0.02), seed), window=window)
        return run_of(blocks)

    return make


def other_arm(**changes: object) -> Callable[[int], str]:
    """The check before the first block, of arms that differ in more than speculation."""

    def judged(_: int) -> str:
        try:
            require_alike({**ARMS, CANDIDATE: replace(ARMS[CANDIDATE], **changes)}, ())  # type: ignore[arg-type]
        except MpctlError as error:
            return f"refused before the first block: {str(error).split(': ', 1)[1]}"
        return "measured"

    return judged


def with_candidate(
    kind: Truth, change: Callable[[list[Block]], list[Block]], **run: object
) -> Make:
    return lambda seed: run_of(change(blocks_of(kind, seed)), **run)  # type: ignore[arg-type]


def more_tokens(blocks: Sequence[Block]) -> list[Block]:
    """Usage records and counters of 20 % more tokens, with the same texts at the same time."""

    def window(block: Block) -> Window:
        return replace(block.window, generation_tokens=block.window.generation_tokens * 1.2)

    return changed(blocks, sample=lambda s: replace(s, tokens=round(s.tokens * 1.2)), window=window)


def late_first_tokens(blocks: list[Block]) -> list[Block]:
    """The client gets first tokens 600 ms later; the engine's clock does not know."""
    return changed(
        blocks, sample=lambda s: replace(s, ttft_ms=min((s.ttft_ms or 0) + 600, s.e2e_ms or 0))
    )


def half_counted(blocks: list[Block]) -> list[Block]:
    """From the tenth round on another pod answers every second request."""

    def window(block: Block) -> Window:
        return replace(block.window, generation_tokens=block.window.generation_tokens / 2)

    return changed(blocks, window=window, since=9)


def four_prompts(blocks: list[Block]) -> list[Block]:
    """Four prompts are sent again and again."""

    def sample(s: Sample) -> Sample:
        repeat, number = s.prompt.split("-")
        return replace(s, prompt=f"{int(repeat) % 2}-{number}")

    return [replace(block, samples=tuple(map(sample, block.samples))) for block in blocks]


def running_number(seed: int) -> Run:
    """Four prompts with a running number, for an engine that keeps its answers."""
    prompts = tuple(
        f"Edit the file below: rename variable {n % 4} to total, keep the rest. Request {n}"
        for n in range(98)
    )
    traffic = Traffic("simulated", prompts)
    known = PromptSet(traffic.name, traffic.digest(), traffic.count, 0, traffic.alike)
    suffix = replace(ALIKE, speculation=Spec("suffix", {}), served_tokens=0.0)
    run = run_of(blocks_of(truth(), seed), prompts={traffic.name: known})
    return replace(run, arms={BASELINE: ALIKE, CANDIDATE: suffix})


def clock_jump(blocks: list[Block]) -> list[Block]:
    """The client's clock jumps by a day in the middle."""
    later = [block for block in blocks if block.repeat >= ROUNDS // 2]
    jumped = {
        id(b): (datetime.fromisoformat(b.started) + timedelta(days=1)).isoformat() for b in later
    }
    return [replace(block, started=jumped.get(id(block), block.started)) for block in blocks]


def cached(baseline: float, candidate: float) -> Callable[[list[Block]], list[Block]]:
    """The prefix caches hold these shares of the prompts' tokens."""

    def change(blocks: list[Block]) -> list[Block]:
        for arm, share in ((BASELINE, baseline), (CANDIDATE, candidate)):
            counts = {"prefix_queries": 1000.0, "prefix_hits": 1000.0 * share}
            blocks = changed(
                blocks, window=lambda block, counts=counts: replace(block.window, **counts), arm=arm
            )
        return blocks

    return change


def other_texts(share: float) -> Make:
    """This share of the candidate's greedy texts is another, and the engines give no token ids to score."""

    def make(seed: int) -> Run:
        rng, different = random.Random(seed), 0

        def sample(s: Sample) -> Sample:
            nonlocal different
            other = rng.random() < share
            different += other
            return replace(s, text_digest="other") if other else s

        run = run_of(changed(blocks_of(truth(tpot=0.5), seed), sample=sample))
        count = ROUNDS * PROMPTS
        rules = {
            AnswerRule.TOKENS: RuleCount(count, missing="no token ids"),
            AnswerRule.RENDERING: RuleCount(count),
        }
        kinds = {"simulated": count}
        check = AnswerCheck("rounds", Level.PARSED, count, 1, rules, kinds, count - different)
        return replace(run, round_answers=check)

    return make


def without_ids(seed: int) -> Run:
    """Every greedy text of the candidate is another, and nothing compared token ids."""
    return run_of(
        changed(blocks_of(truth(), seed), sample=lambda s: replace(s, text_digest="other"))
    )


def sampled(kind: Truth) -> Make:
    """A measurement at temperature 0.7, where every text differs."""

    def make(seed: int) -> Run:
        blocks = changed(blocks_of(kind, seed), sample=lambda s: replace(s, text_digest="other"))
        return run_of(
            replace(
                block,
                cell=replace(block.cell, temperature=0.7),
                id_count=block.output_tokens,
            )
            for block in blocks
        )

    return make


def with_answers(
    kind: Truth,
    tokens: Callable[[random.Random, int], float],
    *,
    typical: int = TOKENS,
    cut: int = 0,
) -> Make:
    """A measurement at temperature 0.7 whose candidate gives an answer of this many ``tokens`` in place of another
    number. ``typical``: tokens of an answer of the baseline; ``cut``: tokens at which the candidate's engine ends an
    answer and says so."""

    def of(block: Block, seed: int) -> Block:
        rng, samples = random.Random(f"{seed} {block.repeat}"), []
        for sample in block.samples:
            count = round(sample.tokens * typical / TOKENS)
            if block.arm == CANDIDATE:
                count = max(round(tokens(rng, count)), 2)
            later = (count - 1) * (sample.tpot_ms or 0.0)
            samples.append(replace(sample, tokens=count, e2e_ms=(sample.ttft_ms or 0.0) + later))
        total = sum(sample.tokens for sample in samples)
        parts = {
            name: value * total / block.output_tokens
            for name in ("generation_tokens", "drafts", "draft_tokens", "accepted")
            if (value := getattr(block.window, name)) is not None
        }
        if "accepted" in parts:
            parts["per_position"] = (parts["accepted"],)
        parts["tpot_seconds"] = sum(sample.tpot_ms or 0.0 for sample in samples) / 1000
        return replace(
            block,
            samples=tuple(samples),
            window=replace(block.window, **parts),
            duration_s=sum(sample.e2e_ms or 0.0 for sample in samples) / 1000,
            cut=sum(s.tokens == cut for s in samples) if block.arm == CANDIDATE else 0,
            id_count=total,
        )

    def make(seed: int) -> Run:
        run = sampled(kind)(seed)
        return replace(run, blocks=tuple(of(block, seed) for block in run.blocks))

    return make


def shorter(rng: random.Random, count: int) -> float:
    """Two of five answers are cut to 60 %."""
    return 0.6 * count if rng.random() < 0.4 else count


def overcounted(kind: Truth, *, ids: bool = True) -> Make:
    """Usage records and counters of 20 % more tokens, at temperature 0.7, where the arms take turns; ``ids``: the
    engines give token ids."""

    def make(seed: int) -> Run:
        run = with_answers(kind, lambda _, count: count)(seed)
        blocks = more_tokens([block for block in run.blocks if block.repeat < TURNS])
        if not ids:
            blocks = [replace(block, id_count=None) for block in blocks]
        return replace(run, blocks=tuple(blocks), placement=Placement.TURNS, planned=TURNS)

    return make


def hanging(share: float, times: float) -> Make:
    """This share of the candidate's requests fails, after so many times the usual time; the others take 0.8x."""

    def of(block: Block, rng: random.Random) -> Block:
        fails = [block.arm == CANDIDATE and rng.random() < share for _ in block.samples]
        samples = tuple(failed(s) if f else s for s, f in zip(block.samples, fails, strict=True))
        seconds = block.duration_s * (1 + sum(fails) * (times - 1) / len(samples))
        done = replace(block, samples=samples, duration_s=seconds)
        counted = replace(block.window, generation_tokens=float(done.output_tokens))
        return replace(done, window=counted)

    def make(seed: int) -> Run:
        rng = random.Random(seed)
        blocks = [of(block, rng) for block in blocks_of(truth(), seed)]
        return run_of(blocks, bursts={"simulated": Burst(requests=MOST_BEFORE)})

    return make


def faulty(name: str) -> Callable[[int], str]:
    """A fault of the answers, in the pass before the rounds."""

    def make(seed: int) -> Run:
        fault = next(fault for fault in FAULTS if fault.name == name)
        pairs, _, _ = simulated_pass(fault, size=64, noise=0.03, seed=seed)
        return replace(
            sampled(truth())(seed), answers=examine(pairs, fidelity="full", level=Level.IDS)
        )

    return verdicts(make)


def overlapping(seed: int) -> Run:
    """Equal engines of two measurements 8 % apart, the second begun before the first had ended."""
    days = [
        run_of(blocks_of(truth(tpot=1.0, accepted=0.6, prompt_sigma=0.0), 2 * seed + n))
        for n in (0, 1)
    ]
    faster = [
        replace(
            block,
            duration_s=0.92 * block.duration_s,
            samples=tuple(
                replace(s, ttft_ms=0.92 * s.ttft_ms, e2e_ms=0.92 * s.e2e_ms) for s in block.samples
            ),  # type: ignore[operator]
        )
        for block in days[1].blocks
    ]
    return combine(days[0], BASELINE, replace(days[1], blocks=tuple(faster)), CANDIDATE)


def joined(repetitions: int) -> str:
    outcomes = Counter(judge_run(overlapping(seed))[1].outcome.value for seed in range(repetitions))
    return ", ".join(
        f"{outcome} {count / repetitions:.0%}" for outcome, count in outcomes.most_common()
    )


def stopped(share: float, correlation: float) -> Callable[[int], str]:
    """Users' requests on a head that fits, whose drafts of one answer resemble each other: 25 drafts an answer, 4
    answers a poll, asked at each of 20 polls."""

    def judged(repetitions: int) -> str:
        rng, stops = np.random.default_rng(7), 0
        spread = (1 - correlation) / correlation if correlation else 0.0
        for _ in range(20 * repetitions):
            polls: list[Window] = []
            for _ in range(20):
                rates = (
                    rng.beta(share * spread, (1 - share) * spread, 4)
                    if spread
                    else np.full(4, share)
                )
                hits = float(rng.binomial(25, rates).sum())
                polls.append(Window(200.0 + hits, 0.0, 0.0, 4.0, 100.0, 100.0, hits, (hits,)))
                if judge_served_drafts(
                    polls, replace(Policy(), min_tokens_per_step=0.0), draft_model=True
                ):
                    stops += 1
                    break
        return f"stopped {stops / (20 * repetitions):.1%}"

    return judged


def reset_counters(_: int) -> str:
    """Two engines behind one address, of which one was reset between the readings; both yield 2.5 tokens per step."""

    def read(*engines: tuple[int, int, int]) -> Counters:
        names = ("generation_tokens", "spec_decode_num_drafts", "spec_decode_num_accepted_tokens")
        rows = [
            (name, n, counts[place])
            for place, name in enumerate(names)
            for n, counts in enumerate(engines)
        ]
        rows += [
            ("spec_decode_num_draft_tokens", n, 5 * counts[1]) for n, counts in enumerate(engines)
        ]
        return Counters.parse(
            "\n".join(f'vllm:{name}_total{{engine="{n}"}} {value}' for name, n, value in rows)
        )

    try:
        window = Window.between(
            read((1000, 400, 600), (600, 300, 300)), read((2000, 800, 1200), (500, 200, 300))
        )
    except CounterError as error:
        return f"refused: {error}"
    return f"{window.tokens_per_step:.2f} tokens per step"
