"""Runtimes that services share, and Helm values: read, edited and restored."""

from __future__ import annotations

import argparse
import json

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from service_samples import METHODS, NGRAM, RUNTIME, USER

from mpctl.errors import InputError
from mpctl.manifest import load, load_one, load_values, select


def setting_of(words: list[str]) -> dict | None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--speculative-config", type=json.loads)
    return parser.parse_known_args(words)[0].speculative_config


@pytest.mark.parametrize("kind", ["ServingRuntime", "ClusterServingRuntime"])
@pytest.mark.parametrize("beside", ["", USER])
def test_a_runtime_is_edited_only_where_it_is_asked_for(kind, beside):
    text = RUNTIME.replace("kind: ServingRuntime", f"kind: {kind}") + beside
    service = load_one(text, None, runtimes=True)
    assert (service.kind, service.name, service.endpoints) == (
        kind,
        "vllm-runtime",
        ("qwen",) if beside else (),
    )
    for config in METHODS:
        changed = service.with_speculation(config)
        words = next(yaml.safe_load_all(changed.to_yaml()))["spec"]["containers"][0]["args"]
        assert setting_of(words) == config
        assert changed.to_yaml().endswith(beside)
        assert changed.with_speculation(None).to_yaml() == text


def test_beside_its_runtime_the_service_is_edited():
    changed = load_one(RUNTIME + USER, None).with_speculation(NGRAM)
    assert changed.kind == "InferenceService"
    assert changed.to_yaml().startswith(RUNTIME)


def test_a_runtime_alone_is_refused_with_the_option():
    with pytest.raises(InputError, match="it holds ServingRuntime") as caught:
        load(RUNTIME)
    assert "--shared-runtime" in caught.value.hint


@pytest.mark.parametrize(
    ("script", "reaches"),
    [("vllm serve /mnt/models", False), ('vllm serve /mnt/models "$@"', True)],
)
def test_arguments_that_a_runtimes_script_ignores_are_not_written(script, reaches):
    shell = RUNTIME[: RUNTIME.index("    command")] + f"    command: [sh, -c, '{script}', --]\n"
    service = load_one(shell + USER, None)
    if reaches:
        assert service.with_speculation(NGRAM).speculation() == NGRAM
        return
    with pytest.raises(InputError, match="passes no arguments on") as caught:
        service.with_speculation(NGRAM)
    assert "--shared-runtime" in caught.value.hint
    changed = load_one(shell + USER, None, runtimes=True).with_speculation(NGRAM)
    assert changed.with_speculation(None).to_yaml() == shell + USER


STACK = """\
# values of the team
servingEngineSpec:
  runtimeClassName: ""
  modelSpec:
  - name: "qwen"
    repository: "vllm/vllm-openai"
    tag: "v0.33.0"
    modelURL: "Qwen/Qwen3-8B"
    vllmConfig:
      enablePrefixCaching: true
      extraArgs: ["--max-num-seqs", "64"]
  - name: "llama"
    modelURL: "meta-llama/Llama-3.1-8B-Instruct"
    vllmConfig:
      maxModelLen: 4096
"""
MODELSERVICE = """\
modelArtifacts:
  uri: "hf://Qwen/Qwen3-8B"
decode:
  replicas: 1
  containers:
  - name: vllm
    image: ghcr.io/llm-d/llm-d-cuda:v0.9.0
    modelCommand: vllmServe
    args:
      - "--enforce-eager"  # no graphs
prefill:
  create: false
  containers:
  - {name: vllm, modelCommand: vllmServe}
"""
KUBEAI = """\
catalog:
  qwen3.1-8b-l4:
    enabled: true
    url: hf://Qwen/Qwen3-8B
    engine: VLLM
    env: {VLLM_ATTENTION_BACKEND: FLASHINFER}
    args:
    - --max-model-len=8192
  e5:
    features: [TextEmbedding]
    engine: VLLM
  whisper:
    engine: FasterWhisper
"""
OWN = "engine:\n  vllm:\n    flags:\n    - --port=8000\n"
SECOND = "servingEngineSpec.modelSpec[1].vllmConfig.extraArgs"
FIRST_AT, SECOND_AT = (
    ("servingEngineSpec", "modelSpec", i, "vllmConfig", "extraArgs") for i in (0, 1)
)
CASES = [
    (STACK, None, "qwen", FIRST_AT, "Qwen/Qwen3-8B"),
    (STACK, None, "llama", SECOND_AT, "meta-llama/Llama-3.1-8B-Instruct"),
    (MODELSERVICE, None, "decode", ("decode", "containers", 0, "args"), "Qwen/Qwen3-8B"),
    (KUBEAI, None, "qwen3.1-8b-l4", ("catalog", "qwen3.1-8b-l4", "args"), "Qwen/Qwen3-8B"),
    (OWN, "engine.vllm.flags", "engine.vllm.flags", ("engine", "vllm", "flags"), None),
    (
        "engine:\n  vllm:\n    flags: []\n",
        "engine.vllm.flags",
        "engine.vllm.flags",
        ("engine", "vllm", "flags"),
        None,
    ),
    (STACK, SECOND, SECOND, SECOND_AT, None),
]


@pytest.mark.parametrize(("text", "key", "name", "path", "model"), CASES)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_values_change_under_one_key_and_come_back_byte_for_byte(
    text, key, name, path, model, newline
):
    text = text.replace("\n", newline)
    service = next(one for one in load_values(text, key) if one.name == name)
    assert service.model == model
    for config in METHODS:
        changed = service.with_speculation(config)
        before, after = yaml.safe_load(text), yaml.safe_load(changed.to_yaml())
        place = after
        for step in path:
            place = place[step]
        assert setting_of(place) == config
        assert changed.with_speculation(NGRAM).with_speculation(None).to_yaml() == text
        for tree in (before, after):
            home = tree
            for step in path[:-1]:
                home = home[step]
            home.pop(path[-1], None)
        assert before == after


words = st.lists(
    st.text(
        st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zl", "Zp", "Cn"]), max_size=8
    ),
    max_size=4,
)
configs = st.dictionaries(
    st.sampled_from(["method", "model", "x"]), st.integers() | st.text(max_size=6), min_size=1
)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["extraArgs", "args", "flags"]), words, configs, st.booleans())
def test_any_list_and_any_setting(key, flags, config, flow):
    spelled = [json.dumps(f"--chat-template={word}") for word in flags]
    listed = (
        f" [{', '.join(spelled)}]"
        if flow or not spelled
        else "".join(f"\n    - {one}" for one in spelled)
    )
    text = f"a:\n  b:\n    {key}:{listed}\n    c: 1\nd: 2\n"
    changed = load_values(text, f"a.b.{key}")[0].with_speculation(config)
    assert setting_of(yaml.safe_load(changed.to_yaml())["a"]["b"][key]) == config
    assert changed.with_speculation(None).to_yaml() == text


def test_an_empty_list_that_was_added_as_told_is_extended():
    text = "servingEngineSpec:\n  modelSpec:\n  - name: a\n    vllmConfig: {extraArgs: []}\n"
    changed = load_values(text, None)[0].with_speculation(NGRAM)
    extra = yaml.safe_load(changed.to_yaml())["servingEngineSpec"]["modelSpec"][0]["vllmConfig"][
        "extraArgs"
    ]
    assert setting_of(extra) == NGRAM
    assert changed.with_speculation(None).to_yaml() == text
    assert [one.name for one in load_values(KUBEAI, None)] == ["qwen3.1-8b-l4"]


@pytest.mark.parametrize(
    ("text", "key", "message"),
    [
        (
            "servingEngineSpec:\n  modelSpec:\n  - {name: a}\n",
            None,
            "this model has no vllmConfig for arguments",
        ),
        ("a: {b: 1}\n", None, "the layout of these values is not known"),
        ("a: {b: 1}\n", "a.c.args", "a.c.args is not in these values"),
        ("a: {args: --port 8000}\n", "a.args", "how the chart splits it is not known"),
        ("a: {args: }\n", "a.args", '"args" is empty'),
        ("a: {b: 1}\n", "a[0]", "is no key of a list"),
        ("a: 1\n---\nb: 1\n", None, "has one document"),
    ],
)
def test_values_that_cannot_be_edited_name_the_reason(text, key, message):
    with pytest.raises(InputError) as caught:
        load_values(text, key)[0].with_speculation(NGRAM)
    assert message in str(caught.value)


def test_an_entry_without_a_place_for_arguments_is_meant_only_by_its_name():
    text = STACK + '  - name: "bare"\n    modelURL: "org/m"\n'
    services = load_values(text.replace('  - name: "llama"', '  - name: "other"'), None)
    assert [service.name for service in services] == ["qwen", "other", "bare"]
    with pytest.raises(InputError, match="no vllmConfig for arguments") as refused:
        select(services, "bare").with_speculation(NGRAM)
    assert "extraArgs: []" in refused.value.hint
    one = text[: text.index('  - name: "llama"')] + text[text.index('  - name: "bare"') :]
    assert select(load_values(one, None), None).name == "qwen"
