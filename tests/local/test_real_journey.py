"""The main job on a real vLLM with the demo's model: nothing scripted."""

import json
import subprocess
import sys
import time

import pytest

from mpctl.app.bench.arms import find_server
from mpctl.experiment.block import Block
from mpctl.experiment.cell import Cell
from mpctl.experiment.counters import Window
from mpctl.experiment.prompt_files import built_in_prompts
from mpctl.platform.client import StreamClient
from mpctl.platform.meter import read_counters
from mpctl.rollout.ports import LoadOrder

from .test_killed import POINTS, SIGKILL, ledger

ROLLOUT = ("rollout", "--spec", "ngram", "--requests", "6", "--repeats", "3", "--keep-baseline")
pytestmark = [pytest.mark.engine, pytest.mark.journey]


def test_a_rollout_killed_at_three_points_promotes_ngram_and_rollback_restores_the_service(engine):
    before = engine.live_text()
    command = (*ROLLOUT, "--policy", engine.policy())
    for point in POINTS["side-by-side"]:
        engine(*command, kill_after=point, code=SIGKILL, timeout=300)
    engine(*command, timeout=300)
    assert speculating(engine)
    assert [o["ending"] for o in engine.json("history")["operations"]] == ["promoted"]
    measured = measurement(engine, "rollout-1")
    assert 0.2 < measured.acceptance_rate < 1
    assert measured.tokens_per_step > 1.1

    engine("rollback", timeout=300)
    assert engine.live_text() == before
    assert not speculating(engine)


def test_usage_counter_and_token_ids_agree(engine):
    """Three counts of the same tokens: the server's usage, the engine's metrics, and the ids that the client read."""
    endpoint = find_server(engine.json("status")["items"][0]["status"]["url"], None)
    for cell in (Cell("edits", 1), Cell("edits", 4), Cell("edits", 4, rate=20.0)):
        order = LoadOrder(built_in_prompts("edits")[0][:6], cell, 24, salt=cell.key, token_ids=True)
        sent = StreamClient().send(endpoint, order, lambda: read_counters(endpoint))
        requests = sent.result.requests
        assert [request.error for request in requests] == [""] * 6
        assert [len(request.ids) for request in requests] == [
            request.tokens for request in requests
        ]
        assert (
            sum(request.tokens for request in requests)
            == sent.after.generation_tokens - sent.before.generation_tokens
        )


@pytest.mark.nightly  # a minute of real engines each
@pytest.mark.parametrize("arm", ["baseline", "candidate"])
def test_an_engine_that_is_killed_during_the_promotion_leaves_no_orphan(engine, arm):
    """The service is promoted or restored, and one engine runs; a rollback restores it."""
    before, entries = engine.live_text(), len(ledger(engine))
    rollout = subprocess.Popen(
        [sys.executable, "-m", "mpctl.cli.main", *ROLLOUT[:-1], "--policy", engine.policy()],
        cwd=engine.directory,
        env=engine.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        while not any(e.get("then") == "promote" for e in ledger(engine)[entries:]):
            assert rollout.poll() is None, rollout.stderr.read()
            time.sleep(0.01)
        victims = [
            p for p in engine.engines() if (p in speculating(engine)) is (arm == "candidate")
        ]
        for victim in victims:
            victim.kill()
        _, told = rollout.communicate(timeout=400)
    finally:
        rollout.kill()
    assert victims
    assert rollout.returncode in (0, 7), told
    promoted = rollout.returncode == 0
    assert ("promoted: service" if promoted else "was restored") in told, told
    assert (engine.live_text() != before) is promoted
    assert [o["ending"] for o in engine.json("history")["operations"]][-1] is not None
    if promoted:
        engine("rollback", timeout=400)
    assert engine.live_text() == before
    deadline = time.monotonic() + 120
    while [len(engine.engines()), len(speculating(engine))] != [
        1,
        0,
    ] and time.monotonic() < deadline:
        time.sleep(0.2)
    assert [len(engine.engines()), len(speculating(engine))] == [1, 0]
    assert engine.json("status")["orphans"] == []


def speculating(engine):
    return [p for p in engine.engines() if "--speculative-config" in " ".join(p.cmdline())]


def measurement(engine, operation):
    paths = (engine.service / "operations" / operation).glob("block-*-candidate-*")
    return Window.total(tuple(Block.from_record(json.loads(p.read_text())).window for p in paths))
