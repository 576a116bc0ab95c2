"""Rules about the engine: versions, flags, runners and what its scheduler gives up for speculation."""

from __future__ import annotations

from mpctl.methods.keys import is_int
from mpctl.methods.preflight.facts import Facts
from mpctl.methods.preflight.rule import Outcome, both, method_of, names_draft, rule, sets_key, where
from mpctl.methods.spec import INFERRED, Spec
from mpctl.methods.table import METHODS, UNMANAGED
from mpctl.methods.version_limits import removed_flags
from mpctl.methods.versions import parse_version, show

_VLLM = "vLLM 0.32.0, vllm/config/vllm.py"


@rule(
    "unmanaged-method",
    source="vLLM 0.32.0: custom_class runs user code, extract_hidden_states writes them to disk",
    todo="use one of: " + ", ".join(METHODS),
)
def unmanaged_method(spec: Spec, facts: Facts) -> Outcome:
    """Only methods whose needs and losses are known are rolled out."""
    if spec.known or spec.method == INFERRED:
        return None
    kind = "runs code or writes data we cannot judge" if spec.method in UNMANAGED else "is not known to this version"
    return "refuse", f"method '{spec.method}' {kind}"


@rule(
    "method-inferred",
    source="vLLM 0.32.0, SpeculativeConfig: without a method the checkpoint decides",
    todo="write the method out, so that an engine upgrade cannot change it",
    applies=lambda spec: spec.method == INFERRED,
)
def method_inferred(spec: Spec, facts: Facts) -> Outcome:
    """A configuration without a method leaves it to the engine, and every check below with it."""
    return "warn", f"the configuration names no method; the engine takes it from the checkpoint '{spec.draft}'"


@rule(
    "no-proposer",
    source="vLLM 0.32.0, gpu_model_runner.py: Unknown speculative decoding method",
    todo="use an eagle3 head for the same target",
    applies=where(lambda method: not method.has_proposer),
)
def no_proposer(spec: Spec, facts: Facts) -> Outcome:
    """The V1 and V2 engines accept its configuration and have nothing that runs it."""
    return "refuse", f"no current engine runs {spec.method}: it ended with the V0 engine"


@rule(
    "engine-too-old",
    source="first releases: "
    + "; ".join(f"{row.name} {show(row.floor.version)}" for row in METHODS.values() if row.floor),
    todo="raise the engine image, or choose a method the engine has",
    asks=("engine_version",),
)
def engine_too_old(spec: Spec, facts: Facts) -> Outcome:
    """An engine older than the method exits at start-up, or worse, ignores it."""
    floor = method_of(spec).floor
    version = parse_version(facts.engine_version)
    if version is None:
        return None  # engine-version-unknown
    if floor is None:
        reason = f"no document says which release brought {spec.method}; 0.32.0 knows it, the engine is {show(version)}"
        return ("note", reason, "start it once on a test service") if spec.known and version < (0, 32, 0) else None
    if version >= floor.version:
        return None
    return "refuse", f"{spec.method} needs vLLM {show(floor.version)} ({floor.source}), the engine is {show(version)}"


@rule(
    "engine-version-unknown",
    source="first and last releases of the methods: docs/reference/methods.md",
    todo="pin the image by a tag with vLLM's version",
    asks=("engine_version",),
)
def engine_version_unknown(spec: Spec, facts: Facts) -> Outcome:
    """An engine whose image tells no version cannot be compared with the releases that have the method."""
    if parse_version(facts.engine_version) is not None:
        return None
    state = "is unknown" if facts.engine_version is None else f"cannot be read from its image {facts.engine_version}"
    return "note", f"the engine's version {state}: whether it has {spec.method} was not checked"


@rule(
    "engine-too-new",
    source="releases without it: "
    + "; ".join(f"{row.name} {show(row.ceiling.version)}" for row in METHODS.values() if row.ceiling),
    todo="choose another method, or keep the engine image",
    needs=("engine_version",),
)
def engine_too_new(spec: Spec, facts: Facts) -> Outcome:
    """An engine that no longer has the method exits at start-up."""
    ceiling, version = method_of(spec).ceiling, parse_version(facts.engine_version or "")
    if ceiling is None or version is None or version < ceiling.version:
        return None
    reason = f"{spec.method} is gone since vLLM {show(ceiling.version)} ({ceiling.source})"
    return "refuse", f"{reason}, the engine is {show(version)}"


@rule(
    "removed-flags",
    source="vLLM PR #14434, PR #15466: one JSON argument replaced the flags",
    todo="remove them; `mpctl` writes --speculative-config",
    needs=("argv",),
    applies=lambda spec: True,
)
def removed_flags_left(spec: Spec, facts: Facts) -> Outcome:
    """A flag the engine no longer has makes it exit at start-up."""
    gone = removed_flags(facts.argv or ())
    if not gone:
        return None
    listed = "; ".join(f"{entry.name} (gone since {entry.since}, use {entry.replacement})" for entry in gone)
    return "warn" if spec.is_none else "refuse", f"the command line carries {listed}"


@rule(
    "custom-logits-processors",
    source="vLLM 0.32.0, build_logitsprocs; PR #19482",
    todo="remove --logits-processors, or leave this service without speculation",
    needs=("argv",),
)
def custom_logits_processors(spec: Spec, facts: Facts) -> Outcome:
    """The rejection sampler does not run custom logits processors; the engine refuses to start with both."""
    return ("refuse", "the command line carries --logits-processors") if _has(facts, "--logits-processors") else None


@rule(
    "fast-prefill",
    source=_VLLM,
    todo="remove --kv-sharing-fast-prefill",
    needs=("argv",),
    applies=where(lambda method: method.prompt_states),
)
def fast_prefill(spec: Spec, facts: Facts) -> Outcome:
    """Heads read the target's hidden states of every prompt token, which fast prefill does not compute."""
    enabled = _has(facts, "--kv-sharing-fast-prefill")
    return ("refuse", f"--kv-sharing-fast-prefill does not go with {spec.method}") if enabled else None


def _has(facts: Facts, flag: str) -> bool:
    return any(part.partition("=")[0].replace("_", "-") == flag for part in facts.argv or ())


@rule(
    "async-scheduling",
    source=_VLLM + "; seen in the log of 0.32.0; Alauda guide, caveats",
    todo="remove --async-scheduling, or use ngram_gpu or a head, which keep it",
    needs=("async_scheduling",),
    applies=lambda spec: (
        method_of(spec).disables_async_scheduling or spec.settings.get("disable_padded_drafter_batch") is True
    ),
)
def async_scheduling(spec: Spec, facts: Facts) -> Outcome:
    """Some proposers need the last tokens on the host, so the engine cannot schedule ahead."""
    if not facts.async_scheduling:
        return None
    return "refuse", f"--async-scheduling is set and {spec.method} does not support it: the engine exits at start-up"


def _only_on_v1(spec: Spec) -> bool:
    """Model Runner V2 has no proposer for it: suffix, Medusa, parallel heads and models, two vocabularies."""
    method = method_of(spec)
    parallel = spec.settings.get("parallel_drafting") is True and method.parallel_drafting == "optional"
    return parallel or not method.v2_runner or spec.settings.get("use_heterogeneous_vocab") is True


def _runner_matters(spec: Spec) -> bool:
    method = method_of(spec)
    if spec.is_none or not method.has_proposer:
        return False
    adaptive = spec.settings.get("enable_adaptive_verification") is True
    return adaptive or _only_on_v1(spec) or not method.v1_runner


@rule(
    "model-runner",
    source="vLLM 0.32.0, _get_v2_model_runner_unsupported_features and its V1 counterpart; V2 is default since 0.29",
    todo="measure the baseline with VLLM_USE_V2_MODEL_RUNNER=0 too, or the runners are compared, not the method",
    asks=("v2_runner",),
    applies=_runner_matters,
)
def model_runner(spec: Spec, facts: Facts) -> Outcome:
    """A method one runner lacks moves the candidate to the other runner, or does not start."""
    adaptive = spec.settings.get("enable_adaptive_verification") is True
    if facts.v2_runner is False and (not method_of(spec).v1_runner or adaptive):
        what = "adaptive verification" if adaptive and method_of(spec).v1_runner else spec.method
        todo = "a CPU build without Triton has V1 alone: use eagle3, or dflash for one pass"
        todo = todo if facts.device == "CPU" else "remove VLLM_USE_V2_MODEL_RUNNER=0"
        return "refuse", f"{what} needs Model Runner V2, the service runs V1", todo
    if not _only_on_v1(spec) or facts.v2_runner is False:
        return None
    if facts.v2_runner:
        return "warn", f"Model Runner V2 lacks {spec.method}: the candidate runs on V1, the baseline on V2"
    return "note", f"Model Runner V2 lacks {spec.method}: on vLLM 0.29 and newer the candidate falls back to V1"


@rule(
    "gpu-needed",
    source="vLLM 0.32.0 on a CPU ends at start-up: RuntimeError: Found no NVIDIA driver on your system",
    todo="use ngram, which looks the same tokens up",
    needs=("device",),
    applies=where(lambda method: method.needs_gpu),
)
def gpu_needed(spec: Spec, facts: Facts) -> Outcome:
    """Its buffers lie in pinned memory, which only a GPU's driver gives."""
    return ("refuse", f"{spec.method} needs a GPU, the engine runs on a CPU") if facts.device == "CPU" else None


@rule(
    "draft-tensor-parallel",
    source="vLLM 0.32.0, _verify_and_get_draft_tp",
    todo="leave draft_tensor_parallel_size out, or set it to 1",
    needs=("tensor_parallel",),
    applies=both(names_draft, sets_key("draft_tensor_parallel_size")),
)
def draft_tensor_parallel(spec: Spec, facts: Facts) -> Outcome:
    """The draft runs on one GPU or on all of the target's."""
    size = spec.settings["draft_tensor_parallel_size"]
    if not is_int(size) or size in (1, facts.tensor_parallel):
        return None
    return (
        "refuse",
        f"draft_tensor_parallel_size is {size}, the target's tensor parallel size is {facts.tensor_parallel}",
    )


@rule(
    "kserve-storage-uris",
    source="KServe 0.16, predictor.storageUris; Alauda guide option A",
    todo="upgrade KServe, or stage target and draft on one PVC or in one Modelcar image",
    needs=("uses_storage_uris", "kserve_version"),
)
def kserve_storage_uris(spec: Spec, facts: Facts) -> Outcome:
    """Before 0.16 KServe does not know storageUris; the pod comes up with neither target nor draft mounted."""
    version = parse_version(facts.kserve_version)
    if not facts.uses_storage_uris:
        return None
    if version is None:
        return "note", f"'{facts.kserve_version}' tells no version, so storageUris was not checked", "name the version"
    if version >= (0, 16, 0):
        return None
    return "refuse", f"storageUris needs KServe 0.16, the cluster has {show(version)}"


@rule(
    "plain-secret",
    source="mpctl records manifests in revisions, whose readers see the value",
    todo="take it from a Secret: env: [{name: NAME, valueFrom: {secretKeyRef: {name: SECRET, key: KEY}}}]",
    applies=lambda spec: True,
)
def plain_secret(spec: Spec, facts: Facts) -> Outcome:
    """A token in plain text is readable wherever the manifest is."""
    if not facts.plain_secrets:
        return None
    return "warn", f"{', '.join(facts.plain_secrets)} holds a secret in plain text, which every revision records"


RULES = (
    plain_secret,
    unmanaged_method,
    method_inferred,
    no_proposer,
    engine_too_old,
    engine_version_unknown,
    engine_too_new,
    removed_flags_left,
    custom_logits_processors,
    fast_prefill,
    async_scheduling,
    model_runner,
    gpu_needed,
    draft_tensor_parallel,
    kserve_storage_uris,
)
