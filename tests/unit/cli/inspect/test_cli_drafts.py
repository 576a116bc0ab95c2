"""``mpctl drafts``: the catalogue, listed and replaced by a file of one's own; needs neither a cluster nor a hub."""

from __future__ import annotations

import json

import pytest
import yaml
from draft_samples import HEAD, staging


def test_the_table_of_drafts(cli):
    every = cli("drafts")
    assert every.code == 0
    assert every.out.count("\n") == 99
    result = cli("drafts", "Qwen/Qwen3-8B")
    assert HEAD in result.out
    assert "2.26 (K=3, mtbench, t=0)" in result.out
    assert "unknown" in result.out
    assert "raises KV per token" in result.err
    assert "vllm-test" in cli("drafts", "Qwen/Qwen3-8B", "-o", "wide").out
    assert (
        cli("drafts", "Qwen/Qwen3-8B", "--method", "dspark", "-o", "name").out
        == "deepseek-ai/dspark_qwen3_8b_block7\n"
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
        (["-o", "xml"], "xml"),
    ],
)
def test_mistakes_with_drafts(cli, arguments, says):
    done = cli("drafts", *arguments)
    assert done.code == 2
    assert says in done.err


def test_a_catalogue_of_the_user_wins_by_variable_and_by_setting(cli, service):
    mine = cli.directory / "mine.yaml"
    mine.write_text("targets:\n  Qwen/Qwen3-8B:\n    - {repo: ours/head, method: eagle3, k: 4}\n")
    plan = (
        "preflight",
        "-f",
        service,
        "--spec",
        "eagle3",
        *staging(cli, kserve="0.20"),
        "-o",
        "json",
    )
    cli.user(f"preflight:\n  drafts: {mine}\n")
    body = json.loads(cli(*plan).out)
    assert (body["draft"], body["staging"]["mode"]) == ("ours/head", "storageUris")
    assert body["speculation"]["num_speculative_tokens"] == 4
    cli.env(MPCTL_DRAFTS="gone.yaml")
    assert "gone.yaml: the catalogue of drafts cannot be read" in cli(*plan).err
    cli.env(MPCTL_DRAFTS=str(mine))
    assert json.loads(cli(*plan).out)["draft"] == "ours/head"
    mine.write_text("targets:\n  Qwen/Qwen3-8B:\n    - {repo: ours/head, method: egle3}\n")
    done = cli(*plan)
    assert done.code == 2
    assert (
        f"{mine}:3: targets.Qwen/Qwen3-8B[0].method: 'egle3' is no method, did you mean eagle3?"
        in done.err
    )


@pytest.mark.parametrize(
    "form", ["NVFP4A16", "MXFP8", "AutoRound", "W4A16-G128", "MLX-4bit", "unsloth-bnb-4bit"]
)
def test_a_quantised_form_has_the_drafts_of_its_model(cli, form):
    assert HEAD in cli("drafts", f"org/Qwen3-8B-{form}").out


def test_a_day_that_is_none_in_a_table_of_drafts_is_named_with_its_line(cli):
    table = cli.directory / "mine.yaml"
    table.write_text(
        "targets:\n  Qwen/Qwen3-8B:\n  - repo: a/b\n    method: eagle3\n    when: 2026-02-30\n"
    )
    cli.env(MPCTL_DRAFTS=str(table))
    done = cli("drafts")
    assert done.code == 2
    assert f"{table}:5: targets.Qwen/Qwen3-8B[0].when: unknown field" in done.err
