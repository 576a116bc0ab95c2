"""LLMInferenceService: what KServe merges below it, and what its Deployment's container must look like. Pure but for
one read.

KServe merges presets, the configs in ``baseRefs`` and the service into one pod template. Containers and variables merge
by name; ``args`` of a stronger layer replace those below as a whole. The engine is container ``main``. The Deployment's
strategy cannot be set (KServe 0.20): with one replica a new pod starts before the old one stops.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from mpctl import commands
from mpctl.errors import Refused
from mpctl.manifest.engine.evaluated import VARIABLE
from mpctl.platform.kubernetes.api.client import Client
from mpctl.platform.kubernetes.api.kinds import LLM_CONFIG
from mpctl.platform.kubernetes.service.knative import child_name
from mpctl.platform.kubernetes.service.shape import LLM_CONTAINER, is_grouped

Json = dict[str, Any]

_ROUTER_PRESETS = ("router-route", "scheduler", "scheduler-latency-predictor", "tokenizer", "tracing")
_TRACING = "--otlp-traces-endpoint"  # KServe appends it, and what follows, to the arguments (spec.tracing)


def deployment_of(record: Mapping[str, Any]) -> str:
    """Name of the Deployment that KServe makes; on several nodes of the LeaderWorkerSet."""
    return child_name(str(record["metadata"]["name"]), "-kserve-mn" if is_grouped(record) else "-kserve")


def applied_configs(record: Mapping[str, Any]) -> list[Json]:
    """The configs that KServe merged, the weakest first: ``name``, ``namespace``, ``source``."""
    return [dict(config) for config in (record.get("status") or {}).get("appliedConfigs") or ()]


def config_texts(record: Mapping[str, Any], configs: Mapping[str, Any] | None) -> tuple[str, ...]:
    """The applied configs as a revision records them: where from, namespace, name, and generation where it was read."""
    read = {
        (config["metadata"]["namespace"], config["metadata"]["name"]): config
        for config in (configs or {}).get("items", ())
    }
    texts = []
    for ref in applied_configs(record):
        space = ref.get("namespace") or record["metadata"].get("namespace")
        config = read.get((space, ref["name"]))
        generation = "" if config is None else f", generation {config['metadata'].get('generation')}"
        texts.append(f"{ref.get('source')} {space}/{ref['name']}{generation}")
    return tuple(texts)


def read_configs(client: Client, record: Mapping[str, Any], namespace: str) -> Json | None:
    """Read the configs that shape the pods, as a List, the weakest first; None until KServe reports them.

    Raises:
        NotPermitted: they may not be read.
    """
    refs = [ref for ref in applied_configs(record) if not str(ref["name"]).endswith(_ROUTER_PRESETS)]
    applied = [client.get(LLM_CONFIG, ref["name"], ref.get("namespace") or namespace) for ref in refs]
    return {"kind": "List", "items": [config for config in applied if config is not None]} if refs else None


def container_of(record: Mapping[str, Any]) -> Json:
    """Container ``main`` of a service or a config; empty where it has none."""
    containers = ((record.get("spec") or {}).get("template") or {}).get("containers") or ()
    return next((dict(container) for container in containers if container.get("name") == LLM_CONTAINER), {})


def merged_container(record: Mapping[str, Any], configs: Mapping[str, Any] | None) -> Json:
    """The fields of container ``main`` that start the engine, merged as KServe merges them. ``configs`` None: unknown,
    so variables that only a config may set are left out."""
    layers = [container_of(document) for document in (*(() if configs is None else configs["items"]), record)]
    env: dict[str, Json] = {} if configs is None else {VARIABLE: {"name": VARIABLE, "value": ""}}
    for layer in layers:
        env |= {variable["name"]: variable for variable in layer.get("env") or ()}
    strongest = {key: layer[key] for layer in layers for key in ("args", "command", "image") if layer.get(key)}
    return {**strongest, "env": list(env.values())}


def evaluated_argv(container: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The arguments that vLLM gets from the variable and ``args`` through a preset's ``eval``; None for another start,
    and where a quote is not closed."""
    script = " ".join(map(str, container.get("command") or ()))
    if "eval" not in script or "$@" not in script:
        return None
    given = [
        str(variable.get("value", "")) for variable in container.get("env") or () if variable.get("name") == VARIABLE
    ]
    try:
        words = [word for text in (*given, *(container.get("args") or ())) for word in shlex.split(str(text))]
    except ValueError:
        return None
    return ("vllm", "serve", *words)


def own_args(args: Sequence[str], expected: Sequence[str]) -> tuple[str, ...]:
    """The arguments of a Deployment's container without those that KServe appends for tracing."""
    arguments = tuple(args)
    end = arguments.index(_TRACING) if _TRACING in arguments and _TRACING not in expected else len(arguments)
    return arguments[:end]


def candidate_spec(spec: Mapping[str, Any], name: str, pods: int) -> Json:
    """The spec of a candidate: the same model name, fixed replicas, and no route, so that requests reach it only where
    mpctl sends them."""
    own = {key: value for key, value in spec.items() if key not in ("scaling", "router")}
    model = spec.get("model") or {}
    return {**own, "model": {**model, "name": model.get("name") or name}, "replicas": pods}


def require_changeable(record: Mapping[str, Any], title: str, *, side_by_side: bool, downtime: bool) -> None:
    """Refuse what KServe cannot do with this service.

    Raises:
        Refused: with the reason and the remedy.
    """
    if is_grouped(record):
        return  # see groups
    if side_by_side and record["spec"].get("prefill") is not None:
        raise Refused(
            f"{title} has prefill pods of its own: a candidate beside it would prefill by itself, so the two would "
            f"not be alike",
            hint="use --strategy in-place, which changes the decode pods alone",
        )
    if downtime:
        raise Refused(
            f"{title}: KServe gives an LLMInferenceService no update strategy, so no old pod can stop first",
            hint=f"add capacity first with '{commands.line('capacity', 'CLUSTER')}'",
        )
