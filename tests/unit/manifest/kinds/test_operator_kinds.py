"""Kinds whose pods an operator makes: read, edited and restored byte for byte, judged by another YAML reader."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from service_samples import METHODS, NGRAM

from mpctl.errors import InputError
from mpctl.estimate.facts import facts_of
from mpctl.manifest import foreign_changes, load, load_one

few = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])

RUNTIME = """\
apiVersion: production-stack.vllm.ai/v1alpha1
kind: VLLMRuntime
metadata:
  name: chat
  namespace: ml  # the team's
spec:
  model:
    modelURL: Qwen/Qwen3-8B
    maxModelLen: 4096
  vllmConfig:
    enablePrefixCaching: true
    tensorParallelSize: 2
    maxLoras: 0
@
  deploymentConfig:
    replicas: 2
    image: {registry: docker.io, name: "vllm/vllm-openai:v0.32.0"}
"""
GRAPH = """\
apiVersion: nvidia.com/v1beta1
kind: DynamoGraphDeployment
metadata:
  name: chat
  namespace: ml
spec:
  components:
  - name: Frontend
    type: frontend
    podTemplate:
      spec:
        containers:
        - image: nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.3.1
          name: main
  - name: worker
    type: worker
    podTemplate:
      spec:
        containers:
        - name: sidecar
          image: fluent/fluent-bit:3
        - name: main
          image: nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.3.1
          command: [python3, -m, dynamo.vllm]
@
"""
OLDER_GRAPH = """\
apiVersion: nvidia.com/v1alpha1
kind: DynamoGraphDeployment
metadata:
  name: chat
  namespace: ml
spec:
  services:
    Frontend:
      componentType: frontend
      extraPodSpec: {mainContainer: {image: "nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.3.1"}}
    Worker:
      componentType: worker
      extraPodSpec:
        mainContainer:
          image: nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.3.1
          command: [python3, -m, dynamo.vllm]
@
"""


@dataclass(frozen=True)
class Form:
    """A manifest with ``@`` where lines of arguments go. ``place``: of their list in its data."""

    text: str
    key: str
    indent: int
    place: tuple[str | int, ...]

    def with_words(self, lines: str, newline: str = "\n") -> str:
        block = "".join(
            " " * self.indent + line + "\n" for line in lines.format(key=self.key).splitlines()
        )
        return self.text.replace("@\n", block).replace("\n", newline)

    def words(self, text: str) -> list[str]:
        home = yaml.safe_load(text)["spec"]
        for step in self.place:
            home = home[step]
        return [*(home.get("command") or []), *(home.get(self.key) or [])]


FORMS = {
    "VLLMRuntime": Form(RUNTIME, "extraArgs", 4, ("vllmConfig",)),
    "v1beta1": Form(GRAPH, "args", 10, ("components", 1, "podTemplate", "spec", "containers", 1)),
    "v1alpha1": Form(
        OLDER_GRAPH, "args", 10, ("services", "Worker", "extraPodSpec", "mainContainer")
    ),
}
LINES = {
    "flow": "{key}: [--model, Qwen/Qwen3-8B, --port, '8000']",
    "block": "{key}:\n- --model=Qwen/Qwen3-8B  # the target\n- --enforce-eager",
    "quoted": '{key}:\n  - "--model"\n  - "Qwen/Qwen3-8B"\n  - "--max-num-seqs"\n  - "8"',
}


def setting_of(words):
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--speculative-config", type=json.loads)
    return parser.parse_known_args(words)[0].speculative_config


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("lines", [*LINES.values(), ""])
@pytest.mark.parametrize("kind", FORMS)
def test_a_setting_goes_in_and_out_byte_for_byte(kind, lines, newline):
    form = FORMS[kind]
    text = form.with_words(lines, newline)
    service = load_one(text, "chat")
    assert (service.namespace, service.speculation()) == ("ml", None)
    assert service.image.endswith(("vllm/vllm-openai:v0.32.0", "vllm-runtime:1.3.1"))
    if lines or kind == "VLLMRuntime":
        assert service.model == "Qwen/Qwen3-8B"
    for config in METHODS:
        changed = service.with_speculation(config)
        assert setting_of(form.words(changed.to_yaml())) == config
        assert foreign_changes(text, changed.to_yaml()) == ()
        assert changed.with_speculation(NGRAM).with_speculation(None).to_yaml() == text


values = (
    st.integers(0, 9)
    | st.sampled_from(["a b", "it's", 'q"q', "{x}", "[1,2]", "#", ": "])
    | st.booleans()
)


@few
@given(
    st.sampled_from(sorted(FORMS)),
    st.sampled_from(sorted(LINES.values())),
    st.dictionaries(
        st.sampled_from(["method", "model", "num_speculative_tokens", "x"]), values, min_size=1
    ),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(["", "# a note\n", "\n\n"]),
)
def test_any_setting_goes_in_and_out(kind, lines, config, newline, before):
    form = FORMS[kind]
    text = before.replace("\n", newline) + form.with_words(lines, newline)
    changed = load(text)[0].with_speculation(config)
    assert setting_of(form.words(changed.to_yaml())) == config
    assert changed.with_speculation(None).to_yaml() == text


def test_what_the_operator_makes_of_fields_is_known_to_the_checks():
    facts = facts_of(load_one(FORMS["VLLMRuntime"].with_words(LINES["block"]), None))
    assert (facts.served_context, facts.tensor_parallel, facts.prefix_caching) == (4096, 2, True)
    assert facts.target.name == "Qwen/Qwen3-8B"


SCRIPT = """\
{key}:
- |
  exec python3 -m dynamo.vllm \\
    --model Qwen/Qwen3-8B
"""
PREFILL = """\
- {{name: prefill, type: {type}, podTemplate: {{spec: {{containers: [{{name: main, image: vllm-runtime,\
 command: [python3, -m, dynamo.vllm], args: [--model, a/b{flags}]}}]}}}}}}
"""


def test_a_worker_that_a_script_starts_is_edited_in_the_script():
    text = FORMS["v1beta1"].with_words(SCRIPT).replace("[python3, -m, dynamo.vllm]", "[sh, -c]")
    changed = load_one(text, None).with_speculation(NGRAM)
    assert "dynamo.vllm \\\n" in changed.text
    assert "--speculative-config" in changed.text
    assert changed.with_speculation(None).text == text


def with_component(entry):
    return FORMS["v1beta1"].with_words(LINES["flow"]) + "  " + entry


PAIR = """\
  - name: filling
    type: prefill
    podTemplate:
      spec:
        containers:
        - name: main
          image: nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.3.1
          command: [python3, -m, dynamo.vllm]
          args:
          - --model=Qwen/Qwen3-8B
          - --disaggregation-mode=prefill
"""


@pytest.mark.parametrize("config", METHODS)
def test_workers_that_fill_prompts_are_edited_with_the_one_that_decodes(config):
    text = FORMS["v1beta1"].with_words(LINES["block"]) + PAIR
    changed = load_one(text, "chat").with_speculation(config)
    components = yaml.safe_load(changed.text)["spec"]["components"]
    decodes, fills = (
        setting_of(main["args"])
        for component in components[1:]
        for main in component["podTemplate"]["spec"]["containers"]
        if main["name"] == "main"
    )
    without_cache = config.get("method") in ("ngram", "suffix")
    assert (decodes, fills) == (config, None if without_cache else config)
    assert changed.with_speculation(None).text == text
    one_sided = text + '          - \'--speculative-config={"method": "mtp"}\'\n'
    with pytest.raises(InputError, match="different speculative settings"):
        load_one(one_sided, "chat").speculation()


RUNTIME_ARGS = FORMS["VLLMRuntime"].with_words("{key}: [--enforce-eager]")
GRAPH_ARGS = FORMS["v1beta1"].with_words(LINES["flow"])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (RUNTIME_ARGS.replace("[--enforce-eager]", "--enforce-eager"), "expected a list here"),
        (RUNTIME_ARGS.replace("    modelURL: Qwen/Qwen3-8B\n", ""), '"modelURL" is missing'),
        (RUNTIME_ARGS.replace("Qwen/Qwen3-8B", "BAAI/bge-m3"), "embeds"),
        (
            RUNTIME_ARGS.replace("/v1alpha1", "/v2"),
            "VLLMRuntime of production-stack.vllm.ai/v2 is not supported",
        ),
        (RUNTIME_ARGS.replace("--enforce-eager", "'--speculative-config={x'"), "not valid JSON"),
        (RUNTIME_ARGS.replace("--enforce-eager", "$(SPEC)"), "is built by variables"),
        (RUNTIME_ARGS.replace("--enforce-eager", "--, x"), "words behind -- are no flags"),
        (RUNTIME_ARGS.replace("[--enforce-eager]", ""), "could not be removed again|is empty"),
        (
            RUNTIME_ARGS.replace("[--enforce-eager]", "&a [x]") + "  other: *a\n",
            "shared in this file",
        ),
        (RUNTIME_ARGS.replace("--enforce-eager", "--runner=pooling"), "generates no text"),
        (GRAPH_ARGS.replace("dynamo.vllm", "dynamo.sglang"), "the engine is SGLang"),
        (GRAPH_ARGS.replace("dynamo.vllm", "dynamo.vllm.omni"), "no vLLM engine container"),
        (GRAPH_ARGS.replace("nvidia.com/", "nvidia.com/v1/"), "is not supported"),
        (
            GRAPH_ARGS.replace("--port, '8000'", "--is-prefill-worker"),
            "0 vLLM workers of the graph decode",
        ),
        (GRAPH_ARGS.replace("Qwen/Qwen3-8B", "openai/whisper-large-v3"), "transcribes"),
        (
            with_component(PREFILL.format(type="prefill", flags="")),
            "fills prompts for Qwen/Qwen3-8B with a/b",
        ),
        (
            with_component(PREFILL.format(type="worker", flags=", --disaggregation-mode=prefill")),
            "with a/b",
        ),
        (
            with_component(PREFILL.format(type="worker", flags="")),
            "2 vLLM workers of the graph decode",
        ),
        (GRAPH_ARGS.replace("  components:", "  components: {}\n  old:"), "expected a list here"),
        (
            GRAPH_ARGS.replace("    podTemplate:\n", "    podTemplate: 1\n    x:\n"),
            "expected a mapping here",
        ),
    ],
)
def test_what_cannot_be_changed_safely_is_refused_with_its_place(text, reason):
    variables = text.replace("    enablePrefixCaching", "    env: [{name: SPEC, value: --speculative-config}]\n"
                             "    enablePrefixCaching")  # fmt: skip
    with pytest.raises(InputError, match=reason) as refused:
        load_one(variables if "$(SPEC)" in text else text, None).with_speculation(NGRAM)
    assert refused.value.line
