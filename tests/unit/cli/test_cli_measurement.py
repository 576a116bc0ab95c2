"""``--measurement FILE``: the keys that describe a measurement, what wins over them, and what is wrong with a file."""

import re
from dataclasses import fields
from pathlib import Path

import pytest
import yaml
from session import MemorySession
from world import Crash

from mpctl.app.operate import rollout
from mpctl.app.operate.outcome import OperationOutcome
from mpctl.app.requests import MeasurementRequest
from mpctl.cli.project_file import MEASUREMENT
from mpctl.experiment.workload import Workload
from mpctl.rollout.operation import Ending, operations

WHOLE = """\
prompts: [edits:2, chat]
warm: false
contexts: [2k, 8k]
thinking: both
adapters: [sql, law]
concurrency: [1, 8]
rate: 0.5
requests: 4
repeats: 12
max-time: 30m
temperature: [0, 0.7]
max_tokens: 256
reuse-prompts: true
load: local
"""
REQUEST = MeasurementRequest(
    prompts=("edits:2", "chat"),
    warm=False,
    contexts=(2048, 8192),
    thinking="both",
    adapters=("sql", "law"),
    concurrency=(1, 8),
    requests_per_s=(0.5,),
    requests=4,
    rounds=12,
    time_limit_s=1800.0,
    temperatures=(0.0, 0.7),
    max_tokens=256,
    reuse_prompts=True,
    load="local",
)
pytestmark = pytest.mark.needs("local")


@pytest.fixture
def file(cli):
    """Write the file of a measurement and return its name."""

    def write(text):
        (cli.directory / "measurement.yaml").write_text(text)
        return "measurement.yaml"

    return write


@pytest.fixture
def measured(cli, monkeypatch):
    """Run a rollout with these arguments and return the measurement that it asks for."""
    requests = []

    def run(session, request):
        requests.append(request)
        return OperationOutcome.nothing_to_do(session, "nothing to do")

    monkeypatch.setattr(rollout, "run", run)
    monkeypatch.setattr("mpctl.local.session.open_local", lambda *_, **__: MemorySession())

    def call(*arguments):
        done = cli("rollout", "svc", "--spec", "ngram", *arguments)
        assert (done.code, done.err) == (0, "nothing to do\n")
        return requests.pop().measurement

    call.requests = requests
    return call


def test_a_file_holds_every_key_of_a_measurement(measured, file):
    assert measured("--measurement", file(WHOLE)) == REQUEST
    options = (member.metadata.get("option") for member in fields(MeasurementRequest))
    flags = {option.long for option in options if option} - {"--policy"}
    assert {f"--{key.replace('_', '-')}" for key in MEASUREMENT.split(", ")} == flags


def test_the_documented_file_is_one_and_has_every_key(measured, file):
    page = (Path(__file__).parents[3] / "docs" / "reference" / "measurement.md").read_text()
    text = next(block for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL))
    assert set(yaml.safe_load(text)) == set(MEASUREMENT.split(", "))
    request = measured("--measurement", file(text))
    assert (request.contexts, request.adapters, request.load) == (
        (2048, 8192),
        ("sql", "law"),
        "auto",
    )


def test_bench_reads_the_same_file(cli, file, monkeypatch):
    requests = []

    def bench(_place, _console, request):
        requests.append(request)
        raise Crash("asked")

    monkeypatch.setattr("mpctl.app.bench.measure.bench", bench)
    with pytest.raises(Crash):
        cli("bench", "--measurement", file(WHOLE))
    assert [request.measurement for request in requests] == [REQUEST]


def test_each_level_wins_over_the_next(cli, measured, file):
    def tokens(*arguments):
        return measured(*arguments).max_tokens

    cli.user("rollout:\n  max_tokens: 1\n")
    assert tokens() == 1
    cli.project("rollout:\n  max_tokens: 2\n  requests: 5\n")
    assert tokens() == 2
    named = ("--measurement", file("max_tokens: 3\n"))
    assert measured(*named) == MeasurementRequest(max_tokens=3, requests=5)
    cli.env(MPCTL_MAX_TOKENS="4")
    assert tokens(*named) == 4
    assert tokens(*named, "--max-tokens", "5") == 5
    assert tokens("--max-tokens", "5", *named) == 5


def test_a_flag_replaces_the_whole_list_of_the_file(measured, file):
    named = ("--measurement", file("prompts: [edits, chat]\nconcurrency: [1, 8]\n"))
    request = measured(*named, "--prompts", "rag", "--concurrency", "4")
    assert (request.prompts, request.concurrency) == (("rag",), (4,))


@pytest.mark.parametrize("source", ["variable", "user file"])
def test_the_file_may_be_named_once(cli, measured, file, source):
    name = file("thinking: off\n")
    if source == "variable":
        cli.env(MPCTL_MEASUREMENT=name)
    else:
        cli.user(f"rollout:\n  measurement: {name}\n")
    assert measured() == MeasurementRequest(thinking="off")


def test_a_project_file_names_no_measurement(cli, measured, file):
    """Its file could choose where the load client runs."""
    path = cli.project(f"rollout:\n  measurement: {file('load: local')}\n")
    refused = cli("rollout", "svc", "--spec", "ngram")
    assert f"{path}:2: measurement: a project file may not set this" in refused.err
    assert measured.requests == []


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (
            "load: local\nrates: 4\n",
            ":2: rates: unknown key of a measurement",
            f"use {MEASUREMENT}",
        ),
        ("kubeconfig: f\n", ":1: kubeconfig: unknown key of a measurement", f"use {MEASUREMENT}"),
        ("policy: p.yaml\n", ":1: policy: unknown key of a measurement", f"use {MEASUREMENT}"),
        ("staging: {claim: models}\n", ":1: claim: unknown key", f"use {MEASUREMENT}"),
        ("load:\n  rate: 4\n", ":2: load.rate: rollout has no option of this name", None),
        ("rate: 4\nrate: 5\n", ':2: rate: key "rate" is defined twice in one mapping', None),
        ("max-time: 1m\nmax_time: 2m\n", ":2: max_time: is set twice", None),
        ("- rate\n", ":1: must be a mapping of option names to values", None),
        ("rate: [\n", ":2: not valid YAML: ", None),
        ("rate: fast\n", ":1: rate: 'fast' is no number", None),
        ("# load\nrate: [1, x]\n", ":2: rate: 'x' in '1,x' is no number", "run 'mpctl rollout "),
        ("requests: 0\n", ":1: requests: 0 is not in the range x>=1", "run 'mpctl rollout --help'"),
        ("thinking: maybe\n", ":1: thinking: 'maybe' is not one of on, off, both", None),
        ("reuse_prompts: [a]\n", ":1: reuse_prompts: 'a' is not a valid boolean", None),
        ("contexts: 2m\n", ":1: contexts: '2m' is no whole number", None),
    ],
)
def test_what_is_wrong_with_a_file_is_named_before_anything_starts(
    cli, measured, file, text, message, hint
):
    done = cli("rollout", "svc", "--spec", "ngram", "--measurement", file(text))
    assert done.code == 2
    assert done.err.startswith(f"error: measurement.yaml{message}")
    assert hint is None or f"\nhint: {hint}" in done.err
    assert measured.requests == []


def test_a_file_that_does_not_exist_is_named_with_one_that_does(cli, measured, file):
    file("load: local\n")
    done = cli("rollout", "svc", "--spec", "ngram", "--measurement", "mesurement.yaml")
    assert (done.code, done.err.splitlines()) == (
        2,
        [
            "error: mesurement.yaml: the measurement cannot be read: No such file or directory",
            "hint: did you mean measurement.yaml",
        ],
    )
    assert measured.requests == []
    assert cli("rollout", "--measurement", "mesurement.yaml", "--help").code == 0


def test_a_rollout_that_is_resumed_keeps_what_the_file_said(cli, file, monkeypatch):
    session = MemorySession()
    monkeypatch.setattr("mpctl.local.session.open_local", lambda *_, **__: session)

    def die(place):
        if place == "before promote":
            raise Crash(place)

    session.memory.watch = die
    text = "requests: 5\nrepeats: 6\nmax_tokens: 77\ntemperature: 0.7\nload: local\n"
    words = ("rollout", "svc", "--spec", "ngram", "--fidelity", "off", "-y")
    with pytest.raises(Crash):
        cli(*words, "--measurement", file(text))
    (cli.directory / "measurement.yaml").unlink()
    session = session.again()
    assert cli("resume", "svc", "-y").code == 0
    (operation,) = operations(session.store.entries())
    assert (operation.ending, operation.plan.load) == (Ending.PROMOTED, "local")
    workload = Workload.from_record(session.store.load(operation.plan.workload, "workload"))
    assert (workload.requests, workload.repeats, workload.max_tokens) == (5, 6, 77)
    assert workload.temperatures == (0.7,)
