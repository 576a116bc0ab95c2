"""Training orders: a split without leaks, names in sequence, and a trainer's command with its placeholders."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpctl.errors import InputError
from mpctl.experiment.prompt_files import Chat
from mpctl.lab.drafts.card import StartHead, Target, prompt_digest
from mpctl.lab.drafts.order import Limits, Split, TrainingOrder, next_name, program_of
from mpctl.records import encode

COMMAND = (
    "train",
    "--data",
    "{transcripts}",
    "--start",
    "{start}",
    "--out={out}",
    "--steps",
    "{steps}",
)


def order(**fields) -> TrainingOrder:
    whole = {
        "name": "qwen-7",
        "service": "qwen",
        "method": "eagle3",
        "target": Target("org/target"),
        "salt": "s",
        "training": ("0" * 16,),
        "holdout": ("1" * 16,),
        "command": COMMAND,
    }
    return TrainingOrder(**{**whole, **fields})


def test_an_order_is_read_back_as_it_was_written():
    whole = order(
        start=StartHead("org/head", "ab"), limits=Limits(steps=7), made_with="speculators 0.9.0"
    )
    assert TrainingOrder.from_record(json.loads(json.dumps(encode(whole)))) == whole


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 3)), max_size=120))
def test_no_conversation_is_on_both_sides_of_a_split(turns):
    prompts = [
        Chat.of(
            {
                "messages": [{"role": "user", "content": f"c{c}"}]
                + [{"role": "user", "content": "t"}] * t
            }
        )
        for c, t in turns
    ]
    conversations = len({c for c, _ in turns})
    if conversations < 10:
        with pytest.raises(InputError, match=f"{conversations} conversations are too few"):
            Split.of(prompts, "s")
        return
    split = Split.of(prompts, "s")
    training, holdout = (
        {prompt_digest(p, "s") for p in side} for side in (split.training, split.holdout)
    )
    assert not training & holdout
    assert len(split.holdout) == len(holdout), "one prompt per conversation"
    assert len(training) == round(0.8 * conversations)
    assert not set(split.training) - set(prompts)


def test_the_newest_conversations_are_held_out():
    split = Split.of([f"prompt {number}" for number in range(20)], "s")
    assert split.holdout == tuple(f"prompt {number}" for number in range(16, 20))
    assert len(split.training) == 16


def test_names_continue_after_the_highest_number():
    assert next_name("qwen", []) == "qwen-1"
    assert next_name("qwen", ["qwen-2", "qwen-10", "qwen-x", "qwen-b-40", "other-90"]) == "qwen-11"


def test_a_command_without_a_start_head_has_no_option_for_it():
    values = {"transcripts": "/t", "start": "/h", "out": "/o", "steps": "5"}
    assert order().trainer_command(values) == [
        "train", "--data", "/t", "--start", "/h", "--out=/o", "--steps", "5",
    ]  # fmt: skip
    assert order().trainer_command({**values, "start": ""}) == [
        "train", "--data", "/t", "--out=/o", "--steps", "5",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["", "../x", "Qwen-1", "a/b", "-x", "x" * 64])
def test_a_name_that_is_no_folder_is_refused(name):
    with pytest.raises(InputError, match="is no name of a head"):
        order(name=name)


def test_an_unknown_placeholder_is_refused_with_the_ones_there_are():
    with pytest.raises(InputError, match=r"unknown \{prompts\}") as refused:
        order(command=("train", "{prompts}"))
    assert "{transcripts}" in str(refused.value.hint)


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("/opt/venv/bin/python3.12 scripts/eagle3.py --steps {steps}", "eagle3.py"),
        ("python -m speculators.train --steps {steps}", "speculators.train"),
        ("torchrun --nproc-per-node 2 train.py", "torchrun"),
        ("", ""),
    ],
)
def test_a_card_names_the_program_that_trained(command, program):
    assert program_of(command.split()) == program
