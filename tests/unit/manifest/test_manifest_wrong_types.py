"""Manifests with one field of a wrong type: an error names the file, or the field does not matter; nothing crashes."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from service_samples import NGRAM, RUNTIME, USER

from mpctl.errors import InputError, Refused
from mpctl.estimate.facts import facts_of
from mpctl.manifest import Service, load, load_values
from mpctl.methods import from_config
from mpctl.platform.kubernetes.service.running_engine import candidate_manifest
from mpctl.staging.modes import DraftSource, StagingFacts
from mpctl.staging.planner import MODES, plan_staging
from tests.preflight import preflight_findings

EAGLE3 = {"method": "eagle3", "model": "/mnt/d", "num_speculative_tokens": 3}
KSERVE = "apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nmetadata: {name: q, annotations: {a: b}}\n"
CONTAINER = """\
name: vllm, image: 'vllm/vllm-openai:v0.32.0', command: [vllm, serve, /mnt/models], args: [--seed=1],
  env: [{name: A, value: b}, {name: C, valueFrom: {fieldRef: {fieldPath: x}}}],
  volumeMounts: [{name: w, mountPath: /mnt/models, subPath: q}], ports: [{containerPort: 8000}]"""
POD = (
    "{containers: [{"
    + CONTAINER
    + "}], volumes: [{name: w, persistentVolumeClaim: {claimName: c}}]}"
)
WORKLOAD = (
    "metadata: {name: q, labels: {a: b}}\nspec:\n  replicas: 1\n  selector: {matchLabels: {a: b}}\n  template:\n"
    "    metadata: {labels: {a: b}}\n    spec:\n      "
)
TEXTS = {
    "model": KSERVE
    + "spec:\n  predictor:\n    minReplicas: 1\n    model:\n      modelFormat: {name: vLLM}\n"
    "      storageUri: hf://org/m\n      runtime: r\n      args: [--seed=1]\n      env: [{name: A, value: b}]\n",
    "list": KSERVE
    + "spec:\n  canary: {a: b}\n  predictor:\n    model: {modelFormat: {name: vLLM}, args: [--seed=1]}\n"
    "    storageUris:\n    - {uri: hf://org/m, mountPath: /mnt/models}\n",
    "key": KSERVE
    + "spec:\n  predictor:\n    model: {modelFormat: {name: vLLM}, storage: {key: k, path: p}}\n",
    "containers": KSERVE + f"spec:\n  predictor: {POD}\n",
    "runtime": RUNTIME + USER,
    "deployment": "apiVersion: apps/v1\nkind: Deployment\n" + WORKLOAD + POD + "\n",
    "stateful": "apiVersion: apps/v1\nkind: StatefulSet\n" + WORKLOAD + POD + "\n",
    "group": "apiVersion: leaderworkerset.x-k8s.io/v1\nkind: LeaderWorkerSet\nmetadata: {name: q}\nspec:\n"
    f"  leaderWorkerTemplate:\n    leaderTemplate: {{spec: {POD}}}\n    workerTemplate: {{spec: {POD}}}\n",
    "llm": "apiVersion: serving.kserve.io/v1alpha2\nkind: LLMInferenceService\nmetadata: {name: q}\nspec:\n"
    "  model: {uri: hf://org/m, name: m}\n  baseRefs: [{name: base}]\n  parallelism: {tensor: 1}\n  template:\n"
    "    containers:\n    - {name: main, env: [{name: VLLM_ADDITIONAL_ARGS, value: --seed=1}]}\n  prefill:\n"
    "    replicas: 1\n    template:\n      containers:\n      - {name: main, args: [--seed=1]}\n---\n"
    "apiVersion: serving.kserve.io/v1alpha2\nkind: LLMInferenceServiceConfig\nmetadata: {name: base}\nspec:\n"
    "  template: {containers: [{name: main, args: [--seed=2], env: [{name: A, value: b}]}]}\n",
    "modelplane": "apiVersion: modelplane.ai/v1alpha1\nkind: ModelDeployment\nmetadata: {name: q}\nspec:\n"
    f"  engines:\n  - name: main\n    members:\n    - role: Standalone\n      template: {{spec: {POD}}}\n",
}
VALUES = {
    "stack": "servingEngineSpec:\n  modelSpec:\n  - name: a\n    repository: r\n    tag: t\n    modelURL: org/m\n"
    "    lmcacheConfig: {kvRole: kv_consumer}\n    vllmConfig: {extraArgs: [--seed=1]}\n",
    "modelservice": "modelArtifacts: {uri: hf://org/m}\ndecode:\n  containers:\n"
    "  - {name: vllm, modelCommand: vllmServe, args: [--seed=1]}\nprefill:\n  create: true\n  containers:\n"
    "  - {name: vllm, modelCommand: vllmServe, image: vllm}\n",
    "kubeai": "catalog:\n  m: {engine: VLLM, url: hf://org/m, features: [TextGeneration], args: [--seed=1]}\n",
}
WRONG: tuple[Any, ...] = (
    None,
    True,
    7,
    "text",
    "",
    [],
    [1],
    [None],
    [[]],
    {},
    {"a": 1},
    {"a": None},
)


def paths(value: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield here
    entries = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inner in entries:
        yield from paths(inner, (*here, key))


def with_value(documents: list[Any], path: tuple[Any, ...], value: Any) -> str:
    changed: Any = copy.deepcopy(documents)
    home = changed
    for key in path[:-1]:
        home = home[key]
    home[path[-1]] = value
    return yaml.safe_dump_all(changed, sort_keys=False)


def use(service: Service) -> None:
    """Everything that a command does with a manifest."""
    for step in (
        service.speculation,
        lambda: service.with_speculation(NGRAM).with_speculation(None),
        lambda: service.with_speculation(EAGLE3).with_speculation(None),
        lambda: preflight_findings(from_config(NGRAM), facts_of(service)),
        lambda: candidate_manifest(service.text, service.name),
        *(
            lambda name=name, kserve=kserve: plan_staging(
                service,
                DraftSource("hf://org/draft"),
                StagingFacts(kserve=kserve, claim="c", registry="r"),
                mode=name,
            )
            for name in (None, *MODES)
            for kserve in ("0.19", "0.20")
        ),
    ):
        try:
            step()
        except (InputError, Refused) as error:
            assert str(error)


CASES = [
    (kind, path, value)
    for kind, text in (TEXTS | VALUES).items()
    for path in paths(list(yaml.safe_load_all(text)))
    if path
    for value in WRONG
]


@settings(max_examples=150, deadline=None)
@given(case=st.sampled_from(CASES))
def test_a_field_of_a_wrong_type_is_an_error_with_the_file_or_does_not_matter(case):
    kind, path, value = case
    text = with_value(list(yaml.safe_load_all((TEXTS | VALUES)[kind])), path, value)
    try:
        services = (
            load_values(text, None, file="f.yaml") if kind in VALUES else load(text, file="f.yaml")
        )
    except InputError as error:
        assert "f.yaml" in str(error)
        return
    for service in services:
        use(service)
