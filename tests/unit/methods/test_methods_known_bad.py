"""Combinations that are known to fail: the range decides between a refusal, a warning and nothing."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from mpctl.errors import InputError
from mpctl.estimate import describe_model, facts_of
from mpctl.manifest import load
from mpctl.methods import METHODS, CheckpointFacts, ServiceFacts, build
from mpctl.methods.preflight.known_bad import (
    FEATURES,
    KnownBadRow,
    read_known_bad,
    shipped_known_bad,
)
from mpctl.methods.preflight.nixl import KvEnd
from tests.corpus.known_bad import CONFIGS, inside, outside, severity
from tests.preflight import preflight_findings

RECIPES = Path(__file__).parent / "known_good_recipes.txt"
_NIXL = '--kv-transfer-config={"kv_connector":"NixlConnector","kv_role":"kv_both"}'
# Outcomes of the shipped rows at the release that each was last seen in: change them with the rows.
_REFUSED = "kb01 kb02 kb03 kb04 kb06 kb08 kb17 kb21 kb23 kb25 kb34 kb64 kb72 kb73 kb76"
# Rows of any model and feature whose fault depends on requests alone are listed only, as are those of other engines.
_SILENT = "kb28 kb29 kb30 kb41 kb51 kb52 kb54 kb55 kb56 kb57 kb58 kb59 kb60 kb61 kb62 kb78 kb79 kb80 kb81 kb82 kb84"
_ROWS = shipped_known_bad().rows


def test_every_row_speaks_about_a_manifest_inside_of_its_range_or_is_listed_only() -> None:
    said = {row.id: inside(row).severity for row in _ROWS}
    assert [row for row, severity in said.items() if severity == "refuse"] == _REFUSED.split()
    assert [row for row, severity in said.items() if severity == "silent"] == _SILENT.split()


@pytest.mark.parametrize("row", _ROWS, ids=lambda row: row.id)
def test_a_row_is_silent_before_its_range_and_after_its_fix_and_never_refuses_behind_what_was_seen(
    row: KnownBadRow,
) -> None:
    found = outside(row)
    assert found is None or found.severity == "silent"
    if row.first:
        assert severity(row, (0, row.first[1] - 1, 99)) == "silent"
    assert severity(row, (0, 99, 0)) in ("warn", "silent")


@pytest.mark.parametrize("row", _ROWS, ids=lambda row: row.id)
def test_a_row_says_how_its_range_was_established_and_refuses_only_where_it_is(
    row: KnownBadRow,
) -> None:
    if row.established == "unknown":
        assert (row.seen, row.fixed) == (None, None)
    if row.established == "source":
        assert row.seen is not None
    if row.fixed is not None:
        assert row.seen is None or row.seen < row.fixed
    if inside(row).severity == "refuse":
        assert row.established in ("source", "thread")
        assert row.confidence == "high"


def test_rows_of_other_engines_are_listed_and_those_of_vllms_plugin_judged_by_its_image() -> None:
    others = {row.id: inside(row).severity for row in _ROWS if row.engine != "vllm"}
    assert len(_ROWS) == 94
    assert len(others) == 14
    assert {row for row, severity in others.items() if severity != "silent"} == {
        "kb31",
        "kb64",
        "kb65",
    }
    assert {row.engine for row in _ROWS if row.id in ("kb31", "kb64", "kb65")} == {"vllm-ascend"}


def test_every_feature_of_the_reader_is_named_by_a_row() -> None:
    assert {
        name.partition("=")[0] for row in _ROWS for name in (*row.features, *row.unless)
    } == set(FEATURES)


_MANIFEST = """apiVersion: apps/v1
kind: Deployment
metadata: {name: served}
spec:
  template:
    spec:
      containers:
      - name: engine
        image: vllm/vllm-openai:v0.28.0
        args: %s
"""


def _ids(
    arguments: list[str], method: str, release: str = "0.28.0", config: str = "gdn", **given: object
) -> set[str]:
    text = _MANIFEST.replace("0.28.0", release) % ["--model=org/m", *arguments]
    facts = facts_of(
        load(text, file="served.yaml")[0], target=describe_model({**CONFIGS[config], **given})
    )
    draft = "org/draft" if METHODS[method].needs_draft in ("head", "model") else None
    spec = build(method, draft=draft, sets=("num_speculative_tokens=3",))[0]
    return {
        finding.id.removeprefix("known-bad-")
        for finding in shipped_known_bad().findings(spec, facts)
    }


@pytest.mark.parametrize(
    ("row", "method", "release", "arguments"),
    [
        ("kb17", "mtp", "0.28.0", ["--kv-transfer-config.kv_connector", "LMCacheMPConnector"]),
        (
            "kb17",
            "mtp",
            "0.28.0",
            ["--kv_transfer_config", '{"kv_connector": "LMCacheConnectorV1"}'],
        ),
        ("kb68", "mtp", "0.27.1", ["--kv_offloading_size=4"]),
        ("kb34", "ngram", "0.28.0", []),
        ("kb33", "mtp", "0.25.2", ["-pp", "2"]),
        ("kb71", "mtp", "0.28.0", ["--enable_sleep_mode"]),
        ("kb21", "mtp", "0.27.1", ["--kv-cache-dtype", "turboquant_k8v4"]),
        (
            "kb03",
            "ngram",
            "0.28.0",
            ["--enable-auto-tool-choice", "--tool-call-parser", "qwen3_coder"],
        ),
        ("kb47", "mtp", "0.26.0", ["--reasoning-parser", "qwen3"]),
        ("kb53", "mtp", "0.23.0", ["--structured-outputs-config.backend=guidance"]),
        ("kb53", "mtp", "0.23.0", ["--guided-decoding-backend", "guidance"]),
    ],
)
def test_a_fact_is_read_in_each_spelling_that_vllm_takes(
    row: str, method: str, release: str, arguments: list[str]
) -> None:
    found = _ids(arguments, method, release)
    assert (row in found) == bool(arguments)
    assert row not in _ids([], method, release) or not arguments


def test_the_last_of_several_flags_counts() -> None:
    assert "kb33" not in _ids(
        ["--pipeline-parallel-size=2", "--pipeline-parallel-size", "1"], "mtp", "0.25.2"
    )


def test_the_arguments_of_a_runtime_count() -> None:
    text = """apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: served}
spec:
  predictor:
    model: {modelFormat: {name: vllm}, runtime: shared, args: [--model=org/m]}
---
apiVersion: serving.kserve.io/v1alpha1
kind: ServingRuntime
metadata: {name: shared}
spec:
  containers:
  - name: kserve-container
    image: vllm/vllm-openai:v0.28.0
    command: [vllm, serve]
    args: [--tool-call-parser=qwen3_coder]
"""
    facts = facts_of(load(text, file="served.yaml")[0], target=describe_model(CONFIGS["gdn"]))
    found = shipped_known_bad().findings(build("ngram")[0], facts)
    assert "known-bad-kb03" in {finding.id for finding in found}


@pytest.mark.parametrize(
    ("name", "family", "hybrid"),
    [
        ("Qwen/Qwen3.6-35B-A3B", None, True),
        ("org/qwen3_8b_chat", None, False),
        ("Qwen/Qwen3-8B", None, False),
        ("Qwen/Qwen3.5-0.8B", None, True),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", None, True),
        ("org/qwen3.5-distilled-llama", "llama", False),
        ("org/mine", "qwen3_5_text", True),
    ],
)
def test_a_class_is_told_by_the_type_and_only_without_it_by_the_name(
    name: str, family: str | None, hybrid: bool
) -> None:
    facts = ServiceFacts(
        "0.28.0", target=CheckpointFacts(name, family), argv=(), prefix_caching=True
    )
    found = {finding.id for finding in shipped_known_bad().findings(build("ngram")[0], facts)}
    assert ("known-bad-kb01" in found) == hybrid


def test_a_class_is_told_by_the_layers_first() -> None:
    assert "kb01" in _ids([], "ngram", model_type="my_own")
    dense = {"layer_types": ["full_attention"], "linear_num_value_heads": None}
    assert "kb01" not in _ids([], "ngram", text_config={**CONFIGS["gdn"]["text_config"], **dense})
    granite = {"layer_types": ["attention"], "mamba_d_state": 128}
    assert "kb73" in _ids([], "ngram", config="zamba")
    assert "kb73" not in _ids([], "ngram", config="zamba", **granite)


@pytest.mark.parametrize(
    ("v2_runner", "severity_of_kb76"),
    [(True, "refuse"), (False, None), (None, "warn")],
)
def test_the_runner_is_the_services_or_the_releases_default(
    v2_runner: bool | None, severity_of_kb76: str | None
) -> None:
    facts = ServiceFacts(
        "0.30.0",
        v2_runner=v2_runner,
        served_context=32768,
        draft=CheckpointFacts(context=4096),
        argv=(),
    )
    spec = build("dflash", draft="org/draft", sets=("num_speculative_tokens=7",))[0]
    found = {finding.id: finding.severity for finding in shipped_known_bad().findings(spec, facts)}
    assert found.get("known-bad-kb76") == severity_of_kb76


@pytest.mark.parametrize(
    ("release", "arguments", "cached"),
    [("0.25.1", [], False), ("0.25.1", ["--enable-prefix-caching"], True), ("0.28.0", [], True),
     ("0.28.0", ["--no-enable-prefix-caching"], False)],
)  # fmt: skip
def test_recurrent_models_cache_prefixes_by_default_since_0_26(
    release: str, arguments: list[str], cached: bool
) -> None:
    assert ("kb09" in _ids(arguments, "mtp", release)) == cached


def test_what_keeps_a_fault_away_silences_its_row() -> None:
    prefix = ["--enable-prefix-caching"]
    assert "kb25" in _ids(prefix, "mtp", "0.20.0", "mamba2")
    assert "kb25" not in _ids([*prefix, "--mamba-cache-mode", "align"], "mtp", "0.20.0", "mamba2")


@pytest.mark.parametrize("prefill", [(), (KvEnd(),)])
def test_a_pair_of_which_both_ends_are_edited_has_no_draft_on_one_end_alone(
    prefill: tuple[KvEnd, ...],
) -> None:
    spec = build("mtp", sets=("num_speculative_tokens=1",))[0]
    facts = ServiceFacts(
        "0.27.1", target=CheckpointFacts("org/m"), argv=(_NIXL,), prefill_ends=prefill
    )
    found = {finding.id for finding in shipped_known_bad().findings(spec, facts)}
    assert ("known-bad-kb69" in found) == (not prefill)


def test_prefix_caching_by_default_warns_where_the_flag_refuses() -> None:
    spec, known_bad = build("mtp", sets=("num_speculative_tokens=1",))[0], shipped_known_bad()
    facts = ServiceFacts(
        "0.24.0", target=CheckpointFacts("Qwen/Qwen3.6-27B"), argv=(), prefix_caching=True
    )
    severities = {finding.id: finding.severity for finding in known_bad.findings(spec, facts)}
    assert severities["known-bad-kb06"] == "warn"
    switched_off = ServiceFacts(
        "0.24.0", target=CheckpointFacts("Qwen/Qwen3.6-27B"), argv=(), prefix_caching=False
    )
    assert "known-bad-kb06" not in {
        finding.id for finding in known_bad.findings(spec, switched_off)
    }


def test_an_unknown_release_warns_of_every_row_of_the_model_and_says_what_was_not_checked() -> None:
    spec, known_bad = build("ngram")[0], shipped_known_bad()
    found = known_bad.findings(
        spec, ServiceFacts(target=CheckpointFacts("Qwen/Qwen3.6-27B"), prefix_caching=True)
    )
    assert {finding.severity for finding in found} == {"warn"}
    assert {"known-bad-kb01", "known-bad-kb05"} <= {finding.id for finding in found}
    assert all(
        finding.reason.startswith("the engine's release is unknown; fails in ") for finding in found
    )
    unchecked = known_bad.unchecked(spec, ServiceFacts())
    assert unchecked == ("known-bad: checked in part, unknown: engine_version, target.family",)


@pytest.mark.parametrize(
    "line", [line for line in RECIPES.read_text().splitlines() if line and line[0] != "#"]
)
def test_a_published_recipe_is_not_refused(line: str) -> None:
    version, model, method, k, words, _origin = re.split(r"\s*\|\s*", line)
    draft = "org/draft" if METHODS[method].needs_draft in ("head", "model") else None
    spec = build(method, draft=draft, sets=(f"num_speculative_tokens={k}",))[0]
    facts = ServiceFacts(
        version, target=CheckpointFacts(model), argv=tuple(words.split()), prefix_caching=True
    )
    refused = [
        finding
        for finding in shipped_known_bad().findings(spec, facts)
        if finding.severity == "refuse"
    ]
    assert refused == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("methods: [ngrm]", "'ngrm' is not one of"),
        ("features: [moon]", "'moon' is not one of"),
        ("models: [gdm]", "'gdm' is not one of"),
        ("from: soon", "'soon' is no release"),
        ("until: 0.28.0", "unknown field"),
        ("established: hearsay", "'hearsay' is not one of"),
        ("features: ['tools=(']", "'(' cannot be used"),
        ("features: [k-from=many]", "'many' cannot be used"),
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


@pytest.mark.parametrize(
    ("method", "kind", "arguments", "severity"),
    [
        *(
            (method, "deployment", [_NIXL], "refuse")
            for method in ("eagle", "p-eagle", "mtp", "dspark", "draft_model")
        ),
        *((method, "deployment", [_NIXL], None) for method in ("ngram", "ngram_gpu", "suffix")),
        ("eagle3", "llm", [], None),  # both ends are edited
        (
            "eagle3",
            "deployment",
            ['--kv-transfer-config={"kv_connector":"LMCacheConnectorV1"}'],
            None,
        ),
        ("eagle3", "deployment", ["--kv-transfer-config.kv_connector=NixlConnector"], "refuse"),
        ("eagle3", "deployment", [], None),
    ],
)
def test_a_draft_on_decode_pods_alone_is_refused_where_the_handshake_compares_it(
    method: str, kind: str, arguments: list[str], severity: str | None
) -> None:
    text = _MANIFEST % ["--model=org/m", *arguments]
    if kind == "llm":
        text = (
            "apiVersion: serving.kserve.io/v1alpha2\nkind: LLMInferenceService\nmetadata: {name: q}\nspec:\n"
            "  model: {uri: hf://org/m}\n  prefill: {replicas: 1}\n  template:\n    containers:\n    - name: main\n"
            f"      args: {json.dumps([shlex.quote(argument) for argument in arguments])}\n"
        )
    draft = "org/draft" if METHODS[method].needs_draft in ("head", "model") else None
    spec = build(method, draft=draft, sets=("num_speculative_tokens=3",))[0]
    found = {
        f.id: f.severity
        for f in preflight_findings(spec, facts_of(load(text, file="served.yaml")[0]))
    }
    assert found.get("prefill-apart") == severity


def test_a_row_of_every_method_asks_for_the_gpu_that_it_is_about() -> None:
    table = shipped_known_bad()
    every = replace(table.rows[0], methods=(), features=("gpu=GB10",))
    lines = replace(table, rows=(every,)).unchecked(
        build("ngram")[0], ServiceFacts(engine_version="0.32.0", target=CheckpointFacts(name="m"))
    )
    assert lines == ("known-bad: checked in part, unknown: gpu",)
