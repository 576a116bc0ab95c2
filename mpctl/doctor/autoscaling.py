"""Autoscalers of the services: the HPA's name, minimum and state, one autoscaler per Deployment, KEDA's defaults."""

from __future__ import annotations

from collections.abc import Iterator

from mpctl import commands
from mpctl.doctor.access import holder_of
from mpctl.doctor.facts import ClusterFacts, Thing, annotation, at, condition, each, is_true, place, title
from mpctl.doctor.finding import Finding

CLASS = "serving.kserve.io/autoscalerClass"
_AUTOSCALING = "docs/how-to/autoscaling.md"


def predictor(service: Thing) -> str:
    """KServe's name of the Deployment behind a service."""
    return f"{place(service)[1]}-predictor"


def scalers_of(facts: ClusterFacts, service: Thing) -> list[tuple[str, Thing]]:
    """(kind, object) of every autoscaler that targets the service's Deployment; an HPA that KEDA made is KEDA's."""
    namespace = place(service)[0]
    scalers = []
    for resource, kind in (("horizontalpodautoscalers", "HPA"), ("scaledobjects", "ScaledObject")):
        for autoscaler in facts.known(resource):
            aims = at(autoscaler, "spec", "scaleTargetRef", "name") == predictor(service)
            made_by_keda = any(o.get("kind") == "ScaledObject" for o in each(autoscaler, "metadata", "ownerReferences"))
            if place(autoscaler)[0] == namespace and aims and not made_by_keda:
                scalers.append((kind, autoscaler))
    return scalers


def check_names(facts: ClusterFacts) -> Iterator[Finding]:
    for service in facts.known("inferenceservices"):
        scaler = annotation(service, CLASS)
        for kind, autoscaler in scalers_of(facts, service):
            made = any(o.get("kind") == "InferenceService" for o in each(autoscaler, "metadata", "ownerReferences"))
            if kind == "HPA" and place(autoscaler)[1] == predictor(service) and not made:
                yield Finding(
                    "hpa-name",
                    "fail",
                    title("HPA", autoscaler),
                    "has the name KServe gives its own: the controller adopts it, then deletes it",
                    f"recreate it under another name, such as {place(service)[1]}-queue-wait",
                    "kserve/kserve#4312",
                )
            if not made and scaler != "external":
                annotated = f"{CLASS} is {scaler}" if scaler else f"it has no annotation {CLASS}"
                yield Finding(
                    "autoscaler-class",
                    "warn",
                    title("InferenceService", service),
                    f"{title(kind, autoscaler)} scales it but {annotated}: "
                    "KServe sets the replicas too or makes its own HPA",
                    f"annotate the service {CLASS}: external (this restarts its pods once)",
                    "KServe 0.20 controller, measured",
                )


def check_many(facts: ClusterFacts) -> Iterator[Finding]:
    for service in facts.known("inferenceservices"):
        titles = [title(kind, autoscaler) for kind, autoscaler in scalers_of(facts, service)]
        if len(titles) > 1:
            yield Finding(
                "autoscaler-twice",
                "fail",
                title("InferenceService", service),
                f"{' and '.join(titles)} scale the same Deployment and override each other",
                "keep one of them",
                _AUTOSCALING,
            )


def check_bounds(facts: ClusterFacts) -> Iterator[Finding]:
    for service in facts.known("inferenceservices"):
        for kind, autoscaler in scalers_of(facts, service):
            keys = ("minReplicas", "maxReplicas") if kind == "HPA" else ("minReplicaCount", "maxReplicaCount")
            least, most = (at(autoscaler, "spec", key) for key in keys)
            least = (1 if kind == "HPA" else 0) if least is None else least
            if least == most and place(service) in facts.unfinished:
                yield from _pinned(facts, service, title(kind, autoscaler))
            elif least == most:
                own = any(o.get("kind") == "InferenceService" for o in each(autoscaler, "metadata", "ownerReferences"))
                yield Finding(
                    "autoscaler-pinned",
                    "note" if own else "warn",
                    title(kind, autoscaler),
                    f"cannot scale: minimum and maximum are both {least}",
                    "if a rollout by hand pinned it, set the maximum it had",
                    _AUTOSCALING,
                )
            elif least == 0:
                yield Finding(
                    "autoscaler-minimum",
                    "warn",
                    title(kind, autoscaler),
                    "goes to zero replicas: the next request waits a whole cold start, and nothing can be measured",
                    "set the minimum to 1 or more",
                    _AUTOSCALING,
                )


def _pinned(facts: ClusterFacts, service: Thing, subject: str) -> Iterator[Finding]:
    if holder_of(facts, service) is None:
        namespace, name = place(service)
        resume, rollback = (commands.line(verb, name, namespace=namespace) for verb in ("resume", "rollback"))
        yield Finding(
            "autoscaler-pinned",
            "fail",
            subject,
            "is pinned by an interrupted rollout: it cannot scale with load",
            f"{resume} continues it, {rollback} undoes it",
            _AUTOSCALING,
        )


def _is_fixed(hpa: Thing) -> bool:
    least = at(hpa, "spec", "minReplicas")
    return bool((1 if least is None else least) == at(hpa, "spec", "maxReplicas"))


def check_hpa_state(facts: ClusterFacts) -> Iterator[Finding]:
    for hpa in facts.known("horizontalpodautoscalers"):
        active = condition(hpa, "ScalingActive")
        if at(active, "status") == "False" and at(active, "reason") != "ScalingDisabled":
            fixed = _is_fixed(hpa)  # KServe makes one of a minimum and a maximum of 1 for every service
            yield Finding(
                "hpa-inactive",
                "note" if fixed else "fail",
                title("HPA", hpa),
                f"does not scale, {at(active, 'reason')}: {at(active, 'message')}"
                + ("; its minimum is its maximum, so there is nothing to scale" if fixed else ""),
                "set a larger maximum before you rely on it"
                if fixed
                else "check the metric; without it the HPA scales neither up nor down",
                "kubernetes-sigs/prometheus-adapter#644, #673",
            )


def check_keda(facts: ClusterFacts) -> Iterator[Finding]:
    for scaled_object in facts.known("scaledobjects"):
        if condition(scaled_object, "Ready") is not None and not is_true(scaled_object, "Ready"):
            yield Finding(
                "keda-not-ready",
                "fail",
                title("ScaledObject", scaled_object),
                f"is not Ready: {at(condition(scaled_object, 'Ready'), 'message')}",
                f"kubectl -n {place(scaled_object)[0]} describe scaledobject {place(scaled_object)[1]}",
                "KEDA documentation",
            )
        paused = annotation(scaled_object, "autoscaling.keda.sh/paused-replicas") or annotation(
            scaled_object, "autoscaling.keda.sh/paused"
        )
        if paused:
            yield Finding(
                "keda-paused",
                "warn",
                title("ScaledObject", scaled_object),
                f"is paused ({paused}): it cannot scale with load",
                "remove the annotation autoscaling.keda.sh/paused*",
                "KEDA documentation, pausing",
            )
        for trigger in each(scaled_object, "spec", "triggers"):
            ignores = str(at(trigger, "metadata", "ignoreNullValues") or "true").lower()
            if trigger.get("type") == "prometheus" and ignores == "true":
                yield Finding(
                    "keda-null",
                    "warn",
                    title("ScaledObject", scaled_object),
                    "takes an empty answer of Prometheus as zero and scales down when the metric is gone",
                    'set ignoreNullValues: "false" and a fallback',
                    "grafana/mimir#15106, Yelp/paasta#3034",
                )


CHECKS = (check_names, check_many, check_bounds, check_hpa_state, check_keda)
