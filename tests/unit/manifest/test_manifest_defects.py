"""Inputs that once came out wrong, or were refused or accepted for the wrong reason."""

from __future__ import annotations

import pytest
from service_samples import NGRAM, container

from mpctl.errors import InputError
from mpctl.manifest import load, load_one
from mpctl.manifest.draft_storage import with_claim, with_speculation, without_draft
from mpctl.manifest.speculation.editor import Editor

KSERVE = "apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\n"
SKLEARN = (
    KSERVE + "metadata: {name: iris}\nspec: {predictor: {model: {modelFormat: {name: sklearn}}}}\n"
)


def model(
    *args: str, storage: str = "hf://Qwen/Qwen3-8B", form: str = "huggingface", runtime: str = ""
) -> str:
    listed = "".join(f"      - {arg}\n" for arg in args)
    return (
        f"{KSERVE}metadata: {{name: llm}}\nspec:\n  predictor:\n    model:\n      modelFormat: {{name: {form}}}\n"
        f"      storageUri: {storage}\n" + (f"      runtime: {runtime}\n" if runtime else "")
    ) + (f"      args:\n{listed}" if listed else "")


@pytest.mark.parametrize(
    "args",
    [
        "args: [\n  m,  # the model, as mounted\n  --port=8080 # last\n]\n",
        "args: [ # first\n  m,\n  # before the port, alone\n  --port=8080,\n]\n",
        "args: [m, # why, indeed\n  --enforce-eager\n  , --port=8080 # end\n]\n",
        "args: [\n  m # no comma yet\n  ,\n  --port, '8080',  # trailing\n]\n",
    ],
)
def test_a_flow_list_with_comments_is_extended_and_restored(args):
    text = container(args)
    for style in ("json", "dotted"):
        changed = load(text)[0].with_speculation(NGRAM, style=style)
        assert changed.speculation() == NGRAM
        assert load(changed.text)[0].with_speculation(None).text == text


def test_flags_around_comments_of_a_flow_list_are_removed():
    text = container(
        'args: [\n  --speculative-config,  # the setting\n  \'{"method": "suffix"}\', # and, its value\n  m # last\n]\n'
    )
    speculation = load(text)[0].with_speculation(None)
    assert speculation.speculation() is None
    assert speculation.command.argv == ("m",)
    assert speculation.text.count("#") == 3


def test_a_neighbour_that_is_no_vllm_service_does_not_matter_to_a_named_one():
    text = SKLEARN + "---\n" + model("--max-model-len=4096")
    with pytest.raises(InputError, match="no vLLM engine found"):
        load(text)
    changed = load_one(text, "llm").with_speculation(NGRAM)
    assert changed.text.startswith(SKLEARN)
    assert load_one(changed.text, "llm").with_speculation(None).text == text
    with pytest.raises(InputError, match="no vLLM engine found"):
        load_one(text, "iris")


@pytest.mark.parametrize(
    "neighbour",
    [
        "apiVersion: v1\nkind: List\nitems: []\n",
        model().replace("serving.kserve.io", "ome.io").replace("name: llm", "name: other"),
        "- no object\n",
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: {template: {spec: {<<: {}}}}\n",
    ],
)
@pytest.mark.parametrize("behind", [False, True])
def test_a_neighbour_that_cannot_be_read_does_not_matter_to_a_named_service(neighbour, behind):
    text = "---\n".join((model(), neighbour) if behind else (neighbour, model()))
    changed = load_one(text, "llm").with_speculation(NGRAM)
    assert neighbour in changed.text
    assert load_one(changed.text, "llm").with_speculation(None).text == text
    with pytest.raises(InputError):
        load_one(neighbour, "llm")


def test_a_workload_of_vllm_that_cannot_be_looked_at_is_refused_with_its_place():
    text = (
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec:\n  template:\n    spec:\n"
        "      containers:\n      - <<: {image: vllm/vllm-openai}\n"
    )
    with pytest.raises(InputError, match="merge keys") as caught:
        load(text)
    assert caught.value.line == 8


def test_a_setting_inherited_from_a_runtime_of_the_file_is_not_called_absent():
    runtime = (
        "apiVersion: serving.kserve.io/v1alpha1\nkind: ServingRuntime\nmetadata: {name: own-vllm}\n"
        "spec:\n  containers:\n  - name: kserve-container\n    image: vllm/vllm-openai:v0.30.0\n"
        '    args: [--speculative-config, \'{"method": "suffix"}\']\n---\n'
    )
    text = runtime + model(runtime="own-vllm")
    with pytest.raises(InputError, match="own-vllm sets --speculative-config"):
        load(text)[0].require_removable()
    assert load(text)[0].with_speculation(NGRAM).speculation() == NGRAM


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (model("--backend=huggingface"), "--backend=huggingface"),
        (model("--task=fill_mask"), "--task=fill_mask"),
        (model("--task", "sequence_classification"), "--task=sequence_classification"),
        (model("--runner=pooling"), "--runner=pooling"),
        (model("--convert=embed"), "--convert=embed"),
        (model("--model_name=bert", "--model_id=google-bert/bert-base-uncased"), "is an encoder"),
        (model(storage="hf://FacebookAI/roberta-base"), "is an encoder"),
    ],
)
def test_services_that_generate_no_text_with_vllm_are_refused(text, says):
    with pytest.raises(InputError, match="generates no text with vLLM") as caught:
        load(text)
    assert says in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        model("--task=generate"),
        model("--backend=vllm"),
        model("--task=generate", storage="hf://org/bert-decoder"),
        model(storage="hf://Qwen/Qwen3-Alberta-8B"),
    ],
)
def test_services_that_generate_are_read(text):
    assert load(text)[0].name == "llm"


def test_an_edit_that_changes_anything_else_is_not_written(monkeypatch):
    text = container("args: [m, --port=8080]\n")
    result = Editor.result
    monkeypatch.setattr(
        Editor, "result", lambda self: result(self).replace("minReplicas: 1", "minReplicas: 2")
    )
    with pytest.raises(InputError, match="without changing something else"):
        load(text)[0].with_speculation(NGRAM)
    other = text + "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {a: b}\n"
    monkeypatch.setattr(Editor, "result", lambda self: result(self).replace("{a: b}", "{a: c}"))
    with pytest.raises(InputError, match="without changing something else"):
        load(other)[0].with_speculation(NGRAM)
    staged = model().replace("      storageUri: hf://Qwen/Qwen3-8B\n", "") + (
        "    storageUris:\n    - {uri: 'hf://a/t', mountPath: /mnt/models}\n"
        "    - {uri: 'hf://a/d', mountPath: /mnt/mpctl/draft}\n"
    )
    monkeypatch.setattr(Editor, "result", lambda self: result(self).replace("hf://a/t", "hf://a/x"))
    with pytest.raises(InputError, match="without changing something else"):
        without_draft(load(staged)[0])


def test_a_setting_that_could_not_be_removed_byte_for_byte_is_not_written(monkeypatch):
    text, result = container("args: [m, --port=8080]\n"), Editor.result
    monkeypatch.setattr(Editor, "result", lambda self: result(self) + "\n" * bool(self.removed))
    with pytest.raises(InputError, match="could not be removed again byte for byte"):
        load(text)[0].with_speculation(NGRAM)


def test_a_draft_that_could_not_be_removed_byte_for_byte_is_not_staged(monkeypatch):
    service = load(container("args: [m, --port=8080]\n"))[0]
    staged = with_claim(service, "drafts", "head")
    result = Editor.result
    monkeypatch.setattr(
        Editor, "result", lambda self: result(self) + "\n" * ("mpctl-draft" in self.text)
    )
    for edit in (
        lambda: with_claim(service, "drafts", "head"),
        lambda: with_speculation(staged, NGRAM),
    ):
        with pytest.raises(InputError, match="could not be removed again byte for byte"):
            edit()


def test_a_file_without_a_service_names_the_kinds_it_holds():
    ray = "kind: RayService\napiVersion: ray.io/v1\n"
    with pytest.raises(
        InputError, match="no served model in this file; it holds Deployment, RayService"
    ) as caught:
        load(f"kind: Deployment\napiVersion: apps/v1\n---\n{ray}")
    assert "set speculative_config in engine_kwargs" in caught.value.hint


def test_aliases_that_multiply_are_refused_with_their_line():
    lines = ["x0: &x0 [a, a, a, a, a, a, a, a, a]"]
    lines += [f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9)}]" for n in range(1, 10)]
    with pytest.raises(InputError, match="aliases make more than 1000000 values") as caught:
        load("\n".join(lines) + "\n")
    assert caught.value.line == 7


@pytest.mark.parametrize("opening", ["[", "{a: "])
def test_nesting_without_end_is_refused_before_it_is_read(opening):
    with pytest.raises(InputError, match="nested too deep"):
        load("kind: " + opening * 100_000)


def test_lists_nested_too_deep_are_an_error_of_the_file():
    deep = "a: " + "[" * 1000 + "]" * 1000 + "\n---\n" + model()
    with pytest.raises(InputError, match="nested too deep"):
        load(deep)


def test_another_products_inference_service_is_not_told_to_become_kserves():
    with pytest.raises(InputError, match=r"ome\.io/v1beta1 is not supported") as caught:
        load(model().replace("serving.kserve.io", "ome.io"))
    assert caught.value.hint == "only InferenceService of serving.kserve.io is supported"


def test_a_runtime_in_another_file_may_be_put_beside():
    with pytest.raises(InputError, match="no vLLM engine found") as caught:
        load(model(form="pytorch", runtime="mistral-7b"))
    assert "put the runtime mistral-7b into the same file" in caught.value.hint


@pytest.mark.parametrize(
    "start",
    [
        "[python3, -m, vllm.entrypoints.launchers.api_server.entry]",
        "[python3, -m, vllm.entrypoints.cli.main, serve]",
    ],
)
def test_newer_modules_that_start_vllm_are_recognised(start):
    text = container(f"command: {start}\nargs: [m, --port=8080]\n")
    service = load(text)[0]
    assert service.command.model == "m" or service.command.argv[0] == "m"
    assert service.with_speculation(NGRAM).with_speculation(None).text == text


def test_newer_switches_take_no_value():
    service = load(container("args: [--enable-log-deltas, m, -asc, '2']\n"))[0]
    assert service.command.model == "m"
    assert service.command.get("--api-server-count") == "2"
