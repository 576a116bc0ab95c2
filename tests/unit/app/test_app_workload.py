"""A measurement asked for on a command line."""

from __future__ import annotations

import json

import click
import pytest

from mpctl.app.planned_workload import describe_workload, read_traffic, read_workload
from mpctl.app.requests import MeasurementRequest
from mpctl.cli.command import command
from mpctl.errors import InputError
from mpctl.experiment.workload import Traffic


def asked(*arguments, **settings):
    """The workload of these arguments and settings, by the options that rollout and bench share."""
    entries = {}

    @command("measure", MeasurementRequest, shared=False)
    def measure(request):
        entries["workload"] = read_workload(request)

    measure.main(list(arguments), standalone_mode=False, default_map=settings)
    return entries["workload"]


@pytest.fixture
def prompts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(name, texts):
        (tmp_path / name).write_text("".join(json.dumps({"prompt": t}) + "\n" for t in texts))
        return name

    return write


def test_what_is_sent_when_nothing_is_said():
    made = asked()
    assert [t.name for t in made.traffic] == ["edits"]
    assert (made.concurrency, made.rates, made.temperatures) == ((1,), (), (0.0,))
    assert (made.repeats, made.requests, made.reuse) == (48, 2, False)
    assert describe_workload(made) == "at most 48 rounds of 2 prompts (edits) at concurrency 1"


def test_a_file_is_split_into_classes_with_their_shares(prompts, tmp_path):
    rows = [{"category": "Long Answers", "prompt": f"w{i}"} for i in range(90)] + [
        {"prompt": f"p{i}"} for i in range(30)
    ]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = asked("--prompts", "@log.jsonl")
    assert made.shares == {"long-answers": 0.75, "chat": 0.25}
    assert [t.count for t in made.traffic] == [90, 30]


def test_two_categories_of_one_name_are_refused(prompts, tmp_path):
    rows = [{"category": name, "prompt": "x"} for name in ("A b", "a-b")]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(InputError, match="two categories are the class a-b"):
        asked("--prompts", "@log.jsonl")


def test_a_matrix(prompts):
    mine = prompts("My Traffic.jsonl", [f"p{i}" for i in range(500)])
    made = asked(
        *(
            "--prompts",
            "edits:3",
            "--prompts",
            mine,
            "--repeats",
            "2",
            "--concurrency",
            "1,4",
        ),
        *("--max-time", "5m"),
        requests_per_s="2.5",
        temperatures="0,0.7",
    )
    assert [(t.name, t.share) for t in made.traffic] == [("edits", 3.0), ("my-traffic", 1.0)]
    assert len(made.cells) == 2 * 2 * 3
    assert made.max_time_s == 300.0
    assert describe_workload(made) == (
        "at most 2 rounds of 48 prompts (edits 75%, my-traffic 25%) at concurrency 1, 4 and 2.5 requests/s, "
        "temperature 0, 0.7"
    )


def test_a_rate_alone_is_an_open_loop_only():
    made = asked(requests_per_s="2")
    assert (made.concurrency, made.rates) == ((), (2.0,))
    assert describe_workload(made) == "at most 48 rounds of 2 prompts (edits) at 2 requests/s"


@pytest.mark.parametrize("name", ["edits", "rag", "chat", "math", "fresh", "conversations"])
def test_built_in_sets(name):
    assert len(read_traffic(name).prompts) == 192


def test_a_name_and_a_share_for_a_file(prompts):
    file = prompts("t.jsonl", ["a", "b", "a"])
    assert read_traffic(file) == Traffic("t", ("a", "b"), 1.0, 1)
    assert read_traffic(f"Code_Review={file}:0.25") == Traffic("code-review", ("a", "b"), 0.25, 1)


def test_a_file_wins_over_what_its_name_could_mean_else(prompts):
    assert read_traffic(prompts("x=y:2", ["a"])) == Traffic("x-y-2", ("a",))
    assert read_traffic(prompts("edits", ["a"])) == Traffic("edits", ("a",))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nowhere.jsonl", "nowhere.jsonl: the prompts cannot be read"),
        ("chat=nowhere.jsonl:2", "nowhere.jsonl: the prompts cannot be read"),
        ("edits:0", "share of edits must be above 0"),
    ],
)
def test_a_class_that_cannot_be_read(prompts, text, message):
    with pytest.raises(InputError, match=message):
        read_traffic(text)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--concurrency", "1,x"), "'x' in '1,x' is no whole number"),
        (("--concurrency", "0"), "0 must be at least 1"),
        (("--concurrency", "1.5"), "'1.5' is no whole number"),
        (("--concurrency", "8,8"), "names a number twice"),
    ],
)
def test_numbers_that_are_none(arguments, message):
    with pytest.raises(click.BadParameter, match=message):
        asked(*arguments)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("requests_per_s", "0", "0 must be above 0"),
        ("requests_per_s", "inf", "inf must be above 0"),
        ("temperatures", "nan", "nan must be at least 0"),
        ("temperatures", "-1", "-1 must be at least 0"),
        ("temperatures", "x", "'x' is no number"),
    ],
)
def test_settings_that_are_no_numbers(name, value, message):
    with pytest.raises(click.BadParameter, match=message):
        asked(**{name: value})


@pytest.mark.parametrize(
    ("arguments", "reuse", "rounds"),
    [
        ((), False, 48),
        (("--requests", "8"), False, 12),
        (
            ("--concurrency", "8"),
            False,
            11,
        ),  # 16 prompts a block: the built-in set has 190 to measure with
        (("--concurrency", "1,2"), False, 24),
        (("--concurrency", "1,8"), True, 12),
        (("--concurrency", "8", "--repeats", "3"), False, 3),
    ],
)
def test_rounds_that_are_not_given_are_as_many_as_find_a_gain_and_as_the_prompts_allow(
    arguments, reuse, rounds
):
    assert asked(*arguments, reuse_prompts=reuse).repeats == rounds


def test_too_few_prompts_are_found_before_anything_starts():
    with pytest.raises(InputError, match="192 distinct prompts of edits are too few"):
        asked("--concurrency", "1,8,32")
    assert asked("--concurrency", "1,8,32", reuse_prompts=True).rounds_allowed is None
    assert asked("--concurrency", "1,8,32", "--repeats", "2").rounds_allowed >= 2


def test_warm_is_the_built_in_conversations_or_those_of_a_file(prompts):
    (kind,) = asked(warm=True).traffic
    assert (kind.name, kind.count) == ("conversations", 192)
    (kind,) = asked("--prompts", "conversations", warm=True).traffic
    assert kind.count == 192
    (kind,) = asked("--prompts", "conversations", warm=False).traffic
    assert kind.count == 48
    (kind,) = asked(warm=False).traffic
    assert (kind.name, kind.count) == ("edits", 192)
    file = prompts("plain.jsonl", [f"prompt {n}" for n in range(300)])
    with pytest.raises(InputError, match="no prompt of plain continues another one") as caught:
        asked("--prompts", file, warm=True)
    assert caught.value.field == "MPCTL_WARM"
    assert "--prompts conversations" in caught.value.hint


def test_a_folder_does_not_hide_the_built_in_set_of_its_name(tmp_path, monkeypatch):
    (tmp_path / "edits").mkdir()
    monkeypatch.chdir(tmp_path)
    assert read_traffic("edits").count > 8
