"""LLMInferenceServiceConfigs, which services share: read and edited only where they are named."""

from __future__ import annotations

import shlex

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from service_samples import METHODS, NGRAM

from mpctl.errors import InputError
from mpctl.manifest import load, load_one
from mpctl.manifest.speculation.setting import dotted_value

few = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

HEAD = """\
apiVersion: serving.kserve.io/v1alpha2
kind: LLMInferenceServiceConfig
metadata:
  name: team
  namespace: ml
spec:
  template:
    containers:
      - name: sidecar
        image: x
      - name: main
        image: vllm/vllm-openai:v0.32.0
"""
FORMS = {
    "args": "        args:\n          - --max-model-len=4096  # of all\n",
    "variable": "        env:\n          - name: VLLM_ADDITIONAL_ARGS\n            value: --max-num-seqs 8\n",
    "preset": '        command: [/bin/bash, -c, \'eval "vllm serve /mnt/models ${VLLM_ADDITIONAL_ARGS} $@"\', "--"]\n',
    "own": "        command: [vllm, serve, /mnt/models]\n        args: [--port, '8000']\n",
    "bare": "        resources: {}\n",
}
SERVICE = """\
---
apiVersion: serving.kserve.io/v1alpha2
kind: LLMInferenceService
metadata: {name: qwen, namespace: ml}
spec: {model: {uri: "hf://Qwen/Qwen3-8B"}, baseRefs: [{name: team}]}
"""


def config(text):
    return load_one(text, None, runtimes=True)


def setting_of(text):
    """The setting that vLLM gets: a shell reads arguments and the variable once more, unless the command is its own."""
    (main,) = [
        c
        for c in next(yaml.safe_load_all(text))["spec"]["template"]["containers"]
        if c["name"] == "main"
    ]
    words = list(main.get("args", []))
    if main.get("command", [""])[0] != "vllm":
        values = [e["value"] for e in main.get("env", []) if e["name"] == "VLLM_ADDITIONAL_ARGS"]
        words = [word for part in (*values, *words) for word in shlex.split(part)]
    found = {}
    for word, following in zip(words, [*words[1:], ""], strict=True):
        flag, _, value = word.partition("=")
        if flag == "--speculative-config":
            return dotted_value(value or following)
        if flag.startswith("--speculative-config."):
            found[flag.partition(".")[2]] = dotted_value(value or following)
    return found or None


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("form", FORMS)
def test_a_setting_goes_in_and_out_byte_for_byte(form, newline):
    text = (HEAD + FORMS[form] + SERVICE).replace("\n", newline)
    service = config(text)
    assert (service.kind, service.name, service.endpoints) == (
        "LLMInferenceServiceConfig",
        "team",
        ("qwen",),
    )
    assert service.speculation() is None
    for wanted in METHODS:
        changed = service.with_speculation(wanted)
        assert setting_of(changed.text) == wanted
        assert changed.with_speculation(NGRAM).with_speculation(None).text == text


@few
@given(
    st.sampled_from(sorted(FORMS)),
    st.dictionaries(
        st.sampled_from(["method", "model", "num_speculative_tokens", "x"]),
        st.integers(0, 9) | st.sampled_from(["a b", "it's", "[1,2]", "#", "{x}"]) | st.booleans(),
        min_size=1,
    ),
    st.sampled_from(["\n", "\r\n"]),
)
def test_any_setting_goes_in_and_out(form, wanted, newline):
    text = (HEAD + FORMS[form]).replace("\n", newline)
    changed = config(text).with_speculation(wanted)
    assert changed.speculation() == wanted
    assert changed.with_speculation(None).text == text


def test_a_service_beside_its_config_is_read_unless_the_config_is_named():
    (service,) = load(HEAD + FORMS["own"] + SERVICE)
    assert service.kind == "LLMInferenceService"
    with pytest.raises(InputError, match="no served model") as refused:
        load(HEAD + FORMS["args"])
    assert "--shared-runtime" in refused.value.hint


ARGS = HEAD + FORMS["args"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (ARGS + "  prefill: {}\n", "has pods of several roles"),
        (ARGS + "  worker: {containers: []}\n", "has pods of several roles"),
        (ARGS.replace("name: main", "name: other"), "no served model"),
        (
            ARGS.replace(
                "--max-model-len=4096", '\'--speculative-config={"method":"ngram","x":1}\''
            ),
            "splits this",
        ),
        (ARGS.replace("--max-model-len=4096", "a 'b"), "which cannot read it"),
        (ARGS.replace("--max-model-len=4096", "a; b"), "ends the command in it"),
        (ARGS.replace("--max-model-len=4096", "$(SPEC)"), "variable"),
        (ARGS.replace("v1alpha2", "v9"), "is not supported"),
        (
            ARGS.replace("        args:", "        command: [./start.sh]\n        args:"),
            "no vLLM engine is started",
        ),
        (ARGS.replace("--max-model-len=4096", "--runner=pooling"), "generates no text"),
        (
            ARGS.replace("        args:\n", "        args: &a\n") + "  copy: *a\n",
            "shared in this file",
        ),
        (
            ARGS.replace(
                "        args:\n          - --max-model-len=4096  # of all\n", "        args: x\n"
            ),
            "a list here",
        ),
    ],
)
def test_what_cannot_be_changed_safely_is_refused(text, reason):
    if "$(SPEC)" in text:
        text += "        env: [{name: SPEC, value: --speculative-config.method=suffix}]\n"
    with pytest.raises(InputError, match=reason):
        config(text).with_speculation(NGRAM)


def test_a_value_that_kserve_would_execute_is_refused():
    with pytest.raises(InputError, match="KServe executes"):
        config(ARGS).with_speculation({"method": "ngram", "x": "{{ .Name }}"})
