"""Checks whether users' requests survive a pod that stops, and answers the route to it. Pure: a pod template in, gaps
out.

A pod that is deleted leaves its Service's endpoints and runs its preStop hook at the same time; then the engine gets
SIGTERM, and SIGKILL when the grace period since the deletion is over. Gateways learn of the endpoint seconds later, so
without a hook they send requests to an engine that stops. vLLM aborts what it serves on SIGTERM unless
``--shutdown-timeout`` gives running requests time (vLLM 0.18 and later, vllm-project/vllm#36666).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from mpctl import commands
from mpctl.json_fields import list_at, mapping_at, value_at, words_of
from mpctl.json_types import Json, JsonView
from mpctl.methods.preflight.preflight_rule import Finding
from mpctl.methods.preflight.probes import start_finding
from mpctl.methods.versions import parse_version, show

SHUTDOWN_TIMEOUT_SINCE = (0, 18, 0)
ANSWER_S = 1800  # of a long stream; the default of what the stacks render
PRE_STOP_S = (
    15  # until every proxy of a gateway has dropped the endpoint, as KServe's presets have it
)
MARGIN_S = 15  # for the engine's own end after its last request
SHORT_S = 60  # KServe's timeout of a route that nobody set; an answer of 1024 tokens takes as long on an L4
_DEFAULT_GRACE_S = 30  # of Kubernetes
_PODS = {  # where each kind has the pod; one that is not listed has no place for a hook and the grace period
    "Deployment": "spec.template.spec",
    "StatefulSet": "spec.template.spec",
    "InferenceService": "spec.predictor",
    "LLMInferenceService": "spec.template",
    "LeaderWorkerSet": "spec.leaderWorkerTemplate.leaderTemplate.spec (without one: workerTemplate.spec)",
}
_SHUTDOWN = re.compile(r"--shutdown[-_]timeout(?:=|\s+)\"?(\d+)")
_SLEEP = re.compile(r"(?:^|[\s/])sleep\s+(\d+)s?\s*$")
_SOURCE = "Kubernetes, termination of pods; vLLM 0.32.0, entrypoints/launchers/launcher.py"


@dataclass(frozen=True)
class PodEnd:
    """The end of a pod. ``pre_stop_s``: length of its preStop hook, None without one. ``waits``: the hook is a command
    that may wait for running requests itself. ``shutdown_s``: time that the engine gives running requests."""

    grace_s: float
    pre_stop_s: float | None
    waits: bool
    shutdown_s: float


def pod_end(pod: JsonView, container: JsonView) -> PodEnd:
    """Read the end of a pod from its template and the engine's container."""
    limits_s = [float(seconds) for seconds in _SHUTDOWN.findall(words_of(container))]
    hook = value_at(container, "lifecycle", "preStop")
    grace = pod.get("terminationGracePeriodSeconds")
    length, waits = _hook(hook) if hook else (None, False)
    return PodEnd(
        float(_DEFAULT_GRACE_S if grace is None else grace),
        length,
        waits,
        limits_s[-1] if limits_s else 0.0,
    )


def _hook(hook: JsonView) -> tuple[float, bool]:
    """The length of a preStop hook, and whether it may wait for requests."""
    if "sleep" in hook:
        return float((hook["sleep"] or {}).get("seconds") or 0), False
    command = " ".join(str(word) for word in list_at(hook, "exec", "command"))
    slept = _SLEEP.search(command)
    return (float(slept[1]), False) if slept else (0.0, True)


def lost_requests(end: PodEnd, *, image: str | None, answer_s: float | None) -> tuple[str, ...]:
    """Return why a pod that stops loses requests of users; empty where it loses none. ``answer_s``: the longest answer
    that the route to it lets pass, None when unknown."""
    gaps = []
    if end.pre_stop_s is None:
        gaps.append("no preStop hook: a stopping pod still gets requests and fails them")
    if not end.shutdown_s and not end.waits:
        version = parse_version(image)
        old = version is not None and version < SHUTDOWN_TIMEOUT_SINCE
        why = (
            f"vLLM {show(version)} knows no --shutdown-timeout"
            if version and old
            else "no --shutdown-timeout"
        )
        gaps.append(f"{why}: the engine aborts the requests that it serves when its pod stops")
    needed = (end.pre_stop_s or 0.0) + end.shutdown_s
    if end.shutdown_s and end.grace_s < needed:
        gaps.append(
            f"terminationGracePeriodSeconds {end.grace_s:.0f} ends before preStop ({end.pre_stop_s or 0:.0f} s) and "
            f"--shutdown-timeout ({end.shutdown_s:.0f} s)"
        )
    drains = (
        end.grace_s if end.waits else min(end.shutdown_s, end.grace_s - (end.pre_stop_s or 0.0))
    )
    if (end.shutdown_s or end.waits) and end.grace_s >= needed and answer_s and drains < answer_s:
        gaps.append(
            f"an answer may take {answer_s:.0f} s, a stopping pod has {drains:.0f} s for it"
        )
    return tuple(gaps)


def _lines_to_add(kind: str, image: str | None, answer_s: float | None, port: int) -> str:
    """The lines that let a stopping pod finish what it serves, for its template and the engine's container."""
    pod = _PODS[kind]
    drain = int(answer_s or ANSWER_S)
    version = parse_version(image)
    grace = f"terminationGracePeriodSeconds: {PRE_STOP_S + drain + MARGIN_S}"
    if version is not None and version < SHUTDOWN_TIMEOUT_SINCE:
        return f"to {pod}: {grace}; to its engine's container: lifecycle: {json.dumps({'preStop': waiting_hook(port)})}"
    return (
        f"to {pod}: {grace}; to its engine's container: lifecycle: {json.dumps({'preStop': sleeping_hook()})} and "
        f"--shutdown-timeout={drain} in its args"
    )


def sleeping_hook() -> Json:
    """The preStop hook of an engine that finishes running requests itself."""
    return {"sleep": {"seconds": PRE_STOP_S}}


def waiting_hook(port: int) -> Json:
    """The preStop hook of an older engine: it ends when the engine reports no request."""
    ask = f"urllib.request.urlopen('http://localhost:{port}/metrics').read().decode()"
    script = (
        f"import re, time, urllib.request; time.sleep({PRE_STOP_S})\n"
        f"while re.search('(?m)^vllm:num_requests_(running|waiting).* [1-9]', {ask}): time.sleep(1)"
    )
    return {"exec": {"command": ["python3", "-c", script]}}


def budget_command(namespace: str, name: str, selector: str) -> str:
    """The command that makes a PodDisruptionBudget for the pods of a service. A single pod may still be evicted:
    otherwise no node that runs it could be drained."""
    words = (
        "create",
        "poddisruptionbudget",
        name,
        "--selector",
        selector,
        "--max-unavailable",
        "1",
    )
    return commands.kubectl(*words, namespace=namespace)


def _loss_finding(gaps: tuple[str, ...], lines: str) -> Finding | None:
    """A warning that replaced pods lose requests; None without a gap."""
    if not gaps:
        return None
    reason = f"pods that are replaced may lose users' requests: {'; '.join(gaps)}"
    return Finding("requests-lost", "warn", reason, _SOURCE, f"add {lines}")


@dataclass(frozen=True)
class RouteLimit:
    """The longest answer that a rule of an HTTPRoute lets pass. ``seconds``: None where the route sets none, 0 for no
    limit. ``owner``: kind of the service for which KServe wrote the route, empty for a route of a user."""

    route: str
    seconds: float | None
    owner: str = ""

    @property
    def cuts(self) -> bool:
        """Return whether long answers are cut, or may be by a gateway's own default."""
        return self.seconds is None or 0 < self.seconds <= SHORT_S

    @property
    def todo(self) -> str:
        """The lines that let answers pass."""
        if self.owner == "InferenceService":
            return (
                f"set spec.predictor.timeout: {ANSWER_S} (seconds); KServe writes it into the route"
            )
        rules = (
            "spec.router.route.http.spec.rules"
            if self.owner
            else f"the rules of HTTPRoute {self.route}"
        )
        return f"set timeouts: {{request: {ANSWER_S}s}} in {rules}"


def route_limits(
    routes: Iterable[JsonView], backends: Collection[str], service: str = ""
) -> tuple[RouteLimit, ...]:
    """The limits of the rules that lead to Services, and of the routes that KServe writes for ``service``."""
    limits: dict[RouteLimit, None] = {}
    for route in routes:
        metadata = route["metadata"]
        owner: JsonView = next(
            (o for o in list_at(metadata, "ownerReferences") if o.get("controller")), {}
        )
        written = bool(service) and owner.get("name") == service
        for rule in list_at(route, "spec", "rules"):
            if written or any(ref.get("name") in backends for ref in list_at(rule, "backendRefs")):
                limits[
                    RouteLimit(
                        str(metadata["name"]), _rule_limit(rule), str(owner.get("kind") or "")
                    )
                ] = None
    return tuple(limits)


def _rule_limit(rule: JsonView) -> float | None:
    """The shorter of a rule's two timeouts; 0 is none."""
    timeouts = mapping_at(rule, "timeouts")
    limits_s = [
        duration_s(timeouts[key])
        for key in ("request", "backendRequest")
        if timeouts.get(key) is not None
    ]
    return min((seconds for seconds in limits_s if seconds), default=0.0) if limits_s else None


def selected_services(services: Iterable[JsonView], labels: Mapping[str, str]) -> frozenset[str]:
    """The names of the Services that lead to pods with these labels."""
    return frozenset(
        str(service["metadata"]["name"])
        for service in services
        if (selector := value_at(service, "spec", "selector"))
        and selector.items() <= labels.items()
    )


_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


def duration_s(text: str) -> float:
    """Seconds of a Gateway API duration such as ``1h30m`` or ``60s``."""
    return sum(
        float(number) * _UNITS[unit] for number, unit in re.findall(r"(\d+)(ms|h|m|s)", str(text))
    )


def _cut_finding(limits: Iterable[RouteLimit]) -> Finding | None:
    """A warning that routes cut long answers; None when all pass."""
    cut = [limit for limit in limits if limit.cuts]
    if not cut:
        return None
    reasons = []
    for seconds in dict.fromkeys(limit.seconds for limit in cut):
        names = ", ".join(sorted({limit.route for limit in cut if limit.seconds == seconds}))
        unset = f"HTTPRoute {names} sets no timeouts.request: its gateway's default cuts answers (Envoy: 15 s)"
        reasons.append(
            unset
            if seconds is None
            else f"answers are cut after {seconds:.0f} s by HTTPRoute {names}"
        )
    source = "Gateway API, HTTPRouteTimeouts; KServe 0.20, httproute_reconciler.go"
    return Finding("answers-cut", "warn", "; ".join(reasons), source, cut[0].todo)


def path_findings(
    kind: str,
    limits: Sequence[RouteLimit],
    pod: JsonView | None,
    container: JsonView | None,
    *,
    image: str | None,
    port: int,
    budget: str | None = None,
) -> tuple[Finding, ...]:
    """Warnings of the path to an engine: routes that cut answers, a pod that loses requests when it stops, one that is
    killed while it starts, and pods that may be evicted together. ``kind``: of the service; ``limits``: empty when
    unknown; ``pod``: template with its engine's ``container``, None when unknown; ``port``: the engine's; ``budget``:
    the command that makes the missing PodDisruptionBudget."""
    findings = [_cut_finding(limits)]
    if pod is not None and container is not None and kind in _PODS:
        seconds = [limit.seconds for limit in limits]
        # The longest answer that any route lets pass; None when unknown or without a limit.
        longest_s = max(filter(None, seconds), default=None) if all(seconds) else None
        answer_s = None if findings[0] else longest_s
        gaps = lost_requests(pod_end(pod, container), image=image, answer_s=answer_s)
        findings.append(_loss_finding(gaps, _lines_to_add(kind, image, answer_s, port)))
    if pod is not None and container is not None:
        findings.append(start_finding(container, port, owned=kind not in _PODS))
    if budget is not None:
        why = "no PodDisruptionBudget covers the pods: node drains and upgrades may evict all of them at once"
        findings.append(
            Finding("no-disruption-budget", "warn", why, "Kubernetes, disruptions", budget)
        )
    return tuple(finding for finding in findings if finding)
