"""VLLMRuntime (``production-stack.vllm.ai``), of which the operator of vLLM's production-stack makes an engine.

The operator writes ``vllm serve`` with the model, what it makes of fields, and ``vllmConfig.extraArgs``, where the
setting goes. What fields become is read too, so that checks see the whole command. Source: ``deploymentForVLLMRuntime``
of https://github.com/vllm-project/production-stack, operator/internal/controller/vllmruntime_controller.go (2026-08).
"""

from __future__ import annotations

from dataclasses import replace

from mpctl.manifest.engine.locate import environment, listed
from mpctl.manifest.engine.recognition import require_generation
from mpctl.manifest.kinds.adapter import Adapter, ManifestFile, service_at
from mpctl.manifest.service import ManifestSource, Origin, Service
from mpctl.manifest.text.view import View, text_of

# Fields below ``spec``, the flag that they become, and the one that stands for false or an absent field.
_SWITCHES = (
    ("model.enableLoRA", "--enable-lora", None),
    ("vllmConfig.enableChunkedPrefill", "--enable-chunked-prefill", "--no-enable-chunked-prefill"),
    ("vllmConfig.enablePrefixCaching", "--enable-prefix-caching", "--no-enable-prefix-caching"),
)
_VALUES = (
    ("model.toolCallParser", "--tool-call-parser"),
    ("model.maxModelLen", "--max-model-len"),
    ("model.dtype", "--dtype"),
    ("vllmConfig.tensorParallelSize", "--tensor-parallel-size"),
    ("model.maxNumSeqs", "--max-num-seqs"),
    ("vllmConfig.gpuMemoryUtilization", "--gpu-memory-utilization"),
    ("vllmConfig.maxLoras", "--max-loras"),
)
_LMCACHE = '{"kv_connector":"LMCacheConnectorV1","kv_role":"kv_both"}'


def _arguments(spec: View) -> tuple[str, ...]:
    """The arguments that the operator makes of fields; 0 and empty texts count as absent."""
    fields = {path: text_of(spec.at(*path.split("."))) for path, *_ in (*_SWITCHES, *_VALUES)}
    chosen = (flag if fields[path] == "true" else otherwise for path, flag, otherwise in _SWITCHES)
    words = [flag for flag in chosen if flag]
    for path, flag in _VALUES:
        if (value := fields[path]) not in (None, "", "0"):
            words += [flag, value]
    if text_of(spec.at("lmCacheConfig", "enabled")) == "true":
        words += ["--kv-transfer-config", _LMCACHE]
    return tuple(words)


def _read(root: View, file: ManifestFile, origin: Origin) -> Service:
    """The VLLMRuntime at ``root``.

    Raises:
        InputError: it names no model or generates no text, or its arguments are no list.
    """
    spec = root.need("spec")
    config, model = spec.need("vllmConfig"), spec.need("model").need("modelURL").text()
    env = environment(config)
    engine = listed(config, "extraArgs", dict(env))
    require_generation(spec, engine.command, model)
    image = spec.at("deploymentConfig", "image")
    parts = () if image is None else (text_of(image.get("registry")), text_of(image.get("name")))
    return replace(
        service_at(root, "VLLMRuntime", file.text, ManifestSource(origin, engine)),
        image="/".join(filter(None, parts)) or None,
        env=env,
        container="vllm",
        model=model,
        runtime_args=_arguments(spec),
    )


VLLM_RUNTIME = Adapter("VLLMRuntime", ("production-stack.vllm.ai/v1alpha1",), _read)
