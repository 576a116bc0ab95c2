"""The preflight as a whole, and the tables it draws on."""

import pytest

from mpctl.methods import (
    METHODS,
    CheckpointFacts,
    ServiceFacts,
    build,
    from_config,
)
from mpctl.methods.versions import REMOVED, removed_flags
from tests.preflight import preflight_findings, unknowns

NGRAM = {"method": "ngram", "num_speculative_tokens": 5}


def test_a_check_made_in_part_is_not_called_unmade():
    lines = unknowns(from_config(NGRAM), ServiceFacts())
    assert "engine-too-old: checked in part, unknown: engine_version" in lines
    assert "thinking: not checked, unknown: thinking" in lines


def test_no_facts_no_refusal_and_many_unknowns():
    for name in METHODS:
        draft = "/d" if METHODS[name].needs_draft in ("head", "model") else None
        spec, _ = build(name, draft=draft)
        refused = [
            finding.id
            for finding in preflight_findings(spec, ServiceFacts())
            if finding.severity == "refuse"
        ]
        assert refused == (["no-proposer"] if name == "mlp_speculator" else [])
    lines = unknowns(build("eagle3", draft="/d")[0], ServiceFacts())
    assert any(
        line.startswith("draft-context:") and "served_context, draft.context" in line
        for line in lines
    )
    assert len({line.partition(":")[0] for line in lines}) == len(lines)


def test_nothing_is_asked_for_what_does_not_apply():
    lines = unknowns(build("ngram")[0], ServiceFacts())
    assert not any("draft" in line.partition(":")[0] for line in lines)
    assert unknowns(from_config(None), ServiceFacts()) == (
        "target-speculates: not checked, unknown: target.verifier",
        "removed-flags: not checked, unknown: argv",
    )


def test_everything_known_and_right_leaves_nothing_to_refuse_or_warn():
    facts = ServiceFacts(
        engine_version="0.32.0",
        kserve_version="0.20.0",
        served_context=16384,
        tensor_parallel=1,
        data_parallel=1,
        thinking=True,
        enable_lora=False,
        prefix_caching=True,
        async_scheduling=False,
        kv_cache_dtype="auto",
        quantization="none",
        temperature=0.0,
        v2_runner=True,
        uses_storage_uris=True,
        argv=("vllm", "serve"),
        concurrency=8,
        target=CheckpointFacts(
            family="qwen3",
            name="Qwen/Qwen3-8B",
            no_text="",
            hidden=4096,
            vocab=151936,
            tokenizer_digest="t",
            added_tokens_digest="a",
            template_digest="c",
            rope_theta=1e6,
            verifier="",
        ),
        draft=CheckpointFacts(
            draft_kind="eagle3",
            mask_token=False,
            context=40960,
            family="qwen3",
            trained_for="qwen/qwen3-8b",
            expects_hidden=4096,
            vocab=151936,
            draft_vocab=32000,
            map_rows=32000,
            tokenizer_digest="t",
            added_tokens_digest="a",
            template_digest="c",
            rope_theta=1e6,
            kv_cache_dtype="auto",
            quantization="none",
        ),
    )
    spec, _ = build("eagle3", draft="/mnt/models/draft")
    assert preflight_findings(spec, facts) == ()
    assert unknowns(spec, facts) == ()


def test_the_order_is_refuse_warn_note():
    facts = ServiceFacts(thinking=True, async_scheduling=True, concurrency=256)
    findings = preflight_findings(from_config(NGRAM), facts)
    severities = [finding.severity for finding in findings]
    assert severities == sorted(severities, key=["refuse", "warn", "note"].index)
    assert set(severities) == {"refuse", "warn", "note"}


def test_the_tables_name_their_sources():
    assert all(
        entry.why and entry.replacement and entry.source and entry.since
        for entry in REMOVED.values()
    )
    assert all(method.floor.source for method in METHODS.values() if method.floor)
    assert all(
        (method.checkpoint is not None) is method.loads_weights for method in METHODS.values()
    )
    assert {name for name, method in METHODS.items() if method.floor is None} == {
        "none",
        "dspark",
        "mlp_speculator",
    }


@pytest.mark.parametrize(
    "name",
    [
        "--speculative-model",
        "--num-speculative-tokens",
        "--speculative-disable-by-batch-size",
        "--speculative-draft-tensor-parallel-size",
        "--spec-decoding-acceptance-method",
        "--speculative-max-model-len",
        "--ngram-prompt-lookup-max",
        "--ngram-prompt-lookup-min",
        "--use-v2-block-manager",
        "disable_by_batch_size",
        "acceptance_method",
    ],
)
def test_what_old_guides_still_say_is_in_the_table(name):
    assert name in REMOVED


def test_removed_flags_are_found_in_every_spelling():
    argv = (
        "--model=/m",
        "--speculative_model",
        "/d",
        "--ngram-prompt-lookup-max=4",
        "use-v2-block-manager",
    )
    assert [entry.name for entry in removed_flags(argv)] == [
        "--speculative-model",
        "--ngram-prompt-lookup-max",
    ]
