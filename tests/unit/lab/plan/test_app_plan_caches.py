"""What a plan says of the prefix-cache hits that a method costs."""

from __future__ import annotations

from dataclasses import replace

import pytest
import session as sessions
from session import MemorySession

from mpctl.app.requests import SpeculationRequest
from mpctl.app.session.base import EngineCounters
from mpctl.estimate.shape import find_gpu, model_shape
from mpctl.lab.payoff.published_evidence import fitted
from mpctl.lab.payoff.scenario import Acceptance, Scenario
from mpctl.lab.plan import service_plan
from mpctl.lab.plan.caches import AHEAD, lost_hits
from mpctl.lab.requests import PlanRequest

DENSE = Scenario(
    target=model_shape("Qwen/Qwen3-8B"),
    gpu=find_gpu("H100-SXM"),
    method="eagle3",
    k=3,
    concurrency=1,
    prompt=2000,
    output=200,
    acceptance=Acceptance((0.7, 0.5, 0.3)),
    engine=(0, 32, 0),
)
HYBRID = replace(DENSE, target=model_shape("Qwen/Qwen3.5-27B"), method="mtp")


def lost(cell, **facts):
    return lost_hits(cell, fitted(), **{"share": 0.9, **facts})


def test_a_dense_model_computes_one_block_again_and_a_hybrid_up_to_every_hit():
    block, all_hits = lost(DENSE), lost(HYBRID)
    assert block.tokens == (16, 16) and not block.matters
    assert all_hits.tokens == (528, 1800) and all_hits.matters
    assert all_hits.text.startswith(
        "of the 90% of a prompt that users get from the prefix cache mtp forgets 528 to 1800 tokens a request"
    )
    assert all_hits.text.endswith("a gain on single turns may be a loss for conversations")
    assert lost(DENSE, block=128).tokens == (128, 128)


def test_the_time_is_that_of_the_lost_tokens():
    """Twice as many cached tokens take twice as long, and no token takes none."""
    whole, half = (lost(HYBRID, share=share).ms[1] for share in (0.9, 0.45))
    assert whole == pytest.approx(2 * half)
    assert lost(HYBRID, share=0.0).ms == (0, 0)


def test_an_unknown_share_is_said():
    assert "the users' share is unknown" in lost(HYBRID, share=None).text
    assert lost(HYBRID, share=None).tokens == (528, 2000)


@pytest.mark.parametrize("method", ["ngram", "suffix", "draft_model", "medusa"])
def test_a_method_that_reads_no_hidden_states_of_the_prompt_loses_nothing(method):
    assert lost(replace(DENSE, method=method)) is None


def test_a_release_that_hashes_ahead_loses_nothing_without_a_connector():
    ahead = replace(DENSE, engine=AHEAD)
    assert lost(ahead) is None
    assert lost(ahead, connector=True).tokens == (16, 16)
    assert lost(replace(DENSE, engine=None)).tokens == (16, 16)


class Conversing(MemorySession):
    """A service whose users get nine tenths of their prompts from the cache."""

    def counters(self):
        engines = {
            name: replace(read, prefix_queries=1000.0, prefix_hits=900.0)
            for name, read in super().counters().engines.items()
        }
        return EngineCounters(engines, {}, 1)


@pytest.mark.parametrize(("flags", "expected"), [("", 528), ("--no-enable-prefix-caching", None)])
def test_the_plan_of_a_live_service_has_its_users_share(flags, expected, monkeypatch):
    manifest = sessions.MANIFEST.replace("org/model", "Qwen/Qwen3.5-27B")
    if flags:
        manifest = manifest.replace("- --max-model-len", f"- {flags}\n      - --max-model-len", 1)
    monkeypatch.setattr(sessions, "MANIFEST", manifest)
    asked = PlanRequest(
        ("mtp",),
        SpeculationRequest("", gpu="H100-SXM", engine_version="0.32.0"),
        concurrency=(1,),
        prompt_tokens=2000,
        traffic="chat",
    )
    (method,) = service_plan.run(Conversing(), asked).methods
    record = method.to_record()["prefixCache"]
    assert (record and record["lostTokens"][0]) == expected
    if record:
        assert record["hitShare"] == 0.9
