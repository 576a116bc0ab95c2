"""Creates, finds, watches and deletes the Job that runs the load client, and sends its pod requests.

Requests and answers go through the API server's port-forward, compressed: no ConfigMap or log limits their size, and no
object holds a prompt or a key.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from mpctl import bounded
from mpctl.errors import MpctlError
from mpctl.json_fields import name_of, value_at
from mpctl.json_types import Json
from mpctl.manifest import masked
from mpctl.platform import http
from mpctl.platform.kubernetes.api.api_client import Client
from mpctl.platform.kubernetes.api.kinds import EVENT, JOB, POD
from mpctl.platform.kubernetes.api.port_forward import Forwards
from mpctl.platform.kubernetes.api.replies import AlreadyExists, OutcomeUnknown, Stale
from mpctl.platform.kubernetes.load_job.job_manifest import (
    CONTAINER,
    IDLE_S,
    PORT,
    TTL_S,
    PodProblem,
    is_finished,
    is_same,
    job_labels,
    load_job,
    pod_problem,
)
from mpctl.platform.kubernetes.load_job.owner_secret import owner_secret
from mpctl.platform.kubernetes.pod_origin import foreign_reason, is_pod_of
from mpctl.platform.kubernetes.service.conditions import UNSCHEDULABLE_S, is_ready
from mpctl.platform.kubernetes.service.reader import ServiceReader
from mpctl.rollout.ports import BlockLost

LOAD_LOCAL_HINT = "set MPCTL_LOAD=local to send the load from this machine, through the API server"
_TRIES = 4
_START_S = 900.0  # an image of 10 GB that is not on the node
_POLL_S = 1.0  # two reads per poll, at most two reads per second
_ANSWER_S = 60.0  # longer than the pod delays an answer
_ANSWER_BYTES = 64 * bounded.MEBIBYTE  # of a compressed block with all its requests
_SILENT_S = 60.0  # without an answer while the pod runs


class LoadPod:
    """The pod of one service's load Job. ``scope``: for what work the Job is."""

    def __init__(
        self,
        client: Client,
        reader: ServiceReader,
        service: str,
        *,
        scope: str,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client, self._reader = client, reader
        self._namespace, self._service, self._scope = reader.namespace, service, scope
        self._sleep = sleep
        self._forwards = Forwards(client, reader.namespace)
        self._name = self._uid = ""  # of the Job
        self._job: Json = {}  # as the API server stored it
        self._authorization = ""  # of every request to its pod
        self._pod = ""  # its name
        self._answered = False

    @property
    def title(self) -> str:
        """The Job as messages name it."""
        return f"load Job {self._namespace}/{self._name or self._service}"

    # The Job

    def ensure_job(self) -> None:
        """Find the Job of an earlier command, or create one. Others of this scope are deleted.

        Raises:
            MpctlError: it cannot be created, or no pod serves whose image it could use.
        """
        service, pod = self._serving()
        self._authorization = "Bearer " + owner_secret(
            f"{service['metadata']['uid']}/{self._scope}"
        )
        owner = hashlib.sha256(self._authorization.encode()).hexdigest()
        wanted = load_job(pod, self._service, self._namespace, self._scope, owner)
        for _ in range(_TRIES):
            usable = None
            for job in self._jobs():
                if usable is None and not is_finished(job) and self._is_ours(job, wanted):
                    usable = job
                else:
                    self._remove(job)
            with suppress(AlreadyExists, OutcomeUnknown):
                job = usable or self._client.create(JOB, wanted)
                self._job, self._uid, self._name = (
                    job,
                    str(job["metadata"]["uid"]),
                    name_of(job),
                )
                return
            self._sleep(_POLL_S)
        raise MpctlError(
            f"{self.title} could not be created in {_TRIES} tries", hint=LOAD_LOCAL_HINT
        )

    def _is_ours(self, job: Json, wanted: Json) -> bool:
        """Return whether this command created the Job, or it is what the API server would make of a new one. A cluster
        that cannot tell, because an admission webhook takes no dry run, gets a new Job."""
        if job["metadata"]["uid"] == self._uid:
            return True
        try:
            return is_same(job, self._client.create(JOB, wanted, dry_run=True))
        except MpctlError:
            return False

    def close(self) -> str:
        """Delete the Job of this command and any that an earlier one left; return why one remains, empty when none
        does. A Job that remains ends by itself."""
        self._forwards.close()
        self._answered = False
        exists, why = bool(self._uid), ""
        for _ in range(_TRIES):
            try:
                for job in self._jobs():
                    exists = True
                    self._remove(job)
                return ""
            except Stale as error:
                why = error.message
            except MpctlError as error:
                why = error.message
                break
        minutes = (IDLE_S + TTL_S) // 60
        return (
            f"{self.title} was not deleted and ends within {minutes} minutes: {why}"
            if exists
            else ""
        )

    def _jobs(self) -> list[Json]:
        labels = job_labels(self._service, self._scope)
        chosen = ",".join(f"{k}={v}" for k, v in labels.items() if k.startswith("mpctl.dev/"))
        return self._client.list(JOB, self._namespace, labels=chosen) or []

    def _remove(self, job: Json) -> None:
        self._client.delete(JOB, name_of(job), self._namespace, uid=job["metadata"]["uid"])

    def _serving(self) -> tuple[Json, Json]:
        """Return the service and one of its pods, a ready one first."""
        isvc = self._reader.isvc(self._service)
        pods = (
            []
            if isvc is None
            else sorted(self._reader.workload(isvc).pods, key=lambda pod: not is_ready(pod))
        )
        if isvc is None or not pods:
            raise MpctlError(
                f"service {self._namespace}/{self._service} has no pod to take the load client's image from",
                hint=LOAD_LOCAL_HINT,
            )
        return isvc, pods[0]

    # Its pod

    def wait_until_ready(self) -> None:
        """Wait until the Job's pod answers.

        Raises:
            MpctlError: it cannot start; with the cluster's own words.
        """
        if self._answered:
            with suppress(MpctlError):
                self._require_alive()
                return
        self._answered = False
        self.ensure_job()
        began = since = time.monotonic()
        previous: PodProblem | None = None
        while True:
            problem = self._find_problem()
            if problem is None and self._pod and self._answers():
                self._answered = True
                return
            now = time.monotonic()
            if problem is None or previous is None or problem.message != previous.message:
                previous, since = problem, now
            if problem is not None and (problem.final or now - since > UNSCHEDULABLE_S):
                hint = "\n".join(filter(None, (self.log_tail(), LOAD_LOCAL_HINT)))
                raise MpctlError(f"{self.title} cannot send the load: {problem.message}", hint=hint)
            if (
                problem is None
                and not self._pod
                and all(is_finished(j) for j in self._jobs() if j["metadata"]["uid"] == self._uid)
            ):
                self.ensure_job()  # the pod was evicted between two blocks, and the Job makes no other
            if now - began > _START_S:
                raise MpctlError(
                    f"{self.title} did not start in {_START_S:.0f} s", hint=LOAD_LOCAL_HINT
                )
            self._sleep(_POLL_S)

    def _find_problem(self) -> PodProblem | None:
        """Read the Job's pod; return what keeps it from running."""
        self._pod = ""
        pods = self._read_pods()
        if not pods:
            return pod_problem(None, self._events_of(self._uid))
        foreign = self._foreign(pods)
        if foreign is not None:
            return foreign
        pod = pods[0]
        self._pod = name_of(pod)
        running = value_at(pod, "status", "phase") == "Running"
        return pod_problem(pod, () if running else self._events_of(pod["metadata"]["uid"]))

    def _foreign(self, pods: Sequence[Json]) -> PodProblem | None:
        """Return the problem of a pod that the Job adopted, or that another user changed: it gets no prompt."""
        reasons = ((name_of(pod), foreign_reason(pod, self._job)) for pod in pods)
        problems = (
            f"pod {name} is not one that the Job's controller created: {why}"
            for name, why in reasons
            if why
        )
        return next((PodProblem(problem, final=True) for problem in problems), None)

    def _events_of(self, uid: str) -> list[Json]:
        return self._client.list(EVENT, self._namespace, fields=f"involvedObject.uid={uid}") or []

    def _read_pods(self) -> list[Json]:
        """Read the pods by the Job's uid: that of a removed Job may still be there under the same name."""
        pods = (
            self._client.list(
                POD, self._namespace, labels=f"batch.kubernetes.io/controller-uid={self._uid}"
            )
            or []
        )
        return [
            pod
            for pod in pods
            if is_pod_of(pod, self._uid) and "deletionTimestamp" not in pod["metadata"]
        ]

    def _answers(self) -> bool:
        try:
            return self._request("GET", "/ready").status == 200
        except http.NoAnswer:
            return False

    def _request(self, method: str, path: str, body: Json | None = None) -> http.HttpAnswer:
        target = self._forwards.target(self._pod, PORT)
        return http.request(
            method,
            f"{target.url}{path}",
            headers={"Authorization": self._authorization},
            json=body,
            seconds=_ANSWER_S,
            limit=_ANSWER_BYTES,
            socket=target.socket,
            decompressed=bounded.RECORD_BYTES,
        )

    def _require_alive(self) -> None:
        """Check that the pod is the one that was ready, and that it runs.

        Raises:
            BlockLost: it is gone, has ended or was changed.
        """
        pods = self._read_pods()
        foreign = self._foreign(pods)
        if foreign is not None:
            raise BlockLost(f"{self.title}: {foreign.message}", hint=LOAD_LOCAL_HINT)
        problem = pod_problem(pods[0], ()) if pods else None
        if problem is not None and problem.final:
            hint = "\n".join(filter(None, (self.log_tail(), LOAD_LOCAL_HINT)))
            raise BlockLost(f"{self.title} ended: {problem.message}", hint=hint)
        if [name_of(pod) for pod in pods] != [self._pod]:
            raise BlockLost(
                f"{self.title}: {self._pod} was deleted", hint="run the same command again"
            )

    def ask(self, method: str, path: str, body: Json | None = None) -> tuple[int, Any]:
        """A question to the pod, asked again while the pod is there: its status and its JSON.

        Raises:
            BlockLost: the pod is gone, or silent for too long.
        """
        silent = time.monotonic()
        while True:
            try:
                answer = self._request(method, path, body)
                return answer.status, answer.json()
            except (http.NoAnswer, ValueError) as error:
                refused = self._forwards.refusal(self._pod, PORT)
                self._require_alive()
                if time.monotonic() - silent > _SILENT_S:
                    why = refused.message if refused else str(error)
                    raise BlockLost(
                        f"{self.title} does not answer: {why}", hint=LOAD_LOCAL_HINT
                    ) from error
            self._sleep(_POLL_S)

    def log_tail(self) -> str:
        """The end of the pod's output; empty when there is none."""
        if not self._pod:
            return ""
        text = self._client.log(self._pod, self._namespace, container=CONTAINER)
        lines = masked(text).splitlines()
        return "its last lines:\n" + "\n".join(lines[-10:]) if lines else ""
