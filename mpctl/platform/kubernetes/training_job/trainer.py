"""Trains heads in Jobs of a cluster: implements ``mpctl.drafts.order.Trainer``.

A head's objects are found by their labels, and its Job by its name: a second Job of a head cannot be created. Whatever
was created before a command was killed is found by the next one, which creates the rest.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from mpctl.drafts.card import CARD_FILE, Card, card_of
from mpctl.drafts.order import Split, TrainingOrder, TrainingPhase, TrainingStatus, prompt_lines
from mpctl.errors import Conflict, MpctlError
from mpctl.platform import http
from mpctl.platform.kubernetes.api import names
from mpctl.platform.kubernetes.api.api_client import Client
from mpctl.platform.kubernetes.api.kinds import CLAIM, CONFIG_MAP, EVENT, JOB, POD, ObjectKind
from mpctl.platform.kubernetes.api.port_forward import Forwards
from mpctl.platform.kubernetes.api.replies import AlreadyExists, Json, OutcomeUnknown, condition
from mpctl.platform.kubernetes.in_pod.stage import CARD_LINE
from mpctl.platform.kubernetes.load_job.job_manifest import is_same, pod_problem
from mpctl.platform.kubernetes.pod_origin import is_pod_of
from mpctl.platform.kubernetes.training_job.manifest import CARD, COLLECT, ORDER, PORT, TRAIN, object_name

_PHASES = {COLLECT: TrainingPhase.COLLECTING, TRAIN: TrainingPhase.TRAINING, CARD: TrainingPhase.CARD}
_TRIES = 4
_PAUSE_S = 1.0
_GONE_S = 120.0  # until the objects of a head are deleted: a pod may take its grace period
_SEND_S = 120.0


class JobTrainer:
    """``objects``: the claim, the ConfigMap and the Job of an order."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        service: str,
        objects: Callable[[TrainingOrder], tuple[Json, ...]],
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client, self._namespace, self._service = client, namespace, service
        self._objects, self._sleep = objects, sleep
        self._forwards = Forwards(client, namespace)
        self._lines: dict[str, str] = {}  # prompts that a Job's pod still has to get, by the Job's uid
        self._foreign: set[str] = set()  # uids of Jobs that get none

    # Orders and heads

    def orders(self) -> tuple[TrainingOrder, ...]:
        """Return every order of the service, the oldest number first."""
        orders = [order for config in self._list(CONFIG_MAP) if (order := self._order(config)) is not None]
        return tuple(sorted(orders, key=lambda order: int(order.name.rpartition("-")[2])))

    def cards(self) -> tuple[Card, ...]:
        """Return the cards that were recorded."""
        records = (config.get("data") or {} for config in self._list(CONFIG_MAP))
        return tuple(Card.from_record(json.loads(record[CARD_FILE])) for record in records if CARD_FILE in record)

    def weights(self, head: str) -> str:
        """Return the URI of a head's weights on its claim."""
        return f"pvc://{object_name(head)}/drafts/{head}/head"

    def _order(self, config: Json) -> TrainingOrder | None:
        text = (config.get("data") or {}).get(ORDER)
        try:
            return None if text is None else TrainingOrder.from_record(json.loads(text))
        except ValueError as error:
            where = f"ConfigMap {self._namespace}/{config['metadata']['name']}"
            raise MpctlError(f"{where}: no training order ({error})", hint="nothing was changed") from error

    def _list(self, kind: ObjectKind, head: str = "") -> list[Json]:
        chosen = {names.SERVICE_LABEL: names.label_of(self._service), names.PART_LABEL: names.DRAFT}
        if head:
            chosen[names.HEAD_LABEL] = names.label_of(head)
        labels = ",".join(f"{key}={value}" for key, value in chosen.items())
        return self._client.list(kind, self._namespace, labels=labels) or []

    # The Job

    def submit(self, order: TrainingOrder, prompts: Split) -> str:
        """Create what is missing of the order's objects; return its Job's uid. :meth:`status` sends the prompts as soon
        as the Job's pod waits for them. A Job that is not what a new one would be gets none.

        Raises:
            Conflict: an object of that name is not the order's.
            MpctlError: an object cannot be created.
        """
        claim, config, wanted = self._objects(order)
        job = self._job(order.name)
        is_ours = job is None or self._is_ours(job, wanted, config)
        if job is None:
            owner = self._created(CLAIM, claim)["metadata"]
            reference = {"apiVersion": "v1", "kind": CLAIM.name, "name": owner["name"], "uid": owner["uid"]}
            for body in (config, wanted):
                body["metadata"]["ownerReferences"] = [reference]  # what deletes the claim deletes them, too
            existing = self._created(CONFIG_MAP, config)
            if existing.get("data") != config["data"]:
                raise Conflict(
                    f"ConfigMap {self._namespace}/{config['metadata']['name']} has another order of {order.name}, or "
                    "programs of another version of mpctl",
                    hint="run the same command again, or purge the head",
                )
            job = self._created(JOB, wanted)
            is_ours = self._is_ours(job, wanted, config)
        uid = str(job["metadata"]["uid"])
        if is_ours:
            self._lines[uid] = prompt_lines(prompts)
        else:
            self._foreign.add(uid)
        return uid

    def _is_ours(self, job: Json, wanted: Json, config: Json) -> bool:
        """Return whether an existing Job is what the API server would make of a new one, with the same programs: one
        that somebody prepared gets no prompts. False on a cluster whose admission takes no dry run."""
        probe = {**wanted, "metadata": {**wanted["metadata"], "name": f"{wanted['metadata']['name']}-probe"}}
        name, head = config["metadata"]["name"], config["metadata"]["labels"][names.HEAD_LABEL]
        programs = [item.get("data") for item in self._list(CONFIG_MAP, head) if item["metadata"]["name"] == name]
        try:
            stored = self._client.create(JOB, probe, dry_run=True)
        except MpctlError:
            return False
        return programs == [config["data"]] and is_same(_without_places(job), _without_places(stored))

    def _created(self, kind: ObjectKind, body: Json) -> Json:
        name, labels = body["metadata"]["name"], body["metadata"]["labels"]
        for _ in range(_TRIES):
            with suppress(AlreadyExists, OutcomeUnknown):
                return self._client.create(kind, body)
            for existing in self._list(kind, head=labels[names.HEAD_LABEL]):
                if existing["metadata"]["name"] == name:
                    return existing
            self._sleep(_PAUSE_S)
        raise Conflict(
            f"{kind.name} {self._namespace}/{name} exists and has other labels than mpctl's",
            hint=f"kubectl -n {self._namespace} get {kind.resource} {name} -o yaml shows whose it is",
        )

    def _job(self, head: str = "", uid: str = "") -> Json | None:
        jobs = [job for job in self._list(JOB, head) if "deletionTimestamp" not in job["metadata"]]
        if head:
            return next((job for job in jobs if job["metadata"]["name"] == object_name(head)), None)
        return next((job for job in jobs if job["metadata"]["uid"] == uid), None)

    def uid_of(self, head: str) -> str | None:
        """Return the uid of a head's Job; None without one."""
        job = self._job(head)
        return None if job is None else str(job["metadata"]["uid"])

    def status(self, uid: str) -> TrainingStatus | None:
        """Return the state of a Job; None if there is none of this uid."""
        job = self._job(uid=uid)
        if job is None:
            return None
        if condition(job, "Complete").get("status") == "True":
            return TrainingStatus(TrainingPhase.DONE, uid=uid)
        failed = condition(job, "Failed")
        pods = self._pods(uid)
        if failed.get("status") == "True":
            why = (f"{failed.get('reason')}: {failed.get('message')}", failed_stage(pods))
            return TrainingStatus(TrainingPhase.FAILED, "; ".join(filter(None, why)), uid)
        if job["spec"].get("suspend"):
            return TrainingStatus(TrainingPhase.PENDING, "suspended until its queue admits it", uid)
        if not pods:
            problem = pod_problem(None, self._events(uid))
            return TrainingStatus(TrainingPhase.PENDING, problem.message if problem else "no pod yet", uid)
        return self._running(pods[-1], uid)

    def _running(self, pod: Json, uid: str) -> TrainingStatus:
        stage = current_stage(pod)
        if stage is None:
            problem = pod_problem(pod, self._events(pod["metadata"]["uid"]))
            return TrainingStatus(TrainingPhase.PENDING, problem.message if problem else "its pod starts", uid)
        if stage == COLLECT and uid in self._foreign:
            return TrainingStatus(_PHASES[stage], "gets no prompts: mpctl would create another Job now", uid)
        if stage == COLLECT and uid in self._lines and self._sent(pod["metadata"]["name"], self._lines[uid]):
            del self._lines[uid]
        return TrainingStatus(_PHASES[stage], uid=uid)

    def _sent(self, pod: str, lines: str) -> bool:
        """Send the prompts to a pod that waits for them; False where it does not listen, or has them."""
        target = self._forwards.target(pod, PORT)
        try:
            answer = http.request(
                "POST", f"{target.url}/prompts", json={"lines": lines}, seconds=_SEND_S, socket=target.socket
            )
        except http.NoAnswer:
            return False
        return answer.status == 200

    def _pods(self, uid: str) -> list[Json]:
        labels = f"batch.kubernetes.io/controller-uid={uid}"
        pods = [pod for pod in self._client.list(POD, self._namespace, labels=labels) or () if is_pod_of(pod, uid)]
        return sorted(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp")))

    def _events(self, uid: str) -> list[Json]:
        return self._client.list(EVENT, self._namespace, fields=f"involvedObject.uid={uid}") or []

    def running(self) -> tuple[str, ...]:
        """Describe each training that is not over: ``qwen-7: collecting``."""
        heads = {object_name(order.name): order.name for order in self.orders()} if (jobs := self._list(JOB)) else {}
        statuses = [(job["metadata"]["name"], self.status(str(job["metadata"]["uid"]))) for job in jobs]
        return tuple(
            ", ".join(filter(None, (f"{heads.get(name, name)}: {status.phase}", status.message)))
            for name, status in statuses
            if status is not None and not status.over
        )

    # Cards

    def card(self, uid: str) -> Card:
        """Return the card of a Job that is complete, and record it in a ConfigMap: the Job's log ends with the Job.

        Raises:
            MpctlError: the Job is not complete, or its output holds no card.
        """
        job = self._job(uid=uid)
        orders = {object_name(order.name): order for order in self.orders()}
        order = None if job is None else orders.get(job["metadata"]["name"])
        if job is None or order is None:
            raise MpctlError(f"no training Job with uid {uid} in namespace {self._namespace}")
        recorded = next((card for card in self.cards() if card.name == order.name), None)
        if recorded is not None:
            return recorded
        for pod in reversed(self._pods(uid)):
            log = self._client.log(pod["metadata"]["name"], self._namespace, container=CARD)
            lines = [line for line in log.splitlines() if line.startswith(CARD_LINE)]
            if lines:
                return self._recorded(job, order, lines[-1].removeprefix(CARD_LINE))
        raise MpctlError(
            f"training Job {self._namespace}/{job['metadata']['name']} has printed no card",
            hint=f"kubectl -n {self._namespace} logs job/{job['metadata']['name']} -c {CARD}",
        )

    def _recorded(self, job: Json, order: TrainingOrder, text: str) -> Card:
        try:
            card = card_of({**json.loads(text), "training_digests": list(order.training)})
        except (ValueError, TypeError) as error:
            raise MpctlError(f"the card of {order.name} is damaged: {error}") from error
        copied = ("namespace", "labels", "ownerReferences")
        metadata = {key: job["metadata"][key] for key in copied if key in job["metadata"]}
        body: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {**metadata, "name": f"{object_name(order.name)}-card"},
            "immutable": True,
            "data": {CARD_FILE: json.dumps(card.to_record(), sort_keys=True)},
        }
        self._created(CONFIG_MAP, body)
        return card

    # The end

    def cancel(self, uid: str) -> None:
        """Delete a Job with its pods; the claim remains."""
        job = self._job(uid=uid)
        if job is not None:
            self._client.delete(JOB, job["metadata"]["name"], self._namespace, uid=uid)

    def purge(self, name: str) -> None:
        """Delete a head's Job, its claim with everything on it, and what the claim owns; return when they are gone.

        Raises:
            MpctlError: an object remains.
        """
        for kind in (JOB, CLAIM, CONFIG_MAP):
            for item in self._list(kind, name):
                if kind is not CONFIG_MAP or not item["metadata"].get("ownerReferences"):
                    self._client.delete(kind, item["metadata"]["name"], self._namespace, uid=item["metadata"]["uid"])
        began = time.monotonic()
        while remaining := list(self._remaining(name)):
            if time.monotonic() - began > _GONE_S:
                raise MpctlError(
                    f"{', '.join(remaining)} in namespace {self._namespace} still being deleted after {_GONE_S:.0f} s",
                    hint="a pod that mounts the claim keeps it; run the same command again",
                )
            self._sleep(_PAUSE_S)

    def _remaining(self, name: str) -> Iterator[str]:
        for kind in (JOB, CLAIM, CONFIG_MAP):
            yield from (f"{kind.name} {item['metadata']['name']}" for item in self._list(kind, name))

    def close(self) -> None:
        """End port-forwards."""
        self._forwards.close()


def _without_places(job: Json) -> Json:
    """The Job without what a queue may change before it starts (KEP-2926): when and where it runs, not what."""
    bare = copy.deepcopy(job)
    bare["spec"].pop("suspend", None)
    template = bare["spec"]["template"]
    for key in ("nodeSelector", "tolerations", "affinity", "schedulingGates"):
        template["spec"].pop(key, None)
    template["metadata"] = {}
    return bare


def current_stage(pod: Json) -> str | None:
    """Return the stage whose container runs or ended last; None before the first one."""
    begun = [
        str(status["name"])
        for status in _statuses(pod)
        if status["name"] in _PHASES and {"running", "terminated"} & (status.get("state") or {}).keys()
    ]
    return begun[-1] if begun else None


def failed_stage(pods: list[Json]) -> str:
    """Name the container that failed and its exit code; empty where none did. Its output may hold prompts: a trainer
    prints what it likes."""
    for pod in reversed(pods):
        for status in _statuses(pod):
            code = ((status.get("state") or {}).get("terminated") or {}).get("exitCode")
            if code:
                name = pod["metadata"]["name"]
                return f"{status['name']} ended with code {code}: kubectl logs {name} -c {status['name']}"
    return ""


def _statuses(pod: Json) -> list[Json]:
    status = pod.get("status") or {}
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
