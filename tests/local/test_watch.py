"""The watch as a process beside an engine, and a drill: what stops paying is found, and the service falls back."""

import json
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from mpctl.app.session.base import Place
from mpctl.app.session.open import open_session
from mpctl.cli.terminal import Terminal
from mpctl.local.processes import STATE_VARIABLE
from scripts.drills.rig import rig_of

ROOT = Path(__file__).parents[2]
SCRIPT = {"accept": 0.4, "novel": 0.0, "speculating": {"slow": 1.3}}
QUICK = ("--requests", "6", "--repeats", "3")


@pytest.fixture
def promoted(mpctl):
    mpctl("local", "up", "-f", str(mpctl.manifest(script=SCRIPT)))
    mpctl("rollout", "--spec", "ngram", "--policy", mpctl.policy(), *QUICK)
    return mpctl


def page(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read()


def drill(mpctl, *options, code=0):
    novel = mpctl.directory / "novel.jsonl"
    novel.write_text("".join(json.dumps({"prompt": f"novel {n} " * 100}) + "\n" for n in range(40)))
    words = ("--drift-to", str(novel), "--interval", "0.5", "--window", "1", "--json", "--yes")
    command = [sys.executable, "-m", "scripts.drills", "demo", *words, *options]
    done = subprocess.run(
        command, cwd=ROOT, env=mpctl.environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    return {fault["fault"]: fault for fault in json.loads(done.stdout)["faults"]}


def test_a_drill_finds_its_faults_and_leaves_the_service_as_it_was(promoted):
    before = promoted.live_text()
    faults = drill(promoted, "--fault", "drift", "--fault", "killed-engine")
    assert [(f["passed"], f["failure"]) for f in faults.values()] == [(True, None)] * 2
    assert faults["drift"]["requestsFailed"] == 0
    assert faults["killed-engine"]["requestsFailed"] > 0
    assert faults["drift"]["signal"] == "WorseDraft"
    assert faults["drift"]["secondsToReArm"] > 0
    assert faults["drift"]["tokensPerSecond"]["before"] > 0
    assert promoted.live_text() == before
    whys = [operation["detail"] for operation in promoted.json("history")["operations"]]
    assert whys[1].startswith("watch: WorseDraft: tokens per step 1.0")


def test_an_engine_is_made_ready_for_faults_and_the_drill_after_a_killed_one_undoes_it(
    up, monkeypatch
):
    monkeypatch.setenv(STATE_VARIABLE, str(up.state))
    session = open_session(Place("local", None), Terminal.of_environment(yes=True), "demo")
    (plain,) = up.engines()

    def fresh_engine(old):
        end = time.monotonic() + 60
        while not (rig_of(session).serves() and up.engines() and up.engines()[0].pid != old.pid):
            assert time.monotonic() < end
            time.sleep(0.2)
        return up.engines()[0]

    rig_of(session).ready_to_plant()
    ready = fresh_engine(plain)
    variables = ready.environ()
    assert variables["PYTHONPATH"].split(":")[0] == str(ROOT / "tests" / "local" / "faulty")
    assert json.loads(Path(variables["MPCTL_WRONG"]).read_text()) == {}
    rig_of(session).mend()
    assert "MPCTL_WRONG" not in fresh_engine(ready).environ()


def test_a_restart_replaces_the_engine_while_its_users_ask_and_keeps_every_byte_of_the_spec(
    promoted,
):
    before, (old,) = promoted.live_text(), promoted.engines()
    answers, ended = [], threading.Event()
    url = f"http://127.0.0.1:{json.loads((promoted.service / 'desired.json').read_text())['port']}/v1/chat/completions"

    def ask():
        body = {
            "model": "demo",
            "messages": [{"role": "user", "content": "a b c"}],
            "max_completion_tokens": 8,
        }
        request = urllib.request.Request(
            url, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        while not ended.is_set():
            with urllib.request.urlopen(request, timeout=60) as answer:
                answers.append(answer.status)

    users = ThreadPoolExecutor(1)
    asking = users.submit(ask)
    try:
        done = promoted("restart")
    finally:
        ended.set()
        asking.result(timeout=60)
        users.shutdown()
    assert "restarted: service default/demo runs ngram" in done.stderr
    assert set(answers) == {200}
    (fresh,) = promoted.engines()
    assert fresh.pid != old.pid
    assert promoted.live_text().startswith(before)
    assert promoted.json("history")["operations"][-1]["ending"] == "restarted"
    promoted("rollback")
    assert "speculative" not in promoted.live_text()
    promoted("rollback", "--to-revision", "2")
    assert promoted.live_text() == before


@contextmanager
def listening(mpctl):
    """A running watch that answers over HTTP; its process and address."""
    words = ["watch", "demo", "--interval", "1s", "-o", "json", "--listen", "127.0.0.1:0"]
    watch = subprocess.Popen(
        [sys.executable, "-m", "mpctl.cli.main", *words],
        cwd=mpctl.directory,
        env=mpctl.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield watch, watch.stderr.readline().split()[-1]
    finally:
        with watch:
            watch.terminate()
            try:
                assert watch.wait(timeout=60) == 0
            finally:
                watch.kill()


def wait_until(holds):
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.2)


def test_the_watch_answers_for_itself_until_it_is_ended(promoted):
    done = promoted("watch", "demo", "--once", "--interval", "1s", "-o", "json")
    assert json.loads(done.stdout)["items"][0]["signal"] == "Idle"
    with listening(promoted) as (watch, address):
        wanted = b'mpctl_watch_actions{namespace="default",inference_service="demo"} 0'
        wait_until(
            lambda: wanted in page(f"http://{address}/metrics")
        )  # it answers before its first round has ended
        with urllib.request.urlopen(f"http://{address}/healthz", timeout=10) as answer:
            assert answer.status == 200
        assert (
            "watching 1 service every 1 s; each event is a line, until Ctrl-C"
            in watch.stderr.readline()
        )


def test_a_running_watch_tells_flagger_within_a_minute_what_serves_and_strangers_nothing(promoted):
    def status(path, body=None):
        try:
            with urllib.request.urlopen(f"http://{address}{path}", body, timeout=10) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code

    def flagger():
        return status("/v1/flagger", b'{"name": "demo", "namespace": "default", "metadata": {}}')

    with listening(promoted) as (_, address):
        wait_until(lambda: flagger() == 200)
        verdict = json.loads(page(f"http://{address}/v1/services/demo/verdict"))
        assert (verdict["verdict"], verdict["serves"]) == ("promote", True)
        assert 0 <= verdict["readSecondsAgo"] <= 60
        assert {status(f"/v1/services/random-{number}/verdict") for number in range(100)} == {404}
        promoted("rollback")
        wait_until(lambda: flagger() == 403)
