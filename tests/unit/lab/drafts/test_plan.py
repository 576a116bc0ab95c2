"""Predicted cost of training compared with published runs, and the reasons not to train."""

from dataclasses import dataclass

import pytest

from mpctl.estimate.shape import Shape, find_gpu, model_shape
from mpctl.lab.drafts.training_cost import (
    Device,
    Gain,
    Sizes,
    TrainingLoad,
    cost_of,
    regained_share,
)
from mpctl.lab.payoff.scenario import head_weights, target_weights

# Hidden 4096, 32 layers, 16 heads of 256: Qwen/Qwen3.5-9B's config.json
QWEN_9B = Shape(32, 4096, 16, 4, 256, 248320, intermediate=12288, params_b=9.65)
EXAMPLES = "https://github.com/vllm-project/speculators/blob/main/examples/train"
MUNINN = "https://ai-muninn.com/en/blog/dgx-spark-eagle3-finetune-abliterated-round1"


@dataclass(frozen=True)
class PublishedRun:
    """``seconds`` on ``gpus``, from the source's own timing lines. Tokens of a conversation: 1 024 on average as
    speculators' tutorial says of its chat data; GSM8K's questions and answers are assumed."""

    source: str
    method: str
    target: str | Shape
    work: TrainingLoad
    gpu: str
    gpus: int
    seconds: float
    head_vocab: int | None = None

    @property
    def gpu_hours(self):
        return self.gpus * self.seconds / 3600

    def predicted(self):
        shape = model_shape(self.target) if isinstance(self.target, str) else self.target
        gpu = find_gpu(self.gpu)
        target, head = (
            target_weights(shape),
            head_weights(shape, self.method, vocab=self.head_vocab),
        )
        sizes = Sizes(target.active_b, head.active_b, target.total_gb, 4, shape.hidden)
        return cost_of(
            self.method, sizes, self.work, Device(gpu.bf16_tflops, gpu.bandwidth_gb_s), self.gpus
        )


def chat(conversations=5000, passes=5, *, online=True):
    return TrainingLoad(conversations, 512, 512, passes, regenerates=False, online=online)


QWEN, GEMMA = "Qwen/Qwen3-8B", "google/gemma-4-26B-A4B-it"
RUNS = {
    "fitted: eagle3 offline": PublishedRun(
        f"{EXAMPLES}/eagle3_llama3_8b_ultrachat_offline_5k.sh",
        *("eagle3", "meta-llama/Llama-3.1-8B-Instruct", chat(online=False), "H100-SXM", 2, 572),
    ),
    "fitted: p-eagle": PublishedRun(
        f"{EXAMPLES}/peagle_qwen3_8b_sharegpt_online_5k.sh",
        *("p-eagle", QWEN, chat(), "H100-SXM", 4, 2901, 151936),
    ),
    "eagle3 online": PublishedRun(
        f"{EXAMPLES}/eagle3_qwen3_8b_sharegpt_online_5k.sh",
        "eagle3",
        QWEN,
        chat(),
        "H100-SXM",
        4,
        1042,
    ),
    "dflash": PublishedRun(
        f"{EXAMPLES}/dflash_qwen3_8b_sharegpt_online_5k.sh",
        "dflash",
        QWEN,
        chat(),
        "H100-SXM",
        4,
        1475,
        32000,
    ),
    "mtp, warm": PublishedRun(
        f"{EXAMPLES}/mtp_qwen3_5_9b_gsm8k_online.sh",
        *(
            "mtp",
            QWEN_9B,
            TrainingLoad(5000, 100, 200, 3, regenerates=False, online=True),
            "H200-SXM",
            2,
            443,
        ),
    ),
    "eagle3 on a desk": PublishedRun(
        MUNINN, "eagle3", GEMMA, chat(50_000, 1), "GB10", 1, 11 * 3600
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_gpu_hours_are_within_a_factor_of_two_of_published_runs(name):
    run = RUNS[name]
    ratio = run.predicted().gpu_hours / run.gpu_hours
    assert 0.5 <= ratio <= 2, (
        f"published {run.gpu_hours:.2f} GPU hours, predicted {ratio * run.gpu_hours:.2f}"
    )


def test_hidden_states_of_an_8b_target_take_32_kib_per_token():
    """As speculators' tutorial of offline training says: 1.6 TB for 50 000 samples of 1 024 tokens."""
    cost = cost_of(
        "eagle3", Sizes(7.5, 0.0, 15.0, 4, 4096), chat(50_000, online=False), Device(989, 3350)
    )
    assert cost.disk_gib == pytest.approx(50_000 * 1024 * 32 / 2**20)


def test_regenerating_answers_costs_more_than_reading_them():
    sizes, device = Sizes(7.5, 0.4, 16.0, 4, 4096), Device(989, 3350)
    read = cost_of("eagle3", sizes, TrainingLoad(500, 200, 384, regenerates=False), device)
    regenerated = cost_of("eagle3", sizes, TrainingLoad(500, 200, 384), device)
    assert regenerated.collect_s > read.collect_s
    assert regenerated.train_s == read.train_s


def test_the_prototypes_refresh_is_predicted_from_its_own_figures():
    """1.88 stale, 3.79 on the old target: 3.13 with 175 conversations, 3.33 with 367."""
    gain = Gain(now=1.88, reference=3.79, free={}, conversations=367)
    assert gain.refreshed == pytest.approx(3.33, abs=0.25)
    assert gain.refusals() == ()


def test_too_few_conversations_are_refused_with_their_number():
    assert Gain(None, None, {}, 120).refusals() == ("120 conversations to train on, at least 200",)
    assert regained_share(199) == 0.0


def test_a_gain_below_five_percent_is_refused():
    (reason,) = Gain(now=3.0, reference=3.1, free={}, conversations=500).refusals()
    assert "a gain of 3%, at least 5%" in reason


def test_a_free_method_that_brings_more_is_named_first():
    gain = Gain(now=1.88, reference=3.79, free={"ngram": 4.2, "suffix": 3.0}, conversations=500)
    (reason,) = gain.refusals()
    assert reason.startswith("ngram reaches 4.20 tokens per step")
    assert Gain(1.88, 3.79, {"ngram": 1.0}, 500).best_free is None
