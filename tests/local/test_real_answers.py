"""Answers compared on a real vLLM with the demo's models: methods of its own pass, one planted fault is refused."""

import json
import os
import sys
from datetime import datetime
from itertools import zip_longest
from pathlib import Path

import pytest

from mpctl.experiment.answer_sets import _call, _document, _Picker, _session
from mpctl.experiment.answers import AnswerCheck, AnswerRule, Level
from mpctl.gate.answer_forms import invalid_kinds
from mpctl.rollout.ledger import read_ledger

from .answer_bench import MODEL, PARSERS, Planted, refusals, running
from .conftest import DEMO, LAX, ROOT

ROUNDS = ("--requests", "4", "--repeats", "2", "--max-tokens", "64")
TEXTS = ("Call the tool", "Return this record", "Repeat rule", "The rules of the store", "def ")
pytestmark = [pytest.mark.engine, pytest.mark.nightly]  # minutes of real engines


def check(engine, name="answers"):
    """The last comparison of answers that the service's records hold."""
    passes = sorted(
        engine.service.glob(f"operations/*/{name}.json"), key=lambda path: path.stat().st_mtime
    )
    return AnswerCheck.from_record(json.loads(passes[-1].read_text()))


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    """Two engines with parsers; faults are planted in the second."""
    with running(tmp_path_factory.mktemp("bench")) as bench:
        yield bench


def leaked(engine, done):
    """Texts of requests and answers in anything but the engines' own logs, which hold none of them either."""
    kept = [path.read_bytes() for path in engine.state.rglob("*") if path.is_file()]
    shown = (done.stdout + done.stderr).encode()
    return [text for text in TEXTS if any(text.encode() in data for data in (*kept, shown))]


@pytest.mark.parametrize(
    "options", [("ngram",), ("eagle3", "--draft", str(DEMO / "eagle3"))], ids=["ngram", "eagle3"]
)
def test_a_method_with_the_targets_answers_passes_every_rule_that_can_run(engine, options):
    done = engine(
        "rollout",
        "--spec",
        *options,
        "--fidelity",
        "full",
        *ROUNDS,
        "--policy",
        engine.policy(),
        timeout=900,
    )
    passed = check(engine)
    assert not [finding for finding in passed.findings if finding.confirmed]
    assert passed.requests > 80 and passed.scored > 60
    assert set(passed.skipped) == {"tools"}  # the demo's engine parses none
    assert not leaked(engine, done)
    engine("rollback", timeout=900)


def mixed(path, *, tools):
    """Requests with schemas and turns of sessions, and with ``tools`` of calls, in a file of prompts."""
    pick = _Picker("mixed traffic")
    sessions = [body for _ in range(8) for body in _session(pick, 512, 3)[:-1]]
    documents = [_document(pick, number) for number in range(24)]
    calls = [_call(pick, number) for number in range(24 if tools else 0)]
    lines = [
        json.dumps(body)
        for turn in zip_longest(sessions, documents, calls)
        for body in turn
        if body
    ]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


LENGTHS = "max_length_ratio: 1000\nmax_sampled_length_ratio: 1000\n"  # of two rounds
METHODS = {
    "ngram": (MODEL, ()),
    "suffix": (MODEL, ()),
    "eagle3": (DEMO / "model", ("--draft", str(DEMO / "eagle3"))),
    "draft_model": (DEMO / "model", ("--draft", str(DEMO / "draft"))),
}


@pytest.mark.parametrize("method", METHODS)
def test_a_method_is_promoted_on_mixed_traffic_greedy_and_sampled_one_and_eight_at_once(
    engine, tmp_path, method
):
    """Prints a row of the table in docs/explanation/answers.md."""
    model, options = METHODS[method]
    tool = type(engine)(
        tmp_path, {**engine.environment, "MPCTL_STATE_DIR": str(tmp_path / "state")}
    )
    manifest = tool.manifest(model=str(model))
    if model == MODEL:
        parsers = ", ".join(PARSERS)
        manifest.write_text(
            manifest.read_text().replace("--enforce-eager]", f"--enforce-eager, {parsers}]")
        )
    file = mixed(tmp_path / "mixed.jsonl", tools=model == MODEL)
    tool("local", "up", "-f", str(manifest), timeout=900)
    load = ("--requests", "4", "--repeats", "2", "--max-tokens", "48")
    measurement = tool.directory / "measurement.yaml"
    measurement.write_text("temperature: [0, 0.7]\nreuse_prompts: true\n")
    cells = ("--concurrency", "1,8", "--measurement", str(measurement))
    traffic = ("--prompts", "edits", "--prompts", "fresh", "--prompts", f"mixed={file}")
    wide = tool.policy(
        f"{LAX}min_tokens_per_step: 0\nmax_repeated: 1\nmax_cache_gap: 1\nmin_first_acceptance: 0\n{LENGTHS}"
    )
    try:
        done = tool(
            "rollout", "--spec", method, *options, *load, *cells, *traffic, "--fidelity", "quick", "--policy", wide,
            code=None, timeout=900,
        )  # fmt: skip
        passed, rounds = check(tool), check(tool, "answers-rounds")
        entries = read_ledger((tool.service / "ledger.jsonl").read_text(), where=method)
        seconds = {name: spent(entries, name) for name in ("answers", "measure")}
        sys.stdout.write(
            f"| {method} | {'promoted' if done.returncode == 0 else done.returncode} | {passed.requests} + "
            f"{passed.scored} scored | {seconds['answers']:.0f} s | {rounds.requests}, {rounds.equal} equal, "
            f"{rounds.tied} tied, {rounds.unscored} unscored | {rounds.scored} | {seconds['measure']:.0f} s |\n"
        )
        assert done.returncode == 0, done.stdout
        assert not [f for part in (passed, rounds) for f in part.findings if f.confirmed]
        assert rounds.level is Level.IDS
        assert not leaked(tool, done)
    finally:
        tool("local", "down", "--all", "--orphans", "--force", code=None)


def spent(entries, step):
    """Seconds until a step was done after the one before."""
    times = [datetime.fromisoformat(e.at) for e in entries]
    done = next(n for n, e in enumerate(entries) if e.step == step)
    return (times[done] - times[done - 1]).total_seconds()


def test_streaming_parsers_of_tools_and_thoughts_pass_with_ngram(engine, tmp_path):
    """Calls under every tool_choice, records by a schema and thoughts, streamed and not, whole rollout."""
    tool = type(engine)(
        tmp_path, {**engine.environment, "MPCTL_STATE_DIR": str(tmp_path / "state")}
    )
    manifest = tool.manifest(model=str(MODEL))
    parsers = ", ".join(PARSERS)
    manifest.write_text(
        manifest.read_text().replace("--enforce-eager]", f"--enforce-eager, {parsers}]")
    )
    tool("local", "up", "-f", str(manifest), timeout=900)
    try:
        done = tool(
            "rollout",
            "--spec",
            "ngram",
            "--fidelity",
            "full",
            *ROUNDS,
            "--policy",
            tool.policy(),
            timeout=900,
        )
        assert "promoted" in done.stderr
        passed = check(tool)
        assert (
            not passed.skipped and passed.compared["tools"] >= 64 and passed.compared["json"] >= 32
        )
        assert not [finding for finding in passed.findings if finding.confirmed]
        assert passed.rules[AnswerRule.RENDERING].compared > 100
        assert not leaked(tool, done)
    finally:
        tool("local", "down", "--all", "--orphans", "--force", code=None)


def test_the_model_calls_tools_and_thinks_under_every_choice(bench):
    bench.check(Planted("none"))
    answers = list(zip(bench.baseline.asks, bench.baseline.answers, strict=True))
    asked = {"auto": [], "required": [], "named": []}
    for ask, answer in answers:
        if ask.kind == "tools":
            choice = ask.body["tool_choice"]
            asked[choice if isinstance(choice, str) else "named"].append((ask, answer))
    for choice, pairs in asked.items():
        valid = [answer for ask, answer in pairs if not invalid_kinds(ask, answer)]
        assert len(valid) >= 0.8 * len(pairs) >= 8, choice
        assert {ask.stream for ask, _ in pairs} == {True, False}
    assert any(len(answer.tool_calls) == 2 for _, answer in asked["auto"])
    thinking = [answer for _, answer in answers if answer.reasoning]
    assert len(thinking) > 0.8 * len(answers)
    assert not [
        answer for _, answer in answers if "think>" in answer.text or "tool_call>" in answer.text
    ]


@pytest.mark.parametrize(
    ("fault", "rules"),
    [
        (Planted("token random", 0.01), {AnswerRule.TOKENS}),
        (Planted("tokens taken greedily"), {AnswerRule.LAW}),
        (Planted("argument lost", 0.1), {AnswerRule.RENDERING}),
        (Planted("stream chunk dropped", 0.1), {AnswerRule.TOKENS}),
        (Planted("session poisoned after its first turn", after=160), {AnswerRule.SESSIONS}),
        (Planted("seed used again"), {AnswerRule.SEEDS}),
        (Planted("HTTP 500", 0.3), {AnswerRule.VALIDITY}),
        (Planted("noise", 0.1, sound=True), set()),
        (Planted("none", sound=True), set()),
    ],
    ids=lambda value: value.kind if isinstance(value, Planted) else "",
)
def test_a_fault_is_refused_by_its_rule_and_a_sound_engine_by_none(bench, fault, rules):
    refused = set(refusals(bench.check(fault)))
    assert (rules <= refused) if rules else not refused


def test_a_digit_that_is_wrong_in_one_of_twelve_answers_is_refused_before_any_round(
    engine, tmp_path
):
    tool = type(engine)(
        tmp_path, {**engine.environment, "MPCTL_STATE_DIR": str(tmp_path / "state")}
    )
    tool.environment["PATH"] = os.pathsep.join(
        (str(Path(sys.executable).parent), os.environ["PATH"])
    )
    wrong = str(ROOT / "scripts" / "python-wrong")
    tool(
        "local",
        "up",
        "-f",
        str(tool.manifest(model=str(DEMO / "model"))),
        "--vllm",
        wrong,
        timeout=900,
    )
    try:
        before = tool.live_text()
        policy = tool.policy()
        done = tool(
            "rollout",
            "--spec",
            "ngram",
            "--fidelity",
            "full",
            *ROUNDS,
            "--policy",
            policy,
            code=5,
            timeout=900,
        )
        assert "rendering" in done.stdout + done.stderr
        assert {finding.rule.value for finding in check(tool).findings if finding.confirmed} == {
            "rendering"
        }
        assert not list(tool.service.glob("operations/*/block-*"))
        assert tool.live_text() == before and len(tool.engines()) == 1
        assert not leaked(tool, done)
    finally:
        tool("local", "down", "--all", "--orphans", "--force", code=None)
