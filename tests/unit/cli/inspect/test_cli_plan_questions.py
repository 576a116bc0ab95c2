"""Fourteen questions of users to ``mpctl plan``, asked as they ask them, each with what an honest answer says."""

from __future__ import annotations

import json
import re

import pytest

MANIFEST = """\
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {{name: served, namespace: ml}}
spec:
  predictor:
    containers:
    - name: kserve-container
      image: vllm/vllm-openai:v0.32.0
      command: [vllm, serve, {model}]
      args: [{args}]
"""
OWN = ("--acceptance", "0.70,0.50,0.35")


@pytest.fixture
def asked(cli):
    """A plan of a model with these engine arguments: its record, or its text with one space between words."""

    def plan(model, *options, args="", form="json"):
        text = MANIFEST.format(model=model, args=args)
        (cli.directory / "service.yaml").write_text(text, encoding="utf-8")
        ran = cli("plan", "-f", "service.yaml", *options, *(("-o", form) if form else ()))
        assert ran.code == 0, ran.err
        return json.loads(ran.out) if form == "json" else re.sub(r"\s+", " ", ran.out)

    return plan


def one(record, method):
    return next(entry for entry in record["methods"] if entry["method"] == method)


def last(method):
    return method["answers"][-1]


def test_which_method_for_code_on_an_l4_is_a_head_and_nothing_is_promised(asked):
    record = asked("Qwen/Qwen3-8B", "--spec", "all", "--gpu", "L4", "--traffic", "code")
    names = [method["method"] for method in record["methods"]]
    assert names.index("eagle3") < names.index("ngram")
    assert {
        answer["call"] for method in record["methods"] for answer in method.get("answers", ())
    } == {"measure first"}


@pytest.mark.parametrize(
    ("model", "gpu", "args"),
    [
        ("Qwen/Qwen3-32B", "H100-SXM", "--max-model-len=4096"),
        ("meta-llama/Llama-3.3-70B-Instruct", "H100-SXM", "--tensor-parallel-size=4"),
    ],
)
def test_larger_targets_are_advised_a_head_before_lookups_too(asked, model, gpu, args):
    record = asked(model, "--spec", "all", "--gpu", gpu, "--traffic", "code", args=args)
    names = [method["method"] for method in record["methods"]]
    assert names.index("eagle3") < names.index("ngram")


@pytest.mark.parametrize(
    ("model", "gpu", "args", "way"),
    [
        (
            "meta-llama/Llama-3.3-70B-Instruct",
            "L4",
            "--max-model-len=8192",
            "--tensor-parallel-size=8",
        ),
        (
            "meta-llama/Llama-3.1-405B-Instruct",
            "H100-SXM",
            "--tensor-parallel-size=8",
            "fp8 weights",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_what_would(asked, model, gpu, args, way):
    text = asked(model, "--spec", "ngram", "--gpu", gpu, *OWN, args=args, form="")
    assert "does not fit" in text
    assert way in text
    assert "gain" not in text.partition("preflight")[0]


def test_gpt_oss_fits_one_card_in_the_four_bits_it_is_published_in(asked):
    record = asked(
        "openai/gpt-oss-120b", "--spec", "ngram", "--gpu", "H100-SXM", "--traffic", "chat"
    )
    assert one(record, "ngram")["answers"]


def test_a_pool_that_is_estimated_and_binds_is_measured_first_and_never_a_loss(asked):
    options = (
        "--spec",
        "eagle3",
        "--gpu",
        "H100-SXM",
        *OWN,
        "--concurrency",
        "1,256",
        "--prompt-tokens",
        "1500",
    )
    record = asked("meta-llama/Llama-3.3-70B-Instruct", *options, args="--tensor-parallel-size=2")
    answer = last(one(record, "eagle3"))
    assert (answer["poolBound"], answer["call"]) == (True, "measure first")
    assert answer["throughputRatio"]["low"] < 1 < answer["throughputRatio"]["high"]


def test_the_engine_s_settings_count(asked):
    options = ("--spec", "eagle3", "--gpu", "L4", *OWN, "--concurrency", "64")
    widths = []
    for args in (
        "--gpu-memory-utilization=0.95",
        "--gpu-memory-utilization=0.85",
        "--max-num-seqs=16",
    ):
        record = asked("Qwen/Qwen3-8B", *options, args=f"--max-model-len=2048, {args}")
        widths.append(json.dumps(last(one(record, "eagle3"))["throughputRatio"]))
    assert len(set(widths)) == 3


def test_a_lookup_for_chat_is_no_large_gain(asked):
    record = asked("Qwen/Qwen3-8B", "--spec", "ngram", "--gpu", "L4", "--traffic", "chat")
    best = one(record, "ngram")["best"][0]
    assert best["throughputRatio"]["value"] < 1.3
    assert best["call"] == "measure first"


def test_edits_and_new_code_are_different_questions(asked):
    options = ("--spec", "ngram", "--gpu", "L4", "--traffic")
    edits, code = (
        one(asked("Qwen/Qwen3-8B", *options, kind), "ngram")["best"][0]["throughputRatio"]["value"]
        for kind in ("edits", "code")
    )
    assert edits > 1.2 * code


def test_a_mixture_of_experts_with_its_own_head_is_outside_the_evidence(asked):
    options = ("--spec", "mtp", "--gpu", "H200-SXM", *OWN, "--concurrency", "1,64")
    record = asked("deepseek-ai/DeepSeek-V3", *options, args="--tensor-parallel-size=8")
    answer = last(one(record, "mtp"))
    assert answer["call"] == "measure first"
    assert {"no published row with a baseline covers mtp"} <= {
        gap["reason"] for gap in answer["outsideTheEvidence"]
    }


@pytest.mark.parametrize(
    "name", ["Qwen/Qwen3-32B-AWQ", "nvidia/Qwen3-32B-FP8", "unsloth/Qwen3-32B-bnb-4bit"]
)
def test_a_stored_form_of_a_model_has_its_dimensions(asked, name):
    record = asked(name, "--spec", "ngram", "--gpu", "H100-SXM", "--traffic", "edits")
    assert one(record, "ngram")["answers"]


def test_a_local_copy_is_known_by_its_config(asked, cli):
    copy = cli.directory / "copy"
    copy.mkdir()
    config = {
        "architectures": ["Qwen3ForCausalLM"],
        "num_hidden_layers": 36,
        "hidden_size": 4096,
        "vocab_size": 151936,
    }
    config |= {
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 12288,
    }
    (copy / "config.json").write_text(json.dumps(config), encoding="utf-8")
    options = ("--spec", "ngram", "--gpu", "L4", *OWN, "--coverage", "0.5")
    local, named = (one(asked(model, *options), "ngram") for model in ("./copy", "Qwen/Qwen3-8B"))
    assert local["best"][0]["throughputRatio"] == named["best"][0]["throughputRatio"]


def test_how_much_must_be_accepted_is_said_of_every_method(asked):
    text = asked("Qwen/Qwen3-8B", "--spec", "all", "--gpu", "L4", "--traffic", "code", form="")
    assert re.search(
        r"break-even at concurrency \d+, tokens per step of those expected \(accepted\): eagle3 \d\.\d\d",
        text,
    )


def test_long_prompts_are_outside_the_evidence_and_widen_the_band(asked):
    options = (
        "--spec",
        "eagle3",
        "--gpu",
        "H100-SXM",
        *OWN,
        "--concurrency",
        "1",
        "--prompt-tokens",
    )
    short, long = (
        last(one(asked("Qwen/Qwen3-8B", *options, n), "eagle3")) for n in ("1000", "32000")
    )
    assert (short["call"], long["call"]) == ("gain", "measure first")
    widths = [a["throughputRatio"]["high"] / a["throughputRatio"]["low"] for a in (short, long)]
    assert widths[1] > widths[0]


def test_a_tpu_has_no_figure_and_the_refusal_names_what_is_known(cli):
    (cli.directory / "service.yaml").write_text(
        MANIFEST.format(model="Qwen/Qwen3-8B", args=""), encoding="utf-8"
    )
    ran = cli(
        "plan", "-f", "service.yaml", "--spec", "ngram", "--gpu", "TPU-v6e", "--traffic", "edits"
    )
    assert (ran.code, "--gpu: 'TPU-v6e' is not in the table" in ran.err) == (2, True)


def test_auto_is_refused_with_the_word_that_compares(cli):
    (cli.directory / "service.yaml").write_text(
        MANIFEST.format(model="Qwen/Qwen3-8B", args=""), encoding="utf-8"
    )
    ran = cli("plan", "-f", "service.yaml", "--spec", "auto")
    assert (ran.code, "--spec all compares the methods" in ran.err) == (2, True), ran.err


def test_a_model_that_nobody_serves_yet_is_planned_as_a_service_with_defaults(cli, asked):
    options = ("--spec", "eagle3", "--gpu", "L4", *OWN)
    ran = cli("plan", "Qwen/Qwen3-8B", *options, "-o", "json")
    assert ran.code == 0, ran.err
    method, served = (
        one(json.loads(ran.out), "eagle3"),
        one(asked("Qwen/Qwen3-8B", *options), "eagle3"),
    )
    assert method["answers"] == served["answers"]


def test_a_measurement_of_a_model_that_nobody_serves_is_refused(cli):
    ran = cli("plan", "Qwen/Qwen3-8B", "--spec", "ngram", "--measure", "--prompts", "traffic.jsonl")
    assert ran.code == 2
    assert "nothing serves here" in ran.err
