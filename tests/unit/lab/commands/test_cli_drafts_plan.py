"""``mpctl drafts plan``: free methods first, prompts, GPU hours and disk, of a manifest and files."""

import json

import pytest

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
      - --speculative-config={"method":"eagle3","model":"org/head","num_speculative_tokens":3}
"""


@pytest.fixture
def plan(cli):
    (cli.directory / "service.yaml").write_text(MANIFEST)

    def run(*options, prompts=500):
        lines = [
            json.dumps({"prompt": f"planted question {number}: " + "why? " * 100})
            for number in range(prompts)
        ]
        (cli.directory / "traffic.jsonl").write_text("\n".join(lines))
        return cli(
            "drafts",
            "plan",
            "-f",
            "service.yaml",
            "--prompts",
            "traffic.jsonl",
            "--gpu",
            "H100-SXM",
            *options,
        )

    return run


def transcripts(cli, *, copies):
    lines = []
    for number in range(40):
        prompt = [(number * 31 + place * place * 7) % 5003 for place in range(120)]
        answer = (
            prompt[20:100]
            if copies
            else [6000 + (number * 17 + place * place * 3) % 4999 for place in range(80)]
        )
        lines.append(json.dumps({"prompt_token_ids": prompt, "token_ids": answer}))
    (cli.directory / "log.jsonl").write_text("\n".join(lines))
    return ("--transcripts", "log.jsonl")


def test_a_plan_has_gpu_hours_disk_and_gain_for_the_oldest_prompts(plan):
    ran = plan("--now", "1.9", "--reference", "3.8", "-o", "json")
    planned = json.loads(ran.out)
    assert (ran.code, planned["kind"], planned["trainingConversations"]) == (0, "TrainingPlan", 400)
    assert (planned["service"], planned["method"], planned["target"]) == (
        "ml/qwen",
        "eagle3",
        "Qwen/Qwen3-8B",
    )
    assert planned["tokensPerStep"]["predicted"] == pytest.approx(1.9 + 0.75 * 1.9)
    assert 0.02 < planned["cost"]["gpuHours"] < 0.2
    assert 5 < planned["cost"]["diskGib"] < 15
    assert planned["refusals"] == []
    assert "planted" not in ran.out + ran.err


def test_free_methods_come_first_and_refuse_a_training_that_they_make_needless(plan, cli):
    ran = plan("--now", "1.9", "--reference", "3.8", *transcripts(cli, copies=True))
    assert ran.code == 9
    assert ran.out.splitlines()[0].startswith("free methods")
    assert "without training, a refreshed head is predicted to reach 3.32" in ran.err


def test_a_free_method_that_brings_nothing_stops_no_training(plan, cli):
    ran = plan(
        "--now",
        "1.9",
        "--reference",
        "3.8",
        "--output-tokens",
        "200",
        *transcripts(cli, copies=False),
        "-o",
        "json",
    )
    assert ran.code == 0
    assert json.loads(ran.out)["freeMethods"]["ngram"] == 1.0


def test_too_few_prompts_are_refused_with_their_number(plan):
    ran = plan(prompts=100)
    assert ran.code == 9
    assert "80 conversations to train on, at least 200" in ran.err


def test_what_is_unknown_is_named_with_the_option_that_gives_it(plan):
    ran = plan()
    assert ran.code == 0
    assert (
        "unknown: gain: tokens per step now and of a good head are not both known (--now, --reference)"
        in ran.out
    )
    assert "unknown: what free methods bring: --transcripts FILE replays them" in ran.out


@pytest.mark.parametrize("method", ["ngram", "draft_model", "none"])
def test_a_method_without_heads_is_refused(plan, method):
    ran = plan("--spec", method)
    assert ran.code == 2
    assert f"{method} has no head to train" in ran.err
    assert "eagle3" in ran.err


def test_training_needs_a_cluster(cli):
    ran = cli("--platform", "local", "drafts", "train", "qwen", "--prompts", "traffic.jsonl")
    assert ran.code == 2


def test_drafts_of_a_target_are_listed(cli):
    assert "eagle3" in cli("drafts", "published", "Qwen/Qwen3-8B").out
