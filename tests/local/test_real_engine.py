"""The main job on a real vLLM with the demo's model: nothing scripted. One baseline engine serves all tests of this
file."""

import json

import httpx
import pytest

from mpctl.experiment.block import Block
from mpctl.experiment.counters import Window

from .conftest import ROOT
from .test_killed import SIGKILL, next_kill

ROLLOUT = ("rollout", "--spec", "ngram", "--requests", "6", "--repeats", "3", "--no-calibrate")
pytestmark = pytest.mark.engine


def test_killed_after_every_entry_it_promotes_ngram_and_rolls_back(engine):
    before = engine.live_text()
    kills = 0
    while True:
        done = engine(*ROLLOUT, "--policy", engine.policy(), kill_after=next_kill(engine), code=None, timeout=900)
        if done.returncode != SIGKILL:
            break
        kills += 1
    assert done.returncode == 0, done.stderr
    assert kills == 20
    assert [p for p in engine.engines() if "--speculative-config" in " ".join(p.cmdline())]

    record = engine.json("history")
    assert [o["ending"] for o in record["operations"]] == ["promoted"]
    measured = measurement(engine, "rollout-1")
    assert 0.2 < measured.acceptance_rate < 1
    assert measured.tokens_per_step > 1.1

    engine("rollback", timeout=900)
    assert engine.live_text() == before
    assert not [p for p in engine.engines() if "--speculative-config" in " ".join(p.cmdline())]


def test_counters_agree_with_what_the_client_was_told(engine):
    """Tokens by usage records are the engine's own count, block by block, with and without speculation."""
    operation = engine.service / "operations" / "rollout-1"
    blocks = [json.loads(p.read_text()) for p in sorted(operation.glob("block-*.json"))]
    assert len(blocks) >= 4
    for block in blocks:
        assert sum(sample[2] for sample in block["samples"]) == block["window"]["generation_tokens"]


def test_sampling_under_speculation_is_sane(engine):
    """The CPU build's expand kernel loses temperatures; unrepaired, sampled text is noise and no two runs are alike."""
    engine(*ROLLOUT, "--policy", engine.policy(), timeout=900)
    log = engine("local", "logs").stdout
    prompts = ROOT / "mpctl" / "experiment" / "prompts" / "edits.jsonl"
    prompt = json.loads(prompts.read_text().splitlines()[-1])["prompt"]
    url = engine.json("status")["items"][0]["status"]["url"]
    greedy = complete(url, prompt, temperature=0.0)
    nearly = complete(url, prompt, temperature=0.01)
    assert greedy
    assert nearly == greedy
    repaired = "repaired the CPU expand kernel" in engine("local", "logs").stdout
    assert repaired, log[-500:]
    engine("rollback", timeout=900)


def test_novel_text_at_a_strict_policy_is_refused_and_nothing_changes(engine):
    before = engine.live_text()
    policy = engine.policy("min_tokens_per_step: 5.9\nmin_speedup: 4\n")
    done = engine(*ROLLOUT, "--prompts", "fresh", "--policy", policy, code=5, timeout=900)
    assert "tokens per step" in done.stderr
    assert engine.live_text() == before


def test_the_engine_judges_its_own_configuration(engine):
    done = engine("preflight", "--spec", "ngram", "--ask-engine", timeout=300)
    assert "engine: accepted" in done.stderr


def measurement(engine, operation):
    paths = (engine.service / "operations" / operation).glob("block-*-candidate-*")
    return Window.total(tuple(Block.from_record(json.loads(p.read_text())).window for p in paths))


def complete(url, prompt, *, temperature):
    body = {
        "model": "demo",
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": 120,
        "temperature": temperature,
        "seed": 1,
    }
    answer = httpx.post(f"{url}/chat/completions", json=body, timeout=120, trust_env=False).json()
    return answer["choices"][0]["message"]["content"]
