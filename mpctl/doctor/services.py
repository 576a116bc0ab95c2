"""Services whose spec or pods would make a rollout fail, hang or take too many resources.

KServe's Ready condition stays True while a new pod crashes or is unschedulable (KServe 0.20, measured), so Deployment
and pods are read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

from mpctl import commands
from mpctl.doctor.gpus import LIMIT
from mpctl.doctor.state import (
    ClusterFacts,
    KubeObject,
    Symptom,
    age_s,
    annotation,
    full_name,
    title,
)
from mpctl.doctor.workloads import Workload, every_service, workloads
from mpctl.errors import InputError
from mpctl.estimate.facts import running_findings
from mpctl.json_fields import condition, list_at, mapping_at, value_at
from mpctl.manifest import Service, Storage, load
from mpctl.manifest.engine.engine_port import port_of
from mpctl.manifest.service import stated_releases
from mpctl.methods.preflight.drain import path_findings, route_limits, selected_services
from mpctl.methods.versions import engine_release

MEASURED = "KServe 0.20 controller, measured"
MODE, STOP = "serving.kserve.io/deploymentMode", "serving.kserve.io/stop"
_SILENT_S = 60  # a pod without a PodScheduled condition for so long has no scheduler


def check_probes(facts: ClusterFacts) -> Iterator[Symptom]:
    for workload in workloads(facts):
        ready = mapping_at(workload.engine, "readinessProbe")
        if {"httpGet", "exec", "grpc"} & set(ready):
            continue
        early = "which passes long before the model is loaded: requests fail during every start"
        bare = (
            "tcpSocket" in ready or workload.kind == "InferenceService"
        )  # KServe adds one where none is
        port = port_of(workload.engine)
        yield Symptom(
            "probe-tcp",
            "warn",
            workload.title,
            f"its readiness is {'a bare TCP check' if bare else 'that of a started container'}, {early}",
            f"give the container a readinessProbe: {{httpGet: {{path: /health, port: {port}}}}}",
            MEASURED if workload.kind == "InferenceService" else "Kubernetes, readiness probes",
        )


def check_stuck(facts: ClusterFacts) -> Iterator[Symptom]:
    for workload in every_service(facts):
        reasons = [why for pod in workload.pods(facts) if (why := pod_trouble(facts, pod))]
        progressing, failure = (
            condition(workload.record, kind) for kind in ("Progressing", "ReplicaFailure")
        )
        if value_at(progressing, "reason") == "ProgressDeadlineExceeded":
            reasons.append(str(value_at(progressing, "message")))
        if value_at(failure, "status") == "True":
            reasons.append(f"pods cannot be created: {value_at(failure, 'message')}")
        if not reasons:
            continue
        health, (namespace, name) = workload.health, workload.names
        healthy = value_at(health, "status") == "True"
        serving = f"reports {value_at(health, 'type')}, because an old pod serves, but "
        yield Symptom(
            "ready-but-stuck" if healthy else "not-ready",
            "fail",
            workload.title,
            (serving if healthy else "") + "; ".join(reasons),
            f"{commands.line('rollback', name, namespace=namespace)}, or remove what blocks the pod; while it waits it "
            "may hold a GPU",
            MEASURED if workload.kind == "InferenceService" else "Kubernetes, failed Deployment",
        )


def pod_trouble(facts: ClusterFacts, pod: KubeObject) -> str | None:
    """Return the reason why a pod will not become ready by itself, None when none is known."""
    name = full_name(pod)[1]
    if value_at(pod, "metadata", "deletionTimestamp"):
        return None
    scheduled = condition(pod, "PodScheduled")
    if value_at(scheduled, "reason") == "Unschedulable":
        return (
            f"pod {name} cannot be scheduled: {value_at(scheduled, 'message')}{_claims(facts, pod)}"
        )
    pending = value_at(pod, "status", "phase") == "Pending" and not value_at(
        pod, "spec", "nodeName"
    )
    if pending and not scheduled and (age_s(pod, facts.now) or 0) > _SILENT_S:
        return f"pod {name} is ignored by the scheduler{_claims(facts, pod)}"
    for status in (
        *list_at(pod, "status", "initContainerStatuses"),
        *list_at(pod, "status", "containerStatuses"),
    ):
        reason = value_at(status, "state", "waiting", "reason")
        if reason in (
            "CrashLoopBackOff",
            "ImagePullBackOff",
            "ErrImagePull",
            "CreateContainerConfigError",
        ):
            restarts = status.get("restartCount", 0)
            return (
                f"container {status.get('name')} of pod {name} is in {reason} ({restarts} restarts)"
            )
    return None


def _claims(facts: ClusterFacts, pod: KubeObject) -> str:
    """The claims that keep a pod waiting."""
    reasons = []
    for claim in list_at(pod, "spec", "resourceClaims"):
        template, resource = claim.get("resourceClaimTemplateName"), "resourceclaimtemplates"
        were_read = facts.read(resource) is not None
        if template and were_read and facts.of(resource, full_name(pod)[0], template) is None:
            reasons.append(f"ResourceClaimTemplate {template} not found")
        else:
            reasons.append(
                f"it claims {claim.get('name')} from {template or claim.get('resourceClaimName')}"
            )
    return f" ({'; '.join(reasons)})" if reasons else ""


def check_claims(facts: ClusterFacts) -> Iterator[Symptom]:
    for workload in workloads(facts):
        engine, pod = workload.engine, value_at(workload.template, "spec")
        claimed = [c.get("name") for c in list_at(engine, "resources", "claims")]
        offered = [c.get("name") for c in list_at(pod, "resourceClaims")]
        image = str(engine.get("image"))
        if claimed and workload.kind == "InferenceService" and "vllm-openai-cpu" in image:
            yield Symptom(
                "cpu-image",
                "fail",
                workload.title,
                f"claims a GPU but runs {image}: KServe takes a service for a CPU one unless limits name {LIMIT}",
                "set predictor.model.runtimeVersion to the image tag, or pin the image by digest in your own runtime",
                MEASURED,
            )
        if claimed and value_at(engine, "resources", "limits", LIMIT):
            yield Symptom(
                "gpu-asked-twice",
                "fail",
                workload.title,
                f"has a claim and the limit {LIMIT}: each takes a GPU",
                "keep the claim and remove the limit, or the other way round",
                "Kubernetes 1.36, DRAExtendedResource, measured",
            )
        unknown = [name for name in claimed if name not in offered]
        if unknown:
            yield Symptom(
                "claim-unknown",
                "fail",
                workload.title,
                f"its container claims {', '.join(map(str, unknown))}, which resourceClaims of its pods do not name: "
                "the API server refuses them",
                "name the claim in resourceClaims of the pod (of predictor, or with KServe 0.21 of its runtime)",
                MEASURED,
            )


def _rollout(service: KubeObject) -> str:
    namespace, name = full_name(service)
    return commands.line("rollout", name, "--spec", "METHOD", namespace=namespace)


def check_specs(facts: ClusterFacts) -> Iterator[Symptom]:
    for service in facts.listed("inferenceservices"):
        mode = annotation(service, MODE) or str(
            value_at(service, "status", "deploymentMode") or "Standard"
        )
        standard = mode in ("Standard", "RawDeployment")
        if list_at(service, "spec", "canary"):
            yield Symptom(
                "native-canary",
                "warn",
                title("InferenceService", service),
                "uses spec.canary, which mounts no storageUris, weighs no traffic and cannot be promoted for a change "
                "of arguments",
                f"remove it and use {_rollout(service)}",
                "kserve/kserve#5335, #5912, #5984",
            )
        if standard and value_at(service, "spec", "predictor", "canaryTrafficPercent") is not None:
            yield Symptom(
                "canary-ignored",
                "warn",
                title("InferenceService", service),
                f"sets canaryTrafficPercent, which mode {mode} accepts and ignores: all traffic goes to the new spec",
                f"remove it and use {_rollout(service)}",
                MEASURED,
            )
        stopped = annotation(service, STOP)
        if stopped == "true":
            yield Symptom(
                "stopped", "note", title("InferenceService", service), f"is stopped by its annotation {STOP}",
                "remove the annotation to start it", "KServe documentation",
            )  # fmt: skip


def check_owners(facts: ClusterFacts) -> Iterator[Symptom]:
    for workload in every_service(facts):
        owner = facts.owners.get(workload.names)
        if owner is None:
            continue
        yield Symptom(
            "owned",
            "note",
            workload.title,
            f"belongs to {owner}",
            f"{commands.line('render', '-f', 'MANIFEST', '--spec', 'METHOD')} prints the changed manifest for the "
            "place it comes from",
            "docs/how-to/gitops.md",
        )


def check_request_path(facts: ClusterFacts) -> Iterator[Symptom]:
    """Answers that a route cuts, requests that a stopping pod loses, and pods that may be evicted together."""
    budgets = facts.read("poddisruptionbudgets")
    for workload in workloads(facts):
        namespace, name = workload.names
        routes = [route for route in facts.listed("httproutes") if full_name(route)[0] == namespace]
        services = [
            service for service in facts.listed("services") if full_name(service)[0] == namespace
        ]
        backends = {f"{name}-predictor"} if workload.kind == "InferenceService" else set()
        limits = route_limits(routes, backends | selected_services(services, workload.labels), name)
        pod, engine = value_at(workload.template, "spec"), workload.engine
        budget = workload.missing_budget(budgets)
        warnings = path_findings(
            workload.kind,
            limits,
            pod,
            engine,
            image=workload.image,
            port=port_of(engine),
            budget=budget,
        )
        for warning in warnings:
            yield Symptom(
                warning.id, "warn", workload.title, warning.reason, warning.todo, warning.source
            )


def check_known_bad(facts: ClusterFacts) -> Iterator[Symptom]:
    """Speculation that is known to fail on the model and the release of a running service."""
    for workload in workloads(facts):
        service = _service_of(workload, facts)
        release = engine_release(workload.image, stated_releases(workload.template))
        findings = () if service is None else running_findings(service, engine_version=release)
        for finding in findings:
            if finding.severity == "refuse":
                yield Symptom(
                    finding.id, "fail", workload.title, finding.reason, finding.todo, finding.source
                )
        if possible := [finding for finding in findings if finding.severity == "warn"]:
            listed = ", ".join(finding.id for finding in possible)
            yield Symptom(
                "known-bad", "warn", workload.title,
                f"its speculation may fail, depending on requests or on a release nobody has checked: {listed}",
                f"'{commands.line('methods', 'known-bad', '-o', 'json')}' has the effect and the thread of each",
                possible[0].source.rpartition("; ")[2],
            )  # fmt: skip


def _service_of(workload: Workload, facts: ClusterFacts) -> Service | None:
    """The engine as a service of its own; None where its words cannot be read. Start scripts of KServe pass the
    arguments on, so those count without the script."""
    whole = {
        key: workload.engine[key]
        for key in ("image", "env", "command", "args")
        if workload.engine.get(key)
    }
    service = _read(workload, whole) or _read(workload, {**whole, "image": "vllm", "command": []})
    stored = value_at(
        facts.of("inferenceservices", *workload.names), "spec", "predictor", "model", "storageUri"
    )
    mounts = (
        (Storage(str(stored), "/mnt/models"),)
        if stored and workload.kind == "InferenceService"
        else ()
    )
    return None if service is None else replace(service, storage=mounts)


def _read(workload: Workload, engine: KubeObject) -> Service | None:
    pod = {
        "containers": [{"name": "engine", **{key: value for key, value in engine.items() if value}}]
    }
    document = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": workload.names[1]},
    }
    try:
        text = json.dumps({**document, "spec": {"template": {"spec": pod}}})
        return next(iter(load(text, file=workload.title)), None)
    except InputError:
        return None


CHECKS = (
    check_request_path,
    check_known_bad,
    check_probes,
    check_stuck,
    check_claims,
    check_specs,
    check_owners,
)
