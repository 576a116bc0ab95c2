"""Data of services of every kind, as users have them: with sidecars, init containers, variables and odd texts."""

from __future__ import annotations

import json
import random
import shlex
from typing import Any

Data = dict[str, Any]
_ODD = (
    "yes", "off", "012", "1e3", "0x1F", "~", "null", "2026-11-22", "a: b", "#c", " lead", "trail ",
    "q'u\"o", "\u00fcn\u00ef",
    "\U0001f600", "{{ .Values.x }}", "$(POD)",
    "${X:-1}", "a\nb\n", "a\n\n  b\n\n", "x" * 300, "tab\there", "back\\slash",
    "- dash", "? q", "@at", "%p", "=", "<<", "*star",
    "&amp", "!bang", "|", ">", "%YAML", "--- #", "...", "true", "[a, b]",
)  # fmt: skip
_FLAGS: tuple[list[str], ...] = (
    ["--max-model-len", "8192"], ["--max-model-len=8192"], ["--gpu-memory-utilization", "0.9"], ["--port=8080"],
    ["--served-model-name", "a", "b"], ["--enforce-eager"], ["--enable-prefix-caching"], ["-tp", "2"],
    ["--tensor_parallel_size=2"], ["--override-generation-config", '{"temperature": 0.6}'], ["--seed", "-1"],
    ["--chat-template", "{{ messages }} \u00fc"], ["--api-key", "it's \"mine\""], ["--no-enable-log-requests"],
    ["--allowed-origins=[\"*\"]"], ["--disable-log-requests"], ["-O3"], ["--hf-overrides={\"a\": [1, 2]}"],
)  # fmt: skip
_SPECS: tuple[Data, ...] = (
    {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4},
    {"method": "eagle3", "model": "org/head", "num_speculative_tokens": 2},
    {"num_speculative_tokens": 1, "method": "mtp"},
)


def services(rng: random.Random) -> list[Any]:
    """The documents of a file: one service, sometimes with others beside it."""
    made = rng.choice((
        _model, _model, _predictor, _workload, _workload, _group, _llm, _llm, _runtime, _deployment, _stack,
        _pool, _catalog, _vllm_runtime, _graph,
    ))(rng)  # fmt: skip
    if "kind" in made[0]:
        if rng.random() < 0.15:
            made.insert(rng.randrange(len(made) + 1), _beside(rng))
        _dress(made, rng)
    return made


def _words(rng: random.Random, *, spec: float = 0.25) -> list[str]:
    words = [word for flag in rng.sample(_FLAGS, rng.randrange(6)) for word in flag]
    if rng.random() < spec:
        config = rng.choice(_SPECS)
        text = json.dumps(config)
        words += rng.choice((
            ["--speculative-config", text], [f"--speculative-config={text}"], ["-sc", text],
            [f"--speculative_config={text}"],
            [f"--speculative-config.{key}={value}" for key, value in config.items()],
            [part for key, value in config.items() for part in (f"--speculative-config.{key}", str(value))],
        ))  # fmt: skip
        words += rng.choice(([], ["--enforce-eager"], ["--max-num-seqs", "4"]))
    return words


def _container(rng: random.Random, name: str) -> Data:
    words = ["org/model", *_words(rng)]
    fields: Data = {
        "name": name,
        "image": rng.choice(("vllm/vllm-openai:v0.32.0", "reg:5000/team/vllm@sha256:0")),
    }
    form = rng.random()
    if form < 0.3:
        line = shlex.join(["vllm", "serve", *words])
        before = rng.choice(("", "exec ", "set -e\nexport A=b\n", "sleep 1 && "))
        if rng.random() < 0.4:
            line = line.replace(" --", " \\\n  --")
        fields["command"] = [rng.choice(("sh", "/bin/bash")), "-c"]
        fields["args"] = [before + line + rng.choice(("", "\n"))]
        if rng.random() < 0.3:
            fields["command"] += fields.pop("args")
    elif form < 0.6:
        fields |= {"command": ["vllm", "serve"], "args": words}
    elif form < 0.8:
        fields["args"] = ["--model=org/model", *words[1:]]
    else:
        fields["command"] = [
            "python3",
            "-m",
            "vllm.entrypoints.openai.api_server",
            "--model",
            *words,
        ]
    if rng.random() < 0.5:
        fields["env"] = [
            {"name": f"E{n}", "value": rng.choice(_ODD)} for n in range(rng.randrange(1, 4))
        ]
    if rng.random() < 0.3:
        fields["volumeMounts"] = [{"name": "shm", "mountPath": "/dev/shm"}]
    if rng.random() < 0.4:
        fields["resources"] = {"limits": {"nvidia.com/gpu": 1, "cpu": "4"}}
    return fields


def _pod(rng: random.Random, name: str) -> Data:
    containers = [_container(rng, name)]
    if rng.random() < 0.3:
        sidecar = {"name": "proxy", "image": "envoy:1", "args": ["--port", "9", "--model=none"]}
        containers.insert(rng.randrange(2), sidecar)
    pod: Data = {"containers": containers}
    if rng.random() < 0.25:
        pod["initContainers"] = [
            {"name": "fetch", "image": "busybox", "command": ["sh", "-c"], "args": ["echo vllm"]}
        ]
    if rng.random() < 0.4:
        pod["volumes"] = [{"name": "shm", "emptyDir": {"medium": "Memory"}}]
    return pod


def _object(kind: str, api: str, spec: Data) -> Data:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": "llm"}, "spec": spec}


def _inference(predictor: Data) -> Data:
    return _object("InferenceService", "serving.kserve.io/v1beta1", {"predictor": predictor})


def _model(rng: random.Random) -> list[Any]:
    model: Data = {"modelFormat": {"name": rng.choice(("vLLM", "huggingface"))}}
    if rng.random() < 0.7:
        model["args"] = _words(rng)
    if rng.random() < 0.6:
        model["storageUri"] = rng.choice(
            ("hf://org/model", "pvc://claim/models/a", "s3://bucket/a b")
        )
    predictor: Data = {"model": model}
    if rng.random() < 0.3:
        predictor["minReplicas"] = 1
    if rng.random() < 0.2:
        predictor["volumes"] = [{"name": "cache", "emptyDir": {}}]
    return [_inference(predictor)]


def _predictor(rng: random.Random) -> list[Any]:
    pod = _pod(rng, "kserve-container")
    if rng.random() < 0.2:
        pod["storageUris"] = [{"uri": "hf://org/model", "mountPath": "/mnt/models"}]
    return [_inference(pod)]


def _workload(rng: random.Random) -> list[Any]:
    template = {"metadata": {"labels": {"app": "llm"}}, "spec": _pod(rng, "engine")}
    spec = {"selector": {"matchLabels": {"app": "llm"}}, "template": template}
    return [_object(rng.choice(("Deployment", "StatefulSet")), "apps/v1", spec)]


def _group(rng: random.Random) -> list[Any]:
    template: Data = {"size": 2, "workerTemplate": {"spec": _pod(rng, "worker")}}
    if rng.random() < 0.7:
        template["leaderTemplate"] = {"spec": _pod(rng, "leader")}
    return [
        _object(
            "LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1", {"leaderWorkerTemplate": template}
        )
    ]


def _llm(rng: random.Random) -> list[Any]:
    spec: Data = {"model": {"uri": "hf://org/model", "name": "m"}, "replicas": 1}
    form = rng.random()
    if form < 0.75:
        main: Data = {"name": "main"}
        if form < 0.25:
            main["args"] = [shlex.quote(word) for word in _words(rng, spec=0.0)] or [
                "--enforce-eager"
            ]
        elif form < 0.5:
            value = shlex.join(_words(rng, spec=0.0)) or "--enforce-eager"
            main["env"] = [{"name": "VLLM_ADDITIONAL_ARGS", "value": value}]
            if rng.random() < 0.5:
                main["env"].insert(rng.randrange(2), {"name": "E", "value": rng.choice(_ODD)})
        elif form < 0.65:
            main |= {"command": ["vllm", "serve", "/mnt/models"], "args": _words(rng)}
        spec["template"] = {"containers": [main]}
        if rng.random() < 0.3:
            spec["template"]["containers"].insert(rng.randrange(2), {"name": "side", "image": "x"})
    if rng.random() < 0.2:
        spec["worker"] = {"containers": [{"name": "main", "env": [{"name": "A", "value": "b"}]}]}
    if rng.random() < 0.2:
        spec["prefill"] = {"replicas": 1}
        if rng.random() < 0.7:
            spec["prefill"]["template"] = {
                "containers": [{"name": "main", "args": ["--enforce-eager"]}]
            }
    return [
        _object(
            "LLMInferenceService",
            rng.choice(("serving.kserve.io/v1alpha1", "serving.kserve.io/v1alpha2")),
            spec,
        )
    ]


def _runtime(rng: random.Random) -> list[Any]:
    kind = rng.choice(("ServingRuntime", "ClusterServingRuntime"))
    runtime = _object(kind, "serving.kserve.io/v1alpha1", {**_pod(rng, "kserve-container")})
    runtime["spec"]["supportedModelFormats"] = [{"name": "vLLM", "autoSelect": True}]
    runtime["metadata"] = {"name": "own-vllm"}
    if rng.random() < 0.3:
        return [runtime]
    (service,) = _model(rng)
    service["spec"]["predictor"]["model"]["runtime"] = "own-vllm"
    return rng.sample([runtime, service], 2)


def _deployment(rng: random.Random) -> list[Any]:
    member = {"role": "Standalone", "template": {"spec": _pod(rng, "engine")}}
    inner: Data = {"engines": [{"name": "main", "members": [member]}]}
    spec = inner if rng.random() < 0.4 else {"template": {"spec": inner}}
    return [_object("ModelDeployment", "modelplane.ai/v1alpha1", spec)]


def _vllm_runtime(rng: random.Random) -> list[Any]:
    config: Data = {"v1": True, "port": 8000, "env": [{"name": "E", "value": rng.choice(_ODD)}]}
    if rng.random() < 0.7:
        config["extraArgs"] = _words(rng)
    spec = {"model": {"modelURL": "org/model", "maxModelLen": 8192}, "vllmConfig": config}
    return [_object("VLLMRuntime", "production-stack.vllm.ai/v1alpha1", spec)]


def _graph(rng: random.Random) -> list[Any]:
    main = _container(rng, "main")
    main |= {
        "command": ["python3", "-m", "dynamo.vllm"],
        "args": ["--model=org/model", *_words(rng)],
    }
    front: Data = {"name": "main", "image": "nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.3.1"}
    components = [
        {"name": name, "type": name, "podTemplate": {"spec": {"containers": [container]}}}
        for name, container in (("frontend", front), ("worker", main))
    ]
    return [_object("DynamoGraphDeployment", "nvidia.com/v1beta1", {"components": components})]


def _stack(rng: random.Random) -> list[Any]:
    entries = []
    for name in ("a", "b")[: rng.randrange(1, 3)]:
        config: Data = {"enablePrefixCaching": True}
        if rng.random() < 0.7:
            config["extraArgs"] = _words(rng)
        entries.append(
            {
                "name": name,
                "repository": "vllm/vllm-openai",
                "modelURL": "org/m",
                "vllmConfig": config,
            }
        )
    return [
        {
            "servingEngineSpec": {"runtimeClassName": "", "modelSpec": entries},
            "odd": rng.choice(_ODD),
        }
    ]


def _pool(rng: random.Random) -> list[Any]:
    fields: Data = {
        "name": "vllm",
        "image": "ghcr.io/llm-d/llm-d-cuda:v0.9.0",
        "modelCommand": "vllmServe",
    }
    if rng.random() < 0.8:
        fields["args"] = _words(rng)
    container = {"name": "vllm", "modelCommand": "vllmServe", "args": ["--enforce-eager"]}
    prefill: Data = rng.choice(({"create": False}, {"containers": [container]}))
    return [
        {
            "modelArtifacts": {"uri": "hf://org/m"},
            "decode": {"containers": [fields]},
            "prefill": prefill,
        }
    ]


def _catalog(rng: random.Random) -> list[Any]:
    fields: Data = {
        "enabled": True,
        "url": "hf://org/m",
        "engine": "VLLM",
        "features": ["TextGeneration"],
    }
    if rng.random() < 0.8:
        fields["args"] = _words(rng)
    return [{"catalog": {"m-1": fields, "e5": {"engine": "VLLM", "features": ["TextEmbedding"]}}}]


def _beside(rng: random.Random) -> Data:
    return rng.choice((
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "vllm serve\n", "b": "on"}},
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "llm"}, "spec": {"ports": [{"port": 80}]}},
        {"apiVersion": "v1", "kind": "List", "items": []},
        _inference({"model": {"modelFormat": {"name": "sklearn"}}}) | {"metadata": {"name": "iris"}},
    ))  # fmt: skip


def _dress(made: list[Any], rng: random.Random) -> None:
    """Annotations with texts that writers of YAML get wrong."""
    for document in made:
        if rng.random() < 0.4 and isinstance(document.get("metadata"), dict):
            keys = rng.sample(("team", "note", "a/b", "c.d/e", "on", "1"), 3)
            document["metadata"]["annotations"] = {key: rng.choice(_ODD) for key in keys}
