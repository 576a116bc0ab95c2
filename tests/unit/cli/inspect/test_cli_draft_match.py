"""A draft is chosen from the catalogue, and matched with its target before anything moves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from draft_samples import CONFIG, HEAD, SERVICE, listing, staging


@pytest.mark.parametrize("served", ["acme/support-bot", "Qwen/Qwen3-8B"])
def test_a_served_name_says_nothing_of_the_weights(cli, served):
    path = cli.directory / "s3.yaml"
    path.write_text(
        SERVICE.replace("hf://Qwen/Qwen3-8B", "s3://b/weights")
        + f"      - --served-model-name={served}\n"
    )
    head = listing(cli.directory, "head.txt", CONFIG, 1_600_000_000)
    cli.env(MPCTL_DRAFT_LISTING=head)
    asked = ("--spec", "eagle3", "--draft", HEAD, "-o", "json")
    done = cli("preflight", "-f", str(path), *asked)
    (check,) = [one for one in json.loads(done.out)["match"] if one["id"] == "wrong-target"]
    assert check["verdict"] == "unknown"
    assert "wrong-target" not in done.err.partition("unchecked")[0]


def test_a_served_name_chooses_from_the_catalogue_only_where_it_stands_there(cli):
    path = cli.directory / "s3.yaml"
    plain = SERVICE.replace("hf://Qwen/Qwen3-8B", "s3://b/weights")
    path.write_text(plain + "      - --served-model-name=Qwen/Qwen3-8B\n")
    assert (
        f"draft {HEAD}: first draft of Qwen/Qwen3-8B"
        in cli("render", "-f", str(path), "--spec", "eagle3").err
    )
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
        "render",
        "-f",
        service,
        "--spec",
        "eagle3",
        "--draft",
        "org/other",
        "--set",
        "num_speculative_tokens=2",
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


def test_a_target_in_fp8_gets_the_cards_k_for_it(cli, service):
    path = cli.directory / "fp8.yaml"
    path.write_text(SERVICE.replace("Qwen/Qwen3-8B", "Qwen/Qwen3-8B-FP8"))
    assert '"num_speculative_tokens": 5' in cli("render", "-f", str(path), "--spec", "eagle3").out
    path.write_text(SERVICE + "      - --quantization=fp8\n")
    assert '"num_speculative_tokens": 5' in cli("render", "-f", str(path), "--spec", "eagle3").out


def test_a_listing_of_the_right_head_matches(cli, service):
    head = listing(cli.directory, "head.txt", CONFIG, 1_600_000_000)
    cli.env(MPCTL_DRAFT_LISTING=head)
    done = cli(
        "preflight",
        "-f",
        service,
        "--spec",
        "eagle3",
        "--gpu",
        "L40S",
        "-o",
        "json",
    )
    body = json.loads(done.out)
    verdicts = {one["id"]: one["verdict"] for one in body["match"]}
    assert (verdicts["wrong-target"], verdicts["tokenizer-mismatch"]) == ("ok", "unknown")
    assert body["draft"] == HEAD
    assert body["kvPoolTokens"]["basis"] == "specifications"
    assert body["kvPoolTokens"]["after"][1] < body["kvPoolTokens"]["before"][1]
    table = cli(
        "preflight",
        "-f",
        service,
        "--spec",
        "eagle3",
    )
    assert "MATCH" in table.out
    assert "kv-pool" in cli("preflight", "-f", service, "--spec", "eagle3", "--gpu", "L4").out


@pytest.mark.parametrize("flag", ["--quantization=fp8", "-q=bitsandbytes"])
def test_weights_that_the_engine_converts_are_not_taken_for_bf16(cli, flag):
    path = cli.directory / "big.yaml"
    path.write_text(SERVICE.replace("Qwen3-8B", "Qwen3-32B") + f"      - {flag}\n")
    head = listing(cli.directory, "head.txt", CONFIG, 1_600_000_000)
    cli.env(MPCTL_DRAFT_LISTING=head)
    asked = (
        "--spec",
        "eagle3",
        "--draft",
        "o/head",
        "--gpu",
        "L40S",
        "-o",
        "json",
    )
    body = json.loads(cli("preflight", "-f", str(path), *asked).out)
    assert body["kvPoolTokens"] is None
    assert "kv-pool-too-small" not in {one["id"] for one in body["findings"]}
    assert any(
        one.startswith("kv-pool: not estimated: how much the target's weights")
        for one in body["unchecked"]
    )


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ({"speculators_config": {"verifier": {"name_or_path": "Qwen/Qwen3-14B"}}}, "wrong-target"),
        ({"max_position_embeddings": 2048}, "draft-context"),
        (
            {
                "architectures": ["Qwen3ForCausalLM"],
                "draft_vocab_size": None,
                "num_hidden_layers": 36,
            },
            "draft-kind",
        ),
    ],
)
def test_a_listing_of_a_wrong_head_is_refused(cli, service, change, finding):
    head = listing(cli.directory, "head.txt", {**CONFIG, **change}, 1_600_000_000)
    cli.env(MPCTL_DRAFT_LISTING=head)
    done = cli(
        "preflight",
        "-f",
        service,
        "--spec",
        "eagle3",
    )
    assert done.code == 9
    assert f"[{finding}]" in done.err


def test_a_directory_beside_the_manifest_is_a_path_and_is_read(cli, service):
    folder = cli.directory / "heads" / "own"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({**CONFIG, "target_hidden_size": 5120}))
    done = cli("preflight", "-f", service, "--spec", "eagle3", "--draft", "heads/own", "-o", "json")
    body = json.loads(done.out)
    assert (body["staging"]["mode"], body["staging"]["path"]) == ("present", "heads/own")
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
    demo = Path(__file__).parents[4] / "scripts" / "demo_model" / draft / "config.json"
    head = listing(cli.directory, "head.txt", json.loads(demo.read_text()), 700_000)
    cli.env(MPCTL_DRAFT_LISTING=head)
    asked = (
        "--spec",
        method,
        "--draft",
        "o/head",
        *staging(cli, kserve="0.20"),
        "-o",
        "json",
    )
    path = cli.directory / "s3.yaml"
    path.write_text(SERVICE.replace("hf://Qwen/Qwen3-8B", "s3://b/weights").replace("8192", "2048"))
    done = cli("preflight", "-f", str(path), *asked)
    verdicts = {one["id"]: one["verdict"] for one in json.loads(done.out)["match"]}
    assert (verdicts["parallel-drafting"], done.code) == (verdict, code)


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
    result = cli(
        "preflight", "-f", str(path), "--spec", "eagle3", "--draft", "../scripts/demo/heads"
    )
    assert result.code == 9
    assert "was not read" not in result.err


def test_a_gpu_that_nobody_knows(cli, service):
    head = listing(cli.directory, "head.txt", CONFIG, 1_600_000_000)
    cli.env(MPCTL_DRAFT_LISTING=head)
    done = cli("preflight", "-f", service, "--spec", "eagle3", "--gpu", "Abacus")
    assert done.code == 2
    assert "known: L4" in done.err


def test_a_head_published_for_another_target_is_refused_though_its_files_were_not_read(
    cli, service
):
    head = "RedHatAI/Qwen3-32B-speculator.eagle3"
    arguments = ("-f", service, "--spec", "eagle3", "--draft", head, *staging(cli, mode="engine"))
    done = cli("render", *arguments)
    assert (done.code, done.out) == (9, "")
    assert (
        "[wrong-target] the head was trained for Qwen/Qwen3-32B, the target is Qwen/Qwen3-8B"
        in done.err
    )
    assert cli("render", *arguments, "--accept", "wrong-target").code == 0
    right = cli("render", "-f", service, "--spec", "eagle3", *staging(cli, kserve="0.20"))
    assert "wrong-target" not in right.err


def test_a_draft_of_a_model_deployment_is_named_as_its_engine_loads_it(cli):
    manifest = str(
        Path(__file__).parents[3] / "data" / "manifests" / "modelplane-model-deployment-v2.yaml"
    )
    arguments = ("render", "-f", manifest, "--spec", "eagle3", "--draft", "hf://org/head:abc")
    done = cli(*arguments)
    assert done.code == 0, done.err
    assert '"model\\": \\"org/head\\", \\"revision\\": \\"abc\\"' in done.out.replace(
        '\\"model', '"model'
    )
    assert "hf://" not in done.out
    refused = cli(*arguments, *staging(cli, mode="storageUris", kserve="0.20"))
    assert refused.code == 2
    assert "a ModelDeployment is not staged by KServe" in refused.err


def test_checks_that_lack_facts_are_one_line_unless_asked_for(cli, service):
    command = ("preflight", "-f", service, "--spec", "eagle3", "--draft", "/opt/heads/own")
    folded, whole = cli(*command).err, cli(*command, "-v").err
    assert folded.count("unchecked for lack of facts (") == 1
    assert ", unknown: " not in folded
    assert whole.count(", unknown: ") > 3


def test_a_draft_that_nothing_mounts_is_refused_unless_that_is_overridden(cli, service):
    command = ("preflight", "-f", service, "--spec", "eagle3", "--draft", "/no/such/head")
    refused = cli(*command)
    assert refused.code == 9
    assert "nothing that the manifest mounts holds /no/such/head" in refused.out + refused.err
    assert "[draft-unmounted]" not in refused.out
    assert "draft-unmounted" in refused.out + refused.err
    assert cli(*command, "--accept", "draft-unmounted").code == 0
