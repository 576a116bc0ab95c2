"""Drafts from the command line: listed, chosen, matched, staged; nothing of it needs a cluster or a hub."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

SERVICE = """\
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata:
  name: chat
spec:
  predictor:
    model:
      modelFormat: {name: vLLM}
      runtime: kserve-vllmserver
      storageUri: hf://Qwen/Qwen3-8B  # 16 GiB
      args:
      - --max-model-len=8192
"""
HEAD = "RedHatAI/Qwen3-8B-speculator.eagle3"
CONFIG = {
    "architectures": ["Eagle3LlamaForCausalLM"],
    "hidden_size": 4096,
    "target_hidden_size": 4096,
    "num_hidden_layers": 1,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "draft_vocab_size": 32000,
    "max_position_embeddings": 40960,
    "dtype": "bfloat16",
    "speculators_config": {"verifier": {"name_or_path": "Qwen/Qwen3-8B"}},
}


@pytest.fixture(autouse=True)
def _no_hub(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture
def service(cli):
    path = cli.directory / "service.yaml"
    path.write_text(SERVICE)
    return str(path)


def listing(cli, name, config, weights):
    path = cli.directory / name
    path.write_text(f"{weights} ./model.safetensors\n==> config.json <==\n{json.dumps(config)}\n")
    return str(path)


def test_the_table_of_drafts(cli):
    every = cli("drafts")
    assert every.code == 0
    assert every.out.count("\n") == 99
    one = cli("drafts", "Qwen/Qwen3-8B")
    assert HEAD in one.out
    assert "2.26 (K=3, mtbench, t=0)" in one.out
    assert "unknown" in one.out
    assert "raises KV per token" in one.err
    assert "vllm-test" in cli("drafts", "Qwen/Qwen3-8B", "-o", "wide").out
    assert (
        cli("drafts", "Qwen/Qwen3-8B", "--method", "dspark", "-o", "name").out == "deepseek-ai/dspark_qwen3_8b_block7\n"
    )


@pytest.mark.parametrize(("output", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_drafts_for_programs(cli, output, read):
    body = read(cli("drafts", "Qwen/Qwen3-32B", "-o", output).out)
    assert body["kind"] == "DraftList"
    first = body["items"][0]
    assert (first["draft"], first["numSpeculativeTokens"], first["loadedGib"]) == (
        "RedHatAI/Qwen3-32B-speculator.eagle3",
        3,
        2.91,
    )
    assert first["licence"] is None
    assert body["sources"]["vllm-test"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["Qwen/Qwen3-9B"], "did you mean Qwen/Qwen3-8B"),
        (["--method", "egle3"], "did you mean eagle3?"),
        (["--drafts", "gone.yaml"], "gone.yaml: --drafts cannot be read"),
        (["-o", "xml"], "xml"),
    ],
)
def test_mistakes_with_drafts(cli, arguments, says):
    done = cli("drafts", *arguments)
    assert done.code == 2
    assert says in done.err


def test_a_file_of_ones_own_wins_by_flag_variable_and_setting(cli, service):
    mine = cli.directory / "mine.yaml"
    mine.write_text("targets:\n  Qwen/Qwen3-8B:\n    - {repo: ours/head, method: eagle3, k: 4}\n")
    plan = ("stage", "-f", service, "--spec", "eagle3", "--kserve", "0.20", "-o", "json")
    body = json.loads(cli(*plan, "--drafts", str(mine)).out)
    assert (body["draft"], body["mode"]) == ("ours/head", "storageUris")
    assert '"num_speculative_tokens": 4' in body["manifest"]
    cli.env(MPCTL_DRAFTS=str(mine))
    assert json.loads(cli(*plan).out)["draft"] == "ours/head"
    mine.write_text("targets:\n  Qwen/Qwen3-8B:\n    - {repo: ours/head, method: egle3}\n")
    done = cli(*plan)
    assert done.code == 2
    assert f"{mine}:3: targets.Qwen/Qwen3-8B[0].method: 'egle3' is no method, did you mean eagle3?" in done.err


@pytest.mark.parametrize("form", ["NVFP4A16", "MXFP8", "AutoRound", "W4A16-G128", "MLX-4bit", "unsloth-bnb-4bit"])
def test_a_quantised_form_has_the_drafts_of_its_model(cli, form):
    assert HEAD in cli("drafts", f"org/Qwen3-8B-{form}").out


@pytest.mark.parametrize("served", ["acme/support-bot", "Qwen/Qwen3-8B"])
def test_a_served_name_says_nothing_of_the_weights(cli, served):
    path = cli.directory / "s3.yaml"
    path.write_text(SERVICE.replace("hf://Qwen/Qwen3-8B", "s3://b/weights") + f"      - --served-model-name={served}\n")
    head = listing(cli, "head.txt", CONFIG, 1_600_000_000)
    asked = ("--spec", "eagle3", "--draft", HEAD, "--draft-listing", head, "-o", "json")
    done = cli("preflight", "-f", str(path), *asked)
    (check,) = [one for one in json.loads(done.out)["match"] if one["id"] == "wrong-target"]
    assert check["verdict"] == "unknown"
    assert "wrong-target" not in done.err.partition("unchecked")[0]


def test_a_served_name_chooses_from_the_catalogue_only_where_it_stands_there(cli):
    path = cli.directory / "s3.yaml"
    plain = SERVICE.replace("hf://Qwen/Qwen3-8B", "s3://b/weights")
    path.write_text(plain + "      - --served-model-name=Qwen/Qwen3-8B\n")
    assert f"draft {HEAD}: first draft of Qwen/Qwen3-8B" in cli("render", "-f", str(path), "--spec", "eagle3").err
    path.write_text(plain + "      - --served-model-name=acme/support-bot\n")
    refused = cli("render", "-f", str(path), "--spec", "eagle3")
    assert refused.code == 9
    assert "the target's name is not known to choose one" in refused.err
    assert "acme" not in refused.err


def test_the_choice_is_said_and_overruled(cli, service):
    done = cli("render", "-f", service, "--spec", "eagle3")
    assert done.code == 0
    assert f"draft {HEAD}: first draft of Qwen/Qwen3-8B for eagle3" in done.err
    assert HEAD in done.out
    other = cli(
        "render", "-f", service, "--spec", "eagle3", "--draft", "org/other", "--set", "num_speculative_tokens=2"
    )
    assert '"model": "org/other"' in other.out
    assert "first draft" not in other.err
    config = '{"num-speculative-tokens": 5}'
    dashed = cli("render", "-f", service, "--spec", "eagle3", "--spec-config", config)
    assert '"num_speculative_tokens": 5' in dashed.out
    assert HEAD in dashed.out
    refused = cli("render", "-f", service, "--spec", "medusa")
    assert refused.code == 9
    assert f"{HEAD} is for eagle3" in refused.err
    assert refused.out == ""


def test_a_plan_says_why_and_what_stays(cli, service):
    done = cli("stage", "-f", service, "--spec", "eagle3", "--kserve", "0.20", "--plan")
    assert done.code == 0
    for text in (
        "staging mode: storageUris",
        "path in the pod: /mnt/mpctl/draft",
        "a rollback removes:",
        "and leaves:",
        "UNAVAILABLE BECAUSE",
    ):
        assert text in done.out
    assert "+    - uri: hf://RedHatAI/Qwen3-8B-speculator.eagle3" in done.out


def test_what_to_prepare_goes_to_kubectl(cli, service):
    done = cli("stage", "-f", service, "--spec", "eagle3", "--claim", "models", "--kserve", "0.15.2")
    job = yaml.safe_load(done.out)
    assert (job["kind"], job["apiVersion"]) == ("Job", "batch/v1")
    image = cli("stage", "-f", service, "--spec", "eagle3", "--registry", "r.example/m", "--staging-mode", "image")
    assert image.out.startswith("# Before: hf download")
    nothing = cli("stage", "-f", service, "--spec", "ngram")
    assert (nothing.code, nothing.out) == (0, "")
    assert "needs no second artifact" in nothing.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--staging-mode", "storageUris", "--kserve", "0.15"], "storageUris came with KServe 0.16"),
        (["--staging-mode", "oci"], "no registry is known"),
        (["--staging-mode", "mail"], "unknown staging mode 'mail'"),
        (["--air-gapped"], "no staging mode is available"),
    ],
)
def test_a_mode_that_is_unavailable_is_refused_with_its_reason(cli, service, arguments, says):
    done = cli("stage", "-f", service, "--spec", "eagle3", *arguments)
    assert done.code == 2
    assert says in done.err
    assert "hint:" in done.err


def test_what_is_not_prepared_is_refused_until_it_is_said_to_be(cli, service):
    plan = ("render", "-f", service, "--spec", "eagle3", "--claim", "models", "--kserve", "0.15")
    done = cli(*plan)
    assert (done.code, done.out) == (9, "")
    assert "[draft-not-staged]" in done.err
    there = cli(*plan, "--ignore", "draft-not-staged")
    assert there.code == 0
    assert '"claimName": "models"' in there.out


def test_a_copy_by_hand_is_refused_until_it_is_said_to_be_made(cli, service):
    gap = ("-f", service, "--spec", "eagle3", "--air-gapped", "--claim", "models")
    assert "nothing has to be prepared" not in cli("stage", *gap).err
    done = cli("render", *gap)
    assert (done.code, done.out) == (9, "")
    assert "[draft-not-staged] copy " in done.err
    assert cli("render", *gap, "--ignore", "draft-not-staged").code == 0


@pytest.mark.parametrize("way", [("--claim", "models"), ("--kserve", "0.20"), ("--registry", "r.example/m")])
def test_a_draft_that_is_staged_already_may_be_named_by_its_path(cli, service, way):
    there = cli("render", "-f", service, "--spec", "eagle3", *way, "--ignore", "draft-not-staged")
    if there.code == 2:  # nothing to prepare, so nothing to ignore
        there = cli("render", "-f", service, "--spec", "eagle3", *way)
    path = cli.directory / "there.yaml"
    path.write_text(there.out)
    place = "/mnt/models/draft" if way[0] == "--registry" else "/mnt/mpctl/draft"
    changed = ("--spec", "eagle3", "--draft", place, "--set", "num_speculative_tokens=7")
    again = cli("render", "-f", str(path), *changed)
    assert again.code == 0
    assert again.out == there.out.replace('"num_speculative_tokens": 3', '"num_speculative_tokens": 7')
    assert "whether the draft is there cannot be seen" in again.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--kserve", "banana"), "--kserve: 'banana' is no version"),
        (("--kubernetes", "new"), "--kubernetes: 'new' is no version"),
        (("--node-disk", "-5"), "--node-disk: -5 is no size"),
        (("--draft-size", "nan"), "--draft-size: nan is no size"),
    ],
)
def test_what_is_said_of_the_cluster_must_be_sensible(cli, service, arguments, says):
    done = cli("stage", "-f", service, "--spec", "eagle3", *arguments)
    assert done.code == 2
    assert says in done.err


@pytest.mark.parametrize(
    ("args", "uri", "found"),
    [
        ("[]", "hf://Qwen/Qwen3-8B:abc", "hf://Qwen/Qwen3-8B:abc"),
        ("[--model=/mnt/models]", "hf://Qwen/Qwen3-8B", "hf://Qwen/Qwen3-8B"),
        ("[--model=/opt/model]", "hf://Qwen/Qwen3-8B", "/opt/model"),
        ("[--model=org/other]", "hf://Qwen/Qwen3-8B", "org/other"),
        ("[]", "pvc://models/qwen", None),
    ],
)
def test_a_target_is_read_from_where_its_storage_comes_from(args, uri, found):
    from mpctl.app.change.target import target_source
    from mpctl.manifest import load

    text = SERVICE.partition("      args:")[0].replace("hf://Qwen/Qwen3-8B  # 16 GiB", uri)
    before = load(f"{text}      args: {args}\n")[0]

    class Live:
        def target_of(self, service):
            return service.model

    assert target_source(Live(), before) == found


def test_a_repository_is_asked_for_by_its_pinned_revision(monkeypatch):
    from mpctl.app.change.checkpoint import read_facts
    from mpctl.platform import hub

    class Live:
        paths = "no path is read"

        def model_facts(self, name):
            return None

    asked = []
    monkeypatch.setattr(hub, "read_hub", lambda *words: asked.append(words))
    read_facts(Live(), "hf://org/t:v2", listing=None, ask_hub=True)
    read_facts(Live(), "org/t", listing=None, ask_hub=True)
    read_facts(Live(), "org/t", listing=None, ask_hub=True, revision="abc")
    assert read_facts(Live(), "pvc://org/t", listing=None, ask_hub=True)[1].startswith(
        "pvc://org/t was not read: no path"
    )
    assert read_facts(Live(), None, listing=None, ask_hub=True) == (None, None)
    _, why = read_facts(Live(), "hf://org/t", listing=None, ask_hub=False)
    assert asked == [("org/t", "v2"), ("org/t", "main"), ("org/t", "abc")]
    assert "without asking a hub" in why


@pytest.mark.parametrize(
    ("method", "draft", "named"),
    [("eagle3", HEAD, HEAD), ("mtp", None, "the mtp layers of the target"), ("ngram", None, "")],
)
def test_a_warm_up_names_the_draft_and_not_its_path_in_the_pod(method, draft, named):
    from mpctl.app.change import Change
    from mpctl.app.change.check import Checked
    from mpctl.app.change.draft import Selection
    from mpctl.methods import build

    spec, _ = build(method, draft="/mnt/mpctl/draft" if draft else None)
    change = Change(None, "", "", spec, spec, Checked((), ()), None, Selection(draft, {}))
    assert change.draft_name == named


def test_a_target_in_fp8_gets_the_cards_k_for_it(cli, service):
    path = cli.directory / "fp8.yaml"
    path.write_text(SERVICE.replace("Qwen/Qwen3-8B", "Qwen/Qwen3-8B-FP8"))
    assert '"num_speculative_tokens": 5' in cli("render", "-f", str(path), "--spec", "eagle3").out
    path.write_text(SERVICE + "      - --quantization=fp8\n")
    assert '"num_speculative_tokens": 5' in cli("render", "-f", str(path), "--spec", "eagle3").out


def test_a_rendered_draft_goes_with_spec_none(cli, service):
    there = cli("render", "-f", service, "--spec", "eagle3", "--kserve", "0.20")
    path = cli.directory / "there.yaml"
    path.write_text(there.out)
    left = cli("render", "-f", str(path), "--spec", "none").out
    assert "- uri: hf://Qwen/Qwen3-8B\n" in left
    assert "speculat" not in left.replace("/mnt/models", "")
    assert "/mnt/mpctl/draft" not in left
    path.write_text(left)
    again = cli("render", "-f", str(path), "--spec", "eagle3", "--kserve", "0.20")
    path.write_text(again.out)
    assert cli("render", "-f", str(path), "--spec", "none").out == left


def test_a_listing_of_the_right_head_matches(cli, service):
    head = listing(cli, "head.txt", CONFIG, 1_600_000_000)
    done = cli("preflight", "-f", service, "--spec", "eagle3", "--draft-listing", head, "--gpu", "L40S", "-o", "json")
    body = json.loads(done.out)
    verdicts = {one["id"]: one["verdict"] for one in body["match"]}
    assert (verdicts["wrong-target"], verdicts["tokenizer-mismatch"]) == ("ok", "unknown")
    assert body["draft"] == HEAD
    assert body["kvPoolTokens"]["basis"] == "specifications"
    assert body["kvPoolTokens"]["after"][1] < body["kvPoolTokens"]["before"][1]
    table = cli("preflight", "-f", service, "--spec", "eagle3", "--draft-listing", head)
    assert "MATCH" in table.out
    assert "kv-pool" in cli("preflight", "-f", service, "--spec", "eagle3", "--draft-listing", head, "--gpu", "L4").out


@pytest.mark.parametrize("flag", ["--quantization=fp8", "-q=bitsandbytes"])
def test_weights_that_the_engine_converts_are_not_taken_for_bf16(cli, flag):
    path = cli.directory / "big.yaml"
    path.write_text(SERVICE.replace("Qwen3-8B", "Qwen3-32B") + f"      - {flag}\n")
    head = listing(cli, "head.txt", CONFIG, 1_600_000_000)
    asked = ("--spec", "eagle3", "--draft", "o/head", "--draft-listing", head, "--gpu", "L40S", "-o", "json")
    body = json.loads(cli("preflight", "-f", str(path), *asked).out)
    assert body["kvPoolTokens"] is None
    assert "kv-pool-too-small" not in {one["id"] for one in body["findings"]}
    assert any(one.startswith("kv-pool: not estimated: how much the target's weights") for one in body["unchecked"])


@pytest.mark.parametrize(("options", "most"), [({}, 54704), ({"gpu": "H100-SXM-94"}, 49440)])
def test_a_log_alone_leaves_open_how_many_sequences_the_engine_takes(options, most):
    from mpctl.app.change.check import estimate_memory
    from mpctl.app.change.checkpoint import Checkpoint
    from mpctl.app.change.target import Target
    from mpctl.estimate import ModelFacts
    from mpctl.estimate.shape import Head
    from mpctl.estimate.table import model_shape
    from mpctl.manifest import load

    target = model_shape("Qwen/Qwen3-32B")
    draft = ModelFacts(shape=replace(target, layers=1), weight_bytes=Head(target).params * 2)
    before = load(SERVICE.replace("Qwen3-8B", "Qwen3-32B").replace("8192", "5000"))[0]
    log = "GPU KV cache size: 69,232 tokens\nAvailable KV cache memory: 16.91 GiB\n"
    found = estimate_memory(Target(before, None, Checkpoint()), draft, log=log, **options)
    assert found.after.low <= 47264 <= found.after.high, "as that engine logged, of 1024 sequences"
    assert found.after.high == pytest.approx(most, rel=0.01)


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ({"speculators_config": {"verifier": {"name_or_path": "Qwen/Qwen3-14B"}}}, "wrong-target"),
        ({"max_position_embeddings": 2048}, "draft-context"),
        ({"architectures": ["Qwen3ForCausalLM"], "draft_vocab_size": None, "num_hidden_layers": 36}, "draft-kind"),
    ],
)
def test_a_listing_of_a_wrong_head_is_refused(cli, service, change, finding):
    head = listing(cli, "head.txt", {**CONFIG, **change}, 1_600_000_000)
    done = cli("preflight", "-f", service, "--spec", "eagle3", "--draft-listing", head)
    assert done.code == 9
    assert f"[{finding}]" in done.err


def test_a_directory_beside_the_manifest_is_a_path_and_is_read(cli, service):
    folder = cli.directory / "heads" / "own"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({**CONFIG, "target_hidden_size": 5120}))
    done = cli("preflight", "-f", service, "--spec", "eagle3", "--draft", "heads/own", "-o", "json")
    body = json.loads(done.out)
    assert body["staging"] == {"mode": "present", "path": "heads/own"}
    assert {one["id"]: one["verdict"] for one in body["match"]}["wrong-target"] == "ok"


@pytest.mark.parametrize(
    ("method", "draft", "verdict", "code"),
    [
        ("p-eagle", "p-eagle", "ok", 0),
        ("p-eagle", "eagle3", "mismatch", 9),
        ("eagle3", "eagle3", "ok", 0),
        ("eagle3", "p-eagle", "warn", 0),
    ],
)
def test_a_head_that_drafts_in_one_pass_is_told_from_another(cli, method, draft, verdict, code):
    demo = Path(__file__).parents[3] / "scripts" / "demo_model" / draft / "config.json"
    head = listing(cli, "head.txt", json.loads(demo.read_text()), 700_000)
    asked = ("--spec", method, "--draft", "o/head", "--draft-listing", head, "--kserve", "0.20", "-o", "json")
    path = cli.directory / "s3.yaml"
    path.write_text(SERVICE.replace("hf://Qwen/Qwen3-8B", "s3://b/weights").replace("8192", "2048"))
    done = cli("preflight", "-f", str(path), *asked)
    found = {one["id"]: one["verdict"] for one in json.loads(done.out)["match"]}
    assert (found["parallel-drafting"], done.code) == (verdict, code)


@pytest.mark.parametrize("draft", ["scripts/demo/heads", "/opt/heads/own"])
def test_a_path_that_was_not_read_is_said_and_why(cli, draft):
    """Relative paths start from the manifest's folder, wherever the shell is; absolute ones are the pod's."""
    folder = cli.directory / "below"
    folder.mkdir()
    path = folder / "service.yaml"
    path.write_text(SERVICE)
    beside = cli.directory / "scripts" / "demo" / "heads"
    beside.mkdir(parents=True)
    (beside / "config.json").write_text(json.dumps({**CONFIG, "architectures": ["MedusaModel"]}))
    unread = cli("preflight", "-f", str(path), "--spec", "eagle3", "--draft", draft)
    assert f"unchecked: files: {draft} was not read: a path from / is the pod's" in unread.err
    assert f"any other starts from {folder}" in unread.err
    found = cli("preflight", "-f", str(path), "--spec", "eagle3", "--draft", "../scripts/demo/heads")
    assert found.code == 9
    assert "was not read" not in found.err


def test_a_gpu_that_nobody_knows(cli, service):
    head = listing(cli, "head.txt", CONFIG, 1_600_000_000)
    done = cli("preflight", "-f", service, "--spec", "eagle3", "--draft-listing", head, "--gpu", "Abacus")
    assert done.code == 2
    assert "known: L4" in done.err


def test_methods_in_other_words(cli):
    assert cli("methods", "eagle3", "--draft", "org/h", "--engine", "sglang").out.startswith(
        "--speculative-algorithm EAGLE3 --speculative-draft-model-path org/h"
    )
    assert yaml.safe_load(cli("methods", "mtp", "--engine", "tensorrt-llm").out) == {
        "speculative_config": {"decoding_type": "MTP", "max_draft_len": 1}
    }
    assert json.loads(cli("methods", "ngram").out)["method"] == "ngram"
    refused = cli("methods", "suffix", "--engine", "sglang")
    assert refused.code == 2
    assert "keeps no suffix trees" in refused.err
    assert "dspark" not in cli("methods", "--engine", "tensorrt-llm", "-o", "name").out
    assert cli("methods", "--draft", "x").code == 2
    assert "did you mean" in cli("methods", "--engine", "sglnag").err


def test_a_head_published_for_another_target_is_refused_though_its_files_were_not_read(cli, service):
    head = "RedHatAI/Qwen3-32B-speculator.eagle3"
    arguments = ("-f", service, "--spec", "eagle3", "--draft", head, "--staging-mode", "engine")
    done = cli("render", *arguments)
    assert (done.code, done.out) == (9, "")
    assert "[wrong-target] the head was trained for Qwen/Qwen3-32B, the target is Qwen/Qwen3-8B" in done.err
    assert cli("render", *arguments, "--ignore", "wrong-target").code == 0
    right = cli("render", "-f", service, "--spec", "eagle3", "--kserve", "0.20")
    assert "wrong-target" not in right.err


def test_a_draft_of_a_model_deployment_is_named_as_its_engine_loads_it(cli):
    manifest = str(Path(__file__).parents[2] / "data" / "manifests" / "modelplane-model-deployment-v2.yaml")
    arguments = ("render", "-f", manifest, "--spec", "eagle3", "--draft", "hf://org/head:abc")
    done = cli(*arguments)
    assert done.code == 0, done.err
    assert '"model\\": \\"org/head\\", \\"revision\\": \\"abc\\"' in done.out.replace('\\"model', '"model')
    assert "hf://" not in done.out
    refused = cli(*arguments, "--staging-mode", "storageUris", "--kserve", "0.20")
    assert refused.code == 2
    assert "a ModelDeployment is not staged by KServe" in refused.err
