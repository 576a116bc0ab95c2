"""Cards: read back as written, a hold-out with intervals, and digests that tell training prompts without their text."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpctl.experiment.prompt_files import Chat
from mpctl.lab.drafts.card import (
    AcceptedCounts,
    Card,
    Holdout,
    Licences,
    StartHead,
    Target,
    TrainingRun,
    prompt_digest,
)
from mpctl.records import encode

CHOICES = random.Random(5)


def head(rate: float, *, prompts: int = 24, steps: int = 60, k: int = 3) -> list[AcceptedCounts]:
    """Counts of a head that accepts each token at ``rate``."""
    counts = []
    for _ in range(prompts):
        accepted = [0] * k
        for _ in range(steps):
            for position in range(k):
                if CHOICES.random() > rate:
                    break
                accepted[position] += 1
        counts.append(AcceptedCounts(steps, tuple(accepted)))
    return counts


def card(holdout: Holdout | None = None, **fields) -> Card:
    target = Target("org/target", "main", "ab" * 32)
    return Card(
        name="qwen-7",
        method="eagle3",
        target=target,
        head_digest="cd" * 32,
        holdout=holdout,
        **fields,
    )


def test_a_card_is_read_back_as_it_was_written():
    whole = card(
        Holdout.of(3, head(0.8), head(0.3)),
        start=StartHead("org/head", "ef" * 32),
        salt="s",
        training_digests=("0" * 16, "1" * 16),
        versions={"vllm": "0.32.0"},
        licences=Licences("Apache-2.0", "MIT"),
        made_with="speculators 0.9.0",
        trained=TrainingRun(1000, 20, 3.5, 0.1, 0.25),
        disk_reached=True,
    )
    assert Card.from_record(json.loads(json.dumps(encode(whole)))) == whole


def test_figures_of_a_head_are_those_of_its_counts():
    counts = [AcceptedCounts(10, (8, 4, 0)), AcceptedCounts(30, (12, 8, 4))]
    figures = Holdout.of(3, counts).new
    assert figures.acceptance == (0.5, 0.3, 0.1)
    assert figures.tokens_per_step.value == pytest.approx(76 / 40)
    assert figures.tokens_per_step.low < 0, "two prompts say next to nothing"


def test_the_interval_holds_the_truth_as_often_as_it_says():
    truth = 1 + 0.6 + 0.36 + 0.216
    held = sum(
        bool(figure.low and figure.high and figure.low <= truth <= figure.high)
        for figure in (
            Holdout.of(3, head(0.6, prompts=12, steps=20)).new.tokens_per_step for _ in range(300)
        )
    )
    assert 0.91 <= held / 300 <= 0.99


def test_a_card_is_better_only_when_the_whole_interval_lies_above_zero():
    old = head(0.4)
    assert card(Holdout.of(3, head(0.8), old)).better()
    assert not card(Holdout.of(3, old, old)).better()
    assert not card(Holdout.of(3, head(0.2), old)).better()
    assert not card(Holdout.of(3, head(0.9, prompts=3), head(0.1, prompts=3))).better(), (
        "three prompts are no evidence"
    )
    assert not card().better(), "a head without a hold-out has shown nothing"


def test_pairing_removes_what_both_heads_share():
    hard = [AcceptedCounts(40, (share, 0, 0)) for share in range(5, 35, 2)]
    better = [AcceptedCounts(c.steps, (c.accepted[0] + 1, 0, 0)) for c in hard]
    holdout = Holdout.of(3, better, hard)
    assert holdout.difference is not None
    assert holdout.difference.above(0.0, strictly=True)
    assert holdout.new.tokens_per_step.low < holdout.old.tokens_per_step.high, (
        "apart, the two overlap"
    )


@pytest.mark.parametrize(
    ("new", "old"), [([], None), ([AcceptedCounts(0, (0,))], None), ([AcceptedCounts(3, (1,))], [])]
)
def test_a_holdout_without_steps_or_pairs_is_refused(new, old):
    with pytest.raises(ValueError, match=r"no decoding step|shorter|longer"):
        Holdout.of(1, new, old)


def chat(*messages: tuple[str, str]) -> str:
    return Chat.of({"messages": [{"role": role, "content": content} for role, content in messages]})


def test_training_prompts_are_found_by_their_conversation():
    first = chat(("system", "s"), ("user", "hello  there"))
    later = chat(("system", "s"), ("user", "hello there"), ("assistant", "a"), ("user", "more"))
    other = chat(("system", "s"), ("user", "hello you"))
    trained = card(
        salt="x", training_digests=(prompt_digest(first, "x"), prompt_digest("plain", "x"))
    )
    assert trained.trained_on([first, later, other, "plain\n", "novel"]) == 3
    assert card().trained_on([first]) == 0
    assert prompt_digest(first, "x") != prompt_digest(first, "y")


@given(st.text(), st.text())
def test_a_digest_has_no_text_and_depends_on_the_words_alone(prompt, salt):
    digest = prompt_digest(prompt, salt)
    assert len(digest) == 16
    int(digest, 16)
    assert prompt_digest(f"  {prompt}\n", salt) == digest
