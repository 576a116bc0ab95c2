"""Rules about the engine and its traffic: releases, keys, flags, runners, and what requests ask for.

A row says when a rule applies and which facts it needs; the comment above a row or the docstring of its function says
why the rule exists.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import takewhile

from mpctl.methods.keys import KEYS, is_int
from mpctl.methods.preflight.nixl import differences
from mpctl.methods.preflight.preflight_rule import (
    Condition,
    Fires,
    PreflightRule,
    RuleOutcome,
    ServiceFacts,
    both,
    drafts_with_weights,
    fact,
    method_of,
    names_draft,
    setting,
    speculates,
    where,
)
from mpctl.methods.spec import INFERRED, Spec
from mpctl.methods.table import METHODS, UNMANAGED
from mpctl.methods.versions import Version, parse_version, removed_flags, show

SCHEDULED_SINCE: Version = (
    0,
    33,
    0,
)  # Model Runner V2 drafts by num_speculative_tokens_per_batch_size
# GPUs whose default attention replays decode graphs of any length (flash_attn.py: FlashAttention 3 and newer).
_VARIABLE_GRAPHS = ("H100", "H200", "B200", "GB200")
_SCHEDULE = "num_speculative_tokens_per_batch_size"
_ADAPTIVE = "enable_adaptive_verification"
PIPELINE = ("--pipeline-parallel-size", "-pp")
_FAST_PREFILL = "--kv-sharing-fast-prefill"
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
_VLLM = "vLLM 0.32.0, vllm/config/vllm.py"
# Largest K that was best at this concurrency or above, in six published series on H100 (Ruiz logs).
_BEST_K = ((256, 2), (128, 2), (64, 3))
_HIGH_TEMPERATURE = 1.0


def flag_value(facts: ServiceFacts, *flags: str) -> str | None:
    """The value of a flag on the engine's command line, of several spellings and times the last; "" for a switch; None
    when absent."""
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


def _carries(flag: str) -> Condition:
    return lambda spec, facts: flag_value(facts, flag) is not None


def runs_on_v2(spec: Spec, facts: ServiceFacts) -> bool | None:
    """Return whether Model Runner V2 runs the method: by the method, the service, else the release's default."""
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
    floor = method_of(spec).floor
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
    ceiling, version = method_of(spec).ceiling, parse_version(facts.engine_version)
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


def _only_on_v1(spec: Spec) -> bool:
    """Model Runner V2 has no proposer for it: suffix, Medusa, parallel heads and models, two vocabularies."""
    method = method_of(spec)
    parallel = (
        spec.settings.get("parallel_drafting") is True and method.parallel_drafting == "optional"
    )
    return parallel or not method.v2_runner or spec.settings.get("use_heterogeneous_vocab") is True


def _runner_matters(spec: Spec) -> bool:
    method = method_of(spec)
    if spec.is_none or not method.has_proposer:
        return False
    return spec.settings.get(_ADAPTIVE) is True or _only_on_v1(spec) or not method.v1_runner


def _model_runner(spec: Spec, facts: ServiceFacts) -> RuleOutcome:
    """A method one runner lacks moves the candidate to the other runner, or does not start."""
    adaptive = spec.settings.get(_ADAPTIVE) is True
    if facts.v2_runner is False and (not method_of(spec).v1_runner or adaptive):
        what = "adaptive verification" if adaptive and method_of(spec).v1_runner else spec.method
        todo = "a CPU build without Triton has V1 alone: use eagle3, or dflash for one pass"
        todo = todo if facts.device == "CPU" else "remove VLLM_USE_V2_MODEL_RUNNER=0"
        return "refuse", f"{what} needs Model Runner V2, the service runs V1", todo
    if not _only_on_v1(spec) or facts.v2_runner is False:
        return None
    if facts.v2_runner:
        return (
            "warn",
            f"Model Runner V2 lacks {spec.method}: the candidate runs on V1, the baseline on V2",
        )
    return (
        "note",
        f"Model Runner V2 lacks {spec.method}: on vLLM 0.29 and newer the candidate falls back to V1",
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
    version, since = parse_version(facts.engine_version), method_of(spec).adaptive_since
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
    version, method = parse_version(facts.engine_version), method_of(spec)
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
    variants, version = method_of(spec).variants, parse_version(facts.engine_version)
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
        if different := differences(end, facts.decode_end, spec.config()):
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
        ("warn", f"LoRA is on: {draft if drafts_with_weights(spec) else crashed}")
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
    limit, expected = method_of(spec).busy_above or 0, facts.concurrency or 0
    if expected <= limit:
        return None
    return (
        "warn",
        f"{spec.method} slowed down above {limit} concurrent requests, {expected} expected",
    )


RULES = (
    # A token in plain text is readable wherever the manifest is.
    PreflightRule(
        "plain-secret",
        lambda spec, facts: (
            (
                "warn",
                f"{', '.join(facts.plain_secrets)} holds a secret in plain text, which every revision records",
            )
            if facts.plain_secrets
            else None
        ),
        source="mpctl records manifests in revisions, whose readers see the value",
        todo="take it from a Secret: env: [{name: NAME, valueFrom: {secretKeyRef: {name: SECRET, key: KEY}}}]",
        applies=lambda spec: True,
    ),
    # vLLM reads speculators_config of the served model, serves the verifier and speculates, whatever the flags say.
    PreflightRule(
        "target-speculates",
        Fires(
            "refuse",
            "the served model is a speculators checkpoint: the engine serves {facts.target.verifier} in its place and "
            "speculates with its head, whatever --speculative-config says",
            lambda spec, facts: facts.target.verifier,
        ),
        source="vLLM 0.11.0 to 0.32.0, maybe_override_with_speculators",
        todo="serve the verifier itself with --model, and name the head with --draft",
        needs=("target.verifier",),
        applies=lambda spec: True,
    ),
    # Only methods whose needs and losses are known are rolled out.
    PreflightRule(
        "unmanaged-method",
        _unmanaged_method,
        source="vLLM 0.32.0: custom_class runs user code, extract_hidden_states writes them to disk",
        todo="use one of: " + ", ".join(METHODS),
    ),
    # A configuration without a method leaves it to the engine, and every check below with it.
    PreflightRule(
        "method-inferred",
        Fires(
            "warn",
            "the configuration names no method; the engine takes it from the checkpoint '{spec.draft}'",
        ),
        source="vLLM 0.32.0, SpeculativeConfig: without a method the checkpoint decides",
        todo="write the method out, so that an engine upgrade cannot change it",
        applies=lambda spec: spec.method == INFERRED,
    ),
    # The V1 and V2 engines accept its configuration and have nothing that runs it.
    PreflightRule(
        "no-proposer",
        Fires("refuse", "no current engine runs {spec.method}: it ended with the V0 engine"),
        source="vLLM 0.32.0, gpu_model_runner.py: Unknown speculative decoding method",
        todo="use an eagle3 head for the same target",
        applies=where(lambda method: not method.has_proposer),
    ),
    PreflightRule(
        "engine-too-old",
        _engine_too_old,
        source="first releases: "
        + "; ".join(
            f"{row.name} {show(row.floor.version)}" for row in METHODS.values() if row.floor
        ),
        todo="raise the engine image, or choose a method the engine has",
        asks=("engine_version",),
    ),
    PreflightRule(
        "engine-version-unknown",
        _engine_version_unknown,
        source="first and last releases of the methods: docs/reference/methods.md",
        todo="pin the image by a tag with vLLM's version, or name it with --engine-version",
        asks=("engine_version",),
    ),
    PreflightRule(
        "engine-too-new",
        _engine_too_new,
        source="releases without it: "
        + "; ".join(
            f"{row.name} {show(row.ceiling.version)}" for row in METHODS.values() if row.ceiling
        ),
        todo="choose another method, or keep the engine image",
        needs=("engine_version",),
    ),
    PreflightRule(
        "removed-flags",
        _removed_flags,
        source="vLLM PR #14434, PR #15466: one JSON argument replaced the flags; AIBrix 0.8.0's templates write them",
        todo="remove them; `mpctl` writes --speculative-config",
        needs=("argv",),
        applies=lambda spec: True,
    ),
    # The rejection sampler does not run custom logits processors; the engine refuses to start with both.
    PreflightRule(
        "custom-logits-processors",
        Fires(
            "refuse",
            "the command line carries --logits-processors",
            _carries("--logits-processors"),
        ),
        source="vLLM 0.32.0, build_logitsprocs; PR #19482",
        todo="remove --logits-processors, or leave this service without speculation",
        needs=("argv",),
    ),
    # Heads read the target's hidden states of every prompt token, which fast prefill does not compute.
    PreflightRule(
        "fast-prefill",
        Fires(
            "refuse", f"{_FAST_PREFILL} does not go with {{spec.method}}", _carries(_FAST_PREFILL)
        ),
        source=_VLLM,
        todo="remove --kv-sharing-fast-prefill",
        needs=("argv",),
        applies=where(lambda method: method.prompt_states),
    ),
    # Some proposers need the last tokens on the host, so the engine cannot schedule ahead.
    PreflightRule(
        "async-scheduling",
        Fires(
            "refuse",
            "--async-scheduling is set and {spec.method} does not support it: the engine exits at start-up",
            lambda spec, facts: facts.async_scheduling,
        ),
        source=_VLLM + "; seen in the log of 0.32.0; Alauda guide, caveats",
        todo="remove --async-scheduling, or use ngram_gpu or a head, which keep it",
        needs=("async_scheduling",),
        applies=lambda spec: (
            method_of(spec).disables_async_scheduling
            or spec.settings.get("disable_padded_drafter_batch") is True
        ),
    ),
    PreflightRule(
        "model-runner",
        _model_runner,
        source="vLLM 0.32.0, _get_v2_model_runner_unsupported_features and its V1 counterpart; V2 is default from 0.29",
        todo="measure the baseline with VLLM_USE_V2_MODEL_RUNNER=0 too, or the runners are compared, not the method",
        asks=("v2_runner",),
        applies=_runner_matters,
    ),
    # Its buffers lie in pinned memory, which only a GPU's driver gives.
    PreflightRule(
        "gpu-needed",
        Fires(
            "refuse", "{spec.method} needs a GPU, the engine runs on a CPU", fact("device", "CPU")
        ),
        source="vLLM 0.32.0 on a CPU ends at start-up: RuntimeError: Found no NVIDIA driver on your system",
        todo="use ngram, which looks the same tokens up",
        needs=("device",),
        applies=where(lambda method: method.needs_gpu),
    ),
    # The draft runs on one GPU or on all of the target's.
    PreflightRule(
        "draft-tensor-parallel",
        Fires(
            "refuse",
            "draft_tensor_parallel_size is {spec.settings[draft_tensor_parallel_size]}, the target's tensor parallel "
            "size is {facts.tensor_parallel}",
            _draft_tensor_parallel,
        ),
        source="vLLM 0.32.0, _verify_and_get_draft_tp",
        todo="leave draft_tensor_parallel_size out, or set it to 1",
        needs=("tensor_parallel",),
        applies=both(names_draft, setting(_DRAFT_TP)),
    ),
    PreflightRule(
        "decode-graphs",
        _decode_graphs,
        source="vLLM 0.32.0, adjust_cudagraph_sizes_for_spec_decode, cudagraph_utils.py; public: below 1 token/s",
        todo="leave the sizes of graphs to the engine",
        needs=("argv",),
    ),
    PreflightRule(
        "batched-tokens",
        _batched_tokens,
        source="vLLM 0.32.0, Scheduler.schedule and _set_max_num_scheduled_tokens",
        todo="raise --max-num-batched-tokens",
        applies=lambda spec: speculates(spec) and spec.k is not None,
    ),
    PreflightRule(
        "kserve-storage-uris",
        _kserve_storage_uris,
        source="KServe 0.16, predictor.storageUris; Alauda guide option A",
        todo="upgrade KServe, or stage target and draft on one PVC or in one Modelcar image",
        needs=("uses_storage_uris", "kserve_version"),
    ),
    PreflightRule(
        "key-too-new",
        _key_too_new,
        source="vLLM 0.33.0, vllm/config/speculative.py; 0.32.0 exits at a key that it does not know",
        todo="remove the key, or raise the engine image",
        needs=("engine_version",),
        applies=lambda spec: (
            speculates(spec) and any(KEYS[key].since for key in spec.settings if key in KEYS)
        ),
    ),
    PreflightRule(
        "adaptive-verification",
        _adaptive_verification,
        source="vLLM 0.33.0, _validate_adaptive_verification and adaptive_verification.py; 0.32.0: dspark only",
        todo=f"remove {_ADAPTIVE}",
        asks=("engine_version", "gpu"),
        applies=lambda spec: spec.settings.get(_ADAPTIVE) is True,
    ),
    PreflightRule(
        "prefill-apart",
        _prefill_apart,
        source="vLLM 0.28.0 to 0.33.0, nixl/metadata.py, _get_speculative_compatibility_factors; PR #49230",
        todo="render a file with the prefill and the decode workload, which edits both, or use ngram or suffix",
        applies=where(lambda method: method.has_kv_cache),
    ),
    PreflightRule(
        "no-text",
        Fires(
            "refuse",
            "the target's class {facts.target.no_text} generates no text, so speculation has no effect",
            lambda spec, facts: facts.target.no_text,
        ),
        source="vLLM 0.32.0, model_executor/models/registry.py: classes that embed, classify, transcribe or draw",
        todo="leave this service as it is, or name --runner generate where it does generate text",
        needs=("target.no_text",),
    ),
    PreflightRule(
        "prefill-differs",
        _prefill_differs,
        source="vLLM 0.32.0, nixl/metadata.py, compute_nixl_compatibility_hash: decode pods refuse the KV cache",
        todo="give both ends the same image, model, dtypes and connector",
    ),
    PreflightRule(
        "dynamic-k",
        _dynamic_k,
        source="vLLM #49548 (232 -> 24-157 tok/s at a threshold), PR #57053 (V2 ignores K), PR #32374; 0.33.0 vllm.py",
        todo="use one K; a bench with several values of --concurrency compares K at each",
        asks=("data_parallel", "v2_runner", "engine_version"),
        applies=setting(_SCHEDULE),
    ),
    PreflightRule(
        "draft-variant",
        _draft_variant,
        source="vLLM 0.33.0: _is_dflash_candidate_draft, is_xpress, WatermarkConfig; LiLiCorr's speculator",
        todo="raise the engine image, or use a head of the plain method",
        needs=("draft.architectures",),
        asks=("engine_version", "v2_runner"),
        applies=both(drafts_with_weights, where(lambda method: method.variants)),
    ),
)

TRAFFIC_RULES = (
    # Synthetic acceptance replaces the target's judgement with a chosen rate: the answers are wrong by design.
    PreflightRule(
        "synthetic-acceptance",
        Fires(
            "refuse",
            "rejection_sample_method=synthetic returns tokens the target did not choose: test only",
        ),
        source="vLLM 0.32.0: accepts drafts by lot, whatever the target says",
        todo="remove rejection_sample_method; it is for drills on a service without users",
        applies=setting("rejection_sample_method", "synthetic"),
    ),
    # Lossy acceptance changes the answers: no measurement of speed makes up for it.
    PreflightRule(
        "lossy-acceptance",
        Fires(
            "refuse",
            "rejection_sample_method=fly accepts tokens the target did not choose: the answers change",
        ),
        source="vLLM 0.33.0: fly accepts drafts that the target would not have chosen",
        todo="remove rejection_sample_method, or set standard or block",
        applies=setting("rejection_sample_method", "fly"),
    ),
    # A think block is new text: there is nothing to look up.
    PreflightRule(
        "thinking",
        Fires(
            "warn",
            "the model thinks by default, and {spec.method} cannot propose a think block",
            fact("thinking"),
        ),
        source="Modelplane example qwen3-8b-speculative-decoding, which turns Qwen3's thinking off",
        todo='serve with --default-chat-template-kwargs {"enable_thinking": false}, or use a head',
        needs=("thinking",),
        applies=where(lambda method: not method.loads_weights),
    ),
    PreflightRule(
        "lora",
        _lora,
        source="vLLM #4872, PR #11966, #20284 (n-gram); sglang #28395, #34337",
        todo="measure each adapter; a draft follows the base model, so acceptance falls with every adapter",
        needs=("enable_lora",),
    ),
    PreflightRule(
        "mtp-prefix-caching",
        Fires(
            "warn",
            "{spec.method} with prefix caching has ended in wrong answers and in illegal memory accesses",
            fact("prefix_caching"),
        ),
        source="vLLM #53912, #40756, SkyRL #1981, club-3090 #1052",
        todo="watch restarts during the rollout, or serve with --no-enable-prefix-caching",
        needs=("prefix_caching",),
        applies=where(lambda method: method.prefix_caching_crashes),
    ),
    # The flatter the target's distribution, the fewer proposals it accepts.
    PreflightRule(
        "high-temperature",
        Fires(
            "warn",
            "requests sample at temperature {facts.temperature:g}, where acceptance is lowest",
            lambda spec, facts: (facts.temperature or 0.0) >= _HIGH_TEMPERATURE,
        ),
        source="Alauda guide; 0.75x at temperature 1 against 1.0-1.3x at 0 for ngram on new text (vLLM 0.32.0, CPU)",
        todo="measure with the temperature of production",
        needs=("temperature",),
    ),
    PreflightRule(
        "high-concurrency",
        _high_concurrency,
        source="Ruiz logs (390 cells): best K 2-3 at 64, 2 at 128, 1-2 at 256; vLLM #16258, #9565, #17984",
        todo="lower K; a bench with several values of --concurrency names where the gain ends",
        needs=("concurrency",),
        applies=lambda spec: speculates(spec) and spec.k is not None,
    ),
    PreflightRule(
        "suffix-concurrency",
        _busy,
        source="ArcticInference #185, #47",
        todo="measure at this concurrency, or use ngram_gpu",
        needs=("concurrency",),
        applies=where(lambda method: method.busy_above),
    ),
    # A draft that always takes its best token is refused more often when the target samples.
    PreflightRule(
        "greedy-draft",
        Fires(
            "note",
            "the draft proposes greedily while requests sample at temperature {facts.temperature:g}",
            lambda spec, facts: facts.temperature,
        ),
        source="vLLM PR #24322: a model drafting for itself kept 2.82 of 4 at temperature 1",
        todo="try draft_sample_method=probabilistic; it costs memory for the draft's logits",
        needs=("temperature",),
        applies=both(
            drafts_with_weights,
            lambda spec: spec.settings.get("draft_sample_method") != "probabilistic",
        ),
    ),
)
