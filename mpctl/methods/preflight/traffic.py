"""Rules about the traffic: what requests ask for, and how many there are."""

from __future__ import annotations

from mpctl.methods.preflight.facts import Facts
from mpctl.methods.preflight.rule import Outcome, both, drafts_with_weights, method_of, rule, speculates, where
from mpctl.methods.spec import Spec

_LOOKUP = where(lambda method: not method.loads_weights)

# Largest K that was best at this concurrency or above, in six published series on H100 (Ruiz logs).
_BEST_K = ((256, 2), (128, 2), (64, 3))
_HIGH_TEMPERATURE = 1.0


@rule(
    "thinking",
    source="Modelplane example qwen3-8b-speculative-decoding, which turns Qwen3's thinking off",
    todo='serve with --default-chat-template-kwargs {"enable_thinking": false}, or use a head',
    needs=("thinking",),
    applies=_LOOKUP,
)
def thinking(spec: Spec, facts: Facts) -> Outcome:
    """A think block is new text: there is nothing to look up."""
    return (
        ("warn", f"the model thinks by default, and {spec.method} cannot propose a think block")
        if facts.thinking
        else None
    )


@rule(
    "lora",
    source="vLLM #4872, PR #11966, #20284 (n-gram); sglang #28395, #34337",
    todo="measure each adapter; a draft follows the base model, so acceptance falls with every adapter",
    needs=("enable_lora",),
)
def lora(spec: Spec, facts: Facts) -> Outcome:
    """Adapters must not load into the draft, and the draft does not know them."""
    if not facts.enable_lora:
        return None
    if drafts_with_weights(spec):
        return (
            "warn",
            f"LoRA is on: adapters apply to the target only, the {spec.method} draft proposes as the base model would",
        )
    return "warn", f"LoRA is on: {spec.method} with LoRA has crashed the engine"


@rule(
    "mtp-prefix-caching",
    source="vLLM #40756, club-3090 #1052",
    todo="watch restarts during the rollout, or serve with --no-enable-prefix-caching",
    needs=("prefix_caching",),
    applies=where(lambda method: method.prefix_caching_crashes),
)
def mtp_prefix_caching(spec: Spec, facts: Facts) -> Outcome:
    """MTP with prefix caching has ended in illegal memory accesses."""
    return (
        ("warn", f"{spec.method} with prefix caching has ended in illegal memory accesses")
        if facts.prefix_caching
        else None
    )


@rule(
    "synthetic-acceptance",
    source="vLLM 0.32.0: accepts drafts by lot, whatever the target says",
    todo="remove rejection_sample_method; it is for drills on a service without users",
    applies=lambda spec: spec.settings.get("rejection_sample_method") == "synthetic",
)
def synthetic_acceptance(spec: Spec, facts: Facts) -> Outcome:
    """Synthetic acceptance replaces the target's judgement with a chosen rate: the answers are wrong by design."""
    return "refuse", "rejection_sample_method=synthetic returns tokens the target did not choose: test only"


@rule(
    "lossy-acceptance",
    source="vLLM 0.33.0: fly accepts drafts that the target would not have chosen",
    todo="remove rejection_sample_method, or set standard or block",
    applies=lambda spec: spec.settings.get("rejection_sample_method") == "fly",
)
def lossy_acceptance(spec: Spec, facts: Facts) -> Outcome:
    """Lossy acceptance changes the answers: no measurement of speed makes up for it."""
    return "refuse", "rejection_sample_method=fly accepts tokens the target did not choose: the answers change"


@rule(
    "high-temperature",
    source="Alauda guide; 0.75x at temperature 1 against 1.0-1.3x at 0 for ngram on new text (vLLM 0.32.0, CPU)",
    todo="measure with the temperature of production",
    needs=("temperature",),
)
def high_temperature(spec: Spec, facts: Facts) -> Outcome:
    """The flatter the target's distribution, the fewer proposals it accepts."""
    temperature = facts.temperature or 0.0
    high = temperature >= _HIGH_TEMPERATURE
    return ("warn", f"requests sample at temperature {temperature:g}, where acceptance is lowest") if high else None


@rule(
    "greedy-draft",
    source="vLLM PR #24322: a model drafting for itself kept 2.82 of 4 at temperature 1",
    todo="try draft_sample_method=probabilistic; it costs memory for the draft's logits",
    needs=("temperature",),
    applies=both(drafts_with_weights, lambda spec: spec.settings.get("draft_sample_method") != "probabilistic"),
)
def greedy_draft(spec: Spec, facts: Facts) -> Outcome:
    """A draft that always takes its best token is refused more often when the target samples."""
    temperature = facts.temperature or 0.0
    return (
        ("note", f"the draft proposes greedily while requests sample at temperature {temperature:g}")
        if temperature
        else None
    )


@rule(
    "high-concurrency",
    source="Ruiz logs (390 cells): best K 2-3 at 64, 2 at 128, 1-2 at 256; vLLM #16258, #9565, #17984",
    todo="lower K; a bench with several values of --concurrency names where the gain ends",
    needs=("concurrency",),
    applies=lambda spec: speculates(spec) and spec.k is not None,
)
def high_concurrency(spec: Spec, facts: Facts) -> Outcome:
    """A full batch leaves no idle compute: verifying K tokens per request costs throughput."""
    k, concurrency = spec.k or 0, facts.concurrency or 0
    best = next((best for at, best in _BEST_K if concurrency >= at), None)
    if best is None or k <= best:
        return None
    return (
        "warn",
        f"K={k} at concurrency {concurrency} verifies {concurrency * (k + 1)} tokens a step; K<={best} was best there",
    )


@rule(
    "suffix-concurrency",
    source="ArcticInference #185, #47",
    todo="measure at this concurrency, or use ngram_gpu",
    needs=("concurrency",),
    applies=where(lambda method: method.busy_above),
)
def suffix_concurrency(spec: Spec, facts: Facts) -> Outcome:
    """The trees are walked on the host for every request of the batch."""
    limit, expected = method_of(spec).busy_above or 0, facts.concurrency or 0
    if expected <= limit:
        return None
    return "warn", f"{spec.method} slowed down above {limit} concurrent requests, {expected} expected"


@rule(
    "moe-target",
    source="expected distinct experts E * (1 - (1 - k/E)^n); InferenceX comparisons, Qwen3.8 recipe",
    todo="measure at the concurrency of production, low and high",
    needs=("target_is_moe",),
)
def moe_target(spec: Spec, facts: Facts) -> Outcome:
    """Verifying more tokens touches more experts, so a mixture of experts pays for K even at batch 1."""
    return (
        ("note", "the target is a mixture of experts: the gain starts lower and lasts longer")
        if facts.target_is_moe
        else None
    )


@rule(
    "metrics-data-parallel",
    source="vLLM #23776, PR #24049; speculators #1095",
    todo="sum the counters over the engine label before dividing",
    needs=("data_parallel",),
)
def metrics_data_parallel(spec: Spec, facts: Facts) -> Outcome:
    """Under data parallel every engine has its own counters."""
    size = facts.data_parallel or 1
    return ("note", f"data parallel size {size}: speculation counters come once per engine") if size > 1 else None


RULES = (
    synthetic_acceptance,
    lossy_acceptance,
    thinking,
    lora,
    mtp_prefix_caching,
    high_temperature,
    high_concurrency,
    suffix_concurrency,
    greedy_draft,
    moe_target,
    metrics_data_parallel,
)
