"""Rules about what one release of vLLM has and another has not, from 0.32 to 0.33."""

from __future__ import annotations

from mpctl.methods.keys import KEYS
from mpctl.methods.method import Variant
from mpctl.methods.preflight.facts import Facts
from mpctl.methods.preflight.rule import (
    Outcome,
    both,
    drafts_with_weights,
    method_of,
    rule,
    sets_key,
    speculates,
    where,
)
from mpctl.methods.spec import Spec
from mpctl.methods.versions import Version, parse_version, show

SCHEDULED_SINCE: Version = (0, 33, 0)  # Model Runner V2 drafts by num_speculative_tokens_per_batch_size
# GPUs whose default attention replays decode graphs of any length (flash_attn.py: FlashAttention 3 and newer).
VARIABLE_GRAPHS = ("H100", "H200", "B200", "GB200")
_SCHEDULE = "num_speculative_tokens_per_batch_size"
_ADAPTIVE = "enable_adaptive_verification"


@rule(
    "key-too-new",
    source="vLLM 0.33.0, vllm/config/speculative.py; 0.32.0 exits at a key that it does not know",
    todo="remove the key, or raise the engine image",
    needs=("engine_version",),
    applies=lambda spec: speculates(spec) and any(KEYS[key].since for key in spec.settings if key in KEYS),
)
def key_too_new(spec: Spec, facts: Facts) -> Outcome:
    """A key that the engine does not know makes it exit at start-up."""
    version = parse_version(facts.engine_version)
    keys = [KEYS[name] for name in spec.settings if name in KEYS]
    late = [f"{key.name} (since {show(key.since)})" for key in keys if key.since and version and version < key.since]
    return ("refuse", f"vLLM {show(version)} does not know {', '.join(late)}") if late and version else None


@rule(
    "adaptive-verification",
    source="vLLM 0.33.0, _validate_adaptive_verification and adaptive_verification.py; 0.32.0: dspark only",
    todo=f"remove {_ADAPTIVE}",
    asks=("engine_version", "gpu"),
    applies=lambda spec: spec.settings.get(_ADAPTIVE) is True,
)
def adaptive_verification(spec: Spec, facts: Facts) -> Outcome:
    """Verification that follows the load needs a late release, full graphs and attention of any length."""
    version, since = parse_version(facts.engine_version), method_of(spec).adaptive_since
    if version is not None and since is not None and version < since:
        todo = "raise the engine image, or remove the key"
        return "refuse", f"adaptive verification with {spec.method} needs vLLM {show(since)}, not {show(version)}", todo
    if facts.enable_lora:
        return "refuse", "adaptive verification does not go with LoRA: the engine exits at start-up"
    stages = _value_of(facts, "--pipeline-parallel-size") or _value_of(facts, "-pp")
    if stages not in (None, "1"):
        return "refuse", f"adaptive verification does not go with pipeline parallel size {stages}"
    if facts.argv is not None and _value_of(facts, "--enforce-eager") is not None:
        return "refuse", "adaptive verification needs CUDA graphs, and --enforce-eager is set", "remove --enforce-eager"
    if _value_of(facts, "--attention-backend") == "TRITON_ATTN" or facts.device == "CPU":
        return None
    todo = "serve with --attention-backend TRITON_ATTN, and measure the baseline with it, too"
    if facts.gpu is None:
        return "note", f"only on {', '.join(VARIABLE_GRAPHS)} the default attention backend is enough", todo
    if facts.gpu.upper().startswith(VARIABLE_GRAPHS):
        return None
    return "refuse", f"on {facts.gpu} the default attention backend cannot replay graphs of any length", todo


def _value_of(facts: Facts, flag: str) -> str | None:
    """The value of a flag on the engine's command line, "" for a switch; None when absent."""
    argv = facts.argv or ()
    for place, word in enumerate(argv):
        name, equals, value = word.partition("=")
        if name.replace("_", "-") == flag:
            return value if equals else argv[place + 1] if place + 1 < len(argv) else ""
    return None


@rule(
    "dynamic-k",
    source="vLLM #49548 (232 -> 24-157 tok/s at a threshold), PR #57053 (V2 ignores K), PR #32374; 0.33.0 vllm.py",
    todo="use one K; a bench with several values of --concurrency compares K at each",
    asks=("data_parallel", "v2_runner", "engine_version"),
    applies=sets_key(_SCHEDULE),
)
def dynamic_k(spec: Spec, facts: Facts) -> Outcome:
    """A batch-size schedule for K collapses on one runner, is ignored on the other before 0.33 and dropped under data
    parallelism."""
    if facts.data_parallel is not None and facts.data_parallel > 1:
        return "refuse", f"the engine drops the K schedule with data parallel size {facts.data_parallel}"
    version, method = parse_version(facts.engine_version), method_of(spec)
    if facts.v2_runner is False or not method.v2_runner:
        if version is not None and version >= SCHEDULED_SINCE and not method.v2_runner:
            return "refuse", f"Model Runner V1, which alone has {spec.method}, drops the K schedule"
        return (
            "warn",
            "on Model Runner V1 throughput collapses where the batch crosses a threshold, and graphs go piecewise",
        )
    if version is not None and version >= SCHEDULED_SINCE:
        return None
    if facts.v2_runner and not method.drafts_in_one_pass and method.loads_weights:
        return "warn", f"Model Runner V2 drafts the full K with {spec.method} whatever the schedule says"
    return "warn", "a K schedule is honoured only by some runner and method combinations"


def _variant(spec: Spec, facts: Facts) -> Variant | None:
    named = set(facts.draft_architectures or ())
    return next((variant for variant in method_of(spec).variants if named & set(variant.architectures)), None)


@rule(
    "draft-variant",
    source="vLLM 0.33.0: _is_dflash_candidate_draft, is_xpress, WatermarkConfig; LiLiCorr's speculator",
    todo="raise the engine image, or use a head of the plain method",
    needs=("draft_architectures",),
    asks=("engine_version", "v2_runner"),
    applies=both(drafts_with_weights, where(lambda method: method.variants)),
)
def draft_variant(spec: Spec, facts: Facts) -> Outcome:
    """Heads with more than the method's own run on Model Runner V2 of a late release; elsewhere they draft badly."""
    variant, version = _variant(spec, facts), parse_version(facts.engine_version)
    own = {key for row in method_of(spec).variants for key in row.own_keys if spec.settings.get(key) is not None}
    if foreign := sorted(own - set(variant.own_keys if variant else ())):
        return "refuse", f"{', '.join(foreign)} is for another kind of head", "remove it"
    if variant is None:
        return None
    if version is not None and version < variant.since:
        old = f"vLLM {show(version)} drafts with it as with plain {spec.method}, and does not say so"
        return "refuse", f"the draft is a {variant.name} head, which needs vLLM {show(variant.since)}: {old}"
    if facts.v2_runner is False:
        return (
            "refuse",
            f"the draft is a {variant.name} head, which Model Runner V2 alone runs",
            "remove VLLM_USE_V2_MODEL_RUNNER=0",
        )
    if variant.k_below_block and facts.draft_block_size and spec.k not in (None, facts.draft_block_size - 1):
        wanted = facts.draft_block_size - 1
        reason = f"K must be {wanted} for this {variant.name} head, one less than its blocks, not {spec.k}"
        return "refuse", reason, f"--set num_speculative_tokens={wanted}"
    if not variant.own_keys and _value_of(facts, "--watermark-config") is not None:
        return "refuse", f"--watermark-config does not go with a {variant.name} head", "remove --watermark-config"
    return None


RULES = (key_too_new, adaptive_verification, dynamic_k, draft_variant)
