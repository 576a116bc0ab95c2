"""The facts that the preflight judges, from a service and its readable model files. What is not known stays
None."""

from __future__ import annotations

import json
import re
from dataclasses import replace

from mpctl.errors import InputError
from mpctl.estimate.checkpoint import ModelFacts
from mpctl.estimate.memory import DEFAULT_UTILISATION, Served, read_log
from mpctl.estimate.shape import Shape, model_shape
from mpctl.json_types import Json
from mpctl.manifest import EngineCommand, Service, plain_secrets
from mpctl.methods import Finding, ServiceFacts, from_config, parse_version
from mpctl.methods.preflight.known_bad import shipped_known_bad
from mpctl.methods.preflight.nixl import KvEnd
from mpctl.methods.preflight.preflight_rule import NAMES_NO_SCHEME

_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")


def facts_of(
    service: Service,
    *,
    engine_version: str | None = None,
    kserve_version: str | None = None,
    target: ModelFacts | None = None,
    draft: ModelFacts | None = None,
    concurrency: int | None = None,
    temperature: float | None = None,
    engine_log: str | None = None,
) -> ServiceFacts:
    """The facts of one change to one service; ``engine_log``: what its engine logged since it started."""
    v2_runner = runs_v2(service, engine_log)
    command = service.whole_command
    target = target or ModelFacts()
    draft = draft or ModelFacts()
    name = target_name_of(service, target.name)
    if target.verifier is None:
        target = replace(target, verifier=_verifier_by_name(service))
    return ServiceFacts(
        engine_version=engine_version or service.image,
        kserve_version=kserve_version,
        target=_served_target(target, name, command),
        draft=draft,
        served_context=_integer(command.get("max-model-len")) or target.context,
        max_num_seqs=_integer(command.get("max-num-seqs")),
        max_batched_tokens=_integer(command.get("max-num-batched-tokens")),
        tensor_parallel=_integer(command.get("tensor-parallel-size")) or 1,
        data_parallel=_integer(command.get("data-parallel-size")) or 1,
        thinking=_thinking(service, target),
        enable_lora=command.has("enable-lora"),
        prefix_caching=_prefix_caching(
            tuple(command.argv), engine_version or service.image, target.recurrent
        ),
        async_scheduling=command.has("async-scheduling"),
        kv_cache_dtype=command.get("kv-cache-dtype") or target.kv_cache_dtype,
        # A checkpoint that names its schemes decides.
        quantization=target.quantization
        if (asked := command.get("quantization")) in (None, NAMES_NO_SCHEME)
        else asked,
        temperature=temperature,
        decode_end=_kv_end(command, engine_version or service.image, service.model, target),
        prefill_ends=tuple(
            _kv_end(
                EngineCommand(argv),
                service.prefill_image or engine_version or service.image,
                None,
                target,
            )
            for argv in service.prefill_args
        ),
        uses_storage_uris=len(service.storage) > 1,
        argv=tuple(command.argv),
        lines=service.flag_lines,
        plain_secrets=plain_secrets(service.env, command.argv),
        concurrency=concurrency,
        v2_runner=v2_runner,
        device=read_log(engine_log or "").device,
    )


def _served_target(target: ModelFacts, name: str | None, command: EngineCommand) -> ModelFacts:
    """The target as it is served: read from its files, else published of a model of this name."""
    published = model_shape(name)
    # The command line can make a model generate, whatever its class.
    generates = "generate" in (command.get("runner"), command.get("task"))
    return replace(
        target,
        name=name,
        params_b=target.params_b or (published.params_b if published else None),
        vocab=target.vocab or (published.vocab if published else None),
        # A template named on the command line replaces the checkpoint's, and cannot be read from here.
        template_digest=None if command.has("chat-template") else target.template_digest,
        no_text=None if generates else target.no_text,
        mtp_layers=_mtp_layers(target, name),
        verifier="" if target.verifier is None and published else target.verifier,
    )


# RedHatAI/Qwen3-8B-speculator.eagle3, an image or a folder of that name.
_SPECULATOR = re.compile(r"([^/]*?)[-_.]?speculators?(?:[-_.:@/]|$)", re.IGNORECASE)


def _verifier_by_name(service: Service) -> str | None:
    """The model that a speculators checkpoint was trained for, by the checkpoint's name; None for other names."""
    model = service.model
    mounted = [
        storage.uri
        for storage in service.storage
        if (model is None and len(service.storage) == 1)
        or f"{model}/".startswith(f"{storage.mount_path}/")
    ]
    match = next(filter(None, (_SPECULATOR.search(text) for text in (model or "", *mounted))), None)
    return None if match is None else match[1] or "the model that it was trained for"


_DISABLED = "disable-hybrid-kv-cache-manager"


def _kv_end(
    command: EngineCommand, engine: str | None, model: str | None, target: ModelFacts
) -> KvEnd:
    """An engine as NIXL compares it with others. vLLM decides over layers of several kinds by their classes, and over
    dtypes of 32 bits by the device: then dimensions and dtype stay unknown."""
    dtype = command.get("dtype")
    if dtype in (None, "auto"):
        dtype = target.dtype if target.dtype in ("bfloat16", "float16") else None
    named = command.flags().keys() & {f"--{_DISABLED}", f"--no-{_DISABLED}"}
    connector = " ".join(
        value or ""
        for flag, value in command.flags().items()
        if flag.startswith("--kv-transfer-config")
    )
    alone = "Nixl" in connector and "Multi" not in connector
    cache = command.get("kv-cache-dtype")
    shape = (
        None
        if target.shape is None or target.shape.hybrid or command.get("hf-overrides")
        else target.shape
    )
    return KvEnd(
        engine=engine,
        model=command.model or model,
        dtype=dtype,
        cache_dtype=cache or "auto",
        hybrid_manager=not command.has(_DISABLED) if named or alone else None,
        backend=command.get("attention-backend"),
        push="NixlPush" in connector,
        kv_heads=None if shape is None else shape.kv_heads,
        head_size=None if shape is None else shape.head_dim,
        layers=None if shape is None else shape.layers,
    )


def runs_v2(service: Service, log: str | None) -> bool | None:
    """Return whether Model Runner V2 serves: by the service's environment, else by its engine's log.

    Sentences of vLLM 0.32.0, ``use_v2_model_runner`` and the workers. That a feature of the service keeps V2 away says
    nothing of another configuration; that Triton is missing, as in a CPU build, holds for all.
    """
    setting = dict(service.env).get("VLLM_USE_V2_MODEL_RUNNER")
    if setting in ("0", "1"):
        return setting == "1"
    if "Model Runner V2 requires Triton" in (log or ""):
        return False
    return True if "Using V2 Model Runner" in (log or "") else None


def served_numbers(service: Service, target: ModelFacts | None) -> Served:
    """The numbers of a command line that decide over the KV pool; vLLM's defaults where it names none."""
    command = service.whole_command
    share = command.get("gpu-memory-utilization")
    try:
        utilisation = float(share) if share else DEFAULT_UTILISATION
    except ValueError:
        utilisation = DEFAULT_UTILISATION
    dtype = command.get("kv-cache-dtype") or (target.kv_cache_dtype if target else None) or ""
    return Served(
        _integer(command.get("max-model-len")) or (target.context if target else None),
        utilisation=utilisation,
        max_num_seqs=_integer(command.get("max-num-seqs")),
        tensor_parallel=_integer(command.get("tensor-parallel-size")) or 1,
        element_bytes=1 if dtype.startswith(("fp8", "int8")) else 2,
    )


def loaded_gib(service: Service, target: ModelFacts | None, shape: Shape) -> float | None:
    """GiB of the target's weights on all GPUs together: as its files are, else in bf16. None where they are stored in
    another way that is not known, and where ``--quantization`` converts them while they are loaded.
    """
    stored = target.quantization if target else "none"
    if stored == "none" and service.whole_command.get("quantization") is not None:
        return None
    if target is not None and target.weight_gib is not None:
        return target.weight_gib
    return shape.bf16_gib if stored == "none" else None


def target_name_of(service: Service, checkpoint: str | None = None) -> str | None:
    """``organisation/model`` of the target, from the command line, the storage or ``checkpoint`` (the name it records);
    None when none of them says. A path inside the container is no name, but what is mounted there may have one. The
    served name is none either: clients are told it, and it may be any.
    """
    mounted = (
        storage.uri.removeprefix("hf://")
        for storage in service.storage
        if storage.uri.startswith("hf://")
    )
    return _first_name(service.model, *mounted) or checkpoint


def _first_name(*names: str | None) -> str | None:
    for name in names:
        bare = name.partition(":")[0].strip("/") if name and not name.startswith(("/", ".")) else ""
        if _REPOSITORY.fullmatch(bare):
            return bare
    return None


# Published families without layers that draft; where files were read, those count.
_NO_MTP = re.compile(
    r"(?i)^(meta-llama/.*llama-[23]|qwen/qwen(2|2\.5|3)-\d|google/gemma-[23]-|microsoft/phi-)"
)


def _mtp_layers(target: ModelFacts, name: str | None) -> int | None:
    known_without = target.mtp_layers is None and name is not None and _NO_MTP.match(name)
    return 0 if known_without else target.mtp_layers


def running_findings(
    service: Service, *, engine_version: str | None, target: ModelFacts | None = None
) -> tuple[Finding, ...]:
    """Return what is known to fail of the speculation that a service runs; nothing where it cannot be read."""
    try:
        config: Json | None = service.speculation()
        if config is None:
            return ()
        facts = facts_of(service, engine_version=engine_version, target=target)
        return shipped_known_bad().findings(from_config(config), facts)
    except InputError:
        return ()


# The release from which models with recurrent layers cache prefixes by default (vLLM 0.25.0 and 0.26.0,
# config/model.py, is_prefix_caching_supported); other models always have.
_RECURRENT_CACHED = (0, 26, 0)


def _prefix_caching(argv: tuple[str, ...], engine: str | None, recurrent: str | None) -> bool:
    flags = [word.replace("_", "-") for word in argv]  # vLLM takes both spellings
    switches = [
        flag for flag in flags if flag in ("--enable-prefix-caching", "--no-enable-prefix-caching")
    ]
    if switches:
        return switches[-1] == "--enable-prefix-caching"
    version = parse_version(engine)
    return recurrent in (None, "none") or version is None or version >= _RECURRENT_CACHED


def _thinking(service: Service, target: ModelFacts) -> bool | None:
    chosen = service.whole_command.get("default-chat-template-kwargs")
    if chosen:
        try:
            value = json.loads(chosen).get("enable_thinking")
        except (ValueError, AttributeError):
            value = None
        if isinstance(value, bool):
            return value
    if target.template_thinks is not None:
        return target.template_thinks
    name = (service.model or "").lower().rstrip("/").rpartition("/")[2]
    # Qwen3's hybrid models think unless told otherwise; its later "Instruct-2507" ones never do (model cards).
    return (
        True
        if "qwen3-" in name and not any(part in name for part in ("instruct", "coder", "base"))
        else None
    )


def _integer(text: str | None) -> int | None:
    """vLLM's numbers: plain, or with k, m, g for thousands and K, M, G for powers of 1024 (its --max-model-len)."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kKmMgG]?)", text or "")
    if match is None:
        return None
    power = "kmg".find(match[2].lower()) + 1 if match[2] else 0
    return int(float(match[1]) * (1024 if match[2].isupper() else 1000) ** power)


_IDENTITY = (
    "quantization",
    "kv-cache-dtype",
    "dtype",
    "revision",
    "tokenizer",
    "hf-overrides",
    "chat-template",
    "load-format",
    "reasoning-parser",
)


def engine_identity(service: Service, version: str | None, target: str | None) -> dict[str, str]:
    """Return what decides an engine's answers besides speculation: image, weights, quantization, types of numbers."""
    settings = {name: service.whole_command.get(f"--{name}") for name in _IDENTITY}
    every = {"image": version, "model": target or service.model, **settings}
    return {name: value for name, value in every.items() if value}
