"""A small measurement: six rounds of eight prompts, with a candidate of known speed."""

from __future__ import annotations

from mpctl.experiment.block import Block, Sample
from mpctl.experiment.cell import Cell
from mpctl.experiment.counters import Window
from mpctl.experiment.run import ArmConditions, Burst, PromptSet, Run
from mpctl.gate.policy import Policy
from mpctl.methods import Spec

ROUNDS, REQUESTS, TOKENS = 6, 8, 50


def small_run(ratio=0.5, *, arms=("baseline", "candidate"), device="cpu", spread=0.0):
    """Six rounds of eight prompts; the candidate takes ``ratio`` of the time, every second time ``spread`` more."""
    blocks = []
    for repeat in range(ROUNDS):
        for arm in arms:
            slow = ratio * (1.0 + spread * (repeat % 2)) if arm == "candidate" else 1.0
            samples = tuple(
                Sample(10.0 * slow, 500.0 * slow, TOKENS, "d", "", f"{repeat}-{n}")
                for n in range(REQUESTS)
            )
            tokens = float(TOKENS * REQUESTS)
            window = Window(
                *(
                    tokens,
                    0.0,
                    0.001 * REQUESTS,
                    float(REQUESTS),
                    tokens / 5,
                    tokens,
                    tokens / 2,
                    (tokens / 2,),
                ),
                ttft_seconds=0.01 * slow * REQUESTS,
                ttft_count=float(REQUESTS),
                tpot_seconds=0.01 * slow * REQUESTS,
                tpot_count=float(REQUESTS),
            )
            blocks.append(
                Block(
                    arm,
                    Cell("edits", 1),
                    repeat,
                    "2026-11-21T00:00:00+00:00",
                    4.0 * slow,
                    samples,
                    window,
                )
            )
    condition = ArmConditions(
        "ngram", "0.32.0", ("--model=m",), "m", "ab" * 32, device, 1000, speculation=Spec("ngram")
    )
    return Run(
        id="bench-1",
        created="2026-11-21T00:00:00+00:00",
        who="somebody@here",
        mpctl_version="0",
        arms=dict.fromkeys(arms, condition),
        prompts={"edits": PromptSet("edits", "d1", ROUNDS * REQUESTS, 0)},
        shares={"edits": 1.0},
        calibration=None,
        policy=Policy(max_pod_gap=0.0).to_record(),
        blocks=tuple(blocks),
        bursts={"edits": Burst(requests=60)},
    )
