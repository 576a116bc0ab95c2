"""``mpctl preflight -v`` and staged drafts: what to prepare, which modes are available, what a later change keeps."""

from __future__ import annotations

import json

import pytest
import yaml
from draft_samples import SERVICE, staging

DRAFT = ("--spec", "draft_model", "--draft", "Qwen/Qwen3-0.6B")


def test_a_plan_says_why_and_what_stays(cli, service):
    done = cli("preflight", "-f", service, "--spec", "eagle3", *staging(cli, kserve="0.20"), "-v")
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
    claim = (
        "preflight",
        "-f",
        service,
        "--spec",
        "eagle3",
        *staging(cli, claim="models", kserve="0.15.2"),
    )
    (job,) = json.loads(cli(*claim, "-o", "json").out)["staging"]["documents"]
    assert (job["kind"], job["apiVersion"]) == ("Job", "batch/v1")
    printed = (
        cli(*claim, "-v")
        .out.partition("to apply:\n\n")[2]
        .partition("\n\nthe change to the service:")[0]
    )
    assert yaml.safe_load(printed) == job
    image = cli(
        *("preflight", "-f", service, "--spec", "eagle3", "-v"),
        *staging(cli, kserve="0.20", registry="r.example/m", mode="oci"),
    )
    assert "\n\n# Before: hf download" in image.out
    nothing = cli("preflight", "-f", service, "--spec", "ngram", "-v")
    assert nothing.code == 0
    assert "staging mode" not in nothing.out


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        ({"mode": "storageUris", "kserve": "0.15"}, "mpctl stages with KServe 0.19 and 0.20"),
        ({"mode": "oci", "kserve": "0.20"}, "no registry is known"),
        ({"air_gapped": True}, "no staging mode is available"),
    ],
)
def test_a_mode_that_is_unavailable_is_refused_with_its_reason(cli, service, facts, says):
    done = cli("preflight", "-f", service, "--spec", "eagle3", *staging(cli, **facts))
    assert done.code == 2
    assert says in done.err
    assert "hint:" in done.err


def test_what_is_not_prepared_is_refused_until_it_is_said_to_be(cli, service):
    plan = ("render", "-f", service, "--spec", "eagle3")
    plan = (*plan, *staging(cli, claim="models", kserve="0.15"))
    done = cli(*plan)
    assert (done.code, done.out) == (9, "")
    assert "[draft-not-staged]" in done.err
    result = cli(*plan, "--accept", "draft-not-staged")
    assert result.code == 0
    assert '"claimName": "models"' in result.out


def test_a_copy_by_hand_is_refused_until_it_is_said_to_be_made(cli, service):
    gap = ("-f", service, "--spec", "eagle3")
    gap = (*gap, *staging(cli, air_gapped=True, claim="models"))
    assert "nothing has to be prepared" not in cli("preflight", *gap, "-v").out
    done = cli("render", *gap)
    assert (done.code, done.out) == (9, "")
    assert "[draft-not-staged] copy " in done.err
    assert cli("render", *gap, "--accept", "draft-not-staged").code == 0


@pytest.mark.parametrize(
    "facts",
    [
        {"claim": "models"},
        {"kserve": "0.20"},
        {"kserve": "0.20", "mode": "oci", "registry": "r.example/m"},
    ],
)
def test_a_draft_that_is_staged_already_may_be_named_by_its_path(cli, service, facts):
    way = staging(cli, **facts)
    result = cli("render", "-f", service, "--spec", "eagle3", *way, "--accept", "draft-not-staged")
    if result.code == 2:  # nothing to prepare, so nothing to ignore
        result = cli("render", "-f", service, "--spec", "eagle3", *way)
    path = cli.directory / "there.yaml"
    path.write_text(result.out)
    changed = (
        "--spec",
        "eagle3",
        "--draft",
        "/mnt/mpctl/draft",
        "--set",
        "num_speculative_tokens=7",
    )
    again = cli("render", "-f", str(path), *changed)
    assert again.code == 0
    assert again.out == result.out.replace(
        '"num_speculative_tokens": 3', '"num_speculative_tokens": 7'
    )
    assert "whether the draft is there cannot be seen" in again.err


def test_a_fact_that_cannot_be_is_named_with_its_file_and_line(cli, service):
    option, path = staging(cli, claim="../x")
    done = cli("preflight", "-f", service, "--spec", "ngram", option, path)
    assert done.code == 2
    assert f"{path}:1: claim: '../x' is not the name of" in done.err
    missing = cli("preflight", "-f", service, "--spec", "ngram", option, "stagin.yaml")
    assert missing.code == 2
    assert "did you mean staging.yaml" in missing.err


def test_a_rendered_draft_goes_with_spec_none(cli, service):
    result = cli("render", "-f", service, "--spec", "eagle3", *staging(cli, kserve="0.20"))
    path = cli.directory / "there.yaml"
    path.write_text(result.out)
    out = cli("render", "-f", str(path), "--spec", "none").out
    assert "- uri: hf://Qwen/Qwen3-8B\n" in out
    assert "speculat" not in out.replace("/mnt/models", "")
    assert "/mnt/mpctl/draft" not in out
    path.write_text(out)
    again = cli("render", "-f", str(path), "--spec", "eagle3", *staging(cli, kserve="0.20"))
    path.write_text(again.out)
    assert cli("render", "-f", str(path), "--spec", "none").out == out


def write(cli, text):
    path = cli.directory / "service.yaml"
    path.write_text(text)
    return str(path)


def test_leaving_or_changing_a_draft_keeps_a_newer_target(cli):
    result = cli("render", "-f", write(cli, SERVICE), *DRAFT, *staging(cli, kserve="0.20"))
    bumped = write(
        cli, result.out.replace("- uri: hf://Qwen/Qwen3-8B\n", "- uri: hf://Qwen/Qwen3-8B:new\n")
    )
    actual_result = cli("render", "-f", bumped, "--spec", "none")
    assert actual_result.code == 0
    assert "- uri: hf://Qwen/Qwen3-8B:new\n" in actual_result.out
    assert "Qwen3-0.6B" not in actual_result.out
    other = cli("render", "-f", bumped, *DRAFT[:3], "Qwen/Qwen3-1.7B", *staging(cli, kserve="0.20"))
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
        *staging(cli, mode=way, kserve="0.20"),
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
        (
            (*DRAFT[:3], "hf://org/d:abc", "--set", "revision=main"),
            "names the revision abc, and the settings main",
        ),
    ],
)
def test_names_that_cannot_be_are_refused(cli, arguments, says):
    done = cli("preflight", "-f", write(cli, SERVICE), *arguments)
    assert done.code == 2
    assert says in done.err
    assert "hint:" in done.err


OTHER = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata:\n  when: 2026-02-30\n---\n"


TAB = SERVICE.replace("hf://Qwen/Qwen3-8B  # 16 GiB", '"pvc://models/qwen"\t').replace(
    "      args:\n", "      args:\n      - --served-model-name=Qwen/Qwen3-8B\n"
)


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        (OTHER + SERVICE, {"kserve": "0.20"}),
        (TAB, {"claim": "drafts"}),
        (SERVICE + "      env: [{name: A, value: 2026-02-30}]\n", {"kserve": "0.20"}),
        (SERVICE + "    resourceClaims:\n", {"kserve": "0.20"}),
        (
            SERVICE
            + "      resources: {claims: [{name: gpu}]}\n    resourceClaims: [{name: gpu}]\n",
            {"kserve": "0.20"},
        ),
    ],
)
def test_what_yaml_and_kserve_allow_is_staged_and_taken_back(cli, text, facts):
    more = staging(cli, **facts)
    result = cli("render", "-f", write(cli, text), *DRAFT, *more, "--accept", "draft-not-staged")
    if result.code == 2:  # nothing to prepare, so nothing to ignore
        result = cli("render", "-f", write(cli, text), *DRAFT, *more)
    assert result.code == 0, result.err
    assert "/mnt/mpctl/draft" in result.out
    actual_result = cli("render", "-f", write(cli, result.out), "--spec", "none")
    target = "pvc://models/qwen" if text is TAB else "hf://Qwen/Qwen3-8B"
    assert actual_result.code == 0, actual_result.err
    assert target in actual_result.out
    assert "/mnt/mpctl/draft" not in actual_result.out
    assert text is not TAB or actual_result.out == text


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (
            "      volumeMounts: [x]",
            ":13: spec.predictor.model.volumeMounts[0]: expected a mapping here",
        ),
        ("      volumeMounts: x", ":13: spec.predictor.model.volumeMounts: expected a list"),
    ],
)
def test_a_value_of_the_wrong_kind_is_named_with_its_line(cli, line, says):
    path = write(cli, f"{SERVICE}{line}\n")
    done = cli("render", "-f", path, *DRAFT, *staging(cli, kserve="0.20"))
    assert done.code == 2
    assert path + says in done.err
