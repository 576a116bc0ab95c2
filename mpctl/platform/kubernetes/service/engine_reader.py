"""Reads running engines: their endpoints, counters and logs, and what became of their pods."""

from __future__ import annotations

import base64

from mpctl import commands
from mpctl.errors import InputError, MpctlError
from mpctl.experiment.counters import CounterError, Counters, samples
from mpctl.json_fields import list_at, mapping_at, name_of, value_at
from mpctl.json_types import Json, JsonView
from mpctl.manifest import masked
from mpctl.manifest.engine.engine_port import port_of
from mpctl.platform import http
from mpctl.platform.kubernetes.api.api_client import Client
from mpctl.platform.kubernetes.api.kinds import POD, SECRET
from mpctl.platform.kubernetes.api.port_forward import Forwards, ForwardTarget
from mpctl.platform.kubernetes.service.conditions import is_ready
from mpctl.platform.kubernetes.service.container import answers_tls, engine_container, key_of
from mpctl.platform.kubernetes.service.workload import ServiceWorkload
from mpctl.rollout.ports import Endpoint
from mpctl.safe_text import telling_lines, without_requests

_OPEN_REQUESTS = ("vllm:num_requests_running", "vllm:num_requests_waiting")


class EngineReader:
    """Reads the engines of one namespace."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self.forwards = Forwards(client, namespace)
        self._models: dict[str, str] = {}  # by the uid of a pod
        self._reached: dict[
            str, tuple[str, str]
        ] = {}  # by service: name and uid of the pod that was measured last

    def endpoint(self, workload: ServiceWorkload, pod_name: str) -> tuple[Endpoint, Counters]:
        """Return the local endpoint of a ready pod's engine, and its counters.

        Raises:
            MpctlError: it does not answer yet.
            NotPermitted: its port or its API key may not be read.
        """
        pod = next(p for p in workload.pods if name_of(p) == pod_name)
        container = engine_container(pod["spec"]["containers"])
        port = port_of(container)
        target = self._target(pod)
        token = self._token(container)
        uid = str(pod["metadata"].get("uid"))
        paths = ("/v1/models", "/metrics") if uid not in self._models else ("/metrics",)
        headers = {"/v1/models": {"Authorization": f"Bearer {token}"} if token else {}}
        try:
            answers = {
                path: http.get(
                    f"{target.url}{path}",
                    headers=headers.get(path),
                    socket=target.socket,
                    limit=http.METRICS_BYTES,
                )
                for path in paths
            }
        except http.NoAnswer as error:
            refused = self.forwards.refusal(pod_name, port)
            if refused is not None:
                raise refused from error
            raise MpctlError(
                f"pod {pod_name} is ready, its engine does not answer: {error.message}"
            ) from error
        if any(answer.status != 200 for answer in answers.values()):
            statuses = " and ".join(
                f"{answer.status} on {path}" for path, answer in answers.items()
            )
            raise MpctlError(f"pod {pod_name} is ready, its engine answers {statuses}")
        try:
            if "/v1/models" in answers:
                self._models[uid] = str(answers["/v1/models"].json()["data"][0]["id"])
            model, counters = self._models[uid], Counters.parse(answers["/metrics"].text)
        except (ValueError, KeyError, IndexError, TypeError, CounterError) as error:
            raise MpctlError(
                f"pod {pod_name}: its engine's answer cannot be read: {error}"
            ) from error
        self._reached[workload.name] = pod_name, uid
        inside = _address(pod, port, "https" if answers_tls(container) else "http")
        return Endpoint(target.url, model, token, inside=inside, socket=target.socket), counters

    def lost_pods(self) -> tuple[str, ...]:
        """Return what became of the pods that were measured last and are deleted, evicted or preempted."""
        losses = []
        for name, uid in self._reached.values():
            pods = self._client.list(POD, self._namespace, fields=f"metadata.name={name}") or []
            pod = next((pod for pod in pods if pod["metadata"].get("uid") == uid), None)
            if pod is None:
                losses.append(f"pod {name} was deleted")
            elif why := _disruption(pod):
                losses.append(f"pod {name} {why}")
        return tuple(losses)

    def requests(self, workload: ServiceWorkload) -> tuple[float, tuple[str, ...]]:
        """Return the number of running and queued requests, and the ready pods whose engine did not answer."""
        total, unanswered = 0.0, []
        for pod in workload.ready:
            name = name_of(pod)
            try:
                counts = [sample.value for sample in samples(self._metrics(pod), _OPEN_REQUESTS)]
            except (MpctlError, CounterError):
                counts = []
            total += sum(counts)
            if not counts:
                unanswered.append(name)
        return total, tuple(unanswered)

    def counters(self, workload: ServiceWorkload) -> tuple[dict[str, Counters], dict[str, str]]:
        """Return the counters of every ready pod, and why a pod's could not be read."""
        read, failed = {}, {}
        for pod in workload.ready:
            name = name_of(pod)
            try:
                read[name] = Counters.parse(self._metrics(pod))
            except (MpctlError, CounterError) as error:
                failed[name] = str(error)
        return read, failed

    def log_excerpt(self, workload: ServiceWorkload) -> str:
        """Return the last error lines of the newest pod that is not ready, and the command for the whole log."""
        waiting = [p for p in workload.pods if not is_ready(p)] or workload.pods
        if not waiting:
            return "no pod exists"
        pod = max(waiting, key=lambda p: str(p["metadata"].get("creationTimestamp")))
        name = name_of(pod)
        container = engine_container(pod["spec"]["containers"]).get("name", "")
        log = self._client.log(name, self._namespace, container=container) or self._client.log(
            name, self._namespace, container=container, previous=True
        )
        lines = masked(without_requests(log)).splitlines()
        command = commands.kubectl("logs", name, "-c", container, namespace=self._namespace)
        return "\n".join([*telling_lines(lines)[-3:], f"the whole log: {command}"])

    def _target(self, pod: Json) -> ForwardTarget:
        """Where this machine reaches a pod's engine."""
        container = engine_container(pod["spec"]["containers"])
        return self.forwards.target(name_of(pod), port_of(container), tls=answers_tls(container))

    def _metrics(self, pod: Json) -> str:
        target = self._target(pod)
        return http.metrics(target.url, socket=target.socket)

    def _token(self, container: JsonView) -> str | None:
        """Return the engine's API key from its arguments, its environment or the Secret that its environment names.

        Raises:
            InputError: a header cannot carry it; the key itself is in no message.
        """
        name, token = key_of(container)
        if name is not None:
            token = self._variable(container, name)
        if token and not all("!" <= character <= "~" for character in token):
            raise InputError(
                f"the engine's API key ({name or '--api-key'}) holds a space, a line end or another character that a "
                "header cannot carry",
                hint="a Secret made with echo instead of printf ends with a line end",
            )
        return token or None

    def _variable(self, container: JsonView, name: str) -> str:
        entry: Json = next((e for e in list_at(container, "env") if e.get("name") == name), {})
        reference = value_at(entry, "valueFrom", "secretKeyRef")
        if not reference:
            return str(entry.get("value") or "")
        secret = self._client.require(SECRET, reference["name"], self._namespace)
        try:
            return base64.b64decode(mapping_at(secret, "data").get(reference["key"], "")).decode()
        except ValueError as error:
            raise InputError(
                f"Secret {reference['name']}: {reference['key']} is no text"
            ) from error


def _address(pod: Json, port: int, scheme: str) -> str | None:
    """URL of a pod's port inside the cluster; None without an IP."""
    ip = str(value_at(pod, "status", "podIP") or "")
    return f"{scheme}://{f'[{ip}]' if ':' in ip else ip}:{port}" if ip else None


def _disruption(pod: Json) -> str:
    """Why a pod ends, by the control plane's own words; empty for one that stays."""
    status = mapping_at(pod, "status")
    reasons = [
        c.get("message")
        for c in list_at(status, "conditions")
        if c.get("type") == "DisruptionTarget"
    ]
    reasons += [status.get("message")] if status.get("phase") == "Failed" else []
    ending = bool(pod["metadata"].get("deletionTimestamp")) or status.get("phase") == "Failed"
    return (
        f"is being deleted{''.join(f' ({reason})' for reason in reasons[:1] if reason)}"
        if ending
        else ""
    )
