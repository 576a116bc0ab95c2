"""The Job that runs the load client: made, found again, watched, asked, removed.

What is asked and what comes back goes through the API server's port-forward to its pod, whole and compressed, so that
neither the size of a ConfigMap nor that of a log is a limit, and no prompt and no key is in any object.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from mpctl.errors import MpctlError
from mpctl.platform.kubernetes.api.client import Client, Json
from mpctl.platform.kubernetes.api.failure import AlreadyExists, OutcomeUnknown
from mpctl.platform.kubernetes.api.kinds import CONFIG_MAP, EVENT, JOB, POD
from mpctl.platform.kubernetes.api.port_forward import Forwards
from mpctl.platform.kubernetes.load_job.job_manifest import (
    CONTAINER,
    IDLE_S,
    PORT,
    TTL_S,
    LoadJob,
    Trouble,
    labels_of,
    load_job,
    over,
    owned_by,
    trouble,
)
from mpctl.platform.kubernetes.service.conditions import UNSCHEDULABLE_S, is_ready
from mpctl.platform.kubernetes.service.reader import Looker

INSTEAD = "--load local sends from this machine, through the API server"
_TRIES = 4
_START_S = 900.0  # an image of 10 GB that is not on the node, and the client's own start
_POLL_S = 1.0  # a look is two reads, and two a second are allowed
_ANSWER_S = 60.0  # longer than the pod lets a question wait
_SILENT_S = 60.0  # without an answer while the pod runs


class LoadPod:
    """The pod of one service's load Job. ``scope``: for what work the Job is."""

    def __init__(
        self,
        client: Client,
        looker: Looker,
        service: str,
        *,
        scope: str,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client, self._looker = client, looker
        self._namespace, self._service, self._scope = looker.namespace, service, scope
        self._sleep = sleep
        self._forwards = Forwards(client, looker.namespace)
        self._made: LoadJob | None = None
        self._uid = ""  # of the Job in the cluster
        self._pod = ""
        self._answered = False

    @property
    def title(self) -> str:
        """The Job as messages name it."""
        return f"load Job {self._namespace}/{self._made.name if self._made else self._service}"

    # The Job

    def make(self) -> None:
        """The Job as it should be: found, or made. Others of this scope, and one that is over, are removed.

        Raises:
            MpctlError: it cannot be made, or no pod serves whose image it could take.
        """
        if self._made is None:
            self._made = load_job(self._serving(), self._service, self._namespace, self._scope)
        for _ in range(_TRIES):
            usable = None
            for job in self._jobs():
                if job["metadata"]["name"] == self._made.name and not over(job):
                    usable = job
                else:
                    self._remove(job)
            with suppress(AlreadyExists, OutcomeUnknown):
                job = usable or self._client.create(JOB, self._made.job)
                self._uid = str(job["metadata"]["uid"])
                # After the Job, which owns them: they go with it, whoever removes it. Its pod waits for them.
                self._client.apply(CONFIG_MAP, owned_by(self._made.scripts, job), force=True)
                return
            self._sleep(_POLL_S)
        raise MpctlError(f"{self.title} could not be made in {_TRIES} tries", hint=INSTEAD)

    def close(self) -> str:
        """Remove the Job, also one that an earlier command left; why it could not be removed, empty when nothing is
        left. One that stays ends by itself."""
        self._forwards.close()
        self._answered = False
        known = self._made is not None
        try:
            for job in self._jobs():
                known = True
                self._remove(job)
        except MpctlError as error:
            minutes = (IDLE_S + TTL_S) // 60
            return f"{self.title} is left and goes by itself within {minutes} minutes: {error.message}" if known else ""
        return ""

    def _jobs(self) -> list[Json]:
        labels = labels_of(self._service, self._scope)
        chosen = ",".join(f"{k}={v}" for k, v in labels.items() if k.startswith("mpctl.dev/"))
        return self._client.list(JOB, self._namespace, labels=chosen) or []

    def _remove(self, job: Json) -> None:
        self._client.delete(JOB, job["metadata"]["name"], self._namespace, uid=job["metadata"]["uid"])

    def _serving(self) -> Json:
        isvc = self._looker.isvc(self._service)
        pods = [] if isvc is None else sorted(self._looker.find(isvc).pods, key=lambda pod: not is_ready(pod))
        if not pods:
            raise MpctlError(
                f"service {self._namespace}/{self._service} has no pod whose image the load client could run in",
                hint=INSTEAD,
            )
        return pods[0]

    # Its pod

    def ensure(self) -> None:
        """Wait until the Job's pod has loaded the client.

        Raises:
            MpctlError: it cannot start; with the cluster's own words.
        """
        if self._answered:
            with suppress(MpctlError):
                self._require_alive()
                return
        self._answered = False
        self.make()
        began = since = time.monotonic()
        held: Trouble | None = None
        while True:
            found = self._look()
            if found is None and self._pod and self._loaded():
                self._answered = True
                return
            now = time.monotonic()
            if found is None or held is None or found.message != held.message:
                held, since = found, now
            if found is not None and (found.final or now - since > UNSCHEDULABLE_S):
                hint = "\n".join(filter(None, (self.last_words(), INSTEAD)))
                raise MpctlError(f"{self.title} cannot send the load: {found.message}", hint=hint)
            if now - began > _START_S:
                raise MpctlError(f"{self.title} did not start in {_START_S:.0f} s", hint=INSTEAD)
            self._sleep(_POLL_S)

    def _look(self) -> Trouble | None:
        """Find its pod; what keeps it from running."""
        pod = self._find()
        self._pod = "" if pod is None else str(pod["metadata"]["name"])
        if pod is not None and (pod.get("status") or {}).get("phase") == "Running":
            return trouble(pod, ())
        about = self._uid if pod is None else pod["metadata"]["uid"]
        return trouble(pod, self._client.list(EVENT, self._namespace, fields=f"involvedObject.uid={about}") or [])

    def _find(self) -> Json | None:
        """By the Job's uid: the pod of one that was removed may still be there under the same name."""
        found = self._client.list(POD, self._namespace, labels=f"batch.kubernetes.io/controller-uid={self._uid}") or []
        alive = [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]
        return alive[0] if alive else None

    def _loaded(self) -> bool:
        import httpx

        url = f"{self._forwards.url(self._pod, PORT)}/ready"
        try:
            return httpx.get(url, timeout=_ANSWER_S, trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False

    def _require_alive(self) -> None:
        pod = self._find()
        if pod is None or pod["metadata"]["name"] != self._pod:
            raise MpctlError(f"{self.title} is gone: somebody deleted it", hint="run the same command again")
        found = trouble(pod, ())
        if found is not None and found.final:
            hint = "\n".join(filter(None, (self.last_words(), INSTEAD)))
            raise MpctlError(f"{self.title} ended: {found.message}", hint=hint)

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
        """One question to the pod, asked again while the pod is there: its status and its JSON.

        Raises:
            MpctlError: the pod is gone, or silent for too long.
        """
        import httpx

        silent = time.monotonic()
        while True:
            base = self._forwards.url(self._pod, PORT)
            try:
                answer = httpx.request(method, f"{base}{path}", json=body, timeout=_ANSWER_S, trust_env=False)
                return answer.status_code, answer.json()
            except (httpx.HTTPError, ValueError) as error:
                refused = self._forwards.refusal(self._pod, PORT)
                self._require_alive()
                if time.monotonic() - silent > _SILENT_S:
                    why = refused.message if refused else repr(error)
                    raise MpctlError(f"{self.title} does not answer: {why}", hint=INSTEAD) from error
            self._sleep(_POLL_S)

    def last_words(self) -> str:
        """The end of the client's output; empty when there is none."""
        lines = self._client.log(self._pod, self._namespace, container=CONTAINER).splitlines() if self._pod else []
        return "its last lines:\n" + "\n".join(lines[-10:]) if lines else ""
