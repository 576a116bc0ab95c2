"""The tricks of a review that fooled the gate at commit 6dd40a1, each with its verdict then and now.

A trick is a measurement that should not be promoted, or equal arms that should not be told apart. Measurements are
simulated (tests/simulation) and judged by the gate itself, after each round, as a rollout does. "Before" quotes the
review; what stands in brackets after it is how that was measured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gate_simulated import (
    ALIKE,
    GPU,
    PROMPTS,
    QUIET_GPU,
    ROUNDS,
    cached,
    clock_jump,
    drifting,
    failing,
    fast_for,
    faulty,
    four_prompts,
    half_counted,
    hanging,
    in_numpy,
    joined,
    late_first_tokens,
    more_tokens,
    open_loop,
    other_arm,
    other_texts,
    overcounted,
    reset_counters,
    running_number,
    sampled,
    short_and_long,
    shorter,
    stalling,
    stopped,
    truth,
    two_classes,
    verdicts,
    waiting,
    with_answers,
    with_candidate,
    without_ids,
)

from mpctl.gate.policy import Policy


@dataclass(frozen=True)
class Trick:
    """``now``: the verdict over so many simulated measurements; ``sure``: a tenth of them is enough."""

    number: str
    what: str
    before: str
    now: Callable[[int], str]
    sure: bool = False


STRICT = Policy(
    max_pod_gap=0.0,
    max_tpot_ratio=1.0,
    max_e2e_ratio=1.0,
    max_ttft_ratio=1.0,
    ttft_slack_ms=0.0,
    max_queue_wait_ratio=1.0,
    queue_wait_slack_ms=0.0,
)
EQUAL = Policy(max_pod_gap=0.0)
OTHER_ARGUMENTS = (*ALIKE.argv, "--max-num-seqs", "64")
TRICKS = (
    Trick(
        "1, S5",
        "open loop, 12/s, 4 slots for 8, the plan's 2 requests a block",
        "promoted, round 8",
        verdicts(open_loop(PROMPTS, ROUNDS)),
        sure=True,
    ),
    Trick(
        "1, S5",
        "the same, 96 requests a block",
        "time per token 2.37x, not shown at 4 a block",
        verdicts(open_loop(96, 12)),
        sure=True,
    ),
    Trick(
        "2, S4",
        "90 % of requests 0.8x, 10 % 10x",
        "promoted, round 8; machine time 1.62x",
        verdicts(two_classes({}, {"tpot": 10.0}, 0.1)),
    ),
    Trick(
        "3, S3", "5 % of prompts 10x slower, the others 0.6x", "promoted 70 %", stalling(0.05, 10.0)
    ),
    Trick("3, S3", "10 % of prompts 6x slower", "promoted 45 %", stalling(0.1, 6.0)),
    Trick("3, S3", "3 % of prompts 20x slower", "promoted 68 %", stalling(0.03, 20.0)),
    Trick("3, S3", "2 % of prompts 40x slower", "promoted 64 %", stalling(0.02, 40.0)),
    Trick(
        "4, S3",
        "queue wait +75 ms in the mean, sd of log 1.5 over rounds",
        "rule passed 26 %",
        verdicts(waiting(75.0, 1.5)),
    ),
    Trick(
        "4, S3",
        "queue wait +100 ms, sd of log 1.5",
        "rule passed 11 %",
        verdicts(waiting(100.0, 1.5)),
    ),
    Trick(
        "5, S7",
        "another model",
        "promoted, no note",
        other_arm(model="llama", model_digest="b" * 64),
    ),
    Trick("5, S7", "another argument", "promoted, no note", other_arm(argv=OTHER_ARGUMENTS)),
    Trick("5, S7", "another device", "promoted, no note", other_arm(device="NVIDIA H100")),
    Trick(
        "6, S7",
        "equal texts at the same time, 20 % more tokens by usage",
        "promoted, round 8",
        verdicts(with_candidate(truth(tpot=1.0), more_tokens)),
        sure=True,
    ),
    Trick(
        "7, S10",
        "first tokens reach the client 600 ms later, the engine's clock says nothing",
        "promoted, round 16",
        verdicts(with_candidate(truth(), late_first_tokens)),
    ),
    Trick(
        "8",
        "four prompts with a running number, suffix decoding",
        "promoted",
        verdicts(running_number),
        sure=True,
    ),
    Trick(
        "9",
        "sampler takes the likeliest token, temperature 0.7",
        "promoted, round 8",
        faulty("tokens taken greedily"),
        sure=True,
    ),
    Trick(
        "9",
        "sampler uses one seed, temperature 0.7",
        "promoted, round 8",
        faulty("seed used again"),
        sure=True,
    ),
    Trick(
        "10",
        "candidate 30 % slower at first, for 3 rounds, then equal",
        "rejected 11 %",
        in_numpy(0.0, tpot=1.0, cold=1.3, settling=3.0),
    ),
    Trick(
        "10",
        "candidate 100 % slower at first, for 3 rounds",
        "rejected 43 %",
        in_numpy(0.0, tpot=1.0, cold=2.0, settling=3.0),
    ),
    Trick(
        "10",
        "the same, 10 %, on a GPU",
        "rejected 28 %",
        in_numpy(0.0, tpot=1.0, cold=1.1, settling=3.0, **GPU),
    ),
    Trick(
        "11, S1",
        "equal arms, first block of a round 10 % slower, GPU, 12x64",
        "decided 14 %",
        in_numpy(0.0, tpot=1.0, waking=1.1, prompts=64, **GPU),
    ),
    Trick(
        "11, S1",
        "the same, the default plan",
        "decided 10 %",
        in_numpy(0.0, tpot=1.0, waking=1.1, **GPU),
    ),
    Trick(
        "12",
        "a second pod answers from round 10 on",
        "undecided: tokens",
        verdicts(with_candidate(truth(), half_counted)),
        sure=True,
    ),
    Trick(
        "13",
        "four prompts again and again",
        "undecided: repeats",
        verdicts(with_candidate(truth(), four_prompts)),
        sure=True,
    ),
    Trick(
        "13",
        "every greedy text is another, engines without token ids",
        "rejected: outputs",
        verdicts(other_texts(1.0)),
        sure=True,
    ),
    Trick(
        "14",
        "the client's clock jumps by a day, equal arms",
        "no effect",
        verdicts(with_candidate(truth(tpot=1.0), clock_jump, policy=EQUAL)),
    ),
    Trick(
        "15",
        "equal arms, rhythm of 2 blocks, 20 %, 12x8",
        "decided 6.5 %",
        in_numpy(0.0, tpot=1.0, prompts=8, period=2.0, amplitude=0.2),
    ),
    Trick(
        "16",
        "a class of 1 % with answers 1.5x as long",
        "rejected, called failed requests and different texts",
        verdicts(two_classes({}, {"longer": 1.5, "tpot": 1.0}, 0.01)),
        sure=True,
    ),
    Trick(
        "17",
        "equal arms, measured up to five times until one decides",
        "decided 18 %, promoted 9 %",
        in_numpy(0.0, attempts=5, tpot=1.0),
    ),
    Trick(
        "18",
        "temperature 0.7, twice as fast, lengths vary by sd of log 0.4",
        "promoted 77 %, after 19 rounds of 4",
        verdicts(sampled(truth(tpot=0.5, length_sigma=0.4))),
    ),
    Trick(
        "18",
        "the same, sd of log 0.6",
        "promoted 27 %, after 23 rounds of 4",
        verdicts(sampled(truth(tpot=0.5, length_sigma=0.6))),
    ),
    Trick(
        "S2",
        "2 % of requests fail on the candidate alone",
        "promoted 97 %",
        verdicts(failing(0.0, 0.02)),
    ),
    Trick("S2", "5 % fail on the candidate alone", "promoted 60 %", verdicts(failing(0.0, 0.05))),
    Trick("S2", "8 % fail on the candidate alone", "promoted 22 %", verdicts(failing(0.0, 0.08))),
    Trick("S2", "0.5 % fail on both arms", "-", verdicts(failing(0.005, 0.005))),
    Trick(
        "S2",
        "2 % fail on the candidate alone, after 20 times the time; none before the rounds, 0.8x",
        "-",
        verdicts(hanging(0.02, 20.0)),
    ),
    Trick(
        "S2",
        "15 % of greedy texts differ, engines without token ids",
        "promoted 44 %",
        verdicts(other_texts(0.15)),
    ),
    Trick(
        "S2",
        "20 % of greedy texts differ, engines without token ids",
        "promoted 11 %",
        verdicts(other_texts(0.2)),
    ),
    Trick("S6", "two measurements 8 % apart that overlap in time", "promoted, 0.92x", joined),
    Trick(
        "S8",
        "users' requests, first position 0.35 (at least 0.30), correlation in an answer 0.1",
        "stopped 3.5 %",
        stopped(0.35, 0.1),
    ),
    Trick("S8", "the same, correlation 0.3", "stopped 18.5 %", stopped(0.35, 0.3)),
    Trick(
        "S9",
        "a baseline that knows the prompts",
        "undecided, after 24 of 24 rounds",
        verdicts(with_candidate(truth(), cached(0.99, 0.0))),
        sure=True,
    ),
    Trick(
        "S10",
        "all limits 1.0 without slack, equal arms",
        "decided 5.5 %",
        verdicts(with_candidate(truth(tpot=1.0), list, policy=STRICT)),
    ),
    Trick(
        "S10",
        "one of two engines is reset between readings, 2.5 tokens per step",
        "3.83 tokens per step",
        reset_counters,
    ),
    Trick(
        "D1",
        "prefix caches hold 9 % more for the candidate",
        "promoted, 0.92x",
        verdicts(with_candidate(truth(tpot=0.92), cached(0.0, 0.09))),
    ),
    Trick(
        "T2",
        "answers of 16 tokens 0.3x, of 400 tokens 1.15x (all requests 1.11x), side by side",
        "promoted 14 %",
        short_and_long(Policy().max_pod_gap, 1.15),
    ),
    Trick(
        "T2",
        "the same without the margin for pods",
        "promoted 20 %",
        short_and_long(0.0, 1.15),
    ),
    Trick(
        "T2",
        "side by side, with one prompt in a round",
        "-",
        short_and_long(Policy().max_pod_gap, 1.15, 1),
    ),
    Trick(
        "T10",
        "0.6x at first, 1.5x in the last planned round, side by side",
        "promoted 69 %",
        drifting(0.6, 1.5),
    ),
    Trick(
        "T10",
        "the same on a quiet GPU",
        "promoted 100 %",
        drifting(0.6, 1.5, **QUIET_GPU),
    ),
    Trick(
        "T10",
        "0.6x for 6 of 48 rounds, then 1.08x, side by side",
        "-",
        fast_for(6),
    ),
    Trick(
        "T10",
        "0.6x for 12 rounds, then 1.08x, side by side",
        "promoted 4 of 6",
        fast_for(12),
    ),
    Trick(
        "T10",
        "0.6x for 12 rounds, then 1.08x, quiet GPU: the verdict comes first",
        "promoted 99 %",
        fast_for(12, **QUIET_GPU),
    ),
    Trick(
        "T6",
        "temperature 0.7, 0.8x, two of five answers cut to 60 %, lengths vary by sd of log 0.4",
        "promoted 15 %",
        verdicts(with_answers(truth(length_sigma=0.4), shorter)),
    ),
    Trick(
        "T6",
        "the same on a quiet GPU",
        "promoted 75 %",
        verdicts(with_answers(truth(length_sigma=0.4, **QUIET_GPU), shorter)),
    ),
    Trick(
        "T6",
        "temperature 0.7, 0.8x, answers end at 160 tokens, 192 on the baseline",
        "promoted 42 %",
        verdicts(
            with_answers(
                truth(length_sigma=0.4), lambda _, count: min(count, 160), typical=192, cut=160
            )
        ),
    ),
    Trick(
        "T6",
        "the same on a quiet GPU",
        "promoted 65 %",
        verdicts(
            with_answers(
                truth(length_sigma=0.4, **QUIET_GPU),
                lambda _, count: min(count, 160),
                typical=192,
                cut=160,
            )
        ),
    ),
    Trick(
        "T6",
        "temperature 0.7, no gain, usage and counters of 20 % more tokens, GPU, in turns",
        "promoted",
        verdicts(overcounted(truth(tpot=1.0, prompts=16, **GPU))),
    ),
    Trick(
        "T6",
        "the same, engines without token ids",
        "promoted",
        verdicts(overcounted(truth(tpot=1.0, prompts=16, **GPU), ids=False)),
    ),
    Trick(
        "T6",
        "temperature 0.7, an honest 0.8x, lengths vary by sd of log 0.4",
        "promoted 65 %",
        verdicts(with_answers(truth(length_sigma=0.4), lambda _, count: count)),
    ),
    Trick(
        "T6",
        "the same on a quiet GPU",
        "promoted 95 %",
        verdicts(with_answers(truth(length_sigma=0.4, **QUIET_GPU), lambda _, count: count)),
    ),
    Trick(
        "T6",
        "every greedy text is another, 0.8x, bench without token ids",
        "promoted",
        verdicts(without_ids),
        sure=True,
    ),
    Trick(
        "D2",
        "temperature 0.7, answers 1.2x as long, equal time per token",
        "promoted, round 8",
        verdicts(sampled(truth(tpot=1.0, longer=1.2))),
    ),
    Trick(
        "D2",
        "temperature 0.7, answers 1.2x as long, 4 % more time per token",
        "promoted, round 12",
        verdicts(sampled(truth(tpot=1.04, longer=1.2))),
    ),
)


def tricks(repetitions: int, chosen: str) -> None:
    """Print a row of a Markdown table for each trick whose number or description contains the text."""
    print("| | trick | before | now |\n|---|---|---|---|")
    for trick in TRICKS:
        if chosen in f"{trick.number} {trick.what}":
            now = trick.now(max(repetitions // 10, 1) if trick.sure else repetitions)
            print(f"| {trick.number} | {trick.what} | {trick.before} | {now} |", flush=True)
