"""Combinations that are known to fail: the range decides between a refusal, a warning and nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mpctl.errors import InputError
from mpctl.methods import METHODS, ServiceFacts, Spec, build
from mpctl.methods.preflight.known_bad import FEATURES, KnownBadRow, read_known_bad, shipped_known_bad
from mpctl.methods.versions import Version, show

RECIPES = Path(__file__).parent / "known_good_recipes.txt"
# A name and the words of a command line that put a service inside of a row's class and feature.
_MODELS = {
    "deepseek-v3": "deepseek-ai/DeepSeek-V3.1",
    "functiongemma": "google/functiongemma-270m-it",
    "gdn": "Qwen/Qwen3.6-35B-A3B",
    "gemma4": "google/gemma-4-31b-it",
    "glm": "zai-org/GLM-5.2",
    "kimi-k2": "moonshotai/Kimi-K2.6",
    "kimi-k3": "moonshotai/Kimi-K3",
    "llama": "meta-llama/Llama-3.1-8B-Instruct",
    "mamba2": "nvidia/NVIDIA-Nemotron-3-Nano-30B",
    "step3": "stepfun-ai/step3",
    "zamba": "Zyphra/Zamba2-7B",
}
_WORDS = {
    "backend-guidance": '--structured-outputs-config={"backend":"guidance"}',
    "kv-connector": '--kv-transfer-config={"kv_connector":"SharedStorageConnector"}',
    "kv-offload": '--kv-transfer-config={"kv_connector":"OffloadingConnector"}',
    "lmcache": '--kv-transfer-config={"kv_connector":"LMCacheMPConnector"}',
    "nixl": '--kv-transfer-config={"kv_connector":"NixlConnector"}',
    "no-async-scheduling": "--no-async-scheduling",
    "parser-deepseek-r1": "--reasoning-parser=deepseek_r1",
    "parser-hermes": "--tool-call-parser=hermes",
    "parser-qwen3-coder": "--tool-call-parser=qwen3_coder",
    "pipeline-parallel": "--pipeline-parallel-size=2",
    "prefix-caching": "--enable-prefix-caching",
    "reasoning": "--reasoning-parser=qwen3",
    "sleep": "--enable-sleep-mode",
    "tools": "--tool-call-parser=any",
}
_KV = {"kv-fp8": "fp8_e4m3", "kv-fp8-e5m2": "fp8_e5m2", "kv-turboquant": "turboquant_k8v4"}
# Outcomes of the shipped rows at the release that each was last seen in: change them with the rows.
_REFUSED = "kb01 kb02 kb03 kb04 kb06 kb08 kb17 kb21 kb23 kb25 kb34 kb76"


def _facts(row: KnownBadRow, version: Version) -> ServiceFacts:
    return ServiceFacts(
        engine_version=show(version),
        target_name=_MODELS[row.models[0]] if row.models else "org/plain-model",
        argv=tuple(_WORDS[name] for name in row.features if name in _WORDS),
        kv_cache_dtype=next((_KV[name] for name in row.features if name in _KV), None),
        prefix_caching=True,
        served_context=32768,
        draft_context=4096,
    )


def _spec(row: KnownBadRow, k: int = 3) -> Spec:
    method = row.methods[0] if row.methods else "ngram"
    settings = [f"num_speculative_tokens={k}"]
    settings += ["draft_sample_method=probabilistic"] if "probabilistic" in row.features else []
    draft = "org/draft" if METHODS[method].needs_draft in ("head", "model") else None
    return build(method, draft=draft, sets=tuple(settings))[0]


def _severity(row: KnownBadRow, version: Version) -> str:
    findings = shipped_known_bad().findings(_spec(row), _facts(row, version))
    return next((finding.severity for finding in findings if finding.id == f"known-bad-{row.id}"), "silent")


def test_every_row_of_high_confidence_refuses_in_the_release_it_was_seen_in() -> None:
    refused = [
        row.id for row in shipped_known_bad().rows if _severity(row, row.seen or row.first or (0, 28, 0)) == "refuse"
    ]
    assert refused == _REFUSED.split()


@pytest.mark.parametrize("row", shipped_known_bad().rows, ids=lambda row: row.id)
def test_a_row_is_silent_before_its_range_and_after_its_fix_and_never_refuses_behind_what_was_seen(
    row: KnownBadRow,
) -> None:
    if row.first:
        assert _severity(row, (0, row.first[1] - 1, 99)) == "silent"
    if row.fixed:
        assert _severity(row, row.fixed) == "silent"
    assert _severity(row, (0, 99, 0)) in ("warn", "silent")


def test_rows_of_other_engines_are_listed_and_never_judged() -> None:
    others = [row for row in shipped_known_bad().rows if row.engine != "vllm"]
    assert len(shipped_known_bad().rows) == 84
    assert len(others) == 14
    assert {_severity(row, (0, 28, 0)) for row in others} == {"silent"}


def test_every_feature_of_the_reader_is_named_by_a_row() -> None:
    assert {name for row in shipped_known_bad().rows for name in row.features} == set(FEATURES)


def test_prefix_caching_by_default_warns_where_the_flag_refuses() -> None:
    spec, known_bad = build("mtp", sets=("num_speculative_tokens=1",))[0], shipped_known_bad()
    facts = ServiceFacts("0.24.0", target_name="Qwen/Qwen3.6-27B", argv=(), prefix_caching=True)
    severities = {finding.id: finding.severity for finding in known_bad.findings(spec, facts)}
    assert severities["known-bad-kb06"] == "warn"
    switched_off = ServiceFacts("0.24.0", target_name="Qwen/Qwen3.6-27B", argv=(), prefix_caching=False)
    assert "known-bad-kb06" not in {finding.id for finding in known_bad.findings(spec, switched_off)}


def test_an_unknown_release_or_model_is_no_finding_but_a_line_of_what_was_not_checked() -> None:
    spec, known_bad = build("ngram")[0], shipped_known_bad()
    assert known_bad.findings(spec, ServiceFacts(target_name="Qwen/Qwen3.6-27B", prefix_caching=True)) == ()
    unchecked = known_bad.unchecked(spec, ServiceFacts())
    assert unchecked == ("known-bad: checked in part, unknown: engine_version, target_family",)


@pytest.mark.parametrize("line", [line for line in RECIPES.read_text().splitlines() if line and line[0] != "#"])
def test_a_published_recipe_is_not_refused(line: str) -> None:
    version, model, method, k, words, _origin = re.split(r"\s*\|\s*", line)
    draft = "org/draft" if METHODS[method].needs_draft in ("head", "model") else None
    spec = build(method, draft=draft, sets=(f"num_speculative_tokens={k}",))[0]
    facts = ServiceFacts(version, target_name=model, argv=tuple(words.split()), prefix_caching=True)
    refused = [finding for finding in shipped_known_bad().findings(spec, facts) if finding.severity == "refuse"]
    assert refused == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("methods: [ngrm]", "'ngrm' is not one of"),
        ("features: [moon]", "'moon' is not one of"),
        ("models: [gdm]", "'gdm' is not one of"),
        ("from: soon", "'soon' is no release"),
        ("until: 0.28.0", "unknown field"),
    ],
)
def test_a_row_that_cannot_be_read_is_named_with_its_line(text: str, message: str) -> None:
    file = (
        "date: 2026-11-23\nsource: threads\nmodels: {gdn: qwen}\nrows:\n"
        f"  - {{id: a1, effect: wrong, thread: org/engine#1, confidence: high}}\n"
        f"  - {{id: a2, effect: wrong, thread: org/engine#2, confidence: high, {text}}}\n"
    )
    with pytest.raises(InputError, match=re.escape(message)) as refused:
        read_known_bad(file, "mine.yaml")
    assert "mine.yaml:6" in str(refused.value)
