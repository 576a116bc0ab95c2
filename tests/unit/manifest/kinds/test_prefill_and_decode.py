"""Prefill and decode pods: a draft with KV cache is edited at both ends, byte for byte, or at none."""

from __future__ import annotations

import argparse
import json
import shlex
import textwrap
from itertools import zip_longest

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from service_samples import NGRAM

from mpctl.errors import InputError
from mpctl.estimate.facts import facts_of
from mpctl.manifest import foreign_changes, load, load_one, load_values
from mpctl.manifest.draft_storage import with_claim, with_speculation, without_draft
from mpctl.methods import from_config
from tests.preflight import preflight_findings

K3 = {"num_speculative_tokens": 3}
HEADS = [
    *(
        {"method": method, "model": "/mnt/d"} | K3
        for method in ("eagle", "eagle3", "dflash", "dspark", "draft_model")
    ),
    {"method": "mtp"} | K3,
    {"method": "qwen3_next_mtp"} | K3,
]
FREE = [NGRAM, {"method": "suffix"} | K3, {"method": "medusa", "model": "/mnt/d"} | K3]
NIXL = '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'

LLM = """\
apiVersion: serving.kserve.io/v1alpha2
kind: LLMInferenceService
metadata: {name: qwen}
spec:
  model: {uri: hf://Qwen/Qwen3-8B}
"""
BARE = "replicas: 2\n"
ARGS = "template:\n  containers:\n  - name: main\n    args:\n    - --enforce-eager  # no graphs\n"
VARIABLE = "template: {containers: [{name: main, env: [{name: VLLM_ADDITIONAL_ARGS, value: '--seed 1'}]}]}\n"
OWN = "template:\n  containers:\n  - name: main\n    command: [vllm, serve, /mnt/models]\n    args: [--port=8000]\n"
WORKERS = ARGS + "worker:\n  containers:\n  - name: main\n    image: x\n"
PARTS = (BARE, ARGS, VARIABLE, OWN, WORKERS)


def llm(decode: str, prefill: str) -> str:
    return (
        LLM
        + textwrap.indent(decode, "  ")
        + "  prefill:\n"
        + textwrap.indent(prefill, "    ")
        + "# end\n"
    )


def workload(name: str, *, args: tuple[str, ...], kind: str = "Deployment", more: str = "") -> str:
    return (
        f"apiVersion: apps/v1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec:\n  template:\n    metadata:\n"
        f"      labels: {{app: {name}}}\n    spec:\n      containers:\n      - name: vllm\n"
        "        image: vllm/vllm-openai:v0.32.0\n        command: [vllm, serve, org/m]\n        args:\n"
        + "".join(f"        - {json.dumps(word)}\n" for word in args)
        + more
    )


def pair(first: str = NIXL, second: str = NIXL, **more: str) -> str:
    decode = workload("chat-decode", args=("--kv-transfer-config", first), **more)
    return (
        workload("chat-prefill", args=("--kv-transfer-config", second), **more) + "---\n" + decode
    )


VALUES = """\
modelArtifacts: {uri: "hf://org/m"}
decode:
  containers:
  - name: vllm
    modelCommand: vllmServe
    args:
      - "--enforce-eager"
prefill:
  containers:
  - {name: vllm, modelCommand: vllmServe}  # of the chart
"""
STACK = """\
servingEngineSpec:
  modelSpec:
  - name: fill
    modelURL: org/m
    lmcacheConfig: {enableNixl: true, kvRole: kv_producer}
    vllmConfig: {extraArgs: ["--enforce-eager"]}
  - name: chat
    modelURL: org/m
    lmcacheConfig: {enableNixl: true, kvRole: kv_consumer}
    vllmConfig:
      extraArgs: ["--seed=1"]
"""


def setting_of(words: list[str]) -> dict | None:
    """The setting as vLLM's parser makes it of JSON, or of dotted flags."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--speculative-config", type=json.loads)
    known, others = parser.parse_known_args(words)
    dotted = {}
    for word, following in zip_longest(others, others[1:]):
        flag, joined, value = word.partition("=")
        if flag.startswith("--speculative-config."):
            value = value if joined else following
            dotted[flag.partition(".")[2]] = json.loads(value) if value[:1].isdigit() else value
    return known.speculative_config or dotted or None


def words_of(container: dict) -> list[str]:
    variables = [
        entry["value"]
        for entry in container.get("env") or ()
        if entry["name"] == "VLLM_ADDITIONAL_ARGS"
    ]
    evaluated = "command" not in container
    texts = [*variables, *(container.get("args") or ())]
    return [word for text in texts for word in (shlex.split(text) if evaluated else [text])]


def engines(text: str) -> list[list[str]]:
    """The words of every engine in a text, those that fill prompts last."""
    decode, prefill = [], []
    for document in yaml.safe_load_all(text):
        spec = document.get("spec") or {}
        if document.get("kind") == "LLMInferenceService":
            for home, part in ((decode, spec), (prefill, spec["prefill"])):
                for key in ("template", *(("worker",) if "worker" in part else ())):
                    containers = (part.get(key) or {}).get("containers") or [{}]
                    home.append(words_of(containers[0]))
        elif document.get("kind"):
            home = prefill if "prefill" in document["metadata"]["name"] else decode
            home.append(spec["template"]["spec"]["containers"][0]["args"])
        elif "decode" in document:
            decode.append(document["decode"]["containers"][0]["args"])
            prefill.append(document["prefill"]["containers"][0].get("args") or [])
        else:
            fill, chat = document["servingEngineSpec"]["modelSpec"]
            decode.append(chat["vllmConfig"]["extraArgs"])
            prefill.append(fill["vllmConfig"]["extraArgs"])
    return [*decode, *prefill]


def service_of(text: str):
    return (
        load_values(text, None)[-1 if "modelSpec" in text else 0]
        if "kind:" not in text
        else load_one(text, None)
    )


TEXTS = [
    *(llm(decode, prefill) for decode in PARTS for prefill in PARTS),
    pair(),
    pair(
        '{"kv_connector":"X","kv_role":"kv_consumer"}',
        '{"kv_connector":"X","kv_role":"kv_producer"}',
    ),
    pair(kind="StatefulSet"),
    VALUES,
    STACK,
]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_draft_with_kv_cache_is_at_both_ends_and_the_undo_is_exact(text, newline):
    text = text.replace("\n", newline)
    before = engines(text)
    for config in HEADS if text in TEXTS[::8] else HEADS[1:2]:
        changed = service_of(text).with_speculation(config)
        assert [setting_of(words) for words in engines(changed.to_yaml())] == [config] * len(before)
        assert service_of(changed.to_yaml()).speculation() == config
        assert "LLMInferenceService" not in text or foreign_changes(text, changed.to_yaml()) == ()
        assert changed.with_speculation(HEADS[1]).with_speculation(None).to_yaml() == text


@pytest.mark.parametrize("text", TEXTS)
def test_a_method_without_kv_cache_leaves_prefill_pods_alone(text):
    own = 2 if "  worker" in text.partition("prefill:")[0] else 1
    for config in FREE:
        changed = service_of(text).with_speculation(config)
        settings_of_engines = [setting_of(words) for words in engines(changed.to_yaml())]
        assert settings_of_engines == [config] * own + [None] * (len(settings_of_engines) - own)
        assert changed.with_speculation(None).to_yaml() == text


spellings = st.sampled_from([None, "json", "dotted"])


@settings(max_examples=25, deadline=None)
@given(
    text=st.sampled_from(TEXTS),
    steps=st.lists(st.tuples(st.sampled_from([*HEADS, *FREE]), spellings), max_size=4),
)
def test_any_sequence_of_settings_keeps_both_ends_alike_and_comes_back(text, steps):
    service = service_of(text)
    for config, style in steps:
        service = service.with_speculation(config, style=style)
        assert service.speculation() == config
        found = [setting_of(words) for words in engines(service.to_yaml())]
        assert all(value in ((config,) if config in HEADS else (config, None)) for value in found)
    assert service.with_speculation(None).to_yaml() == text


@pytest.mark.parametrize("end", [0, 1])
@pytest.mark.parametrize("text", [llm(ARGS, ARGS), pair()])
def test_a_draft_at_one_end_is_named(text, end):
    whole = service_of(text).with_speculation(HEADS[1]).to_yaml()
    parts = whole.split("prefill:\n" if "prefill:\n" in text else "---\n")
    bare = text.split("prefill:\n" if "prefill:\n" in text else "---\n")
    mixed = ("prefill:\n" if "prefill:\n" in text else "---\n").join(
        (parts if i == end else bare)[i] for i in (0, 1)
    )
    with pytest.raises(
        InputError, match="prefill and decode pods have different speculative settings"
    ):
        service_of(mixed).speculation()


def test_an_end_that_cannot_be_edited_leaves_the_other_as_it_is():
    text = llm(ARGS, BARE).replace("  prefill:\n    replicas: 2\n", "  prefill: {replicas: 2}\n")
    service = load_one(text, None)
    with pytest.raises(InputError, match="cannot be extended"):
        service.with_speculation(HEADS[0])
    assert service.with_speculation(NGRAM).with_speculation(None).to_yaml() == text


def test_the_workload_that_fills_prompts_is_not_edited_alone():
    services = {service.name: service for service in load(pair())}
    with pytest.raises(InputError, match="fills prompts") as refused:
        services["chat-prefill"].with_speculation(NGRAM)
    assert "name chat-decode" in refused.value.hint
    (alone,) = load(pair().partition("---\n")[0])
    with pytest.raises(InputError, match="fills prompts") as refused:
        alone.with_speculation(HEADS[0])
    assert "into one file" in refused.value.hint


def test_prefill_pods_of_two_decode_workloads_are_not_edited_for_one():
    third = workload("spare-decode", args=("--kv-transfer-config", NIXL))
    with pytest.raises(InputError, match="spare-decode take KV cache from chat-prefill"):
        load_one(pair() + "---\n" + third, "chat-decode").with_speculation(HEADS[0])


def findings(text: str, config: dict) -> dict[str, str]:
    service = load_one(text, "chat-decode") if "kind: Deployment" in text else load_one(text, None)
    return {
        found.id: found.severity
        for found in preflight_findings(from_config(config), facts_of(service))
    }


@pytest.mark.parametrize("config", HEADS)
def test_one_end_alone_is_refused_and_a_pair_is_not(config):
    alone = pair().partition("---\n")[2]
    assert findings(alone, config).get("prefill-apart") == "refuse"
    assert "prefill-apart" not in findings(pair(), config)
    assert "prefill-apart" not in findings(llm(ARGS, BARE), config)
    assert "prefill-apart" not in findings(alone, NGRAM)


@pytest.mark.parametrize(
    ("decode", "prefill", "different"),
    [
        ((), (), False),
        (("--dtype=half",), ("--dtype=float16",), False),
        (("--dtype=half",), (), False),
        (("--dtype=half",), ("--dtype=bfloat16",), True),
        (("--kv-cache-dtype", "fp8"), (), True),
        (("--kv_cache_dtype=fp8",), ("--kv-cache-dtype=fp8",), False),
        (("--max-num-seqs=8", "-tp=2"), ("--enforce-eager",), False),
        (("--disable-hybrid-kv-cache-manager",), (), True),
        (("--model=org/other",), (), True),
    ],
)
def test_ends_whose_nixl_hashes_differ_are_refused(decode, prefill, different):
    connector = "--kv-transfer-config=" + NIXL
    texts = [
        workload(f"chat-{role}", args=(connector, *words))
        for role, words in (("decode", decode), ("prefill", prefill))
    ]
    found = findings("---\n".join(texts), HEADS[1])
    if "--model=org/other" in decode:  # of another model: no pair
        assert found["prefill-apart"] == "refuse"
    else:
        assert (found.get("prefill-differs") == "refuse") == different


def test_values_of_one_end_with_nixl_are_refused():
    text = VALUES.replace('"--enforce-eager"', "'--kv-transfer-config=" + NIXL + "'")
    for values, severity in (
        (text, None),
        (text.replace("prefill:", "prefill:\n  create: false"), "refuse"),
    ):
        service = load_values(values, None)[0]
        outcome = {
            found.id: found.severity
            for found in preflight_findings(from_config(HEADS[1]), facts_of(service))
        }
        assert outcome.get("prefill-apart") == severity


def test_other_releases_at_both_ends_are_refused():
    older = pair().replace("v0.32.0", "v0.33.0", 1)
    assert findings(older, HEADS[1])["prefill-differs"] == "refuse"
    assert "prefill-differs" not in findings(pair().replace("v0.32.0", "latest", 1), HEADS[1])


@pytest.mark.parametrize("text", [llm(ARGS, ARGS), pair()])
def test_a_draft_on_a_claim_is_mounted_at_both_ends(text):
    staged = with_speculation(with_claim(service_of(text), "models", "eagle3"), HEADS[1])
    assert staged.to_yaml().count("claimName") == 2
    assert staged.to_yaml().count("subPath") == 2
    assert without_draft(staged).with_speculation(None).to_yaml() == text
    with pytest.raises(InputError, match="prefill of LLMInferenceService qwen has no storage"):
        with_claim(load_one(llm(ARGS, BARE), None), "models", "eagle3")


def test_a_template_that_kserve_completed_is_no_change_of_another_writer():
    before = "kind: LLMInferenceService\nspec: {prefill: {replicas: 1}}\n"
    shell = "{containers: [{name: main, resources: {}}]}"
    after = f"kind: LLMInferenceService\nspec: {{prefill: {{replicas: 1, template: {shell}}}}}\n"
    assert foreign_changes(before, after) == ()
    assert foreign_changes(before, after.replace("resources: {}", "image: other")) == (
        "spec.prefill.template",
    )
