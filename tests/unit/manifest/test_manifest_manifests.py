"""Every manifest of tests/data/manifests, edited with every method: only the intended lines change."""

from __future__ import annotations

from pathlib import Path

import pytest
from service_samples import METHODS
from test_manifest_spellings import changes

from mpctl.errors import InputError
from mpctl.manifest import load

FOLDER = Path(__file__).parents[2] / "data" / "manifests"
FILES = {path.name: path.read_bytes().decode() for path in sorted(FOLDER.glob("*.yaml"))}
SERVED = [
    name
    for name in FILES
    if name.startswith("kserve-") or "deployment" in name or name == "modelplane-both.yaml"
]
PLATFORM = [
    name for name in FILES if name.startswith(("modelplane-inference-", "modelplane-model-service"))
]


@pytest.mark.parametrize("name", SERVED)
def test_only_lines_of_the_setting_change(name: str) -> None:
    text = FILES[name]
    for service in load(text, file=name):
        speculation = service.speculation()
        bare = service.with_speculation(None).to_yaml()
        assert all(
            "speculative" in line or "num_spec" in line
            for line in changes(text, bare)
            if line[0] == "-"
        )
        for config in METHODS:
            for style in (None, "json", "dotted"):
                changed = service.with_speculation(config, style=style)
                assert changed.speculation() == config
                assert changed.with_speculation(None).to_yaml() == bare, (
                    "bytes outside the setting changed"
                )
                assert (
                    len(changes(text, changed.to_yaml()))
                    <= 2 * len({**config, **(speculation or {})}) + 1
                )
            back = service.with_speculation(config).with_speculation(speculation).to_yaml()
            assert back == text


@pytest.mark.parametrize("name", PLATFORM)
def test_the_platform_side_holds_no_served_model(name: str) -> None:
    with pytest.raises(InputError):
        load(FILES[name], file=name)


def test_the_modelplane_example_is_what_its_page_says() -> None:
    spec, base = load(FILES["modelplane-both.yaml"])
    assert spec.speculation() == {
        "method": "ngram",
        "num_speculative_tokens": 5,
        "prompt_lookup_max": 4,
        "prompt_lookup_min": 2,
    }
    assert (spec.model, spec.image, spec.endpoints) == (
        "Qwen/Qwen3-8B",
        "vllm/vllm-openai:v0.23.0",
        ("qwen3-8b-spec",),
    )
    assert base.speculation() is None
    assert [
        argument
        for argument in spec.with_speculation(None).command.argv
        if "served" not in argument
    ] == [argument for argument in base.command.argv if "served" not in argument]
    newer = load(FILES["modelplane-model-deployment-v2.yaml"])[0]
    assert newer.command == spec.command


def test_a_runtime_in_the_file_gives_the_base_arguments() -> None:
    service = load(FILES["kserve-args.yaml"])[0]
    assert service.runtime == "house-engine"
    assert service.runtime_args == ("--model=/mnt/models", "--port=8080")
    assert service.model == "/mnt/models"
