"""LLMInferenceService: what the engine's process receives, by running the presets' shell line in a real bash."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import textwrap

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from service_samples import EAGLE3, METHODS, NGRAM

from mpctl.errors import InputError
from mpctl.manifest import foreign_changes, load, load_one
from mpctl.manifest.draft_storage import with_claim, without_draft

BASE = """\
apiVersion: serving.kserve.io/v1alpha2
kind: LLMInferenceService
metadata:
  name: qwen
  namespace: chat
spec:
  model:
    uri: hf://Qwen/Qwen3-8B
    name: Qwen/Qwen3-8B
  replicas: 2
  router: {route: {}, gateway: {}, scheduler: {}}
"""
MAIN = "  template:\n    containers:\n    - name: main\n"
TEMPLATES = {
    "none": "",
    "resources": MAIN + "      resources: {limits: {nvidia.com/gpu: '1'}}\n",
    "args": MAIN + "      args:\n      - --max-model-len=4096\n      - --enforce-eager\n",
    "args of several words": MAIN + "      args: ['--max-model-len 4096', --enforce-eager]\n",
    "variable": MAIN
    + "      env:\n      - name: VLLM_ADDITIONAL_ARGS\n        value: --max-model-len 4096\n",
    "quoted variable": MAIN
    + "      env:\n      - {name: A, value: b}\n      - name: VLLM_ADDITIONAL_ARGS  # ours\n"
    + '        value: "--max-model-len 4096 --hf-overrides \'{\\"a\\": 1, \\"b\\": 2}\'"\n',
    "folded variable": MAIN
    + "      env:\n      - name: VLLM_ADDITIONAL_ARGS\n        value: >-\n          --max-model-len 4096\n"
    + "          --enforce-eager\n",
    "other variable": MAIN + "      env:\n      - name: HF_TOKEN\n        value: t\n",
    "other container": "  template:\n    containers:\n    - name: sidecar\n      image: x\n    tolerations: []\n",
    "no container": "  template:\n    tolerations: []\n",
    "argv": MAIN + "      command: [vllm, serve, /mnt/models]\n      args: [--port=8000]\n",
}
# As the presets of KServe 0.18 to 0.20 start the engine; the lines before it look for the version of vLLM.
LINE = 'eval "exec vllm serve /mnt/models --port 8000 ${VLLM_ADDITIONAL_ARGS} $@"'
PRESET = ["/bin/bash", "-c", LINE, "--"]


@pytest.fixture(scope="session")
def received(tmp_path_factory):
    """Start the container of a manifest as the kubelet does; return the arguments of the process ``vllm``."""
    folder = tmp_path_factory.mktemp("bin")
    stub = folder / "vllm"
    stub.write_text("#!/bin/sh\nprintf '%s\\0' \"$@\"\n")
    stub.chmod(0o755)

    def start(text: str, key: str = "template") -> list[str]:
        spec = next(
            one for one in yaml.safe_load_all(text) if one["kind"] == "LLMInferenceService"
        )["spec"]
        containers = (spec.get(key) or {}).get("containers") or []
        main = next((one for one in containers if one["name"] == "main"), {})
        env = {one["name"]: one.get("value", "") for one in main.get("env") or []}
        command = [*main.get("command", PRESET), *main.get("args", [])]
        run = subprocess.run(
            command,
            env={**env, "PATH": f"{folder}:{os.environ['PATH']}"},
            cwd=folder,
            capture_output=True,
            check=True,
        )
        return run.stdout.decode().removesuffix("\0").split("\0")

    return start


def setting_of(words: list[str]) -> dict | None:
    """The setting as vLLM's parser makes it of JSON, or of dotted flags."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--speculative-config", type=json.loads, action="append")
    known, others = parser.parse_known_args(words)
    dotted = {}
    for at, word in enumerate(others):
        flag, joined, value = word.partition("=")
        if flag.startswith("--speculative-config."):
            value = value if joined else others[at + 1]
            try:
                dotted[flag.partition(".")[2]] = json.loads(value)
            except ValueError:
                dotted[flag.partition(".")[2]] = value
    return dotted or (known.speculative_config or [None])[-1]


@pytest.mark.parametrize("form", TEMPLATES)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_the_process_receives_exactly_the_setting_and_the_undo_is_exact(form, newline, received):
    text = (BASE + TEMPLATES[form] + "# end\n").replace("\n", newline)
    service = load_one(text, "qwen")
    assert (service.kind, service.model, service.speculation()) == (
        "LLMInferenceService",
        "/mnt/models",
        None,
    )
    others = received(text)
    for config in METHODS:
        for style in (None, "json", "dotted"):
            changed = service.with_speculation(config, style=style)
            words = received(changed.to_yaml())
            assert setting_of(words) == config
            assert [w for w in words if w in others] == others, "another argument changed"
            assert changed.speculation() == config
            assert foreign_changes(text, changed.to_yaml()) == ()
            assert changed.with_speculation(NGRAM).with_speculation(None).to_yaml() == text


values = (
    st.integers(0, 9)
    | st.booleans()
    | st.text(st.sampled_from("a '\"\\$`{},[]*?~;&|#<>()!:=\n-é"), max_size=6)
)
configs = st.dictionaries(
    st.sampled_from(["method", "model", "num_speculative_tokens", "x"]), values, min_size=1
)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    form=st.sampled_from(sorted(TEMPLATES)),
    first=configs,
    second=configs,
    style=st.sampled_from([None, "json"]),
)
def test_any_setting_reaches_the_process(form, first, second, style, received):
    text = BASE + TEMPLATES[form]
    try:
        changed = load(text)[0].with_speculation(first, style=style)
        again = changed.with_speculation(second)
    except InputError as error:
        assert "{{" in str(error)
        return
    assert setting_of(received(changed.to_yaml())) == first
    assert setting_of(received(again.to_yaml())) == second
    assert again.with_speculation(None).to_yaml() == text


def test_a_template_that_mpctl_made_is_readable_and_goes_with_the_setting():
    changed = load_one(BASE, None).with_speculation(NGRAM).to_yaml()
    assert changed == BASE + (
        "  template:\n    containers:\n    - env:\n      - name: VLLM_ADDITIONAL_ARGS\n"
        '        value: "--speculative-config.method=ngram --speculative-config.num_speculative_tokens=5 '
        '--speculative-config.prompt_lookup_max=4 --speculative-config.prompt_lookup_min=2"\n      name: main\n'
    )


def test_plain_json_that_the_shell_takes_apart_is_reported_with_its_line(received):
    config = '{"method":"ngram","num_speculative_tokens":5}'
    broken = f"{MAIN}      args:\n      - --speculative-config\n      - '{config}'\n"
    text = BASE + broken
    assert received(text)[-2:] == ["method:ngram", "num_speculative_tokens:5"]
    with pytest.raises(InputError, match="splits this value at its braces") as caught:
        load_one(text, None).speculation()
    assert caught.value.line == 17
    assert load_one(text, None).with_speculation(None).speculation() is None


def test_quotes_within_an_argument_are_read_as_the_process_gets_them(received):
    config = '{"method":"ngram","num_speculative_tokens":5}'
    quoted = f"{MAIN}      args:\n      - --speculative-config\n      - '''{config}'''\n"
    service = load_one(BASE + quoted, None)
    assert service.speculation() == {"method": "ngram", "num_speculative_tokens": 5}
    changed = service.with_speculation(EAGLE3)
    assert setting_of(received(changed.to_yaml())) == EAGLE3
    assert changed.with_speculation(service.speculation()).to_yaml() == BASE + quoted


CONFIG = """\
---
apiVersion: serving.kserve.io/v1alpha2
kind: LLMInferenceServiceConfig
metadata: {name: shared}
spec:
  template:
    containers:
    - name: main
"""
REFS = "  baseRefs:\n  - name: shared\n"


def test_arguments_of_a_config_are_read_and_never_lost(received):
    config = CONFIG + "      args: [--max-model-len=2048]\n"
    service = load_one(BASE + REFS + config, "qwen")
    assert (service.runtime, service.runtime_args[-1]) == ("shared", "--max-model-len=2048")
    changed = service.with_speculation(NGRAM)
    assert (
        "args"
        not in yaml.safe_load(changed.to_yaml().partition("---")[0])["spec"]["template"][
            "containers"
        ][0]
    )
    assert changed.to_yaml().endswith(config)
    assert changed.with_speculation(None).to_yaml() == BASE + REFS + config


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("", "shared is not in this file"),
        (
            CONFIG + "      env: [{name: VLLM_ADDITIONAL_ARGS, value: --enforce-eager}]\n",
            "sets VLLM_ADDITIONAL_ARGS",
        ),
        (
            CONFIG + "      args: ['--speculative-config.method=ngram']\n",
            "sets speculation in its args",
        ),
        (CONFIG + "      command: [sh, -c, run.sh]\n", "replaces the presets' command"),
    ],
)
def test_a_config_that_would_win_or_lose_its_arguments_is_named(config, message):
    service = load_one(BASE + REFS + config, "qwen")
    with pytest.raises(InputError, match=message):
        service.with_speculation(NGRAM)


def test_own_arguments_replace_those_of_a_config(received):
    text = (
        BASE
        + REFS
        + TEMPLATES["args"]
        + CONFIG
        + "      args: ['--speculative-config.method=ngram']\n"
    )
    service = load_one(text, "qwen")
    assert "--speculative-config.method=ngram" not in service.runtime_args
    changed = service.with_speculation(EAGLE3)
    assert setting_of(received(changed.to_yaml())) == EAGLE3
    assert changed.with_speculation(None).to_yaml() == text


def test_workers_get_the_setting_of_the_leader(received):
    worker = "  worker:\n    containers:\n    - name: main\n      image: x\n"
    for more in (worker, worker + TEMPLATES["args"]):
        text = BASE + more
        changed = load_one(text, None).with_speculation(NGRAM)
        assert (
            setting_of(received(changed.to_yaml()))
            == setting_of(received(changed.to_yaml(), "worker"))
            == NGRAM
        )
        assert changed.with_speculation(None).to_yaml() == text


@pytest.mark.parametrize("part", ["template", "worker", "prefill: {template"])
def test_a_template_with_a_spec_of_its_own_is_no_podspec(part):
    text = (
        BASE + f"  {part}: {{spec: {{containers: [{{name: main}}]}}}}{'}' if '{' in part else ''}\n"
    )
    with pytest.raises(InputError, match="has no spec of its own"):
        load(text)


def test_a_speculator_of_kserve_is_left_alone():
    with pytest.raises(InputError, match=r"spec\.speculator sets speculation already"):
        load(BASE + "  speculator: {config: {method: ngram}}\n")


def test_a_template_in_a_value_is_refused():
    with pytest.raises(InputError, match="as a template"):
        load_one(BASE, None).with_speculation({"method": "{{ .Name }}"})


def test_another_shell_command_in_an_argument_is_refused():
    with pytest.raises(InputError, match="which ends the command in it"):
        load(BASE + MAIN + "      args: ['--port=1; rm -rf /']\n")
    with pytest.raises(InputError, match="a shell, which cannot read it"):
        load(BASE + MAIN + textwrap.indent('args: ["--a=\'b"]\n', "      "))


def test_a_draft_on_a_claim_is_mounted_and_unmounted():
    text = BASE + TEMPLATES["args"]
    staged = with_claim(load_one(text, None), "models", "eagle3")
    template = yaml.safe_load(staged.to_yaml())["spec"]["template"]
    assert template["volumes"][0]["persistentVolumeClaim"]["claimName"] == "models"
    assert without_draft(staged.with_speculation(EAGLE3)).with_speculation(None).to_yaml() == text
