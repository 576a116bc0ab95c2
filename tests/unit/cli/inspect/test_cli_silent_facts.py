"""A fact that a manifest does not tell is no harmless fact, and speculation that no flag names is speculation."""

import json
from pathlib import Path

import pytest

DATA = Path(__file__).parents[3] / "data" / "manifests"
LATEST = "vllm/vllm-openai:latest"


@pytest.fixture
def preflight(cli):
    """Findings by id of a manifest with a method and more options."""

    def run(text, spec="ngram", *options):
        file = cli.directory / "service.yaml"
        file.write_text(text)
        done = cli("preflight", "-f", str(file), "--spec", spec, *options, "-o", "json")
        assert done.out, done.err
        return {finding["id"]: finding for finding in json.loads(done.out)["findings"]}

    return run


@pytest.fixture
def render(cli):
    """The result of ``mpctl render`` of a manifest."""

    def run(text, spec="none", *options):
        file = cli.directory / "service.yaml"
        file.write_text(text)
        return cli("render", "-f", str(file), "--spec", spec, *options)

    return run


def read(name):
    return (DATA / name).read_text()


def rows(found):
    return {
        name.removeprefix("known-bad-"): finding["severity"]
        for name, finding in found.items()
        if "kb" in name
    }


@pytest.mark.parametrize(
    "image",
    [
        LATEST,
        "vllm/vllm-openai:nightly-8c3f1d2",
        "vllm/vllm-openai@sha256:" + "ab" * 32,
        "registry.example/ml/vllm-ours:2.4.0",
        "registry.example/ml/vllm:2026.11.02",
        "nvcr.io/nvidia/vllm:26.07-py3",
        "vllm/vllm-openai",
    ],
)
def test_an_image_that_tells_no_release_warns_of_every_row_that_matches(preflight, image):
    found = preflight(read("release-in-no-tag.yaml").replace(LATEST, image))
    said = rows(found)
    assert {said[name] for name in ("kb01", "kb03", "kb04", "kb05")} == {"warn"}
    assert (
        "the engine's release is unknown; fails in 0.18.1 to 0.31.0"
        in found["known-bad-kb01"]["reason"]
    )


def with_pod_metadata(line):
    return read("release-in-no-tag.yaml").replace(
        "labels: {app: assistant}\n    spec", f"{line}\n    spec"
    )


@pytest.mark.parametrize(
    "text",
    [
        read("release-in-no-tag.yaml").replace(LATEST, "rocm/vllm:rocm7.0_vllm_0.28.0_20260901"),
        read("release-in-no-tag.yaml").replace(
            LATEST, "registry.example/serving/vllm:cuda13-v0.28.0"
        ),
        with_pod_metadata("labels: {app: assistant, app.kubernetes.io/version: v0.28.0}"),
        with_pod_metadata("annotations: {opendatahub.io/runtime-version: v0.28.0}"),
        read("release-in-no-tag.yaml").replace(
            "  name: assistant\n",
            '  name: assistant\n  labels: {app.kubernetes.io/version: "0.28.0"}\n',
            1,
        ),
    ],
    ids=["rocm", "prefix", "pod-label", "annotation", "label"],
)
def test_the_release_is_read_wherever_it_stands(preflight, text):
    found = preflight(text)
    assert rows(found)["kb01"] == rows(found)["kb04"] == "refuse"
    assert "engine-version-unknown" not in found


def test_the_release_of_a_runtime_in_the_file_and_the_tag_that_the_service_asks_for_count(
    preflight,
):
    digest = read("runtime-speculates.yaml").replace(
        "vllm-openai:v0.30.0", "vllm-openai@sha256:" + "0" * 64
    )
    assert "engine-version-unknown" in preflight(digest)
    annotated = digest.replace(
        "  name: fast\n", "  name: fast\n  annotations: {opendatahub.io/runtime-version: v0.8.2}\n"
    )
    assert "the engine is 0.8.2" in preflight(annotated)["engine-too-old"]["reason"]
    asked = digest.replace(
        "      runtime: fast\n", "      runtime: fast\n      runtimeVersion: v0.8.1\n"
    )
    assert "the engine is 0.8.1" in preflight(asked)["engine-too-old"]["reason"]


def test_a_tag_wins_over_a_label_and_a_label_of_a_chart_is_no_release(preflight):
    labelled = with_pod_metadata("labels: {app: assistant, app.kubernetes.io/version: 0.1.4}")
    assert "engine-version-unknown" in preflight(labelled)
    tagged = labelled.replace("0.1.4", "0.28.0").replace(LATEST, "vllm/vllm-openai:v0.33.0")
    assert "kb01" not in rows(preflight(tagged))


def test_the_user_states_the_release_whatever_the_image_says(preflight, cli):
    text = read("release-in-no-tag.yaml")
    cli.env(MPCTL_ENGINE_VERSION="0.28.0")
    assert rows(preflight(text))["kb01"] == "refuse"
    cli.env(MPCTL_ENGINE_VERSION="v0.33.0")
    assert "kb01" not in rows(preflight(text))
    plugin = text.replace(LATEST, "quay.io/ascend/vllm-ascend:main")
    cli.env(MPCTL_ENGINE_VERSION="0.23.0")
    assert "kb65" in rows(preflight(plugin, "mtp"))
    cli.env(MPCTL_ENGINE_VERSION="soon")
    wrong = cli("preflight", "-f", str(DATA / "release-in-no-tag.yaml"), "--spec", "ngram")
    assert wrong.code == 2
    assert "MPCTL_ENGINE_VERSION: soon is no release of vLLM" in wrong.err


HEAD = "RedHatAI/Llama-3.1-8B-Instruct-speculator.eagle3"


@pytest.mark.parametrize("spec", ["none", "ngram"])
@pytest.mark.parametrize(
    "name",
    [
        HEAD,
        "RedHatAI/Qwen3-8B-speculator.dflash",
        "/mnt/weights/gpt-oss-20b-speculator.eagle3",
        "ours/qwen-speculators",
    ],
)
def test_a_speculators_checkpoint_is_refused_by_its_name_with_what_keeps_speculation_on(
    render, name, spec
):
    done = render(read("target-brings-head.yaml").replace(HEAD, name), spec)
    assert done.code == 9
    assert "target-speculates" in done.err
    assert "already" not in done.err
    assert not done.out
    verifier = name.rpartition("/")[2].partition("-speculator")[0]
    assert f"serves {verifier} in its place" in done.err


def test_a_modelcar_of_a_speculators_checkpoint_counts_and_a_staged_draft_does_not(render):
    service = """apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: car}
spec:
  predictor:
    model:
      modelFormat: {name: huggingface}
      storageUri: oci://registry.example/cars/qwen3-8b-speculator.eagle3:1.0
      args: [--model=/mnt/models]
"""
    assert "target-speculates" in render(service).err
    staged = service.replace(
        "      storageUri: oci://registry.example/cars/qwen3-8b-speculator.eagle3:1.0\n",
        "      storageUris: [{uri: 'hf://Qwen/Qwen3-8B', mountPath: /mnt/models/target},\n"
        "        {uri: 'hf://RedHatAI/Qwen3-8B-speculator.eagle3', mountPath: /mnt/models/draft}]\n",
    ).replace("--model=/mnt/models]", "--model=/mnt/models/target]")
    assert "target-speculates" not in render(staged).err


def test_the_files_of_the_target_say_whether_it_brings_its_head(cli):
    folder = cli.directory / "served"
    folder.mkdir()
    file = cli.directory / "service.yaml"
    file.write_text(read("target-brings-head.yaml").replace(HEAD, "./served"))
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2}
    (folder / "config.json").write_text(json.dumps(config))
    assert cli("render", "-f", str(file), "--spec", "none").code == 0
    config["speculators_config"] = {
        "algorithm": "eagle3",
        "verifier": {"name_or_path": "org/served-in-its-place"},
    }
    (folder / "config.json").write_text(json.dumps(config))
    done = cli("render", "-f", str(file), "--spec", "none")
    assert done.code == 9
    assert "org/served-in-its-place" in done.err


def test_removing_the_services_own_setting_is_refused_where_its_runtime_speculates(render):
    text = read("runtime-speculates.yaml")
    own = render(text)
    assert own.code == 2
    assert "ServingRuntime fast sets --speculative-config, which this service inherits" in own.err
    alone, _, _ = text.rpartition("      args:\n")
    assert render(alone).err.partition("fast sets")[2] == own.err.partition("fast sets")[2]
    for flag in ("--spec-method=ngram", "-sc={}", "--speculative-config.method=ngram"):
        start = text.index("        - '--speculative-config")
        other = text[:start] + f"        - '{flag}'\n" + text[text.index("---") :]
        assert render(other).code == 2, flag
    assert render(text.replace("runtime: fast", "runtime: another")).code == 0
    assert render(text, "ngram").code == 0


def test_a_base_config_that_speculates_is_not_left_in_charge(render):
    text = """apiVersion: serving.kserve.io/v1alpha1
kind: LLMInferenceServiceConfig
metadata: {name: drafts}
spec:
  template:
    containers:
      - name: main
        image: vllm/vllm-openai:v0.30.0
        args: ['--speculative-config={"method": "ngram", "num_speculative_tokens": 2}']
---
apiVersion: serving.kserve.io/v1alpha1
kind: LLMInferenceService
metadata: {name: chat}
spec:
  model: {uri: 'hf://Qwen/Qwen3-8B', name: Qwen/Qwen3-8B}
  baseRefs: [{name: drafts}]
  template:
    containers:
      - name: main
        args: ['--speculative-config={"method": "ngram", "num_speculative_tokens": 5}']
"""
    done = render(text)
    assert done.code != 0, done.out
    assert not done.out


@pytest.mark.parametrize(
    ("image", "release"),
    [
        ("vllm/vllm-openai:v0.7.2", ""),
        ("vllm/vllm-openai:v0.6.4.post1", ""),
        (LATEST, ""),
        (LATEST, "0.8.2"),
    ],
)
def test_flags_that_an_old_engine_speculates_by_are_refused_with_their_lines(
    cli, render, image, release
):
    if release:
        cli.env(MPCTL_ENGINE_VERSION=release)
    text = read("flags-before-json.yaml")
    number = next(n for n, line in enumerate(text.splitlines(), 1) if "--speculative-model" in line)
    done = render(text.replace("vllm/vllm-openai:v0.7.2", image), "none")
    assert done.code == 9
    assert (
        f"--speculative-model in line {number}, --num-speculative-tokens in line {number + 1}"
        in done.err
    )
    assert "already" not in done.err


@pytest.mark.parametrize(
    "flags", ["--speculative_model=[ngram]", "--speculative-model\n            - '[ngram]'"]
)
def test_every_spelling_of_an_old_flag_is_found(render, flags):
    text = read("flags-before-json.yaml").replace(
        "--speculative-model=Qwen/Qwen2.5-Coder-0.5B-Instruct", flags
    )
    done = render(text)
    assert done.code == 9
    assert "--speculative-model in line" in done.err


@pytest.mark.parametrize("command", ["render", "preflight"])
@pytest.mark.parametrize(
    "model", ["Qwen/Qwen3.6-35B-A3B-FP8", "Qwen/Qwen3.6-27B", "zai-org/GLM-5.2"]
)
def test_a_method_that_loads_no_draft_names_none(cli, command, model):
    file = cli.directory / "service.yaml"
    file.write_text(read("target-with-mtp.yaml").replace("Qwen/Qwen3.6-35B-A3B-FP8", model))
    done = cli(command, "-f", str(file), "--spec", "mtp")
    assert "draft None" not in done.out + done.err
    if model.startswith("Qwen"):
        assert "draft the mtp layers of the target: " in done.out + done.err


def test_render_names_every_check_that_lacks_its_facts_in_one_line(render):
    text = read("release-in-no-tag.yaml").replace(LATEST, "vllm/vllm-openai:v0.33.0")
    (line,) = [
        line
        for line in render(text, "ngram").err.splitlines()
        if line.startswith("unchecked for lack of facts")
    ]
    assert "no-text" in line
    assert "thinking" in line
    assert "-v names the facts" in line
