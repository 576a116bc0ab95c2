"""Kinds with YAML inside of a text: the setting goes into the text and out again, judged by another YAML reader."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from service_samples import EAGLE3, METHODS, NGRAM

from mpctl.errors import InputError
from mpctl.manifest import foreign_changes, load, load_one

few = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])

CONFIG = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: params
data:
  other: x
  inference_config.yaml: |@
    # steps until it fits
    max_probe_steps: 6

    vllm:
      max-model-len: 131072
      enable-chunked-prefill: true
      gpu-memory-utilization: 0.95  # of each GPU
&
      # see vLLM's documentation for more

"""
WORKSPACE = """\
---
apiVersion: kaito.sh/v1beta1
kind: Workspace
metadata:
  name: chat
resource:
  instanceType: Standard_NC24ads_A100_v4
inference:
  preset:
    name: Qwen/Qwen3-8B
  config: params
"""
SET = """\
---
apiVersion: kaito.sh/v1alpha1
kind: InferenceSet
metadata:
  name: chat
spec:
  replicas: 2
  template:
    inference: {preset: {name: Qwen/Qwen3-8B}, config: "params"}
"""


@dataclass(frozen=True)
class Form:
    """A manifest with ``&`` where arguments go, ``indent`` deep, and ``@`` behind the ``|`` of their text."""

    text: str
    indent: int

    def written(self, arguments: str = "", newline: str = "\n", chomping: str = "") -> str:
        lines = "".join(" " * self.indent + line + "\n" for line in arguments.splitlines())
        return self.text.replace("&\n", lines).replace("|@", f"|{chomping}").replace("\n", newline)

    def setting(self, text: str) -> dict | None:
        """The setting as KAITO's start script, which makes a flag of each key and its value."""
        first = next(yaml.safe_load_all(text))
        value = yaml.safe_load(first["data"]["inference_config.yaml"])["vllm"].get(
            "speculative-config"
        )
        return None if value is None else json.loads(str(value))


FORMS = {"Workspace": Form(CONFIG + WORKSPACE, 6), "InferenceSet": Form(CONFIG + SET, 6)}


@pytest.mark.parametrize("chomping", ["", "-", "+", "2"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("kind", FORMS)
def test_a_setting_goes_in_and_out_byte_for_byte(kind, newline, chomping):
    text = FORMS[kind].written("max_num_seqs: 8\n# a note", newline, chomping)
    service = load_one(text, "chat")
    assert (service.kind, service.model, service.image, service.speculation()) == (
        kind,
        "Qwen/Qwen3-8B",
        None,
        None,
    )
    for config in METHODS:
        changed = service.with_speculation(config)
        assert FORMS[kind].setting(changed.text) == config
        assert foreign_changes(text, changed.text) == ()
        assert changed.with_speculation(NGRAM).with_speculation(None).text == text


values = (
    st.integers(0, 9)
    | st.sampled_from(["a b", "it's", 'q"q', "{x}", "[1,2]", "#", ": "])
    | st.booleans()
)


@few
@given(
    st.sampled_from(sorted(FORMS)),
    st.dictionaries(
        st.sampled_from(["method", "model", "num_speculative_tokens", "x"]), values, min_size=1
    ),
    st.sampled_from(
        [
            "",
            "max_num_seqs: 8",
            "# a note",
            "max_num_seqs: 8  # few\n\n",
            "kv_cache_dtype: |\n  fp8",
        ]
    ),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(["", "-", "+"]),
)
def test_any_setting_goes_in_and_out(kind, config, arguments, newline, chomping):
    text = FORMS[kind].written(arguments, newline, chomping)
    changed = load(text)[0].with_speculation(config)
    assert FORMS[kind].setting(changed.text) == config
    assert changed.with_speculation(None).text == text


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("Workspace", """speculative-config: '{"method": "suffix"}'"""),
        ("Workspace", """speculative_config: "{\\"method\\": \\"suffix\\"}"  # tried"""),
        ("Workspace", "speculative-config.method: suffix"),
    ],
)
def test_a_setting_that_is_there_is_read_replaced_and_removed(kind, arguments):
    service = load_one(FORMS[kind].written(arguments), None)
    assert service.speculation() == {"method": "suffix"}
    for config in (NGRAM, EAGLE3):
        changed = service.with_speculation(config)
        assert (changed.speculation(), "suffix" in changed.text) == (config, False)
    assert service.with_speculation(None).text == FORMS[kind].written()


def test_the_rest_of_the_arguments_is_known_to_the_checks():
    command = load_one(FORMS["Workspace"].written(), None).command
    assert (command.get("max-model-len"), command.has("enable-chunked-prefill")) == ("131072", True)


CHAT = FORMS["Workspace"].written()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (WORKSPACE, "in a ConfigMap, which is not in this file"),
        (CHAT.replace("  config: params\n", ""), "no ConfigMap is named"),
        (CHAT + SET, "ConfigMap params is used more than once"),
        (CHAT.replace("yaml: |", "yaml: >"), "cannot be edited as it is written"),
        (CHAT.replace("    vllm:\n", "    wllm:\n"), '"vllm" is missing'),
        (CHAT.replace("      max-model-len: 131072\n", "      <<: {a: b}\n"), "merge keys"),
        (
            CHAT.replace("131072", "&a 131072").replace("0.95", "*a"),
            "anchors and aliases in this text are not read",
        ),
        (
            CHAT.replace("max-model-len: 131072", "speculative-config: {method: suffix}"),
            "Python's text, not as JSON",
        ),
        (CHAT.replace("max-model-len: 131072", "speculative-config: '{method'"), "not valid JSON"),
        (CHAT.replace("max-model-len: 131072", "max-model-len: [a"), "not valid YAML"),
        (CHAT.replace("max-model-len: 131072", "max-model-len:\t131072"), "not valid YAML"),
        (CHAT.replace("max-model-len: 131072", "since: 2026-99-99"), "not valid YAML"),
        (CHAT.replace("max-model-len: 131072", "on: 1\n      yes: 2"), "two keys are one"),
        (CHAT.replace("max-model-len: 131072", "runner: pooling"), "generates no text"),
        (CHAT.replace("Qwen/Qwen3-8B", "BAAI/bge-m3"), "embeds"),
        (
            CHAT.replace(
                "name: chat\n", "name: chat\n  annotations: {kaito.sh/runtime: transformers}\n"
            ),
            "kaito.sh/runtime says transformers",
        ),
    ],
)
def test_what_cannot_be_changed_safely_is_refused_with_its_place(text, reason):
    with pytest.raises(InputError, match=reason) as refused:
        load_one(text, "chat").with_speculation(NGRAM)
    assert refused.value.line


def test_the_lines_of_a_refusal_are_the_lines_of_the_file():
    text = CHAT.replace("max-model-len: 131072", "speculative-config: '{method'")
    with pytest.raises(InputError) as refused:
        load_one(text, "chat").speculation()
    assert "speculative-config" in text.splitlines()[refused.value.line - 1]


def test_a_workspace_that_tunes_or_has_pods_of_its_own_is_no_service():
    for part in ("tuning: {method: qlora}", "inference: {template: {spec: {containers: []}}}"):
        with pytest.raises(InputError, match="no served model") as refused:
            load(WORKSPACE.split("inference:", maxsplit=1)[0] + part + "\n")
        assert "KAITO" in refused.value.hint


def test_dotted_keys_are_refused_where_they_would_mean_nothing():
    with pytest.raises(InputError, match="is written as JSON"):
        load_one(CHAT, None).with_speculation(NGRAM, style="dotted")
