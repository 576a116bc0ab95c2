"""The main job on a real vLLM with the demo's model: nothing scripted."""

import json

import pytest

from mpctl.experiment.block import Block
from mpctl.experiment.counters import Window

from .test_killed import POINTS, SIGKILL

ROLLOUT = ("rollout", "--spec", "ngram", "--requests", "6", "--repeats", "3", "--no-calibrate", "--keep-baseline")
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


def speculating(engine):
    return [p for p in engine.engines() if "--speculative-config" in " ".join(p.cmdline())]


def measurement(engine, operation):
    paths = (engine.service / "operations" / operation).glob("block-*-candidate-*")
    return Window.total(tuple(Block.from_record(json.loads(p.read_text())).window for p in paths))
