"""Workloads that run an engine, of every kind that mpctl changes on a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mpctl.doctor.state import (
    SERVICE_LABEL,
    ClusterFacts,
    KubeObject,
    full_name,
    is_budgeted,
    label,
    selects,
)
from mpctl.json_fields import condition, container_of, list_at, mapping_at, value_at
from mpctl.manifest.engine.engine_port import CONTAINER
from mpctl.manifest.engine.recognition import is_vllm_start
from mpctl.methods.preflight.drain import budget_command

SET_LABEL = "leaderworkerset.sigs.k8s.io/name"
# Kinds whose pods a Deployment or a LeaderWorkerSet makes, and where their objects are read.
_OBJECTS = {
    "Deployment": "deployments",
    "LeaderWorkerSet": "leaderworkersets",
    "LLMInferenceService": "llminferenceservices",
    "VLLMRuntime": "vllmruntimes",
}


def predictor(service: KubeObject) -> str:
    """KServe's name of the Deployment behind an InferenceService."""
    return f"{full_name(service)[1]}-predictor"


@dataclass(frozen=True)
class Workload:
    """A workload that runs an engine."""

    kind: str  # as users know it
    names: tuple[str, str]  # namespace and name
    service: KubeObject  # the object that users write; the record where it could not be read
    record: KubeObject  # the Deployment or LeaderWorkerSet, with replicas and selector
    template: KubeObject  # of its pods
    engine: KubeObject  # the engine's container

    @property
    def title(self) -> str:
        return f"{self.kind} {'/'.join(filter(None, self.names))}"

    @property
    def image(self) -> str:
        return str(self.engine.get("image") or "")

    @property
    def labels(self) -> dict[str, str]:
        groups = value_at(self.record, "spec", "leaderWorkerTemplate")
        added = {SET_LABEL: full_name(self.record)[1]} if groups else {}
        return {**mapping_at(self.template, "metadata", "labels"), **added}

    @property
    def replicas(self) -> int:
        replicas = value_at(self.record, "spec", "replicas")
        return 1 if replicas is None else int(replicas)

    @property
    def health(self) -> KubeObject:
        """The condition that says whether it serves."""
        return condition(self.service, "Ready") or condition(self.record, "Available")

    def pods(self, facts: ClusterFacts) -> Iterator[KubeObject]:
        """Its pods."""
        selector = value_at(self.record, "spec", "selector")
        if self.kind == "InferenceService":
            selector = {"matchLabels": {SERVICE_LABEL: self.names[1]}}
        elif value_at(self.record, "spec", "leaderWorkerTemplate"):
            selector = {"matchLabels": {SET_LABEL: full_name(self.record)[1]}}
        for pod in facts.listed("pods") if selector else ():
            if full_name(pod)[0] == self.names[0] and selects(
                selector, mapping_at(pod, "metadata", "labels")
            ):
                yield pod

    def missing_budget(self, budgets: Sequence[KubeObject] | None) -> str | None:
        """Return the command that makes the missing PodDisruptionBudget; None without need."""
        if budgets is None or self.replicas < 2:
            return None
        namespace, name = self.names
        if is_budgeted(
            (budget for budget in budgets if full_name(budget)[0] == namespace), self.labels
        ):
            return None
        selected = value_at(self.record, "spec", "selector", "matchLabels") or {SET_LABEL: name}
        return budget_command(
            namespace, name, ",".join(f"{key}={value}" for key, value in selected.items())
        )


def workloads(facts: ClusterFacts) -> Iterator[Workload]:
    """Every workload that runs an engine."""
    for service in facts.listed("inferenceservices"):
        deployment = facts.of("deployments", full_name(service)[0], predictor(service)) or {}
        if engine := engine_of(deployment):
            template = value_at(deployment, "spec", "template")
            yield Workload(
                "InferenceService", full_name(service), service, deployment, template, engine
            )
    for own_kind in ("Deployment", "LeaderWorkerSet"):
        for record in facts.listed(_OBJECTS[own_kind]):
            owner = next(
                (
                    o
                    for o in list_at(record, "metadata", "ownerReferences")
                    if value_at(o, "controller")
                ),
                None,
            )
            kind, name = (
                str(value_at(owner, "kind") or own_kind),
                value_at(owner, "name") or full_name(record)[1],
            )
            if kind not in _OBJECTS or label(record, SERVICE_LABEL) is not None:
                continue
            names, template = (full_name(record)[0], str(name)), _template(record)
            service = facts.of(_OBJECTS[kind], *names) or record
            for engine in list_at(template, "spec", "containers"):
                if _is_vllm(engine):
                    yield Workload(kind, names, service, record, template, engine)


def every_service(facts: ClusterFacts) -> Iterator[Workload]:
    """Every workload, and each InferenceService without a Deployment of KServe's name, as in Knative mode."""
    titles = set()
    for workload in workloads(facts):
        titles.add(workload.title)
        yield workload
    for service in facts.listed("inferenceservices"):
        workload = Workload("InferenceService", full_name(service), service, {}, {}, {})
        if workload.title not in titles:
            yield workload


def engine_of(deployment: KubeObject) -> KubeObject | None:
    """The engine's container of a Deployment."""
    return container_of(mapping_at(deployment, "spec", "template", "spec"), CONTAINER) or None


def _template(record: KubeObject) -> KubeObject:
    groups = value_at(record, "spec", "leaderWorkerTemplate")
    keys = ("leaderTemplate", "workerTemplate") if groups else ()
    templates = (value_at(groups, key) for key in keys)
    return next(filter(None, templates), None) or mapping_at(record, "spec", "template")


def _is_vllm(container: KubeObject) -> bool:
    command, args = list_at(container, "command"), list_at(container, "args")
    words = [str(argument) for argument in command] or None
    return is_vllm_start(
        str(container.get("image") or ""), words, [str(argument) for argument in args]
    )
