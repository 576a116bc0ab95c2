"""Measurements as files, and comparing them, through the command line."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from mpctl.cli.bench.work import _file
from mpctl.cli.runs import read_run, write_run
from mpctl.errors import InputError, MpctlError
from mpctl.experiment.block import Block, Sample
from mpctl.experiment.cell import Cell
from mpctl.experiment.counters import Window
from mpctl.experiment.run import ArmConditions, PromptSet, Run
from mpctl.gate.policy import Policy

ROUNDS, REQUESTS, TOKENS = 6, 8, 50


def made(ratio=0.5, *, arms=("baseline", "candidate"), device="cpu", spread=0.0):
    """Six rounds of eight prompts; the candidate takes ``ratio`` of the time, every second time ``spread`` more."""
    blocks = []
    for repeat in range(ROUNDS):
        for arm in arms:
            slow = ratio * (1.0 + spread * (repeat % 2)) if arm == "candidate" else 1.0
            samples = tuple(
                Sample(10.0 * slow, 500.0 * slow, TOKENS, "d", "", f"{repeat}-{n}") for n in range(REQUESTS)
            )
            tokens = float(TOKENS * REQUESTS)
            window = Window(
                *(tokens, 0.0, 0.001 * REQUESTS, float(REQUESTS), tokens / 5, tokens, tokens / 2, (tokens / 2,)),
                ttft_seconds=0.01 * slow * REQUESTS,
                ttft_count=float(REQUESTS),
                tpot_seconds=0.01 * slow * REQUESTS,
                tpot_count=float(REQUESTS),
            )
            blocks.append(
                Block(arm, Cell("edits", 1), repeat, "2026-11-21T00:00:00+00:00", 4.0 * slow, samples, window)
            )
    condition = ArmConditions("ngram", "0.32.0", ("--model=m",), "m", "ab" * 32, device, 1000)
    return Run(
        id="bench-1",
        created="2026-11-21T00:00:00+00:00",
        who="somebody@here",
        mpctl_version="0",
        arms=dict.fromkeys(arms, condition),
        prompts={"edits": PromptSet("edits", "d1", ROUNDS * REQUESTS, 0)},
        shares={"edits": 1.0},
        calibration=None,
        policy=Policy(),
        blocks=tuple(blocks),
    )


@pytest.mark.parametrize("name", ["run.json", "run.json.gz"])
def test_a_run_comes_back_from_its_file(tmp_path, name):
    path = str(tmp_path / name)
    write_run(path, made())
    assert read_run(path) == made()
    assert [p.name for p in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is no measurement"),
        (b"{", "is no measurement"),
        (b"\xff\xfe", "is no measurement"),
        (b"[]", "not a JSON object"),
        (b'{"kind": "Report"}', "kind: must be Run"),
        (gzip.compress(b"{}", mtime=0)[:-4], "is no measurement"),
        (b"\x1f\x8b", "is no measurement"),
        (b"\x1f\x8b" + b"x" * 40, "cannot be read|is no measurement"),
    ],
)
def test_what_is_no_run_is_named(tmp_path, content, message):
    path = tmp_path / "run"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        read_run(str(path))
    assert caught.value.file == str(path)


def test_files_that_cannot_be_reached(tmp_path):
    with pytest.raises(InputError, match="cannot be read: No such file"):
        read_run(str(tmp_path / "nothing"))
    with pytest.raises(MpctlError, match="cannot be written"):
        write_run(str(tmp_path / "nowhere" / "run.json"), made())


def test_comparing_the_arms_of_one_run(cli):
    write_run("fast.json.gz", made(0.5))
    ran = cli("bench", "compare", "fast.json.gz")
    assert ran.code == 0, ran.err
    assert "2.00x" in ran.out
    write_run("slow.json.gz", made(2.0))
    ran = cli("bench", "compare", "slow.json.gz")
    assert ran.code == 5
    assert "the gate would say no" in ran.err


def test_the_arms_of_one_run_are_judged_as_they_were_when_it_was_measured(cli):
    """Twelve rounds were planned and six are there: the intervals are those of the sixth look of twelve."""

    def interval(run):
        write_run("run.json", run)
        rules = json.loads(cli("bench", "compare", "run.json", "-o", "json").out)["status"]["gate"]["cells"][0]["rules"]
        found = next(r["interval"] for r in rules if r["rule"] == "speedup")
        return found["high"] - found["low"]

    assert interval(made(0.5, spread=0.1)) < interval(replace(made(0.5, spread=0.1), planned=12))


def test_a_measurement_overwrites_nothing_but_itself(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("letter.txt").write_text("dear", encoding="utf-8")
    write_run("friday.json", made())
    for path in ("letter.txt", "friday.json"):
        with pytest.raises(InputError, match="is there already, and is another measurement or none"):
            _file(path, "bench-other-1")
    assert _file("friday.json", made().id) == "friday.json"
    assert _file(None, "bench-other-1") == "bench-other-1.json.gz"


def test_one_arm_is_not_compared_with_nothing(cli):
    write_run("friday.json", made(0.5))
    ran = cli("bench", "compare", "friday.json:candidate")
    assert ran.code == 2
    assert ran.err == (
        "error: friday.json:candidate names one arm\nhint: mpctl bench compare friday.json holds its arms together\n"
    )


def test_comparing_two_runs_and_their_arms(cli):
    write_run("monday.json", made(1.0, arms=("baseline",)))
    write_run("friday.json", made(0.5))
    ran = cli("bench", "compare", "monday.json", "friday.json", "-o", "json")
    assert ran.code == 0, ran.err
    record = json.loads(ran.out)
    assert record["kind"] == "Measurement"
    assert record["status"]["measurement"][0]["speedup"] == pytest.approx(2.0)
    same = cli("bench", "compare", "friday.json:baseline", "monday.json:baseline", "-o", "json")
    assert json.loads(same.out)["status"]["measurement"][0]["speedup"] == pytest.approx(1.0)


def test_what_was_measured_differently_is_not_compared_unless_forced(cli):
    write_run("cpu.json", made(0.5))
    write_run("gpu.json", made(0.5, device="NVIDIA L4"))
    ran = cli("bench", "compare", "cpu.json", "gpu.json")
    assert ran.code == 2
    assert "device: cpu and NVIDIA L4" in ran.err
    forced = cli("bench", "compare", "cpu.json:baseline", "gpu.json", "--force")
    assert forced.code == 0
    assert "warning: measured differently: device: cpu and NVIDIA L4" in forced.err


def test_one_arm_has_nothing_to_be_compared_with(cli):
    write_run("alone.json", made(arms=("baseline",)))
    ran = cli("bench", "compare", "alone.json")
    assert ran.code == 2
    assert "alone.json: holds one arm only" in ran.err
    ran = cli("bench", "compare", "alone.json:candidate", "alone.json")
    assert ran.code == 2
    assert "has no arm candidate" in ran.err


def test_too_few_rounds_decide_nothing(cli):
    run = made(0.5)
    write_run("one.json", replace(run, blocks=tuple(b for b in run.blocks if b.repeat == 0)))
    assert cli("bench", "compare", "one.json").code == 6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--spec", "ngram", "--candidate", "x"), "--candidate: cannot be combined with --spec"),
        (("--candidate-url", "http://x"), "--candidate-url: needs --url"),
        (("--url", "http://x", "--spec", "ngram"), "--spec: cannot be combined with --url"),
        (("svc", "--url", "http://x"), "--url: cannot be combined with the service svc"),
        (("--candidate-url", "http://x", "--url", "http://x", "--candidate", "y"), "cannot be combined with"),
    ],
)
def test_options_of_bench_that_exclude_each_other(cli, arguments, message):
    ran = cli("bench", *arguments)
    assert ran.code == 2
    assert message in ran.err


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("localhost:8000", "is no http or https address"),
        ("http://user:secret@localhost", "ends up in logs"),
        ("http://127.0.0.1:9", "does not answer as vLLM does"),
    ],
)
def test_a_url_that_is_no_server(cli, url, message):
    ran = cli("bench", "--url", url, "--vllm", "/usr/bin/env")
    assert ran.code == 2
    assert message in ran.err
    assert "secret" not in ran.err
