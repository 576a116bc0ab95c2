"""Rules about the engine and its traffic: releases, keys, flags, runners, and what requests ask for.

Their rows are in rules.yaml; here are the functions of rules that take more than a comparison.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from itertools import takewhile

from mpctl.methods.keys import KEYS, is_int
from mpctl.methods.preflight.nixl import differences
from mpctl.methods.preflight.preflight_rule import (
    RuleOutcome,
    ServiceFacts,
    read_rules,
)
from mpctl.methods.spec import INFERRED, Spec
from mpctl.methods.table import UNMANAGED
from mpctl.methods.versions import Version, parse_version, removed_flags, show

SCHEDULED_SINCE: Version = (
    0,
    33,
    0,
)  # Model Runner V2 drafts by num_speculative_tokens_per_batch_size
# GPUs whose default attention replays decode graphs of any length (flash_attn.py: FlashAttention 3 and newer).
_VARIABLE_GRAPHS = ("H100", "H200", "B200", "GB200")
_ADAPTIVE = "enable_adaptive_verification"
PIPELINE = ("--pipeline-parallel-size", "-pp")
_CONNECTOR = "--kv-transfer-config"
_ANY_HASH = re.compile(r"""enforce_handshake_compat["']?\s*[:\s]\s*(?:false|0)""")
_V2_DEFAULT: Version = (0, 29, 0)  # Model Runner V2 serves by default
_ROUNDED_SINCE: Version = (0, 12, 0)  # Model Runner V1 rounds graphs to K + 1 tokens (vLLM #28207)
_LARGEST = "--max-cudagraph-capture-size"
_SIZE_FLAGS = ("--cudagraph-capture-sizes", "--cuda-graph-sizes")
_DEFAULT_LARGEST = 512  # tokens of vLLM's own largest graph
_FEWEST_SEQUENCES = (
    256  # vLLM's default of --max-num-seqs on the smaller GPUs (0.32.0, arg_utils.py)
)
# Flags by which engines before one JSON argument speculate (vLLM PR #14434).
_FLAGS_GONE: Version = (0, 8, 3)
_TURN_ON = ("--speculative-model", "--num-speculative-tokens")
_DRAFT_TP = "draft_tensor_parallel_size"
# Largest K that was best at this concurrency or above, in six published series on H100 (Ruiz logs).
_BEST_K = ((256, 2), (128, 2), (64, 3))
_HIGH_TEMPERATURE = 1.0


def flag_value(facts: ServiceFacts, *flags: str) -> str | None:
    """The value of a flag on the engine's command line, of several spellings and times the last: for a switch the word
    after it, so compare that with None alone. None when absent."""
    values = [value for name, value in _options(facts) if name in flags]
    return values[-1] if values else None


def config_text(facts: ServiceFacts, flag: str) -> str | None:
    """The text of a flag that takes an object: its JSON and its dotted keys with their values; None when absent."""
    parts = [
        f"{name.removeprefix(flag)} {text}".strip()
        for name, text in _options(facts)
        if name == flag or name.startswith(f"{flag}.")
    ]
    return "\n".join(parts) if parts else None


def _options(facts: ServiceFacts) -> Iterator[tuple[str, str]]:
    """Every option with its value. vLLM takes underscores for dashes, but for the keys behind a dot."""
    argv = facts.argv or ()
    for index, option in enumerate(argv):
        written, equals, value = option.partition("=")
        head, dot, key = written.partition(".")
        following = argv[index + 1] if index + 1 < len(argv) else ""
        if head.startswith("-"):
            yield head.replace("_", "-") + dot + key, value if equals else following


def _carries(flag: str) -> Callable[[Spec, ServiceFacts], bool]:
    return lambda spec, facts: flag_value(facts, flag) is not None


def runs_on_v2(spec: Spec, facts: ServiceFacts) -> bool | None:
    """Return whether Model Runner V2 runs the method: by the method where one runner alone has it, else as the service
    says; not before vLLM 0.29; None where nothing says it."""
    version, method = parse_version(facts.engine_version), spec.known
    if method is not None and not (method.v1_runner and method.v2_runner):
        return method.v2_runner
    old = version is not None and version < _V2_DEFAULT
    return False if facts.v2_runner is None and old else facts.v2_runner


def _compilation(facts: ServiceFacts, key: str) -> object:
    """The value of a key of the compilation configuration, as JSON or dotted; the last counts, None without one."""
    value: object = None
    for name, text in _options(facts):
        flag, _, inner = name.partition(".")
        if flag not in ("--compilation-config", "-cc", "-O"):
            continue
        try:
            read = json.loads(text)
        except ValueError:
            read = text
        record = {inner: read} if inner else read
        if isinstance(record, dict) and key in record:
            value = record[key]
    return value


def _listed_sizes(facts: ServiceFacts) -> str:
    """The words behind the last flag that lists sizes of graphs."""
    words = [part for word in facts.argv or () for part in word.split("=", 1)]
    names = [word.replace("_", "-") for word in words]
    last = max(
        (index for index, name in enumerate(names) if name in _SIZE_FLAGS), default=len(words)
    )
    return " ".join(takewhile(lambda word: not word.startswith("-"), words[last + 1 :]))


def _numbers(value: object) -> list[int]:
    return sorted({int(text) for text in re.findall(r"\d+", "" if value is None else str(value))})


def _graph_sizes(facts: ServiceFacts) -> list[int]:
    """The sizes of CUDA graphs, in tokens, that the command line asks for; empty where the engine chooses them.

    As vLLM 0.32.0 (_set_cudagraph_sizes) derives them from the largest: 1, 2, 4, steps of 8, from 256 on of 16.
    """
    mode = str(_compilation(facts, "cudagraph_mode") or "").upper()
    level = (
        "0"
        if flag_value(facts, "-O0") is not None
        else flag_value(facts, "-O", "--optimization-level")
    )
    if flag_value(facts, "--enforce-eager") is not None or mode == "NONE" or level == "0":
        return []
    largest = _numbers(
        flag_value(facts, _LARGEST) or _compilation(facts, "max_cudagraph_capture_size")
    )
    sizes = _numbers(_listed_sizes(facts)) or _numbers(
        _compilation(facts, "cudagraph_capture_sizes")
    )
    if len(sizes) == 1 and flag_value(facts, "--cuda-graph-sizes") is not None:
        sizes, largest = [], sizes  # one number of the older flag is the largest size
    if not largest:
        return sizes
    return [
        size
        for size in sizes or [1, 2, 4, *range(8, 256, 8), *range(256, largest[-1] + 1, 16)]
        if size <= largest[-1]
    ]


def _decode_graphs(spec: Spec, facts: ServiceFacts) -> RuleOutcome:
    """With drafts a request takes K + 1 tokens of a step, so graphs of few tokens serve fewer requests, or none."""
    sizes, step = _graph_sizes(facts), (spec.k or 0) + 1
    if not sizes or step == 1 or facts.device == "CPU":
        return None
    wanted = facts.max_num_seqs or _FEWEST_SEQUENCES
    requests = min(sizes[-1] // step, wanted)
    needed = wanted * step if facts.max_num_seqs else min(wanted * step, _DEFAULT_LARGEST)
    counts = [count for count in (1, 2, 4, 8, 16, 32, 64, 128) if count * step < needed]
    listed = ", ".join(str(size) for size in (*(count * step for count in counts), needed))
    todo = f"set cudagraph_capture_sizes to {listed}, or {_LARGEST} to {needed}, or lower K"
    largest = f"the largest CUDA graph has {sizes[-1]} tokens, and K={spec.k} takes {step} for each request"
    if requests:
        reason = (
            f"{largest}: steps of more than {requests} of {wanted} requests run without a graph"
        )
        return ("warn", reason, todo) if requests * step < needed - needed % step else None
    version, mode = (
        parse_version(facts.engine_version),
        str(_compilation(facts, "cudagraph_mode") or "").upper(),
    )
    old = version is not None and version < _ROUNDED_SINCE
    if runs_on_v2(spec, facts) is False and not old and not mode.startswith("PIECEWISE"):
        return "refuse", f"{largest}: Model Runner V1 exits at start-up", todo
    return (
        "warn",
        f"{largest}: every step runs without a graph, and Model Runner V1 exits at start-up",
        todo,
    )


def _batched_tokens(spec: Spec, facts: ServiceFacts) -> RuleOutcome:
    """A full batch verifies K + 1 tokens of each request in one step."""
    step, limit = (spec.k or 0) + 1, facts.max_batched_tokens
    wanted = facts.max_num_seqs or _FEWEST_SEQUENCES
    if limit is None or limit >= wanted * step:
        return None
    reason = f"--max-num-batched-tokens is {limit}, and K={spec.k} takes {step} for each request"
    few = (
        f"{reason}: a step serves {limit // step} of {wanted} requests, and no prompt next to them"
    )
    return (
        "warn",
        few,
        f"set --max-num-batched-tokens to {wanted * step} or more, or lower K or --max-num-seqs",
    )


def _unmanaged_method(spec: Spec, facts: ServiceFacts) -> RuleOutcome:
    if spec.known or spec.method == INFERRED:
        return None
    kind = (
        "runs code or writes data we cannot judge"
        if spec.method in UNMANAGED
        else "is not known to this version"
    )
    return "refuse", f"method '{spec.method}' {kind}"


def _engine_too_old(spec: Spec, facts: ServiceFacts) -> RuleOutcome:
    """An engine older than the method exits at start-up, or worse, ignores it."""
    floor = spec.row.floor
    version = parse_version(facts.engine_version)
    if version is None:
        return None  # engine-version-unknown
    if floor is None:
        reason = f"no document says which release brought {spec.method}; 0.32.0 knows it, the engine is {show(version)}"
        return (
            ("note", reason, "start it once on a test service")
            if spec.known and version < (0, 32, 0)
            else None
        )
    if version >= floor.version:
        return None
    return (
        "refuse",
        f"{spec.method} needs vLLM {show(floor.version)} ({floor.source}), the engine is {show(version)}",
    )


def _engine_version_unknown(spec: Spec, facts: ServiceFacts) -> RuleOutcome:
    """An engine whose image tells no version cannot be compared with the releases that have the method."""
    if parse_version(facts.engine_version) is not None:
        return None
    state = (
        "is unknown"
        if facts.engine_version is None
        else f"cannot be read from its image {facts.engine_version}"
    )
    return "note", f"the engine's version {state}: whether it has {spec.method} was not checked"


def _engine_too_new(spec: Spec, facts: ServiceFacts) -> RuleOutcome:
    """An engine that no longer has the method exits at start-up."""
    ceiling, version = spec.row.ceiling, parse_version(facts.engine_version)
    if ceiling is None or version is None or version < ceiling.version:
        return None
    reason = f"{spec.method} is gone since vLLM {show(ceiling.version)} ({ceiling.source})"
    return "refuse", f"{reason}, the engine is {show(version)}"


def _key_too_new(spec: Spec, facts: ServiceFacts) -> RuleOutcome:
    """A key that the engine does not know makes it exit at start-up."""
    version = parse_version(facts.engine_version)
    keys = [KEYS[name] for name in spec.settings if name in KEYS]
    late = [
        f"{key.name} (since {show(key.since)})"
        for key in keys
        if key.since and version and version < key.since
    ]
    return (
        ("refuse", f"vLLM {show(version)} does not know {', '.join(late)}")
        if late and version
        else None
    )


def _removed_flags(spec: Spec, facts: ServiceFacts) -> RuleOutcome:
    """A flag the engine no longer has makes it exit at start-up; an engine that still has it speculates."""
    gone = removed_flags(facts.argv or ())
    if not gone:
        return None
    version = parse_version(facts.engine_version)
    turns_on = [entry for entry in gone if entry.name in _TURN_ON]
    if turns_on and (version is None or version < _FLAGS_GONE):
        lines = ", ".join(f"{entry.name}{_line_of(entry.name, facts)}" for entry in turns_on)
        engine = "an engine before 0.8.3" if version is None else f"vLLM {show(version)}"
        reason = f"{engine} speculates by {lines}, a later one does not start with them"
        return "refuse", reason, "remove these flags and their values by hand"
    listed = "; ".join(
        f"{entry.name}{_line_of(entry.name, facts)} (gone since {entry.since}, use {entry.replacement})"
        for entry in gone
    )
    return "warn" if spec.is_none else "refuse", f"the command line carries {listed}"


def _line_of(flag: str, facts: ServiceFacts) -> str:
    return f" in line {facts.lines[flag]}" if flag in facts.lines else ""


def _only_on_v1(spec: Spec) -> str:
    """What Model Runner V2 has no proposer for: suffix, Medusa, parallel heads and models, two vocabularies; empty for
    what it has."""
    if not spec.row.v2_runner:
        return spec.method
    parallel = spec.settings.get("parallel_drafting") is True
    if parallel and spec.row.parallel_drafting == "optional":
        return "parallel_drafting"
    two_vocabularies = spec.settings.get("use_heterogeneous_vocab") is True
    return "use_heterogeneous_vocab" if two_vocabularies else ""


def _runner_matters(spec: Spec) -> bool:
    method = spec.row
    if spec.is_none or not method.has_proposer:
        return False
    return bool(spec.settings.get(_ADAPTIVE) is True or _only_on_v1(spec) or not method.v1_runner)


def _model_runner(spec: Spec, facts: ServiceFacts) -> RuleOutcome:
    """A method one runner lacks moves the candidate to the other runner, or does not start."""
    adaptive = spec.settings.get(_ADAPTIVE) is True
    if facts.v2_runner is False and (not spec.row.v1_runner or adaptive):
        what = "adaptive verification" if adaptive and spec.row.v1_runner else spec.method
        todo = "a CPU build without Triton has V1 alone: use eagle3, or dflash for one pass"
        todo = todo if facts.device == "CPU" else "remove VLLM_USE_V2_MODEL_RUNNER=0"
        return "refuse", f"{what} needs Model Runner V2, the service runs V1", todo
    lacking = _only_on_v1(spec)
    if not lacking or facts.v2_runner is False:
        return None
    if facts.v2_runner:
        return (
            "warn",
            f"Model Runner V2 lacks {lacking}: the candidate runs on V1, the baseline on V2",
        )
    return (
        "note",
        f"Model Runner V2 lacks {lacking}: on vLLM 0.29 and newer the candidate falls back to V1",
    )


def _kserve_storage_uris(spec: Spec, facts: ServiceFacts) -> RuleOutcome:
    """Before 0.16 KServe does not know storageUris; the pod comes up with neither target nor draft mounted."""
    version = parse_version(facts.kserve_version)
    if not facts.uses_storage_uris:
        return None
    if version is None:
        return (
            "note",
            f"'{facts.kserve_version}' tells no version, so storageUris was not checked",
            "name the version",
        )
    return (
        ("refuse", f"storageUris needs KServe 0.16, the cluster has {show(version)}")
        if version < (0, 16)
        else None
    )


def _adaptive_verification(spec: Spec, facts: ServiceFacts) -> RuleOutcome:
    """Verification that follows the load needs a late release, full graphs and attention of any length."""
    version, since = parse_version(facts.engine_version), spec.row.adaptive_since
    if version is not None and since is not None and version < since:
        todo = "raise the engine image, or remove the key"
        return (
            "refuse",
            f"adaptive verification with {spec.method} needs vLLM {show(since)}, not {show(version)}",
            todo,
        )
    if facts.enable_lora:
        return "refuse", "adaptive verification does not go with LoRA: the engine exits at start-up"
    stages = flag_value(facts, *PIPELINE)
    if stages not in (None, "1"):
        return "refuse", f"adaptive verification does not go with pipeline parallel size {stages}"
    if flag_value(facts, "--enforce-eager") is not None:
        return (
            "refuse",
            "adaptive verification needs CUDA graphs, and --enforce-eager is set",
            "remove --enforce-eager",
        )
    if flag_value(facts, "--attention-backend") == "TRITON_ATTN" or facts.device == "CPU":
        return None
    todo = "serve with --attention-backend TRITON_ATTN, and measure the baseline with it, too"
    if facts.gpu is None:
        return (
            "note",
            f"only on {', '.join(_VARIABLE_GRAPHS)} the default attention backend is enough",
            todo,
        )
    if facts.gpu.upper().startswith(_VARIABLE_GRAPHS):
        return None
    return (
        "refuse",
        f"on {facts.gpu} the default attention backend cannot replay graphs of any length",
        todo,
    )


def _dynamic_k(spec: Spec, facts: ServiceFacts) -> RuleOutcome:
    """A batch-size schedule for K collapses on one runner, is ignored on the other before 0.33 and dropped under data
    parallelism."""
    if facts.data_parallel is not None and facts.data_parallel > 1:
        return (
            "refuse",
            f"the engine drops the K schedule with data parallel size {facts.data_parallel}",
        )
    version, method = parse_version(facts.engine_version), spec.row
    late = version is not None and version >= SCHEDULED_SINCE
    if facts.v2_runner is False or not method.v2_runner:
        if late and not method.v2_runner:
            return "refuse", f"Model Runner V1, which alone has {spec.method}, drops the K schedule"
        why = "on Model Runner V1 throughput collapses where the batch crosses a threshold, and graphs go piecewise"
        return "warn", why
    if late:
        return None
    if facts.v2_runner and not method.drafts_in_one_pass and method.loads_weights:
        return (
            "warn",
            f"Model Runner V2 drafts the full K with {spec.method} whatever the schedule says",
        )
    return "warn", "a K schedule is honoured only by some runner and method combinations"


def _draft_variant(spec: Spec, facts: ServiceFacts) -> RuleOutcome:
    """Heads with more than the method's own run on Model Runner V2 of a late release; elsewhere they draft badly."""
    variants, version = spec.row.variants, parse_version(facts.engine_version)
    variant = next(
        (row for row in variants if set(row.architectures) & set(facts.draft.architectures or ())),
        None,
    )
    special = {
        key for row in variants for key in row.own_keys if spec.settings.get(key) is not None
    }
    if foreign := sorted(special - set(variant.own_keys if variant else ())):
        return "refuse", f"{', '.join(foreign)} is for another kind of head", "remove it"
    if variant is None:
        return None
    head = f"the draft is a {variant.name} head, which"
    if version is not None and version < variant.since:
        old = (
            f"vLLM {show(version)} drafts with it as with plain {spec.method}, and does not say so"
        )
        return "refuse", f"{head} needs vLLM {show(variant.since)}: {old}"
    if facts.v2_runner is False:
        return "refuse", f"{head} Model Runner V2 alone runs", "remove VLLM_USE_V2_MODEL_RUNNER=0"
    if (
        variant.k_below_block
        and facts.draft.block_size
        and spec.k not in (None, facts.draft.block_size - 1)
    ):
        wanted = facts.draft.block_size - 1
        reason = f"K must be {wanted} for this {variant.name} head, one less than its blocks, not {spec.k}"
        return "refuse", reason, f"--set num_speculative_tokens={wanted}"
    if not variant.own_keys and flag_value(facts, "--watermark-config") is not None:
        return (
            "refuse",
            f"--watermark-config does not go with a {variant.name} head",
            "remove --watermark-config",
        )
    return None


def _prefill_apart(spec: Spec, facts: ServiceFacts) -> RuleOutcome:
    """A draft on one end: vLLM's NIXL compares method, draft, revision and KV dtype since 0.28.0, and the number of
    layers with KV cache; before, it read memory that was never filled."""
    if facts.prefill_ends or "nixl" not in (config_text(facts, _CONNECTOR) or "").lower():
        return None
    return (
        "refuse",
        f"only this end of NIXL would get the {spec.method} draft, and one without it cannot exchange KV",
    )


def _prefill_differs(spec: Spec, facts: ServiceFacts) -> RuleOutcome:
    connector = (config_text(facts, _CONNECTOR) or "nixl").lower()  # KServe's presets use NIXL
    if facts.decode_end is None or "nixl" not in connector:
        return None
    for end in facts.prefill_ends:
        if different := differences(end, facts.decode_end):
            reason = (
                f"prefill and decode pods have {'; '.join(different)}: their NIXL hashes differ"
            )
            return "warn" if _ANY_HASH.search(connector) else "refuse", reason
    return None


def _draft_tensor_parallel(spec: Spec, facts: ServiceFacts) -> bool:
    size = spec.settings[_DRAFT_TP]
    return is_int(size) and size not in (1, facts.tensor_parallel)


def _lora(spec: Spec, facts: ServiceFacts) -> RuleOutcome:
    """Adapters must not load into the draft, and the draft does not know them."""
    draft = f"adapters apply to the target only, the {spec.method} draft proposes as the base model would"
    crashed = f"{spec.method} with LoRA has crashed the engine"
    return (
        ("warn", f"LoRA is on: {draft if spec.row.loads_weights else crashed}")
        if facts.enable_lora
        else None
    )


def _high_concurrency(spec: Spec, facts: ServiceFacts) -> RuleOutcome:
    """A full batch leaves no idle compute: verifying K tokens per request costs throughput."""
    k, concurrency = spec.k or 0, facts.concurrency or 0
    best = next((best for least, best in _BEST_K if concurrency >= least), None)
    if best is None or k <= best:
        return None
    tokens = concurrency * (k + 1)
    return (
        "warn",
        f"K={k} at concurrency {concurrency} verifies {tokens} tokens a step; K<={best} was best there",
    )


def _busy(spec: Spec, facts: ServiceFacts) -> RuleOutcome:
    """The trees are walked on the host for every request of the batch."""
    limit, expected = spec.row.busy_above or 0, facts.concurrency or 0
    if expected <= limit:
        return None
    return (
        "warn",
        f"{spec.method} slowed down above {limit} concurrent requests, {expected} expected",
    )


def _plain_secret(spec: Spec, facts: ServiceFacts) -> RuleOutcome:
    if not facts.plain_secrets:
        return None
    names = ", ".join(facts.plain_secrets)
    return "warn", f"{names} holds a secret in plain text, which every revision records"


# Conditions on the spec, by the words of rules.yaml.
_TERMS = {
    "adaptive": lambda spec: spec.settings.get(_ADAPTIVE) is True,
    "has-late-key": lambda spec: any(KEYS[key].since for key in spec.settings if key in KEYS),
    "inferred": lambda spec: spec.method == INFERRED,
    "needs-host-tokens": lambda spec: (
        spec.row.disables_async_scheduling
        or spec.settings.get("disable_padded_drafter_batch") is True
    ),
    "runner-matters": _runner_matters,
}

RULES = read_rules(
    "engine",
    {
        "adaptive-verification": _adaptive_verification,
        "batched-tokens": _batched_tokens,
        "custom-logits-processors": _carries("--logits-processors"),
        "decode-graphs": _decode_graphs,
        "draft-tensor-parallel": _draft_tensor_parallel,
        "draft-variant": _draft_variant,
        "dynamic-k": _dynamic_k,
        "engine-too-new": _engine_too_new,
        "engine-too-old": _engine_too_old,
        "engine-version-unknown": _engine_version_unknown,
        "fast-prefill": _carries("--kv-sharing-fast-prefill"),
        "gpu-needed": lambda spec, facts: facts.device == "CPU",
        "key-too-new": _key_too_new,
        "kserve-storage-uris": _kserve_storage_uris,
        "model-runner": _model_runner,
        "plain-secret": _plain_secret,
        "prefill-apart": _prefill_apart,
        "prefill-differs": _prefill_differs,
        "removed-flags": _removed_flags,
        "unmanaged-method": _unmanaged_method,
    },
    _TERMS,
)

TRAFFIC_RULES = read_rules(
    "traffic",
    {
        "high-concurrency": _high_concurrency,
        "high-temperature": lambda spec, facts: (facts.temperature or 0.0) >= _HIGH_TEMPERATURE,
        "lora": _lora,
        "suffix-concurrency": _busy,
    },
    _TERMS,
)
