"""Each method on a real vLLM with this project's own models: rolled out, judged by the gate, rolled back byte for byte.
One baseline engine serves all tests of this file.

Verdicts rest on counters: speed is left out of the policy, so that a shared machine does not decide a test. What the
default gate says, speed included, is in scripts/demo_model/methods.md, measured by scripts/methods-table.
"""

import importlib.util
import subprocess
import sys

import pytest

from mpctl.gate.rule import Outcome
from mpctl.rollout.ledger import Event, read_ledger
from mpctl.rollout.operation import operations
from mpctl.rollout.steps.candidate import ReadinessResult
from mpctl.rollout.steps.measure import MatchResult

from .conftest import DEMO, LAX, SUFFIX

LOAD = ("--requests", "6", "--repeats", "3", "--concurrency", "1", "--max-tokens", "160")
pytestmark = pytest.mark.engine


def rollout(engine, *options, code, tokens_per_step=1.5):
    policy = engine.policy(f"{LAX}min_tokens_per_step: {tokens_per_step}\n")
    asked = ("rollout", *options, *LOAD, "--policy", policy, "--keep-baseline")
    return engine(*asked, code=code, timeout=900)


def ledger(engine):
    path = engine.service / "ledger.jsonl"
    return read_ledger(path.read_text(), where=str(path))


def last_rollout(engine):
    return [op for op in operations(ledger(engine)) if op.plan.kind.value == "rollout"][-1]


def running(engine, method):
    return [p for p in engine.engines() if f'"{method}"' in " ".join(p.cmdline())]


def promoted_and_back(engine, method, *options, tokens_per_step=1.5):
    """The rollout, after it was promoted, its engine ran, and rollback restored the manifest byte for byte."""
    before = engine.live_text()
    rollout(engine, "--spec", method, *options, code=0, tokens_per_step=tokens_per_step)
    assert engine.live_text() != before
    assert running(engine, method)
    operation = last_rollout(engine)
    engine("rollback", timeout=900)
    assert engine.live_text() == before
    assert not running(engine, method)
    return operation


@pytest.mark.nightly  # the journey of test_real_journey.py promotes n-gram, too
def test_ngram_is_promoted_on_code_edits_and_rejected_on_novel_text(engine):
    """The same method under the same policy: only the traffic differs."""
    before = engine.live_text()
    rollout(engine, "--spec", "ngram", "--prompts", "edits", code=0, tokens_per_step=3)
    assert running(engine, "ngram")
    engine("rollback", timeout=900)
    assert engine.live_text() == before
    refused = rollout(engine, "--spec", "ngram", "--prompts", "fresh", code=5, tokens_per_step=3)
    assert "tokens per step" in refused.stderr
    assert last_rollout(engine).ending.value == "rejected"
    assert engine.live_text() == before
    assert not running(engine, "ngram")


@pytest.mark.nightly  # EAGLE-3 takes the same way with a smaller draft
def test_a_draft_model_is_promoted(engine):
    operation = promoted_and_back(engine, "draft_model", "--draft", str(DEMO / "draft"))
    assert operation.result("match", MatchResult).outcome is Outcome.PASS


def test_a_trained_eagle3_head_is_promoted_and_takes_its_share_of_the_kv_cache(engine):
    operation = promoted_and_back(engine, "eagle3", "--draft", str(DEMO / "eagle3"))
    matched, ready = (
        operation.result("match", MatchResult),
        operation.result("ready", ReadinessResult),
    )
    assert matched.outcome is Outcome.PASS
    assert matched.rate > 0.6
    log = next(engine.service.glob(f"arms/{ready.arm}.log")).read_text(errors="replace")
    assert f"KV cache size: {ready.kv_pool_tokens:,} tokens" in log
    # Three layers of the target and one of the head's, each with the same keys and values.
    assert ready.kv_pool_tokens / ready.baseline_kv_pool_tokens == pytest.approx(3 / 4, rel=0.02)


@pytest.mark.nightly  # vLLM 0.33 has no Medusa any more
def test_medusa_heads_are_promoted_and_take_no_kv_cache(engine):
    """Medusa heads keep no keys and values, and fewer of their tokens are accepted than of an EAGLE head's."""
    options = (
        "--draft",
        str(DEMO / "medusa"),
        "--set",
        "num_speculative_tokens=3",
        "--prompts",
        "edits",
    )
    operation = promoted_and_back(engine, "medusa", *options, tokens_per_step=1.2)
    assert operation.result("match", MatchResult).outcome is Outcome.PASS
    ready = operation.result("ready", ReadinessResult)
    assert ready.kv_pool_tokens == ready.baseline_kv_pool_tokens


@pytest.mark.nightly  # tests/unit/rollout/test_rollout_match.py tries the step without a minute of both cores
def test_a_head_of_random_weights_fails_the_warm_up(engine):
    """The engine loads, starts and serves; only the acceptance rate shows the mismatch."""
    before = engine.live_text()
    head = engine.directory / "random-eagle3"
    items = [sys.executable, str(DEMO / "eagle3.py"), "--steps", "0", "--out", str(head)]
    subprocess.run(items, check=True, capture_output=True, timeout=300)
    done = rollout(engine, "--spec", "eagle3", "--draft", str(head), code=None)
    assert done.returncode not in (0, 5)
    for phrase in ("does not match target", str(head), "at least 30%", "likely causes"):
        assert phrase in done.stderr
    failed = next(e for e in reversed(ledger(engine)) if e.event is Event.FAILED)
    assert failed.step == "match"
    assert engine.live_text() == before
    assert not running(engine, "eagle3")


@pytest.mark.nightly  # n-gram takes the same way, without a build of arctic-inference
@pytest.mark.skipif(
    not SUFFIX.is_dir() and importlib.util.find_spec("arctic_inference") is None,
    reason="arctic-inference is not there: scripts/setup-suffix builds it",
)
def test_suffix_decoding_is_promoted_on_code_edits(engine):
    operation = promoted_and_back(engine, "suffix", "--prompts", "edits")
    assert operation.result("match", MatchResult) is None  # nothing that has to fit
