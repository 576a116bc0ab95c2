"""Flags that were right without drafts, drafts that the engine refuses, and combinations that are known to fail."""

import json
from pathlib import Path

import pytest

DATA = Path(__file__).parents[3] / "data" / "manifests"
TIGHT = (DATA / "graphs-without-drafts.yaml").read_text()
FLAG = "            - --max-cudagraph-capture-size=2\n"
MODEL = "mistralai/Mistral-7B-Instruct-v0.3"


@pytest.fixture
def preflight(cli):
    """Findings by id of a manifest with a method and more options."""

    def run(text, spec, *options):
        file = cli.directory / "service.yaml"
        file.write_text(text)
        done = cli("preflight", "-f", str(file), "--spec", spec, *options, "-o", "json")
        assert done.out, done.err
        record = json.loads(done.out)
        return {finding["id"]: finding for finding in record["findings"]} | {
            "unchecked": record["unchecked"]
        }

    return run


def with_words(*words):
    return TIGHT.replace(FLAG, "".join(f"            - {json.dumps(word)}\n" for word in words))


@pytest.mark.parametrize(
    "words",
    [
        ["--max-cudagraph-capture-size=2"],
        ["--max_cudagraph_capture_size", "2"],
        ["--cudagraph-capture-sizes", "1", "2", "4"],
        ["--cudagraph_capture_sizes=1", "2"],
        ["--cuda-graph-sizes=4"],
        ['--compilation-config={"cudagraph_capture_sizes": [1, 2, 4]}'],
        ["--compilation_config", '{"mode": 3, "max_cudagraph_capture_size": 4}'],
        ["--compilation-config.max_cudagraph_capture_size=4"],
        ["--compilation-config.cudagraph_capture_sizes", "[1,2,4]"],
        ["-cc.max_cudagraph_capture_size=4"],
        ["-cc", '{"cudagraph_capture_sizes": [2, 1]}'],
        ["-O.cudagraph_capture_sizes=[1,2]"],
        ["-O", '{"cudagraph_capture_sizes": [1]}'],
        ["--max-cudagraph-capture-size=64", "--cudagraph-capture-sizes", "1", "2"],
    ],
)
def test_graphs_of_fewer_tokens_than_one_request_drafts_are_refused_in_every_spelling(
    preflight, words
):
    finding = preflight(with_words(*words), "ngram")["decode-graphs"]
    assert finding["severity"] == "refuse"
    assert "exits at start-up" in finding["reason"]
    assert finding["todo"].startswith(
        "set cudagraph_capture_sizes to 6, 12, 24, 48, or --max-cudagraph"
    )


@pytest.mark.parametrize(
    ("old", "new", "severity"),
    [
        (
            "v0.27.0",
            "v0.32.0",
            "warn",
        ),  # by default Model Runner V2, which starts without such graphs
        ("v0.27.0", "v0.11.0", "warn"),  # did not round sizes
        ("openai:v0.27.0", "openai:latest", "warn"),
        (FLAG, f"{FLAG}            - '-cc.cudagraph_mode=PIECEWISE'\n", "warn"),
        (FLAG, f"{FLAG}            - --enforce-eager\n", None),
        (FLAG, f"{FLAG}            - -O0\n", None),
        (FLAG, f"{FLAG}            - '-cc.cudagraph_mode=NONE'\n", None),
        (FLAG, "", None),
        ("size=2", "size=64", None),
    ],
)
def test_small_graphs_are_refused_only_where_the_engine_exits(preflight, old, new, severity):
    finding = preflight(TIGHT.replace(old, new), "ngram").get("decode-graphs")
    assert (finding and finding["severity"]) == severity


@pytest.mark.parametrize(("size", "served"), [(8, 1), (16, 2), (40, 6)])
def test_graphs_for_fewer_requests_than_are_served_are_a_warning_with_the_sizes_to_set(
    preflight, size, served
):
    finding = preflight(TIGHT.replace("size=2", f"size={size}"), "ngram")["decode-graphs"]
    assert finding["severity"] == "warn"
    assert f"more than {served} of 8 requests run without a graph" in finding["reason"]
    assert "6, 12, 24, 48" in finding["todo"]
    assert "decode-graphs" not in preflight(TIGHT.replace("size=2", "size=48"), "ngram")
    assert "decode-graphs" not in preflight(TIGHT, "none")


@pytest.mark.parametrize(
    ("flag", "seqs"),
    [
        ("--max-num-batched-tokens=32", 8),
        ("--max_num_batched_tokens=40", 8),
        ("--max-num-batched-tokens=1k", None),
    ],
)
def test_a_step_of_fewer_tokens_than_all_requests_draft_is_a_warning(preflight, flag, seqs):
    text = with_words(flag)
    finding = preflight(
        text if seqs else text.replace("            - --max-num-seqs=8\n", ""), "ngram"
    )
    assert finding["batched-tokens"]["severity"] == "warn"
    assert (
        f"set --max-num-batched-tokens to {(seqs or 256) * 6} or more"
        in finding["batched-tokens"]["todo"]
    )
    assert "batched-tokens" not in preflight(with_words("--max-num-batched-tokens=48"), "ngram")


def served(model, image="v0.32.0", *words):
    text = TIGHT.replace(FLAG, "").replace(MODEL, model).replace("v0.27.0", image)
    return text + "".join(f"            - {json.dumps(word)}\n" for word in words)


@pytest.mark.parametrize(
    ("model", "draft"),
    [
        ("Qwen/Qwen3.6-27B", "Qwen/Qwen3.5-0.8B"),
        ("Qwen/Qwen2.5-VL-72B-Instruct", "Qwen/Qwen2.5-VL-3B-Instruct"),
        ("Qwen/Qwen3-VL-32B-Instruct", "Qwen/Qwen3-VL-2B-Instruct"),
        ("zai-org/GLM-4.6V", "zai-org/GLM-4.6V-Flash"),
    ],
)
def test_a_draft_model_with_m_rope_is_refused_by_its_family(preflight, model, draft):
    finding = preflight(served(model), "draft_model", "--draft", draft)["draft-mrope"]
    assert finding["severity"] == "refuse"
    assert draft in finding["reason"]


@pytest.mark.parametrize(
    "draft", ["Qwen/Qwen3-0.6B", "meta-llama/Llama-3.2-1B-Instruct", "Qwen/Qwen2.5-0.5B-Instruct"]
)
def test_a_draft_model_of_another_family_is_not(preflight, draft):
    found = preflight(served("Qwen/Qwen3-32B"), "draft_model", "--draft", draft)
    assert "draft-mrope" not in found
    assert any(line.startswith("draft-mrope: ") for line in found["unchecked"])


@pytest.mark.parametrize(
    "where", ["rope_scaling", "rope_parameters", "text_config", "transformer_layer_config"]
)
@pytest.mark.parametrize(
    ("spec", "refused"),
    [("draft_model", True), ("p-eagle", True), ("dflash", True), ("eagle3", False)],
)
def test_the_files_of_a_draft_say_whether_it_uses_m_rope(preflight, cli, where, spec, refused):
    rope = {"mrope_section": [16, 24, 24]}
    config = {
        "model_type": "llama",
        where: rope if where.startswith("rope") else {"rope_parameters": rope},
    }
    folder = cli.directory / "draft"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    found = preflight(served("Qwen/Qwen3-8B"), spec, "--draft", "./draft")
    assert ("draft-mrope" in found) is refused
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))
    assert "draft-mrope" not in preflight(served("Qwen/Qwen3-8B"), spec, "--draft", "./draft")


@pytest.mark.parametrize(
    ("row", "inside", "spec", "outside"),
    [
        (
            "kb85",
            served("openai/gpt-oss-120b", "v0.11.0"),
            "eagle3",
            served("openai/gpt-oss-120b", "v0.16.0"),
        ),
        (
            "kb86",
            served("deepseek-ai/DeepSeek-V3.2", "v0.15.0"),
            "mtp",
            served("deepseek-ai/DeepSeek-V3.2", "v0.14.0"),
        ),
        (
            "kb87",
            served("google/gemma-4-31B-it", "v0.20.0"),
            "p-eagle",
            served("google/gemma-4-31B-it", "v0.21.0"),
        ),
        (
            "kb89",
            served("Qwen/Qwen3.6-27B", "v0.28.0"),
            "mtp",
            served("Qwen/Qwen3-Next-80B-A3B-Instruct", "v0.28.0"),
        ),
        (
            "kb90",
            served("Qwen/Qwen3.6-27B", "v0.28.0", "--reasoning-parser=qwen3"),
            "mtp",
            served("Qwen/Qwen3.6-27B", "v0.32.0", "--reasoning-parser=qwen3"),
        ),
        (
            "kb91",
            served("google/gemma-4-E2B-it", "v0.24.0"),
            "mtp",
            served("google/gemma-4-E2B-it", "v0.27.0"),
        ),
        (
            "kb92",
            served("Qwen/Qwen3.5-35B-A3B", "v0.25.0", "--data-parallel-size=2"),
            "mtp",
            served("Qwen/Qwen3.5-35B-A3B", "v0.25.0"),
        ),
    ],
)
def test_a_combination_of_a_public_thread_warns_inside_its_range_alone(
    preflight, row, inside, spec, outside
):
    options = ["--set", "num_speculative_tokens=2"] + (
        ["--draft", "org/head"] if spec in ("eagle3", "p-eagle") else []
    )
    assert preflight(inside, spec, *options)[f"known-bad-{row}"]["severity"] == "warn"
    assert f"known-bad-{row}" not in preflight(outside, spec, *options)
    assert f"known-bad-{row}" in preflight(
        inside.replace("openai:v0", "openai:ours-v"), spec, *options
    )


def test_a_row_of_one_gpu_is_named_where_the_gpu_is_known_and_listed_as_unchecked_where_not(
    preflight,
):
    text = served("Qwen/Qwen3.6-27B", "v0.30.0")
    assert "known-bad-kb88" in preflight(text, "mtp", "--gpu", "GB10")
    assert "known-bad-kb88" not in preflight(text, "mtp", "--gpu", "H100-SXM")
    lines = preflight(text, "mtp")["unchecked"]
    assert any(
        line.startswith("known-bad: checked in part, unknown: ") and "gpu" in line for line in lines
    )
