"""Services whose spec or pods would make a rollout fail, hang or take too many resources.

KServe's Ready condition stays True while a new pod crashes or is unschedulable (KServe 0.20, measured), so Deployment
and pods are read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from mpctl import commands
from mpctl.doctor.autoscaling import predictor
from mpctl.doctor.gpus import LIMIT
from mpctl.doctor.state import (
    SERVICE_LABEL,
    ClusterFacts,
    KubeObject,
    Symptom,
    age_s,
    annotation,
    condition,
    full_name,
    is_budgeted,
    is_true,
    label,
    list_at,
    title,
    value_at,
)
from mpctl.errors import InputError
from mpctl.estimate.capacity import gpu_nodes
from mpctl.estimate.facts import running_findings
from mpctl.manifest import Service, Storage, load
from mpctl.manifest.engine.engine_port import port_of
from mpctl.manifest.engine.recognition import is_vllm_start
from mpctl.manifest.service import stated_releases
from mpctl.methods.preflight.drain import budget_command, path_findings, route_limits, selected_services
from mpctl.methods.versions import engine_release

MEASURED = "KServe 0.20 controller, measured"
MODE, STOP = "serving.kserve.io/deploymentMode", "serving.kserve.io/stop"
_ENGINE = "kserve-container"
SET_LABEL = "leaderworkerset.sigs.k8s.io/name"
_SILENT_S = 60  # a pod without a PodScheduled condition for so long has no scheduler


def _title(service: KubeObject) -> str:
    return title("InferenceService", service)


def engine_of(deployment: KubeObject) -> KubeObject | None:
    """The engine's container of a Deployment."""
    containers = list_at(deployment, "spec", "template", "spec", "containers")
    return next((c for c in containers if c.get("name") == _ENGINE), containers[0] if containers else None)


def check_probes(facts: ClusterFacts) -> Iterator[Symptom]:
    for service in facts.listed("inferenceservices"):
        engine = engine_of(facts.of("deployments", full_name(service)[0], predictor(service)) or {})
        if engine is None:
            continue
        ready = engine.get("readinessProbe") or {}
        if not {"httpGet", "exec", "grpc"} & set(ready):
            yield Symptom(
                "probe-tcp",
                "warn",
                _title(service),
                "its readiness is a bare TCP check, which passes long before the model is loaded: requests fail "
                "during every start",
                "give the container a readinessProbe: httpGet /health (or /v1/models) on the engine's port",
                MEASURED,
            )


def check_stuck(facts: ClusterFacts) -> Iterator[Symptom]:
    for service in facts.listed("inferenceservices"):
        namespace, name = full_name(service)
        deployment = facts.of("deployments", namespace, predictor(service))
        reasons = [why for pod in facts.pods(service) if (why := pod_trouble(facts, pod))]
        progressing = condition(deployment or {}, "Progressing")
        if value_at(progressing, "reason") == "ProgressDeadlineExceeded":
            reasons.append(str(value_at(progressing, "message")))
        if not reasons:
            continue
        healthy = is_true(service, "Ready")
        yield Symptom(
            "ready-but-stuck" if healthy else "not-ready",
            "fail",
            _title(service),
            ("reports Ready, because an old pod serves, but " if healthy else "") + "; ".join(reasons),
            f"{commands.line('rollback', name, namespace=namespace)}, or remove what blocks the pod; while it waits it "
            "may hold a GPU",
            MEASURED,
        )


def pod_trouble(facts: ClusterFacts, pod: KubeObject) -> str | None:
    """Return the reason why a pod will not become ready by itself, None when none is known."""
    name = full_name(pod)[1]
    if value_at(pod, "metadata", "deletionTimestamp"):
        return None
    scheduled = condition(pod, "PodScheduled")
    if value_at(scheduled, "reason") == "Unschedulable":
        return f"pod {name} cannot be scheduled: {value_at(scheduled, 'message')}{_claims(facts, pod)}"
    pending = value_at(pod, "status", "phase") == "Pending" and not value_at(pod, "spec", "nodeName")
    if pending and scheduled is None and (age_s(pod, facts.now) or 0) > _SILENT_S:
        return f"pod {name} is ignored by the scheduler{_claims(facts, pod)}"
    for status in (*list_at(pod, "status", "initContainerStatuses"), *list_at(pod, "status", "containerStatuses")):
        reason = value_at(status, "state", "waiting", "reason")
        if reason in ("CrashLoopBackOff", "ImagePullBackOff", "ErrImagePull", "CreateContainerConfigError"):
            restarts = status.get("restartCount", 0)
            return f"container {status.get('name')} of pod {name} is in {reason} ({restarts} restarts)"
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
            reasons.append(f"it claims {claim.get('name')} from {template or claim.get('resourceClaimName')}")
    return f" ({'; '.join(reasons)})" if reasons else ""


def check_surge(facts: ClusterFacts) -> Iterator[Symptom]:
    """The default strategy starts the new pod first, which never starts without a free GPU."""
    if facts.read("nodes") is None or facts.read("resourceslices") is None or facts.read("resourceclaims") is None:
        return
    free = sum(node.free for node in gpu_nodes([_with_kinds(facts)]))
    for service in facts.listed("inferenceservices"):
        deployment = facts.of("deployments", full_name(service)[0], predictor(service))
        if not list_at(deployment, "spec", "template", "spec", "resourceClaims"):
            continue
        rolling = value_at(deployment, "spec", "strategy", "rollingUpdate")
        surges = value_at(deployment, "spec", "strategy", "type") != "Recreate" and value_at(
            rolling, "maxSurge"
        ) not in (0, "0%")
        if surges and not free:
            yield Symptom(
                "surge-deadlock",
                "warn",
                _title(service),
                "every change needs a second GPU, and none is free: the new pod can never start "
                "while KServe still reports Ready",
                "set predictor.deploymentStrategy.rollingUpdate: {maxSurge: 0, maxUnavailable: 1} and accept the "
                "downtime, or add a GPU node",
                MEASURED,
            )


def _with_kinds(facts: ClusterFacts) -> KubeObject:
    kinds = {"nodes": "Node", "resourceslices": "ResourceSlice", "resourceclaims": "ResourceClaim"}
    return {
        "items": [
            {**cluster_object, "kind": kind}
            for resource, kind in kinds.items()
            for cluster_object in facts.listed(resource)
        ]
    }


def check_claims(facts: ClusterFacts) -> Iterator[Symptom]:
    for service in facts.listed("inferenceservices"):
        deployment = facts.of("deployments", full_name(service)[0], predictor(service))
        pod = value_at(deployment, "spec", "template", "spec")
        engine = engine_of(deployment or {})
        if engine is None:
            continue
        claimed = [c.get("name") for c in list_at(engine, "resources", "claims")]
        offered = [c.get("name") for c in list_at(pod, "resourceClaims")]
        image = str(engine.get("image"))
        if claimed and "vllm-openai-cpu" in image:
            yield Symptom(
                "cpu-image",
                "fail",
                _title(service),
                f"claims a GPU but runs {image}: KServe takes a service for a CPU one unless limits name {LIMIT}",
                "set predictor.model.runtimeVersion to the image tag, or pin the image by digest in your own runtime",
                MEASURED,
            )
        if claimed and value_at(engine, "resources", "limits", LIMIT):
            yield Symptom(
                "gpu-asked-twice",
                "fail",
                _title(service),
                f"has a claim and the limit {LIMIT}: each takes a GPU",
                "keep the claim and remove the limit, or the other way round",
                "Kubernetes 1.36, DRAExtendedResource, measured",
            )
        unknown = [name for name in claimed if name not in offered]
        if unknown:
            yield Symptom(
                "claim-unknown",
                "fail",
                _title(service),
                f"its container claims {', '.join(map(str, unknown))}, which resourceClaims of its pods do not name: "
                "the API server refuses them",
                "name the claim in predictor.resourceClaims, or with KServe 0.21 in resourceClaims of its runtime",
                MEASURED,
            )


def _rollout(service: KubeObject) -> str:
    namespace, name = full_name(service)
    return commands.line("rollout", name, "--spec", "METHOD", namespace=namespace)


def check_specs(facts: ClusterFacts) -> Iterator[Symptom]:
    for service in facts.listed("inferenceservices"):
        mode = annotation(service, MODE) or str(value_at(service, "status", "deploymentMode") or "Standard")
        standard = mode in ("Standard", "RawDeployment")
        if list_at(service, "spec", "canary"):
            yield Symptom(
                "native-canary",
                "warn",
                _title(service),
                "uses spec.canary, which mounts no storageUris, weighs no traffic and cannot be promoted for a change "
                "of arguments",
                f"remove it and use {_rollout(service)}",
                "kserve/kserve#5335, #5912, #5984",
            )
        if standard and value_at(service, "spec", "predictor", "canaryTrafficPercent") is not None:
            yield Symptom(
                "canary-ignored",
                "warn",
                _title(service),
                f"sets canaryTrafficPercent, which mode {mode} accepts and ignores: all traffic goes to the new spec",
                f"remove it and use {_rollout(service)}",
                MEASURED,
            )
        stopped = annotation(service, STOP)
        if stopped == "true":
            yield Symptom(
                "stopped", "note", _title(service), f"is stopped by its annotation {STOP}",
                "remove the annotation to start it", "KServe documentation",
            )  # fmt: skip
        owner = facts.owners.get(full_name(service))
        if owner:
            yield Symptom(
                "owned",
                "note",
                _title(service),
                f"belongs to {owner}",
                f"{commands.line('render', '-f', 'MANIFEST', '--spec', 'METHOD')} prints the changed manifest for the "
                "place it comes from",
                "docs/how-to/gitops.md",
            )


@dataclass(frozen=True)
class _Workload:
    """A workload that runs an engine."""

    kind: str  # as users know it
    names: tuple[str, str]  # namespace and name
    record: KubeObject  # with replicas and selector
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
        added = {SET_LABEL: self.names[1]} if self.kind == "LeaderWorkerSet" else {}
        return {**(value_at(self.template, "metadata", "labels") or {}), **added}

    def missing_budget(self, budgets: Sequence[KubeObject] | None) -> str | None:
        """Return the command that makes the missing PodDisruptionBudget; None without need."""
        if budgets is None or (value_at(self.record, "spec", "replicas") or 1) < 2:
            return None
        namespace, name = self.names
        if is_budgeted((budget for budget in budgets if full_name(budget)[0] == namespace), self.labels):
            return None
        selected = value_at(self.record, "spec", "selector", "matchLabels") or {SET_LABEL: name}
        return budget_command(namespace, name, ",".join(f"{key}={value}" for key, value in selected.items()))


_KINDS = ("Deployment", "LLMInferenceService", "VLLMRuntime")  # whose pods a Deployment makes


def _engines(facts: ClusterFacts) -> Iterator[_Workload]:
    """Every workload that runs an engine, of each kind."""
    for service in facts.listed("inferenceservices"):
        deployment = facts.of("deployments", full_name(service)[0], predictor(service)) or {}
        if engine := engine_of(deployment):
            template = value_at(deployment, "spec", "template")
            yield _Workload("InferenceService", full_name(service), deployment, template, engine)
    for deployment in facts.listed("deployments"):
        owner = next((o for o in list_at(deployment, "metadata", "ownerReferences") if value_at(o, "controller")), None)
        kind, name = value_at(owner, "kind") or "Deployment", value_at(owner, "name") or full_name(deployment)[1]
        if kind in _KINDS and label(deployment, SERVICE_LABEL) is None:
            template, where = value_at(deployment, "spec", "template"), (full_name(deployment)[0], str(name))
            for engine in list_at(template, "spec", "containers"):
                if _is_vllm(engine):
                    yield _Workload(str(kind), where, deployment, template, engine)
    for group in facts.listed("leaderworkersets"):
        templates = value_at(group, "spec", "leaderWorkerTemplate")
        template = value_at(templates, "leaderTemplate") or value_at(templates, "workerTemplate")
        for engine in list_at(template, "spec", "containers"):
            if _is_vllm(engine):
                yield _Workload("LeaderWorkerSet", full_name(group), group, template, engine)


def _is_vllm(container: KubeObject) -> bool:
    command, args = list_at(container, "command"), list_at(container, "args")
    words = [str(argument) for argument in command] or None
    return is_vllm_start(str(container.get("image") or ""), words, [str(argument) for argument in args])


def check_request_path(facts: ClusterFacts) -> Iterator[Symptom]:
    """Answers that a route cuts, requests that a stopping pod loses, and pods that may be evicted together."""
    budgets = facts.read("poddisruptionbudgets")
    for workload in _engines(facts):
        namespace, name = workload.names
        routes = [route for route in facts.listed("httproutes") if full_name(route)[0] == namespace]
        services = [service for service in facts.listed("services") if full_name(service)[0] == namespace]
        backends = {f"{name}-predictor"} if workload.kind == "InferenceService" else set()
        limits = route_limits(routes, backends | selected_services(services, workload.labels), name)
        pod, engine = value_at(workload.template, "spec"), workload.engine
        budget = workload.missing_budget(budgets)
        warnings = path_findings(
            workload.kind, limits, pod, engine, image=workload.image, port=port_of(engine), budget=budget
        )
        for warning in warnings:
            yield Symptom(warning.id, "warn", workload.title, warning.reason, warning.todo, warning.source)


def check_known_bad(facts: ClusterFacts) -> Iterator[Symptom]:
    """Speculation that is known to fail on the model and the release of a running service."""
    for workload in _engines(facts):
        service = _service_of(workload, facts)
        release = engine_release(workload.image, stated_releases(workload.template))
        findings = () if service is None else running_findings(service, engine_version=release)
        for finding in findings:
            if finding.severity == "refuse":
                yield Symptom(finding.id, "fail", workload.title, finding.reason, finding.todo, finding.source)
        if possible := [finding for finding in findings if finding.severity == "warn"]:
            listed = ", ".join(finding.id for finding in possible)
            yield Symptom(
                "known-bad", "warn", workload.title,
                f"its speculation may fail, depending on requests or on a release nobody has checked: {listed}",
                f"'{commands.line('methods', '--known-bad', '-o', 'json')}' has the effect and the thread of each",
                possible[0].source.rpartition("; ")[2],
            )  # fmt: skip


def _service_of(workload: _Workload, facts: ClusterFacts) -> Service | None:
    """The engine as a service of its own; None where its words cannot be read. Start scripts of KServe pass the
    arguments on, so those count without the script."""
    whole = {key: workload.engine[key] for key in ("image", "env", "command", "args") if workload.engine.get(key)}
    service = _read(workload, whole) or _read(workload, {**whole, "image": "vllm", "command": []})
    stored = value_at(facts.of("inferenceservices", *workload.names), "spec", "predictor", "model", "storageUri")
    mounts = (Storage(str(stored), "/mnt/models"),) if stored and workload.kind == "InferenceService" else ()
    return None if service is None else replace(service, storage=mounts)


def _read(workload: _Workload, engine: KubeObject) -> Service | None:
    pod = {"containers": [{"name": "engine", **{key: value for key, value in engine.items() if value}}]}
    document = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": workload.names[1]}}
    try:
        text = json.dumps({**document, "spec": {"template": {"spec": pod}}})
        return next(iter(load(text, file=workload.title)), None)
    except InputError:
        return None


CHECKS = (check_request_path, check_known_bad, check_probes, check_stuck, check_surge, check_claims, check_specs)
