"""Staged drafts from the command line: what is changed by hand meanwhile stays, and what cannot be is refused."""

from __future__ import annotations

import pytest
from test_cli_drafts import SERVICE, _no_hub  # noqa: F401


def write(cli, text):
    path = cli.directory / "service.yaml"
    path.write_text(text)
    return str(path)


DRAFT = ("--spec", "draft_model", "--draft", "Qwen/Qwen3-0.6B")


def test_leaving_or_changing_a_draft_keeps_a_newer_target(cli):
    there = cli("render", "-f", write(cli, SERVICE), *DRAFT, "--kserve", "0.20")
    bumped = write(cli, there.out.replace("- uri: hf://Qwen/Qwen3-8B\n", "- uri: hf://Qwen/Qwen3-8B:new\n"))
    left = cli("render", "-f", bumped, "--spec", "none")
    assert left.code == 0
    assert "- uri: hf://Qwen/Qwen3-8B:new\n" in left.out
    assert "Qwen3-0.6B" not in left.out
    other = cli("render", "-f", bumped, *DRAFT[:3], "Qwen/Qwen3-1.7B", "--kserve", "0.20")
    assert [line.strip() for line in other.out.splitlines() if "- uri:" in line] == [
        "- uri: hf://Qwen/Qwen3-8B:new",
        "- uri: hf://Qwen/Qwen3-1.7B",
    ]


@pytest.mark.parametrize("way", ["engine", "storageUris"])
def test_a_revision_in_the_drafts_name_reaches_whoever_downloads_it(cli, way):
    done = cli(
        "render",
        "-f",
        write(cli, SERVICE),
        *DRAFT[:3],
        "hf://Qwen/Qwen3-0.6B:abc",
        "--staging-mode",
        way,
        "--kserve",
        "0.20",
    )
    assert done.code == 0
    assert "no revision is pinned" not in done.err
    if way == "engine":
        assert '"model": "Qwen/Qwen3-0.6B"' in done.out
        assert '"revision": "abc"' in done.out
    else:
        assert "- uri: hf://Qwen/Qwen3-0.6B:abc\n" in done.out
        assert "revision" not in done.out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((*DRAFT[:3], "pvc://models/a/../b"), "--draft: 'pvc://models/a/../b' names no draft"),
        ((*DRAFT[:3], "hf://org/d:abc", "--set", "revision=main"), "names the revision abc, and the settings main"),
        ((*DRAFT, "--claim", "../x"), "--claim: '../x' cannot be used"),
        (("--spec", "ngram", "--registry", "https://r.example"), "--registry: 'https://r.example' cannot be used"),
    ],
)
def test_names_that_cannot_be_are_refused(cli, arguments, says):
    done = cli("stage", "-f", write(cli, SERVICE), *arguments)
    assert done.code == 2
    assert says in done.err
    assert "hint:" in done.err


OTHER = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata:\n  when: 2026-02-30\n---\n"
TAB = SERVICE.replace("hf://Qwen/Qwen3-8B  # 16 GiB", '"pvc://models/qwen"\t').replace(
    "      args:\n", "      args:\n      - --served-model-name=Qwen/Qwen3-8B\n"
)


@pytest.mark.parametrize(
    ("text", "more"),
    [
        (OTHER + SERVICE, ("--kserve", "0.20")),
        (TAB, ("--claim", "drafts")),
        (SERVICE + "      env: [{name: A, value: 2026-02-30}]\n", ("--kserve", "0.20")),
        (SERVICE + "    resourceClaims:\n", ("--kserve", "0.20")),
        (
            SERVICE + "      resources: {claims: [{name: gpu}]}\n    resourceClaims: [{name: gpu}]\n",
            ("--kserve", "0.20"),
        ),
    ],
)
def test_what_yaml_and_kserve_allow_is_staged_and_taken_back(cli, text, more):
    there = cli("render", "-f", write(cli, text), *DRAFT, *more, "--ignore", "draft-not-staged")
    if there.code == 2:  # nothing to prepare, so nothing to ignore
        there = cli("render", "-f", write(cli, text), *DRAFT, *more)
    assert there.code == 0, there.err
    assert "/mnt/mpctl/draft" in there.out
    left = cli("render", "-f", write(cli, there.out), "--spec", "none")
    target = "pvc://models/qwen" if text is TAB else "hf://Qwen/Qwen3-8B"
    assert left.code == 0, left.err
    assert target in left.out
    assert "/mnt/mpctl/draft" not in left.out
    assert text is not TAB or left.out == text


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("    resourceClaims: x", ":13: spec.predictor.resourceClaims: expected a list here"),
        ("    resourceClaims: [gpu]", ":13: spec.predictor.resourceClaims[0]: expected a mapping here"),
        ("      resources: x", ":13: spec.predictor.model.resources: expected a mapping here"),
        ("      resources: {claims: [gpu]}", ":13: spec.predictor.model.resources.claims[0]: expected a mapping here"),
        ("      volumeMounts: x", ":13: spec.predictor.model.volumeMounts: expected a list"),
    ],
)
def test_a_value_of_the_wrong_kind_is_named_with_its_line(cli, line, says):
    path = write(cli, f"{SERVICE}{line}\n")
    done = cli("render", "-f", path, *DRAFT, "--kserve", "0.20")
    assert done.code == 2
    assert path + says in done.err


def test_a_day_that_is_none_in_a_table_of_drafts_is_named_with_its_line(cli):
    table = cli.directory / "mine.yaml"
    table.write_text("targets:\n  Qwen/Qwen3-8B:\n  - repo: a/b\n    method: eagle3\n    when: 2026-02-30\n")
    done = cli("drafts", "--drafts", str(table))
    assert done.code == 2
    assert f"{table}:5: targets.Qwen/Qwen3-8B[0].when: unknown field" in done.err
