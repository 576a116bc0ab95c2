"""Which settings of prefill and decode pods vLLM's own NIXL hash tells apart: the preflight must refuse those alone."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from mpctl.methods import ServiceFacts, build, preflight_findings
from mpctl.methods.table import METHODS

METHODS_WITH_DRAFTS = ("eagle", "eagle3", "p-eagle", "mtp", "dflash", "dspark")
FREE = ("ngram", "ngram_gpu", "suffix", "draft_model", "medusa")


@pytest.fixture(scope="module")
def factors():
    metadata = pytest.importorskip("vllm.distributed.kv_transfer.kv_connector.v1.nixl.metadata")
    from vllm.config.speculative import SpeculativeConfig

    def of(method: str, model: str = "org/draft", **more: object) -> object:
        """vLLM's own factors of an engine with a method, None of one without."""
        draft = SimpleNamespace(model=model, revision=None, code_revision=None, hf_config=SimpleNamespace())
        config = SimpleNamespace(
            method=METHODS[method].engine_method, draft_model_config=draft, kv_cache_dtype=None,
            parallel_drafting=method == "p-eagle",
        )  # fmt: skip
        vars(config).update(more)
        config.use_eagle = lambda: SpeculativeConfig.use_eagle(config)
        speculative = None if method == "none" else config
        engine = SimpleNamespace(
            speculative_config=speculative, cache_config=SimpleNamespace(cache_dtype="auto")
        )  # fmt: skip
        return metadata._get_speculative_compatibility_factors(engine)

    return of


def refused(method: str) -> bool:
    """Whether the preflight refuses the method on decode pods while the prefill pods have none."""
    draft = "org/draft" if METHODS[method].needs_draft in ("head", "model") else None
    spec = build(method, draft=draft)[0]
    return "prefill-apart" in {finding.id for finding in preflight_findings(spec, ServiceFacts(has_prefill=True))}


@pytest.mark.parametrize("method", [*METHODS_WITH_DRAFTS, *FREE])
def test_a_pair_without_the_setting_on_prefill_is_refused_where_vllms_hash_differs(factors, method):
    assert refused(method) == (factors(method) != factors("none"))


@pytest.mark.parametrize("method", METHODS_WITH_DRAFTS)
def test_a_pair_with_the_same_setting_has_the_same_hash(factors, method):
    assert factors(method) == factors(method)
    assert factors(method) != factors(method, model="org/other")


@pytest.mark.parametrize(
    ("prefill", "decode", "same"),
    [
        ("eagle3", "p-eagle", False),
        ("eagle", "eagle3", False),
        ("mtp", "eagle3", False),
        ("dflash", "dspark", False),
        ("ngram", "suffix", True),
        ("none", "ngram", True),
        ("medusa", "none", True),
        ("draft_model", "none", True),
    ],
)
def test_pairs_of_methods(factors, prefill, decode, same):
    assert (factors(prefill) == factors(decode)) == same
