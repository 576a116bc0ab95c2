"""Classes that share rounds: what a class borrows from the others, and what it never does."""

from dataclasses import replace

import pytest

from mpctl.experiment.block import Block
from mpctl.experiment.run import Burst, PromptSet, Run
from mpctl.experiment.variants import Variant
from mpctl.gate.assess import judge_run
from mpctl.gate.policy import Policy
from mpctl.gate.pooling import partial_pool
from mpctl.gate.rule import Outcome
from mpctl.stats.confidence import Trimmed
from tests.simulation.measurements import Truth, rounds

ROUNDS = 24
VARIANTS = {
    "edits-2k-demo": Variant("edits", "", 0, 4, 2048, 0, None, "demo"),
    "edits-2k-sql": Variant("edits", "", 1, 4, 2048, 0, None, "sql"),
    "edits-8k-demo": Variant("edits", "", 2, 4, 8192, 0, None, "demo"),
    "edits-8k-sql": Variant("edits", "", 3, 4, 8192, 0, None, "sql"),
}


def run_of(tpots, *, variants=True, accepted=0.6, seed=1, names=VARIANTS):
    """A run of four classes that share rounds, each with its own time per token, candidate over baseline."""
    blocks: list[Block] = []
    for number, (name, tpot) in enumerate(zip(names, tpots, strict=True)):
        truth = Truth(tpot=tpot, prompts=1, accepted=accepted, traffic=name)
        blocks += [block for both in rounds(truth, ROUNDS, 100 * seed + number) for block in both]
    prompts = {n: PromptSet(n, "", 99, 0, 0.0, v if variants else None) for n, v in names.items()}
    bursts = {name: Burst(requests=18, elsewhere=54) for name in names}
    policy = replace(Policy(), max_pod_gap=0.0)
    record = policy.to_record()
    return Run(
        "r", "", "", "", {}, prompts, {}, None, record, tuple(blocks), planned=ROUNDS, bursts=bursts
    )


def verdict_of(tpots, **options):
    return judge_run(run_of(tpots, **options))[1]


def outcomes(verdict):
    return {cell.cell.traffic: cell.outcome.value for cell in verdict.cells}


def test_classes_that_are_all_faster_are_promoted_by_what_they_show_together():
    together = [verdict_of([0.75] * 4, seed=seed).outcome for seed in range(8)]
    apart = [verdict_of([0.75] * 4, seed=seed, variants=False).outcome for seed in range(8)]
    assert together.count(Outcome.PROMOTE) >= 6
    assert apart.count(Outcome.PROMOTE) <= 2


@pytest.mark.parametrize("seed", range(4))
def test_a_class_that_is_twice_as_slow_is_rejected_alone(seed):
    verdict = verdict_of([0.7, 0.7, 0.7, 2.0], seed=seed)
    assert verdict.outcome is Outcome.REJECT
    assert [name for name, outcome in outcomes(verdict).items() if outcome == "reject"] == [
        "edits-8k-sql"
    ]


def test_a_rule_that_passes_by_other_classes_says_so():
    verdict = verdict_of([0.75] * 4)
    borrowed = [r for r in verdict.rules if "with what the other classes show" in r.message]
    assert borrowed
    assert {r.outcome for r in borrowed} == {Outcome.PASS}


def test_a_class_borrows_all_from_its_like_and_little_from_others():
    own, like, other = (Trimmed(mean, 0.4, 16, 0) for mean in (-0.2, -0.22, 1.5))
    joint = Trimmed(-0.21, 0.3, 16, 0)
    assert partial_pool(own, [like], joint) == pytest.approx(joint, abs=1e-9)
    apart = partial_pool(own, [other], Trimmed(0.65, 0.3, 16, 0))
    assert apart.mean == pytest.approx(-0.2, abs=0.05)
    assert apart.spread == pytest.approx(0.4, abs=0.05)
    assert partial_pool(replace(own, count=1), [other], joint) is None


def test_a_class_borrows_nothing_from_another_class_or_load():
    others = {name: replace(v, of=name) for name, v in VARIANTS.items()}
    verdict = verdict_of([0.75] * 4, names=others)
    assert not [r for r in verdict.rules if "other classes" in r.message]
    run = run_of([0.75] * 4)
    loads = dict(zip(VARIANTS, (1, 2, 4, 8), strict=True))
    blocks = (
        replace(b, cell=replace(b.cell, concurrency=loads[b.cell.traffic])) for b in run.blocks
    )
    verdict = judge_run(replace(run, blocks=tuple(blocks)))[1]
    assert not [r for r in verdict.rules if "other classes" in r.message]
