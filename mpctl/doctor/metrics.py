"""queue_wait_ms as the HPA reads it: an answer for every ready pod, and a number."""

from __future__ import annotations

from collections.abc import Iterator

from mpctl.doctor.autoscaling import scalers_of
from mpctl.doctor.facts import ClusterFacts, MetricAnswer, Thing, at, each, is_true, place, selects, title
from mpctl.doctor.finding import Finding

METRIC = "queue_wait_ms"
ADAPTER, OPERATOR = "custom.metrics.k8s.io", "monitoring.coreos.com"
# The number that NaN becomes in the custom metrics API (kubernetes-sigs/prometheus-adapter#308).
NAN = "-9223372036854775808m"


def uses_metric(hpa: Thing) -> bool:
    """Return whether an HPA scales on queue_wait_ms of pods."""
    return any(at(m, "pods", "metric", "name") == METRIC for m in each(hpa, "spec", "metrics"))


def users(facts: ClusterFacts) -> list[Thing]:
    """The services whose HPA asks for the metric."""
    return [
        service
        for service in facts.known("inferenceservices")
        if any(kind == "HPA" and uses_metric(autoscaler) for kind, autoscaler in scalers_of(facts, service))
    ]


def check_adapter(facts: ClusterFacts) -> Iterator[Finding]:
    if "discovery" in facts.unread:
        return
    wanted = users(facts)
    if facts.groups.get(ADAPTER):
        return
    yield Finding(
        "metrics-adapter",
        "fail" if wanted else "note",
        "API server",
        f"serves no {ADAPTER}" + (f": the HPA of {len(wanted)} services has no metric" if wanted else ""),
        "install prometheus-adapter with manifests/autoscaling/adapter/values.yaml, or use KEDA",
        "docs/how-to/autoscaling.md",
    )


def check_answers(facts: ClusterFacts) -> Iterator[Finding]:
    for answer in facts.metrics:
        mine = [s for s in users(facts) if place(s)[0] == answer.namespace]
        subject = f"{METRIC} in namespace {answer.namespace}"
        if answer.values is None:
            yield Finding(
                "queue-wait",
                "fail" if mine else "note",
                subject,
                f"{ADAPTER} returns no answer: {answer.error}",
                "check the adapter's rule and the recorded series in Prometheus; the relist interval must not be "
                "shorter than the scrape interval",
                "kubernetes-sigs/prometheus-adapter#644, #396",
            )
            continue
        for service in mine:
            yield from _values(facts, service, answer, subject)


def _values(facts: ClusterFacts, service: Thing, answer: MetricAnswer, subject: str) -> Iterator[Finding]:
    assert answer.values is not None
    ready = [place(p)[1] for p in facts.pods(service) if is_true(p, "Ready")]
    broken = [pod for pod in ready if answer.values.get(pod) == NAN]
    missing = [pod for pod in ready if pod not in answer.values]
    if broken:
        yield Finding(
            "queue-wait-nan",
            "fail",
            subject,
            f"is NaN for {', '.join(broken)}, which the HPA reads as {NAN}",
            "divide by clamp_min(rate, tiny), as manifests/monitoring/prometheusrule-queue-wait.yaml does",
            "kubernetes-sigs/prometheus-adapter#308",
        )
    if missing and len(missing) < len(ready):
        yield Finding(
            "queue-wait-partial",
            "warn",
            subject,
            f"is missing for {', '.join(missing)} of {title('InferenceService', service)}: the HPA counts them "
            "as idle when it scales up",
            "check that the PodMonitor selects these pods",
            "Kubernetes documentation, HPA algorithm details",
        )
    elif missing:
        yield Finding(
            "queue-wait",
            "fail",
            subject,
            f"is missing for every pod of {title('InferenceService', service)}: its HPA scales neither up nor down",
            "check the adapter's rule and the recorded series in Prometheus",
            "kubernetes-sigs/prometheus-adapter#644, #673",
        )
    elif ready and not broken:
        shown = ", ".join(f"{pod} {answer.values[pod]}" for pod in ready[:3])
        yield Finding("queue-wait", "ok", subject, f"answers for {len(ready)} pods: {shown}")


def check_monitors(facts: ClusterFacts) -> Iterator[Finding]:
    monitors = facts.read("podmonitors")
    if monitors is None or not facts.groups.get(OPERATOR):
        return
    for service in facts.known("inferenceservices"):
        pods = list(facts.pods(service))
        if pods and not any(_reaches(m, p) for m in monitors for p in pods):
            yield Finding(
                "pod-monitor",
                "warn",
                title("InferenceService", service),
                "no PodMonitor selects its pods: neither queue_wait_ms nor acceptance reach Prometheus",
                "apply manifests/monitoring/podmonitor.yaml for this service",
                "docs/how-to/autoscaling.md",
            )


def _reaches(monitor: Thing, pod: Thing) -> bool:
    chosen = at(monitor, "spec", "namespaceSelector") or {}
    names = chosen.get("matchNames") or [place(monitor)[0]]
    inside = bool(chosen.get("any")) or place(pod)[0] in names
    return inside and selects(at(monitor, "spec", "selector"), at(pod, "metadata", "labels") or {})


CHECKS = (check_adapter, check_answers, check_monitors)
