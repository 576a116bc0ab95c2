"""Reads a service and its arms: the InferenceService, its Deployment and pods, and what the running engine itself says.

While something is waited for, at most two requests per second go to the API server, whatever the caller's rhythm.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from mpctl.errors import InputError, MpctlError, NotPermitted
from mpctl.experiment.counters import CounterError, Counters
from mpctl.platform.kubernetes.api.client import Client, Json
from mpctl.platform.kubernetes.api.kinds import DEPLOYMENT, EVENT, INFERENCE_SERVICE, POD, SECRET
from mpctl.platform.kubernetes.api.port_forward import Forwards
from mpctl.platform.kubernetes.service.conditions import (
    UNSCHEDULABLE_S,
    Seen,
    cold_start_s,
    engine_container,
    is_ready,
    judge,
    port_of,
)
from mpctl.platform.kubernetes.service.engine import runtime_of
from mpctl.platform.kubernetes.service.knative import deployment_of, is_knative, newest_revision
from mpctl.rollout.ports import Endpoint, Phase

READS_PER_S = 2.0
ISVC_LABEL = "serving.kserve.io/inferenceservice"
_UNANSWERED = ("vllm:num_requests_running", "vllm:num_requests_waiting")
_KEY_VARIABLE = "VLLM_API_KEY"  # vLLM takes its key from here without --api-key


class Pace:
    """Lets ``reads`` requests happen and then waits until they are paid for."""

    def __init__(
        self, monotonic: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._monotonic, self._sleep = monotonic, sleep
        self._free_at = 0.0

    def wait(self) -> None:
        """Until the next look may be made."""
        left = self._free_at - self._monotonic()
        if left > 0:
            self._sleep(left)

    def spent(self, reads: int) -> None:
        """``reads`` requests were made."""
        self._free_at = max(self._free_at, self._monotonic()) + reads / READS_PER_S


@dataclass
class _Stuck:
    reason: str
    since: float


@dataclass(frozen=True)
class Found:
    """An arm's InferenceService and what it runs as. ``runtime``: its ServingRuntime, None without one."""

    isvc: Json
    deployment: Json | None
    pods: list[Json] = field(default_factory=list)
    runtime: Json | None = None

    @property
    def name(self) -> str:
        """Of the InferenceService."""
        return str(self.isvc["metadata"]["name"])

    @property
    def ready(self) -> list[Json]:
        """Pods that may get requests, as Kubernetes sees it."""
        return [pod for pod in self.pods if is_ready(pod)]


class Looker:
    """Looks at one namespace as one user."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.namespace = namespace
        self.forwards = Forwards(client, namespace)
        self._pace = Pace()
        self._stuck: dict[str, _Stuck] = {}
        self._runtimes: dict[str, Json] = {}

    def isvc(self, name: str) -> Json | None:
        """An InferenceService."""
        return self.client.get(INFERENCE_SERVICE, name, self.namespace)

    def find(self, isvc: Json) -> Found:
        """Its Deployment and pods."""
        name = isvc["metadata"]["name"]
        deployment = self.client.get(DEPLOYMENT, deployment_name(isvc), self.namespace)
        pods = self.client.list(POD, self.namespace, labels=f"{ISVC_LABEL}={name}") or []
        runtime = self._runtime(isvc)
        return Found(isvc, deployment, [p for p in pods if _component(p) == "predictor"], runtime)

    def _runtime(self, isvc: Json) -> Json | None:
        """The ServingRuntime, read once; None without one, and where it may not be read."""
        name = isvc["metadata"]["name"]
        if name not in self._runtimes:
            try:
                found = runtime_of(self.client, isvc, self.namespace)
            except NotPermitted:
                return None
            if found is None:
                return None
            self._runtimes[name] = found
        return self._runtimes[name]

    def seen(self, find: Callable[[], Found | None]) -> tuple[Found | None, Seen]:
        """Look once, at the pace that is allowed. ``find`` reads what is looked at, None when it is not there."""
        with self.paced():
            found = find()
            if found is None:
                return None, Seen(Phase.ABSENT)
            seen = judge(found.isvc, found.deployment, found.pods, runtime=found.runtime)
            if seen.phase is not Phase.READY and any(not is_ready(p) for p in found.pods):
                events = self.client.list(EVENT, self.namespace, fields="involvedObject.kind=Pod") or []
                seen = judge(found.isvc, found.deployment, found.pods, events, found.runtime)
            return found, self._with_budget(found, seen)

    @contextmanager
    def paced(self) -> Iterator[None]:
        """Waits until the next look is allowed, and counts the requests of this one."""
        self._pace.wait()
        before = self.client.reads
        try:
            yield
        finally:
            self._pace.spent(self.client.reads - before)

    def _with_budget(self, found: Found, seen: Seen) -> Seen:
        """What is stuck for the same reason for too long has failed: KServe itself would say so after 600 s."""
        key = found.name
        if not seen.stuck:
            self._stuck.pop(key, None)
            return seen
        now = time.monotonic()
        held = self._stuck.get(key)
        if held is None or held.reason != seen.stuck:
            self._stuck[key] = held = _Stuck(seen.stuck, now)
        if now - held.since < UNSCHEDULABLE_S:
            return seen
        return Seen(Phase.FAILED, seen.message, seen.pods, seen.argv, seen.matches, seen.restarts, seen.stuck)

    # The engine itself

    def endpoint(self, found: Found, pod_name: str) -> tuple[Endpoint, Counters]:
        """Where a ready pod's engine answers on this machine, and its counters.

        Raises:
            MpctlError: it does not answer yet.
            NotPermitted: its port or its API key may not be read.
        """
        import httpx

        pod = next(p for p in found.pods if p["metadata"]["name"] == pod_name)
        container = engine_container(pod["spec"]["containers"])
        port = port_of(container)
        base = self.forwards.url(pod_name, port)
        token = self._token(container)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            models = httpx.get(f"{base}/v1/models", headers=headers, timeout=30.0, trust_env=False)
            metrics = httpx.get(f"{base}/metrics", timeout=30.0, trust_env=False)
        except httpx.HTTPError as error:
            refused = self.forwards.refusal(pod_name, port)
            if refused is not None:
                raise refused from error
            raise MpctlError(f"pod {pod_name} is ready, its engine does not answer: {error!r}") from error
        if models.status_code != 200 or metrics.status_code != 200:
            raise MpctlError(
                f"pod {pod_name} is ready, its engine answers {models.status_code} on /v1/models and "
                f"{metrics.status_code} on /metrics"
            )
        try:
            model = str(models.json()["data"][0]["id"])
            counters = Counters.parse(metrics.text)
        except (ValueError, KeyError, IndexError, TypeError, CounterError) as error:
            raise MpctlError(f"pod {pod_name}: its engine's answer cannot be read: {error}") from error
        # No tokenizer: the model's files are in the container, and tokens are taken from the server's usage record.
        return Endpoint(base, model, "", token, inside=_address(pod, port)), counters

    def requests(self, found: Found) -> tuple[float, tuple[str, ...]]:
        """How many requests the ready pods' engines run or hold in their queues; and the ready pods that could not be
        asked, as when a forward is lost."""
        import httpx
        from prometheus_client.parser import text_string_to_metric_families

        total, unheard = 0.0, []
        for pod in found.ready:
            name = pod["metadata"]["name"]
            port = port_of(engine_container(pod["spec"]["containers"]))
            try:
                base = self.forwards.url(name, port)
                text = httpx.get(f"{base}/metrics", timeout=30.0, trust_env=False).text
                families = list(text_string_to_metric_families(text))
            except (httpx.HTTPError, MpctlError, ValueError):
                families = []
            told = [s.value for f in families for s in f.samples if s.name in _UNANSWERED]
            total += sum(told)
            if not told:
                unheard.append(name)
        return total, tuple(unheard)

    def _token(self, container: Mapping[str, Any]) -> str | None:
        """The engine's API key: of its arguments, its environment, or the Secret its environment names.

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

    def _variable(self, container: Mapping[str, Any], name: str) -> str:
        entry: Json = next((e for e in container.get("env") or [] if e.get("name") == name), {})
        reference = (entry.get("valueFrom") or {}).get("secretKeyRef")
        if not reference:
            return str(entry.get("value") or "")
        import base64

        secret = self.client.need(SECRET, reference["name"], self.namespace)
        try:
            return base64.b64decode((secret.get("data") or {}).get(reference["key"], "")).decode()
        except ValueError as error:
            raise InputError(f"Secret {reference['name']}: {reference['key']} is no text") from error

    def cold_start_s(self, found: Found) -> float | None:
        """The longest time a pod that is ready now took to get there."""
        times = [t for p in found.pods if (t := cold_start_s(p)) is not None]
        return max(times) if times else None

    def last_words(self, found: Found) -> str:
        """Of the newest pod that is not ready: its log, and the events about it."""
        waiting = [p for p in found.pods if not is_ready(p)] or found.pods
        if not waiting:
            return "there is no pod"
        pod = max(waiting, key=lambda p: str(p["metadata"].get("creationTimestamp")))
        name = pod["metadata"]["name"]
        container = engine_container(pod["spec"]["containers"]).get("name", "")
        log = self.client.log(name, self.namespace, container=container) or self.client.log(
            name, self.namespace, container=container, previous=True
        )
        lines = log.splitlines()
        telling = [line for line in lines if "Error" in line and "Traceback" not in line]
        more = f"kubectl logs -n {self.namespace} {name} -c {container}"
        return "\n".join([*(telling or lines)[-3:], f"the whole log: {more}"])

    def close(self) -> None:
        """Close forwards."""
        self.forwards.close()


def _address(pod: Json, port: int) -> str | None:
    """Where others in the cluster reach a pod's port."""
    ip = str((pod.get("status") or {}).get("podIP") or "")
    return f"http://{f'[{ip}]' if ':' in ip else ip}:{port}" if ip else None


def key_of(container: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Where an engine has its API key from: the name of a variable, or else the key itself; neither without one.

    ``$(NAME)`` in an argument is the variable, as the kubelet reads it.
    """
    args = [str(a) for a in container.get("args") or []]
    for index, word in enumerate(args):
        given = word.partition("=")[2] if word.startswith("--api-key=") else None
        if word == "--api-key" and index + 1 < len(args):
            given = args[index + 1]
        if given is not None:
            return (given[2:-1], None) if given.startswith("$(") and given.endswith(")") else (None, given)
    named = any(e.get("name") == _KEY_VARIABLE for e in container.get("env") or [])
    return (_KEY_VARIABLE, None) if named else (None, None)


def deployment_name(isvc: Json) -> str:
    """The predictor's Deployment: KServe's in Standard mode, that of the newest revision in Knative mode."""
    return deployment_of(newest_revision(isvc)) if is_knative(isvc) else f"{isvc['metadata']['name']}-predictor"


def _component(pod: Json) -> str:
    return str((pod["metadata"].get("labels") or {}).get("component", "predictor"))
