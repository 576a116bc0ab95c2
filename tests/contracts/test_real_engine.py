"""Behaviour of vLLM itself, on the CPU build with the demo's model. One rollout serves all tests of this file."""

import json
import time

import httpx
import pytest

from tests.local.conftest import ROOT, engine  # noqa: F401

ROLLOUT = ("rollout", "--spec", "ngram", "--requests", "6", "--repeats", "3", "--keep-baseline")
pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def promoted(engine):  # noqa: F811
    """A promoted service that runs n-gram speculation."""
    engine(*ROLLOUT, "--policy", engine.policy(), timeout=300)
    return engine


def test_the_engines_token_counter_agrees_with_the_usage_records_of_its_answers(promoted):
    operation = promoted.service / "operations" / "rollout-1"
    blocks = [json.loads(p.read_text()) for p in sorted(operation.glob("block-*.json"))]
    assert len(blocks) >= 4
    for block in blocks:
        assert sum(sample[2] for sample in block["samples"]) == block["window"]["generation_tokens"]


def test_sampling_under_speculation_keeps_its_temperature(promoted):
    """The CPU build's expand kernel loses temperatures; unrepaired, sampled text is noise and no two runs are alike."""
    prompts = ROOT / "mpctl" / "experiment" / "prompts" / "edits.jsonl"
    prompt = json.loads(prompts.read_text().splitlines()[-1])["prompt"]
    url = promoted.json("status")["items"][0]["status"]["url"]
    greedy = complete(url, prompt, temperature=0.0)
    assert greedy
    assert complete(url, prompt, temperature=0.01) == greedy
    assert "repaired the CPU expand kernel" in promoted("local", "logs").stdout


def test_an_engine_that_has_answered_leaves_the_cores_alone(promoted):
    """Unrepaired, two of its processes spin for a second after each answer, on the cores of the engine asked next."""

    def cpu_s():
        return sum(sum(process.cpu_times()[:2]) for process in promoted.processes())

    complete(promoted.json("status")["items"][0]["status"]["url"], "Say something", temperature=0.0)
    before = cpu_s()
    time.sleep(0.8)
    assert cpu_s() - before < 0.5


def test_every_process_of_an_engine_is_found_by_its_marks(promoted):
    """Unrepaired, vLLM renames its processes, which wipes the environment that marks them."""
    marked = {process.pid for process in promoted.processes()}
    for leader in promoted.engines():
        family = {process.pid for process in leader.children(recursive=True)}
        assert len(family) >= 2
        assert family <= marked


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
