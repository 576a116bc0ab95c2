"""Autoscalers that a rollout pins: one per Deployment, none that KServe overrides, none that goes to zero."""

from __future__ import annotations

from collections.abc import Iterator

from mpctl import commands
from mpctl.doctor.access import holder_of
from mpctl.doctor.state import ClusterFacts, KubeObject, Symptom, annotation, full_name, title
from mpctl.doctor.workloads import predictor, workloads
from mpctl.json_fields import list_at, value_at

CLASS = "serving.kserve.io/autoscalerClass"
_AUTOSCALING = "docs/how-to/autoscaling.md"


def scalers_of(facts: ClusterFacts, target: tuple[str, str]) -> list[tuple[str, KubeObject]]:
    """(kind, object) of every autoscaler of a Deployment or LeaderWorkerSet by namespace and name; an HPA that KEDA
    made is KEDA's."""
    namespace, name = target
    scalers = []
    for resource, kind in (("horizontalpodautoscalers", "HPA"), ("scaledobjects", "ScaledObject")):
        for autoscaler in facts.listed(resource):
            aims = value_at(autoscaler, "spec", "scaleTargetRef", "name") == name
            owners = list_at(autoscaler, "metadata", "ownerReferences")
            by_keda = any(owner.get("kind") == "ScaledObject" for owner in owners)
            if full_name(autoscaler)[0] == namespace and aims and not by_keda:
                scalers.append((kind, autoscaler))
    return scalers


def check_names(facts: ClusterFacts) -> Iterator[Symptom]:
    for service in facts.listed("inferenceservices"):
        scaler = annotation(service, CLASS)
        for kind, autoscaler in scalers_of(facts, (full_name(service)[0], predictor(service))):
            by_kserve = any(
                o.get("kind") == "InferenceService"
                for o in list_at(autoscaler, "metadata", "ownerReferences")
            )
            if kind == "HPA" and full_name(autoscaler)[1] == predictor(service) and not by_kserve:
                yield Symptom(
                    "hpa-name",
                    "fail",
                    title("HPA", autoscaler),
                    "has the name KServe gives its own: the controller adopts it, then deletes it",
                    f"recreate it under another name, such as {full_name(service)[1]}-queue-wait",
                    "kserve/kserve#4312",
                )
            if not by_kserve and scaler != "external":
                annotated = f"{CLASS} is {scaler}" if scaler else f"it has no annotation {CLASS}"
                yield Symptom(
                    "autoscaler-class",
                    "warn",
                    title("InferenceService", service),
                    f"{title(kind, autoscaler)} scales it but {annotated}: "
                    "KServe sets the replicas too or makes its own HPA",
                    f"annotate the service {CLASS}: external (this restarts its pods once)",
                    "KServe 0.20 controller, measured",
                )


def check_many(facts: ClusterFacts) -> Iterator[Symptom]:
    for workload in workloads(facts):
        titles = [
            title(kind, autoscaler)
            for kind, autoscaler in scalers_of(facts, full_name(workload.record))
        ]
        if len(titles) > 1:
            yield Symptom(
                "autoscaler-twice",
                "fail",
                workload.title,
                f"{' and '.join(titles)} scale the same pods and override each other",
                "keep one of them",
                _AUTOSCALING,
            )


def check_bounds(facts: ClusterFacts) -> Iterator[Symptom]:
    for workload in workloads(facts):
        for kind, autoscaler in scalers_of(facts, full_name(workload.record)):
            keys = (
                ("minReplicas", "maxReplicas")
                if kind == "HPA"
                else ("minReplicaCount", "maxReplicaCount")
            )
            least, most = (value_at(autoscaler, "spec", key) for key in keys)
            least = (1 if kind == "HPA" else 0) if least is None else least
            if least == most and workload.names in facts.unfinished:
                yield from _pinned(facts, workload.names, title(kind, autoscaler))
            elif least == 0:
                yield Symptom(
                    "autoscaler-minimum",
                    "warn",
                    title(kind, autoscaler),
                    "goes to zero replicas: the next request waits a whole cold start, and nothing can be measured",
                    "set the minimum to 1 or more",
                    _AUTOSCALING,
                )


def _pinned(facts: ClusterFacts, names: tuple[str, str], subject: str) -> Iterator[Symptom]:
    if holder_of(facts, names) is None:
        namespace, name = names
        resume, rollback = (
            commands.line(verb, name, namespace=namespace) for verb in ("resume", "rollback")
        )
        yield Symptom(
            "autoscaler-pinned",
            "fail",
            subject,
            "is pinned by an interrupted rollout: it cannot scale with load",
            f"{resume} continues it, {rollback} undoes it",
            _AUTOSCALING,
        )


CHECKS = (check_names, check_many, check_bounds)
