"""``mpctl plan``: questions of a file, and a manifest, without a service or an engine."""

from __future__ import annotations

import json
import math
import random
import re
import shutil
import time
from pathlib import Path

import pytest
from draft_samples import listing
from run_samples import make_run

from mpctl.app.bench.recorded import write_run
from mpctl.experiment.cell import Cell as Measured
from mpctl.lab import requests
from mpctl.lab.payoff.scenario import TRAFFIC
from mpctl.lab.plan.predicted import CheckedPrediction, PredictionRecord
from mpctl.platform.http import HttpAnswer
from tests.unit.support.limits import within_limits

MANIFEST = """\
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: qwen, namespace: ml}
spec:
  predictor:
    containers:
    - name: kserve-container
      image: vllm/vllm-openai:v0.32.0
      command: [vllm, serve, Qwen/Qwen3-8B]
      args:
      - --max-model-len=8192
"""
CELL = {
    "id": "one",
    "target": "Qwen/Qwen3-32B",
    "draft": "RedHatAI/Qwen3-32B-speculator.eagle3",
    "method": "eagle3",
    "gpu": "H100-SXM-94",
    "k": 3,
    "concurrency": 1,
    "prompt_tokens": 145,
    "output_tokens": 200,
    "acceptance": {"per_position": [0.637, 0.358, 0.186]},
    "pool_tokens": {"baseline": 69232, "candidate": 47264},
}
SHAPE = {"layers": 36, "hidden": 4096, "heads": 32, "vocab": 151936, "params_b": 8.2}


def asked(cli, *cells):
    (cli.directory / "cells.json").write_text(json.dumps({"cells": list(cells)}), encoding="utf-8")
    return cli("plan", "--cell", "cells.json", "-o", "json")


def answered(cli, *cells):
    ran = asked(cli, *cells)
    assert ran.code == 0, ran.err
    return json.loads(ran.out)["cells"]


@pytest.fixture
def manifest(cli):
    (cli.directory / "service.yaml").write_text(MANIFEST, encoding="utf-8")
    return ("-f", "service.yaml")


def test_a_published_cell_is_answered_with_point_band_call_level_and_regime(cli):
    (found,) = answered(cli, CELL)
    (answer,) = found["answers"]
    ratio = answer["throughputRatio"]
    assert ratio["low"] < 57.21 / 29.3 < ratio["high"]  # tomasruizt/vllm-scripts@d94d714
    assert answer["timePerTokenRatio"]["value"] == pytest.approx(1 / ratio["value"], rel=0.01)
    assert (answer["call"], answer["level"], answer["regime"]) == (
        "gain",
        "L1",
        "below a quarter knee",
    )
    assert found["id"] == "one"


def test_every_pair_of_k_and_concurrency_is_answered(cli):
    (found,) = answered(cli, {**CELL, "k": [1, 3], "concurrency": [1, 256]})
    assert [(a["concurrency"], a["k"]) for a in found["answers"]] == [
        (1, 1),
        (1, 3),
        (256, 1),
        (256, 3),
    ]
    assert [a["poolBound"] for a in found["answers"]] == [False, False, True, True]


def test_rates_that_end_before_k_are_continued_and_it_is_said(cli):
    few, all_of_them = answered(cli, {**CELL, "acceptance": {"per_position": [0.6, 0.3]}}, CELL)
    assert "rates after position 2 fall on as the last two do" in few["assumed"]
    assert all_of_them["assumed"] == []


def test_the_prompts_of_a_short_run_are_not_processed_while_others_decode(cli):
    stream, run = ({**CELL, "concurrency": 80}, {**CELL, "concurrency": 80, "requests": 80})
    (steady,), (short,) = (found["answers"] for found in answered(cli, stream, run))
    assert short["timePerTokenRatio"]["value"] < steady["timePerTokenRatio"]["value"]


def test_unknown_models_and_gpus_are_described(cli):
    target = {
        "layers": 64,
        "hidden": 5120,
        "heads": 64,
        "kv_heads": 8,
        "head_dim": 128,
        "vocab": 151936,
    }
    target |= {"intermediate": 25600, "params_b": 32.8}
    gpu = {"bandwidth_gb_s": 2400, "tflops": 989, "nvlink": True}
    known, described = answered(cli, CELL, {**CELL, "target": target, "gpu": gpu})
    ratios = [
        [one["throughputRatio"]["value"] for one in cell["answers"]] for cell in (known, described)
    ]
    assert ratios[0] == ratios[1]
    (gap,) = described["answers"][0]["outsideTheEvidence"]  # its name is that of no row
    assert "no fitted row covers a method of the kind head" in gap["reason"]


def test_published_acceptance_and_a_class_of_traffic_promise_nothing(cli):
    published = {key: value for key, value in CELL.items() if key != "acceptance"}
    cells = ({**published, "k": 6}, {**CELL, "acceptance": {"traffic": "code"}})
    for found in answered(cli, *cells):
        assert {(a["level"], a["call"]) for a in found["answers"]} == {("L0", "measure first")}


def test_a_measured_pair_moves_the_answer_and_narrows_its_band(cli):
    pair = {"concurrency": 64, "k": 3, "throughput_ratio": 1.30, "time_per_token_ratio": 0.75}
    far = {**CELL, "concurrency": 64}
    before, after = (
        found["answers"][0] for found in answered(cli, far, {**far, "measured": [pair]})
    )
    assert after["level"] == "L2"
    assert (
        abs(after["throughputRatio"]["value"] - 1.30)
        < 0.05
        < before["throughputRatio"]["value"] - 1.30
    )
    assert _width(after) - 1 < 0.5 * (_width(before) - 1)


def _width(answer):
    return answer["throughputRatio"]["high"] / answer["throughputRatio"]["low"]


def test_outside_the_evidence_says_what_brings_it_inside(cli):
    (found,) = answered(cli, {**CELL, "prompt_tokens": 6000, "pool_tokens": {"baseline": 500000}})
    (answer,) = found["answers"]
    assert answer["call"] == "measure first"
    assert (
        answer["outsideTheEvidence"][0]["toDo"] == "measure one pair at concurrency 1 (mpctl bench)"
    )


@pytest.mark.parametrize(
    ("change", "message", "hint"),
    [
        (
            {"target": "nobody/nothing"},
            "target: the dimensions of nobody/nothing are not",
            "describe it: target:",
        ),
        ({"gpu": "L5"}, "gpu: 'L5' is not in mpctl's table", "bandwidth_gb_s"),
        (
            {"gpu": {"tflops": 3}},
            "gpu.bandwidth_gb_s: required field is missing",
            "describe it: gpu:",
        ),
        (
            {"acceptance": {"per_position": [63.7]}},
            "rates are shares from 0 to 1: 72.9 % is 0.729",
            "",
        ),
        ({"acceptance": {"length": 5}}, "5 tokens are not possible with K = 3", ""),
        ({"acceptance": {"length": 3.0, "per_position": [0.5, 0.2, 0.1]}}, "which give 1.80", ""),
        (
            {"method": "ngram", "draft": None, "acceptance": {"length": 3.0}},
            "without its coverage",
            "tokens_per_step",
        ),
        (
            {"method": "eagle3", "draft": None, "target": {**{"layers": 9}}},
            "target.hidden: required field",
            "",
        ),
        (
            {"method": "draft_model", "draft": None},
            "draft: draft_model needs",
            "describe it: draft:",
        ),
        ({"k": 2.5}, "k: expected a whole number or a list, got a number", ""),
        ({"k": None}, "k: required field is missing", "a number, or a list: k: [1, 4]"),
        ({"engine": "newest"}, "engine: 'newest' is not a version of vLLM", "engine: 0.19.1"),
        ({"requests": -1}, "requests: expected a number >= 1.0", ""),
        ({"concurency": 3}, "concurency: unknown field, did you mean concurrency?", ""),
        (
            {"acceptance": {"length": "3"}},
            "acceptance.length: expected a number or null, got text",
            "",
        ),
        ({"measured": [{"concurrency": 4, "ratio": 1}]}, "measured[0].ratio: unknown field", ""),
    ],
)
def test_what_is_missing_is_named_with_how_to_give_it(cli, change, message, hint):
    ran = asked(cli, {**CELL, **change})
    assert ran.code == 2
    assert message in ran.err
    assert hint in ran.err
    assert "cells.json:1" in ran.err


def test_of_several_cells_those_that_lack_nothing_are_answered(cli):
    first, second = answered(cli, {**CELL, "gpu": "L5"}, {**CELL, "id": "two"})
    assert first["id"] == "one"
    assert "cells[0].gpu: 'L5' is not in mpctl's table" in first["refused"]["reason"]
    assert "describe it: gpu:" in first["refused"]["hint"]
    assert second["answers"]
    shown = cli("plan", "--cell", "cells.json")
    assert "one: no figure" in shown.out
    assert "two: eagle3: gain" in shown.out


@pytest.mark.parametrize("name", ["H100-94GB (HGX, about 1.9 TB/s realised)", "h100-94gb"])
def test_a_gpu_may_be_named_as_its_publication_names_it(cli, name):
    same = [
        one["answers"][0]["throughputRatio"] for one in answered(cli, CELL, {**CELL, "gpu": name})
    ]
    assert same[0] == same[1]


def test_a_manifest_is_planned_in_less_than_two_seconds_without_an_engine(cli, manifest):
    prompts = "\n".join(
        json.dumps({"prompt": f"rename variable {i} " * 20, "seed": i}) for i in range(1000)
    )
    (cli.directory / "prompts.jsonl").write_text(prompts, encoding="utf-8")
    began = time.process_time()
    ran = cli(
        "plan",
        *manifest,
        "--spec",
        "eagle3",
        "--gpu",
        "L4",
        "--traffic",
        "code",
        "--prompts",
        "prompts.jsonl",
    )
    assert ran.code == 0, ran.err
    assert time.process_time() - began < 2  # of this process: other tests share the machine
    assert "Plan: ml/qwen (Qwen/Qwen3-8B)" in ran.out
    assert "prompts of 99 tokens on average" in ran.out
    assert "not sent: seed in 1000 requests" in ran.out
    assert "evidence: L0" in ran.out
    assert "crossover: " in ran.out
    assert "the rollout needs: 1 GPU more" in ran.out
    assert all(len(line) <= 100 for line in ran.out.splitlines())


def test_all_methods_are_ranked_and_each_has_its_preflight(cli, manifest):
    ran = cli("plan", *manifest, "--spec", "all", "--gpu", "L4", "--traffic", "code", "-o", "json")
    methods = json.loads(ran.out)["methods"]
    assert {"ngram", "suffix", "eagle3", "dflash"} <= {one["method"] for one in methods}
    free = [one for one in methods if "best" in one and one["canRun"] and not one["notice"]]
    means = [
        sum(math.log(choice["throughputRatio"]["value"]) for choice in one["best"]) for one in free
    ]
    assert means == sorted(means, reverse=True)
    names = [one["method"] for one in methods]
    assert names.index("eagle3") < names.index("ngram")  # new code is no copy of its prompt
    assert all("findings" in one or "refused" in one for one in methods)


@pytest.mark.parametrize(
    ("options", "reason", "hint"),
    [
        (("--spec", "eagle3", "--traffic", "code"), "the GPU is unknown", "--gpu names it: L4"),
        (
            ("--spec", "ngram", "--gpu", "L4"),
            "nothing is known of how much ngram is accepted",
            "--traffic code",
        ),
    ],
)
def test_without_a_fact_there_is_no_figure(cli, manifest, options, reason, hint):
    out = re.sub(r"\s+", " ", cli("plan", *manifest, *options).out)
    assert f"no figure: {reason}" in out
    assert hint in out


@pytest.mark.parametrize(
    "name",
    [
        "Qwen/Qwen3.8-27B",
        "Qwen/Qwen3.8-27B-FP8",
        "RadixArk/Qwen3.8-27B-NVFP4",
        "Qwen/Qwen3.8-27B-AWQ",
        "Qwen/Qwen2.5-Coder-7B-Instruct",
        "Qwen/Qwen2.5-Coder-32B-Instruct-GPTQ-Int4",
        "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B",
        "deepseek-ai/DeepSeek-R1-Distill-Llama-70B",
        "mistralai/Mistral-Small-24B-Instruct-2501",
        "zai-org/GLM-4.5-Air-FP8",
    ],
)
def test_a_model_that_many_serve_has_a_figure_by_its_name(cli, name):
    words = ("--spec", "ngram", "--gpu", "B200", "--traffic", "edits", "-o", "json")
    (method,) = json.loads(cli("plan", name, *words).out)["methods"]
    assert method["best"], method


@pytest.mark.parametrize(
    ("model", "gpu", "gpus"),
    [
        ("meta-llama/Llama-3.3-70B-Instruct", "H200", 2),
        ("zai-org/GLM-4.5-Air", "H100", 4),
        ("Qwen/Qwen3-8B", "L4", 1),
    ],
)
def test_a_planned_model_gets_as_many_gpus_as_hold_it_and_the_plan_says_so(cli, model, gpu, gpus):
    words = ("--spec", "ngram", "--gpu", gpu, "--traffic", "edits", "-o", "json")
    record = json.loads(cli("plan", model, *words).out)
    (method,) = record["methods"]
    assert method["best"], method
    assert method["needs"]["gpus"] == gpus
    assumed = [note for note in record["notes"] if "--tensor-parallel-size" in note]
    assert [f"--tensor-parallel-size={gpus} assumed" in note for note in assumed] == [True] * (
        gpus > 1
    )
    assert "requests-lost" not in {finding["id"] for finding in method["findings"]}


def test_a_model_that_is_not_known_names_the_nearest(cli):
    done = cli(
        "plan", "zai-org/GLM-4.7-Air", "--spec", "ngram", "--gpu", "H200", "--traffic", "edits"
    )
    text = " ".join((done.out + done.err).split())
    assert "the nearest that are known: zai-org/GLM-4.5-Air" in text


@pytest.mark.parametrize(
    ("model", "method", "gpu", "arguments", "reason"),
    [
        (
            "Qwen/Qwen3-8B",
            "eagle3",
            "L4",
            (),
            "no fitted row covers a method of the kind head on L4",
        ),
        ("Qwen/Qwen3-8B", "eagle3", "A10G", (), "the kind head on A10G"),
        ("Qwen/Qwen3-8B", "ngram", "L4", (), "the kind lookup on L4"),
        ("Qwen/Qwen3-30B-A3B", "eagle3", "H100", (), "the fit holds for no mixture of experts"),
        (
            "zai-org/GLM-4.5-Air",
            "ngram",
            "H200",
            ("-tp=4",),
            "the fit holds for no mixture of experts",
        ),
        (
            "Qwen/Qwen3-8B",
            "ngram",
            "H100",
            ("--pipeline-parallel-size=2",),
            "--pipeline-parallel-size",
        ),
        ("Qwen/Qwen3-8B", "ngram", "H100", ("-dp=4",), "--data-parallel-size"),
        (
            "Qwen/Qwen3-8B",
            "ngram",
            "H100",
            ("--enable-expert-parallel",),
            "--enable-expert-parallel",
        ),
        ("Qwen/Qwen3-8B", "ngram", "H100", ("-dcp=2", "-tp=4"), "--decode-context-parallel-size"),
        ("Qwen/Qwen3-8B", "ngram", "H100", ("--cpu-offload-gb=10",), "--cpu-offload-gb"),
        ("Qwen/Qwen3-8B", "ngram", "H100", ("--enforce-eager",), "an engine with --enforce-eager"),
    ],
)
def test_what_the_fit_has_no_rows_for_is_called_neither_gain_nor_loss(
    cli, model, method, gpu, arguments, reason
):
    text = MANIFEST.replace("Qwen/Qwen3-8B", model)
    text += "".join(f"      - {argument}\n" for argument in arguments)
    (cli.directory / "service.yaml").write_text(text, encoding="utf-8")
    known = ("--acceptance", "0.9,0.85,0.8", "--concurrency", "1,8", "-o", "json")
    ran = cli("plan", "-f", "service.yaml", "--spec", method, "--gpu", gpu, *known)
    (planned,) = json.loads(ran.out)["methods"]
    gaps = {gap["reason"] for one in planned["answers"] for gap in one["outsideTheEvidence"]}
    assert any(reason in gap for gap in gaps), gaps
    assert {one["call"] for one in planned["answers"]} == {"measure first"}


RUNTIME = """\
apiVersion: serving.kserve.io/v1alpha1
kind: ServingRuntime
metadata: {name: vllm, namespace: ml}
spec:
  supportedModelFormats: [{name: vllm}]
  containers:
  - name: kserve-container
    image: vllm/vllm-openai:v0.32.0
    args: [ARGUMENT]
---
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: qwen, namespace: ml}
spec:
  predictor:
    model:
      modelFormat: {name: vllm}
      runtime: vllm
      args: [--model=Qwen/Qwen3-8B, --max-model-len=8192]
"""


@pytest.mark.parametrize(
    "argument", ["--enforce-eager", "-pp=2", "-tp=2", "--quantization=fp8", "--max-num-seqs=4"]
)
def test_an_argument_that_the_runtime_adds_counts_like_the_services_own(cli, argument):
    own = MANIFEST + f"      - {argument}\n"
    known = ("--acceptance", "0.9,0.85,0.8", "--concurrency", "1,8", "-o", "json")
    answers = []
    for text in (MANIFEST, own, RUNTIME.replace("ARGUMENT", argument)):
        (cli.directory / "service.yaml").write_text(text, encoding="utf-8")
        ran = cli("plan", "-f", "service.yaml", "--spec", "ngram", "--gpu", "H100", *known)
        (planned,) = json.loads(ran.out)["methods"]
        answers.append([planned.get("answers"), planned.get("needs")])
    without, by_service, by_runtime = answers
    assert by_runtime == by_service
    assert by_runtime != without


@pytest.mark.parametrize(("argument", "fits"), [("-pp=4", True), ("--enforce-eager", False)])
def test_only_a_target_that_is_spread_may_not_fit_one_gpu(cli, argument, fits):
    text = MANIFEST.replace("Qwen/Qwen3-8B", "meta-llama/Llama-3.1-70B-Instruct")
    (cli.directory / "service.yaml").write_text(f"{text}      - {argument}\n", encoding="utf-8")
    known = ("--acceptance", "0.9,0.85,0.8", "--concurrency", "1", "-o", "json")
    ran = cli("plan", "-f", "service.yaml", "--spec", "ngram", "--gpu", "L4", *known)
    (planned,) = json.loads(ran.out)["methods"]
    assert ("answers" in planned) is fits, planned


def test_the_gpus_of_all_ranks_are_counted(cli):
    spread = ("-tp=2", "--pipeline-parallel-size=2", "--cpu-offload-gb=0")
    text = MANIFEST + "".join(f"      - {argument}\n" for argument in spread)
    (cli.directory / "service.yaml").write_text(text, encoding="utf-8")
    ran = cli("plan", "-f", "service.yaml", "--spec", "ngram", "--gpu", "H100", "--traffic", "code")
    assert "the rollout needs: 4 GPU more" in ran.out.replace("GPUs", "GPU")
    assert "--cpu-offload-gb" not in ran.out


def test_without_a_method_all_are_planned(cli, manifest):
    words = (*manifest, "--gpu", "L4", "--traffic", "code", "-o", "json")
    bare, named = (json.loads(cli("plan", *words, *more).out) for more in ((), ("--spec", "all")))
    assert bare == named


def test_a_service_too_small_to_predict_says_so_and_shows_a_plan_that_works(cli, manifest):
    demo = Path(__file__).parents[4] / "scripts" / "demo_model" / "model"
    config = json.loads((demo / "config.json").read_text(encoding="utf-8"))
    known = listing(cli.directory, "demo.txt", config, (demo / "model.safetensors").stat().st_size)
    cli.env(MPCTL_TARGET_LISTING=known)
    words = ("--gpu", "L4", "--traffic", "code")
    ran = cli("plan", *manifest, "--spec", "ngram", *words)
    assert ran.code == 0, ran.err
    said = " ".join(ran.out.split())
    assert "is no language model of a size that is served" in said
    assert "mpctl plan Qwen/Qwen3-8B --spec all --gpu L4 --traffic code" in said


def test_an_unknown_gpu_is_an_input_error(cli, manifest):
    gpu = cli("plan", *manifest, "--spec", "ngram", "--gpu", "L5", "--traffic", "code")
    assert (gpu.code, "--gpu: 'L5' is not in the table" in gpu.err) == (2, True)
    checked = cli("preflight", *manifest, "--spec", "ngram", "--gpu", "L5")
    assert (checked.code, "--gpu: 'L5' is not in the table" in checked.err) == (2, True)


def transcripts(cli, *, copies):
    """Forty answers that copy their prompts or share nothing with them, as tokens."""
    lines = []
    for i in range(40):
        prompt = [(i * 31 + j * j * 7) % 5003 for j in range(120)]
        answer = (
            prompt[20:100] if copies else [6000 + (i * 17 + j * j * 3) % 4999 for j in range(80)]
        )
        lines.append(json.dumps({"prompt_token_ids": prompt, "token_ids": answer}))
    (cli.directory / "log.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return ("--measure", "--transcripts", "log.jsonl")


# Where nothing is accepted the ratio is just below 1, and a lookup that near to 1 has no sign.
@pytest.mark.parametrize(
    ("copies", "gpu", "call"), [(True, "H100-SXM", "gain"), (False, "L4", "measure first")]
)
def test_transcripts_tell_whether_ngram_pays_without_an_engine(cli, manifest, copies, gpu, call):
    ran = cli(
        "plan",
        *manifest,
        "--spec",
        "ngram",
        "--gpu",
        gpu,
        *transcripts(cli, copies=copies),
        "-o",
        "json",
    )
    assert ran.code == 0, ran.err
    record = json.loads(ran.out)
    (method,) = record["methods"]
    assert (record["promptTokens"], record["outputTokens"]) == (120, 80)
    assert {one["level"] for one in method["answers"]} == {"L1"}
    assert method["best"][0]["call"] == call
    assert "40 transcripts of log.jsonl, replayed" in method["evidence"]


@pytest.mark.parametrize("form", ["json", "text"])
def test_nothing_of_a_transcript_but_its_figures_is_shown(cli, manifest, form):
    actual_transcripts = transcripts(cli, copies=True)
    log = cli.directory / "log.jsonl"
    fields = {"prompt": "PLANTED", "text": "PLANTED", "user": "PLANTED"}
    lines = [
        json.dumps({**json.loads(line), **fields})
        for line in log.read_text(encoding="utf-8").splitlines()
    ]
    log.write_text("\n".join(lines), encoding="utf-8")
    output = () if form == "text" else ("-o", form)
    ran = cli("plan", *manifest, "--spec", "ngram", "--gpu", "L4", *actual_transcripts, *output)
    assert ran.code == 0, ran.err
    assert "PLANTED" not in ran.out + ran.err
    assert [
        path
        for path in cli.directory.rglob("*")
        if path.is_file() and b"PLANTED" in path.read_bytes()
    ] == [log]


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("not json", "log.jsonl:1: not JSON", '{"prompt": "...", "answer": "..."}'),
        (
            '{"prompt": "p", "answer": "a"}',
            "the tokens of Qwen/Qwen3-8B are unknown",
            "--tokenizer DIR",
        ),
    ],
)
def test_transcripts_that_cannot_be_used_are_named(cli, manifest, text, message, hint):
    (cli.directory / "log.jsonl").write_text(text, encoding="utf-8")
    ran = cli(
        "plan",
        *manifest,
        "--spec",
        "ngram",
        "--gpu",
        "L4",
        "--measure",
        "--transcripts",
        "log.jsonl",
    )
    assert (ran.code, message in ran.err, hint in ran.err) == (2, True, True), ran.err


def test_texts_are_tokenized_by_the_targets_own_file(cli, manifest):
    pytest.importorskip("tokenizers")
    model = Path(__file__).parents[4] / "scripts" / "demo_model" / "model"
    line = json.dumps(
        {
            "prompt": "def add(a, b):\n    return a + b\n",
            "answer": "def add(a, b):\n    return a + b\n",
        }
    )
    (cli.directory / "log.jsonl").write_text(line, encoding="utf-8")
    given = (
        "--spec",
        "ngram",
        "--gpu",
        "L4",
        "--transcripts",
        "log.jsonl",
        "--tokenizer",
        str(model),
    )
    ran = cli("plan", *manifest, *given, "-o", "json")
    assert ran.code == 0, ran.err
    assert (
        json.loads(ran.out)["promptTokens"] > json.loads(ran.out)["outputTokens"] > 10
    )  # the chat template is added


def test_a_chat_template_that_takes_gigabytes_is_refused_with_its_file(cli, manifest):
    pytest.importorskip("tokenizers")
    model = Path(__file__).parents[4] / "scripts" / "demo_model" / "model"
    shutil.copy(model / "tokenizer.json", cli.directory)
    (cli.directory / "chat_template.jinja").write_text("{{ 'x' * 6000000000 }}", encoding="utf-8")
    (cli.directory / "log.jsonl").write_text(
        json.dumps({"prompt": "p", "answer": "a"}), encoding="utf-8"
    )
    given = ("--spec", "ngram", "--gpu", "L4", "--transcripts", "log.jsonl", "--tokenizer", ".")
    with within_limits():
        ran = cli("plan", *manifest, *given)
    assert ran.code == 2
    assert (
        "tokenizer.json: the tokenizer or its chat template cannot be used for conversation 1: it needs"
        in ran.err
    )


def test_a_measurement_is_evidence_and_says_what_it_taught(cli, manifest):
    write_run("measured.json.gz", make_run({Measured("edits", 1): 2.0, Measured("edits", 32): 1.4}))
    given = (
        "--spec",
        "ngram",
        "--run",
        "measured.json.gz",
        "--concurrency",
        "1,32,256",
        "-o",
        "json",
    )
    ran = cli("plan", *manifest, *given)
    assert ran.code == 0, ran.err
    record = json.loads(ran.out)
    (method,) = record["methods"]
    assert record["gpu"] == "L4"  # by the measurement
    best = {one["concurrency"]: one for one in method["best"]}
    answers = {(one["concurrency"], one["k"]): one for one in method["answers"]}
    assert answers[(32, 5)]["throughputRatio"]["value"] == pytest.approx(1.4, rel=0.03)
    assert best[32]["call"] == "gain"
    assert answers[(256, 5)]["level"] == "L1"  # more than twice what was measured
    assert any(
        "more than twice the largest measured" in o["reason"]
        for o in answers[(256, 5)]["outsideTheEvidence"]
    )
    assert method["learned"].startswith("2 measured pairs: at concurrency 32")


def test_rates_of_two_positions_may_be_the_same(cli, manifest):
    ran = cli(
        "plan",
        *manifest,
        "--spec",
        "ngram",
        "--gpu",
        "L4",
        "--acceptance",
        "0.9,0.9,0.8",
        "-o",
        "json",
    )
    assert ran.code == 0, ran.err


def test_measuring_needs_something_to_measure_on(cli, manifest):
    ran = cli("plan", *manifest, "--spec", "ngram", "--measure")
    assert (ran.code, "--measure: nothing serves here" in ran.err) == (2, True)
    assert "--transcripts FILE or --url URL" in ran.err
    several = cli("plan", *manifest, "--spec", "all", "--url", "http://127.0.0.1:9")
    assert (several.code, "name it: --spec eagle3" in several.err) == (2, True)


METRICS = """\
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0"} 3000
vllm:spec_decode_num_drafts_total{engine="0"} 1000
vllm:spec_decode_num_draft_tokens_total{engine="0"} 3000
vllm:spec_decode_num_accepted_tokens_total{engine="0"} 1500
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 800
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="1"} 500
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="2"} 200
"""


def served(monkeypatch, text):
    monkeypatch.setattr("mpctl.platform.http.get", lambda *_, **__: HttpAnswer(200, text.encode()))
    return ("--measure", "--url", "http://engine:8000")


def test_the_counters_of_a_running_engine_are_measured_acceptance(cli, manifest, monkeypatch):
    given = ("--spec", "eagle3", "--gpu", "L4", *served(monkeypatch, METRICS), "-o", "json")
    ran = cli("plan", *manifest, *given)
    assert ran.code == 0, ran.err
    (method,) = json.loads(ran.out)["methods"]
    assert method["level"] == "L1"
    assert {one["tokensPerStep"] for one in method["answers"] if one["k"] == 3} == {2.5}
    assert method["evidence"] == "acceptance from the counters of http://engine:8000, 1000 drafts"


def test_an_engine_without_drafts_is_named(cli, manifest, monkeypatch):
    plain = "\n".join(METRICS.splitlines()[:2]) + "\n"
    ran = cli("plan", *manifest, "--spec", "eagle3", "--gpu", "L4", *served(monkeypatch, plain))
    assert (
        ran.code,
        "http://engine:8000: the engine does not speculate" in ran.err,
        "--transcripts FILE" in ran.err,
    ) == (2, True, True), ran.err


@pytest.mark.parametrize("form", ["table", "json", "yaml"])
def test_predictions_are_shown_beside_what_was_measured_in_every_format(cli, monkeypatch, form):
    predicted = {"value": 1.5, "low": 1.3, "high": 1.7}
    one = CheckedPrediction(
        "rollout-3", "ngram K=5", 8.0, "L2", "throughput", predicted, 1.6, "promoted"
    )
    monkeypatch.setattr("mpctl.app.session.open.open_session", lambda *_, **__: None)
    monkeypatch.setattr(
        "mpctl.lab.plan.predicted.read_record",
        lambda _: PredictionRecord("ml/qwen", (one,), ("rollout-1",)),
    )
    ran = cli("plan", "qwen", "--history", "-o", form)
    assert ran.code == 0, ran.err
    assert "rollout-3" in ran.out
    assert "rollout-1" in ran.out
    if form == "table":
        assert "1.50 [1.30-1.70]" in ran.out
        assert "1 of 1 measured ratios inside their band; median error 6.2%" in ran.out


def test_all_methods_fit_one_screen_that_opens_with_the_answer(cli, manifest):
    done = cli("plan", *manifest, "--spec", "all", "--gpu", "L4", "--traffic", "code")
    lines = done.out.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 100
    assert lines[1].startswith("Measure first, ")
    assert "break-even at concurrency 64" in done.out
    assert lines[-1].strip().startswith("what would settle it: mpctl plan qwen --spec ")
    assert (
        "preflight: can run"
        in cli("-v", "plan", *manifest, "--spec", "ngram,eagle3", "--gpu", "L4").out
    )


@pytest.mark.parametrize("form", [(), ("-o", "json")])
def test_a_target_that_does_not_fit_has_the_arithmetic_and_no_figure(cli, form):
    large = MANIFEST.replace("Qwen/Qwen3-8B", "meta-llama/Llama-3.3-70B-Instruct")
    (cli.directory / "large.yaml").write_text(large, encoding="utf-8")
    ran = cli(
        "plan",
        "-f",
        "large.yaml",
        "--spec",
        "eagle3",
        "--gpu",
        "L4",
        "--acceptance",
        "0.7,0.5,0.3",
        *form,
    )
    out = re.sub(r"\s+", " ", ran.out)
    assert (
        "does not fit: 131.5 GiB of bf16 weights, 1.4 GiB of workspace at least and 2.50 GiB for one request"
        in out
    )
    assert "what fits: --tensor-parallel-size=8" in out
    assert "throughputRatio" not in out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"concurrency": 99_999_999}, "concurrency"),
        ({"k": 5000}, "k: expected"),
        ({"prompt_tokens": 1e8}, "prompt_tokens: 1e+08 is outside 1 to 10,000,000"),
        (
            {"gpu": {"bandwidth_gb_s": 0.3, "tflops": 100}},
            "bandwidth_gb_s: 0.3 is outside 5 to 30,000 (GB/s",
        ),
        ({"pool_tokens": {"baseline": 1}}, "pool_tokens.baseline: 1 tokens hold no request of 345"),
        (
            {"pool_tokens": {"baseline": 10_000, "candidate": 1}},
            "pool_tokens.candidate: 1 tokens hold no request",
        ),
        (
            {"pool_tokens": {"baseline": 10_000, "candidate": 9e7}},
            "are more than the baseline's 10,000",
        ),
        (
            {"measured": [{"concurrency": 4, "k": 3, "throughput_ratio": 50}]},
            "50 is not possible with K = 3",
        ),
        ({"gpus": 3}, "gpus: 64 attention heads cannot be split over 3 GPUs"),
        (
            {"acceptance": {"per_position": [0.6], "coverage": 0.5}},
            "coverage: eagle3 proposes in every step",
        ),
        ({"acceptance": {"per_position": [0.6], "traffic": "code"}}, "are both given"),
        (
            {"weights_gb": 900, "gpu": "L4", "pool_tokens": {}},
            "does not fit: 838.2 GiB of bf16 weights",
        ),
        (
            {"target": {**SHAPE, "experts": 8, "experts_per_token": 8, "active_params_b": 3}},
            "8 must be more than the 8",
        ),
        ({"target": {**SHAPE, "params_b": 0.0001}}, "params_b: 0.0001 is outside 0.01 to 10,000"),
    ],
)
def test_impossible_figures_are_refused_with_field_and_limit(cli, change, message):
    (refused, answered_one) = answered(cli, {**CELL, **change}, CELL)
    assert message in refused["refused"]["reason"]
    assert answered_one["answers"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--acceptance", "0.7,0.5", "--coverage", "2"), "--coverage: 2 is no share"),
        (
            ("--acceptance", "0.7,0.5", "--coverage", "0.5"),
            "--coverage: eagle3 proposes in every step",
        ),
        (
            ("--traffic", "code", "--coverage", "0.5"),
            "--coverage: says nothing without --acceptance",
        ),
        (
            ("--traffic", "code", "--acceptance", "0.7"),
            "--traffic: --acceptance and --traffic are both given",
        ),
        (
            ("--traffic", "code", "--concurrency", "999999999999"),
            "--concurrency: 1e+12 is outside 1 to 100,000",
        ),
        (("--traffic", "code", "--k", "5000"), "--k: 5000 is outside 1 to 64"),
        (
            ("--traffic", "code", "--prompt-tokens", "100000000"),
            "--prompt-tokens: 1e+08 is outside",
        ),
    ],
)
def test_options_have_the_limits_of_a_file_of_cells(cli, manifest, options, message):
    ran = cli("plan", *manifest, "--spec", "eagle3", "--gpu", "L4", *options)
    assert (ran.code, message in ran.err) == (2, True), ran.err


def test_the_names_of_a_plan_are_its_methods_the_best_first(cli, manifest):
    done = cli(
        "plan",
        *manifest,
        "--spec",
        "ngram,eagle3",
        "--gpu",
        "L4",
        "--traffic",
        "code",
        "-o",
        "name",
    )
    assert sorted(done.out.split()) == ["method/eagle3", "method/ngram"]


WRONG = (
    -1,
    0,
    -0.5,
    1e18,
    math.inf,
    math.nan,
    "many",
    True,
    [],
    {},
    [None],
    [-3],
    ["2"],
    "NaN",
    "0x10",
    1e-300,
)
PLACES = (
    *(
        "k",
        "concurrency",
        "prompt_tokens",
        "output_tokens",
        "gpus",
        "weights_gb",
        "gpu_memory_utilization",
    ),
    *(
        "max_num_seqs",
        "max_model_len",
        "requests",
        "acceptance.per_position",
        "acceptance.length",
        "acceptance.coverage",
    ),
    *(
        "pool_tokens.baseline",
        "pool_tokens.candidate",
        "gpu.bandwidth_gb_s",
        "gpu.tflops",
        "gpu.memory_gib",
    ),
    *(
        "target.layers",
        "target.hidden",
        "target.heads",
        "target.vocab",
        "target.params_b",
        "target.kv_heads",
    ),
    *(
        "measured.throughput_ratio",
        "measured.concurrency",
        "engine",
        "precision",
        "kv_cache",
        "method",
    ),
)
# What some place takes, although it looks like a slip.
RIGHT = [("requests", math.inf), ("gpu.memory_gib", math.inf)]


def spoilt(place, wrong):
    """The good cell with one wrong value."""
    cell = json.loads(json.dumps(CELL))
    head, dot, field = place.partition(".")
    if not dot:
        return {**cell, head: wrong}
    whole = {
        "gpu": {"bandwidth_gb_s": 2400, "tflops": 989},
        "target": SHAPE,
        "measured": {"concurrency": 4, "k": 3},
    }
    inner = {**(cell.get(head) if isinstance(cell.get(head), dict) else whole[head]), field: wrong}
    if place == "measured.concurrency":
        inner["throughput_ratio"] = 1.5
    if place == "acceptance.length":
        del inner["per_position"]
    return {**cell, head: [inner] if head == "measured" else inner}


def test_of_two_hundred_generated_slips_none_is_taken_and_none_is_a_crash(cli):
    every = [(place, wrong) for place in PLACES for wrong in WRONG if (place, wrong) not in RIGHT]
    slips = random.Random(28).sample(every, 200)
    records = answered(cli, *(spoilt(*slip) for slip in slips), CELL)
    taken = [slip for slip, record in zip(slips, records, strict=False) if "refused" not in record]
    assert taken == []
    assert records[-1]["answers"]
    assert not any("bug in mpctl" in record["refused"]["reason"] for record in records[:-1])


def test_the_classes_of_the_option_are_those_of_the_payoff_model():
    assert set(requests.TRAFFIC_CLASSES) == set(TRAFFIC)


@pytest.mark.parametrize(
    ("gib", "offloads"), [("0", False), ("0.0", False), ("1", True), ("0.5", True)]
)
def test_any_gib_on_the_host_is_offloading(cli, gib, offloads):
    text = MANIFEST + f"      - --cpu-offload-gb={gib}\n"
    (cli.directory / "service.yaml").write_text(text, encoding="utf-8")
    ran = cli("plan", "-f", "service.yaml", "--spec", "ngram", "--gpu", "H100", "--traffic", "code")
    assert ("--cpu-offload-gb" in ran.out) is offloads
