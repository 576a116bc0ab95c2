"""A manifest and a checkpoint inside of each known-bad row, and what the rows say about them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, NamedTuple

from mpctl.estimate import ModelFacts, describe_model, facts_of
from mpctl.manifest import load
from mpctl.methods import METHODS, Spec, build
from mpctl.methods.preflight.known_bad import KnownBadRow, shipped_known_bad
from mpctl.methods.versions import Version, show

NEWEST: Version = (0, 33, 0)
_DENSE = {"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "vocab_size": 512}
_GDN = {
    "layer_types": ["linear_attention", "full_attention"],
    "linear_num_value_heads": 32,
    "num_experts": 128,
}
# A checkpoint of each class: keys as in published configurations.
CONFIGS: dict[str, dict[str, Any]] = {
    "gdn": {
        "model_type": "qwen3_5_moe",
        "text_config": {**_DENSE, **_GDN},
        "mtp_num_hidden_layers": 1,
    },
    "deepseek-v32": {"model_type": "deepseek_v32", **_DENSE, "num_nextn_predict_layers": 1},
    "gemma4": {"model_type": "gemma4", **_DENSE},
    "glm": {"model_type": "glm_moe_dsa", **_DENSE, "num_nextn_predict_layers": 1},
    "kimi-k2": {"model_type": "kimi_k2", **_DENSE},
    "kimi-k3": {"model_type": "kimi_k3", **_DENSE, "linear_attn_config": {"kda_layers": [1]}},
    "llama": {"model_type": "llama", **_DENSE},
    "mamba2": {
        "model_type": "nemotron_h",
        **_DENSE,
        "hybrid_override_pattern": "M-M*",
        "ssm_state_size": 128,
    },
    "gpt-oss": {"model_type": "gpt_oss", **_DENSE, "num_local_experts": 32},
    "mrope": {
        "model_type": "qwen3_5",
        "text_config": {**_DENSE, **_GDN},
        "mtp_num_hidden_layers": 1,
    },
    "zamba": {
        "model_type": "granitemoehybrid",
        **_DENSE,
        "layer_types": ["mamba", "attention"],
        "mamba_d_state": 128,
    },
}
_PLAIN = {"model_type": "qwen2", **_DENSE, "max_position_embeddings": 32768}
# Arguments that switch a feature on; `{}` is the row's own pattern without its signs.
_ARGUMENTS = {
    "data-parallel": "--data-parallel-size=2",
    "flag": "{}",
    "kv-connector": '--kv-transfer-config={{"kv_connector":"{}Connector","kv_role":"kv_both"}}',
    "kv-dtype": "--kv-cache-dtype={}_k8v4",
    "kv-offload": "--kv-offloading-size=8",
    "pipeline-parallel": "--pipeline-parallel-size=2",
    "prefix-caching": "--enable-prefix-caching",
    "reasoning": "--reasoning-parser={}",
    "structured-outputs-backend": '--structured-outputs-config={{"backend":"{}"}}',
    "tensor-parallel": "--tensor-parallel-size={}",
    "tools": "--tool-call-parser={}",
}


class Outcome(NamedTuple):
    """What is said of one row: ``refuse``, ``warn`` or ``silent``, and the release."""

    release: Version
    severity: str


def manifest(row: KnownBadRow, release: Version) -> str:
    """A Deployment whose image and arguments put it inside of a row's features."""
    arguments = ["--max-model-len=32768"]
    environment = ""
    for feature in row.features:
        name, _, pattern = feature.partition("=")
        plain = (
            re.sub(r"[\^$]", "", pattern).partition("|")[0].replace("(coder", "coder").lstrip("(")
        )
        if name in _ARGUMENTS:
            arguments.append(
                _ARGUMENTS[name]
                .format(plain or "any")
                .removesuffix("_k8v4" if "fp8" in plain else "")
            )
        if name == "runner":
            environment = f"\n        env: [{{name: VLLM_USE_V2_MODEL_RUNNER, value: '{'12'.index(plain[1:])}'}}]"
    image = (
        f"vllm-ascend:v{show(release)}"
        if row.engine == "vllm-ascend"
        else f"vllm-openai:v{show(release)}"
    )
    return (
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: served}\nspec:\n  template:\n    spec:\n"
        f"      containers:\n      - name: engine\n        image: registry.example/vllm/{image}{environment}\n"
        "        args:\n        - --model=org/some-model\n"
        + "".join(f"        - {text!r}\n" for text in arguments)
    )


def spec_of(row: KnownBadRow) -> Spec:
    """A spec of the row's first method that has its settings."""
    method = row.methods[0] if row.methods else "ngram"
    settings = ["num_speculative_tokens=3"]
    settings += [
        f.partition("=")[2].replace(":", "=") for f in row.features if f.startswith("setting=")
    ]
    draft = "org/draft" if METHODS[method].needs_draft in ("head", "model") else None
    return build(method, draft=draft, sets=tuple(settings))[0]


def severity(row: KnownBadRow, release: Version) -> str:
    """``refuse``, ``warn`` or ``silent``: what the row says of its manifest under a release."""
    service = load(manifest(row, release), file="served.yaml")[0]
    plain = CONFIGS["gpt-oss"] if "moe" in row.features else _PLAIN
    target = describe_model(CONFIGS[row.models[0]] if row.models else plain)
    facts = facts_of(service, target=target, draft=ModelFacts(context=4096))
    gpu = next(
        (feature.partition("=")[2] for feature in row.features if feature.startswith("gpu=")), None
    )
    found = shipped_known_bad().findings(spec_of(row), replace(facts, gpu=gpu))
    return next(
        (finding.severity for finding in found if finding.id == f"known-bad-{row.id}"), "silent"
    )


def inside(row: KnownBadRow) -> Outcome:
    """The row at the last release that is known to fail."""
    release = row.seen or row.first or (0, 28, 0)
    return Outcome(release, severity(row, release))


def outside(row: KnownBadRow) -> Outcome | None:
    """The row at the release with the fix, else before its first; None where neither is known."""
    release = row.fixed or (None if row.first is None else (0, row.first[1] - 1, 9))
    return None if release is None else Outcome(release, severity(row, release))
