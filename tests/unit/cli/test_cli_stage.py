"""Staged drafts from the command line: what is changed by hand meanwhile stays, and what cannot be is refused."""

from __future__ import annotations

import pytest

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


@pytest.fixture(autouse=True)
def _no_hub(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


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


def test_a_newer_image_of_both_is_refused_with_the_way_out(cli):
    way = ("--way", "image", "--registry", "r.example", "--ignore", "draft-not-staged")
    there = cli("render", "-f", write(cli, SERVICE), *DRAFT, *way)
    value = next(line for line in there.out.splitlines() if "storageUri:" in line).split()[1]
    newer = value.rstrip('"') + '-2"'
    done = cli("render", "-f", write(cli, there.out.replace(f"storageUri: {value}", f"storageUri: {newer}")), *DRAFT)
    assert done.code == 2
    assert f"is {newer[1:-1]}, but staging wrote {value[1:-1]}" in done.err
    assert "remove the comment" in done.err
