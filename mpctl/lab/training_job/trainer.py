"""Trains heads in Jobs of a cluster: implements ``mpctl.lab.drafts.order.Trainer``.

A head's objects are found by their labels, and its Job by its name: a second Job of a head cannot be created. Whatever
was created before a command was killed is found by the next one, which creates the rest.

Prompts go to a pod that the Job's controller created from the template of a Job that mpctl would create, and the card
is read from such a pod alone. Name, method, target and prompts of a card are the order's.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

from mpctl import bounded, commands
from mpctl.errors import Conflict, MpctlError, Refused
from mpctl.json_fields import condition
from mpctl.json_types import Json
from mpctl.lab.drafts.card import CARD_FILE, Card, card_of
from mpctl.lab.drafts.order import Split, TrainingOrder, TrainingPhase, TrainingStatus, prompt_lines
from mpctl.lab.training_job.head_records import HeadRecords
from mpctl.lab.training_job.in_pod.stage import CARD_LINE
from mpctl.lab.training_job.manifest import (
    CARD,
    COLLECT,
    ORDER,
    PORT,
    TRAIN,
    object_name,
    order_text,
)
from mpctl.platform import http
from mpctl.platform.kubernetes.api import names
from mpctl.platform.kubernetes.api.api_client import Client
from mpctl.platform.kubernetes.api.kinds import CLAIM, CONFIG_MAP, EVENT, JOB, POD, ObjectKind
from mpctl.platform.kubernetes.api.objects import last_writer
from mpctl.platform.kubernetes.api.port_forward import Forwards
from mpctl.platform.kubernetes.api.replies import AlreadyExists, OutcomeUnknown
from mpctl.platform.kubernetes.load_job.job_manifest import is_same, pod_problem
from mpctl.platform.kubernetes.pod_origin import foreign_reason
from mpctl.records import restored

_PHASES = {
    COLLECT: TrainingPhase.COLLECTING,
    TRAIN: TrainingPhase.TRAINING,
    CARD: TrainingPhase.CARD,
}
_TRIES = 4
_PAUSE_S = 1.0
_GONE_S = 120.0  # until the objects of a head are deleted: a pod may take its grace period
_SEND_S = 120.0


class JobTrainer:
    """``objects``: the claim, the ConfigMap and the Job of an order; ``warn``: takes a line about an object that is
    skipped."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        service: str,
        objects: Callable[[TrainingOrder], tuple[Json, ...]],
        warn: Callable[[str], None],
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client, self._namespace, self._service = client, namespace, service
        self._objects, self._sleep = objects, sleep
        self._forwards = Forwards(client, namespace)
        self._records = HeadRecords(client, namespace, service, warn)
        self._lines: dict[
            str, str
        ] = {}  # prompts that a Job's pod still has to get, by the Job's uid

    # Orders and heads

    def orders(self) -> tuple[TrainingOrder, ...]:
        """Return every order of the service, the oldest number first."""
        orders = self._records.read(ORDER, TrainingOrder.from_record)
        return tuple(sorted(orders, key=lambda order: int(order.name.rpartition("-")[2])))

    def cards(self) -> tuple[Card, ...]:
        """Return the cards that were recorded."""
        return self._records.read(CARD_FILE, Card.from_record)

    def weights(self, head: str) -> str:
        """Return the URI of a head's weights on its claim."""
        return f"pvc://{object_name(head)}/drafts/{head}/head"

    def seal(self, order: TrainingOrder) -> tuple[Json, ...]:
        """Return the object that vouches for an order, if it does not exist."""
        seal = self._records.seal_of(order.name, ORDER, order_text(order))
        return () if seal is None else (seal,)

    def _list(self, kind: ObjectKind, head: str = "") -> list[Json]:
        chosen = {names.SERVICE_LABEL: names.label_of(self._service), names.PART_LABEL: names.DRAFT}
        if head:
            chosen[names.HEAD_LABEL] = names.label_of(head)
        labels = ",".join(f"{key}={value}" for key, value in chosen.items())
        return self._client.list(kind, self._namespace, labels=labels) or []

    # The Job

    def submit(self, order: TrainingOrder, prompts: Split) -> str:
        """Create what is missing of the order's objects; return its Job's uid. :meth:`status` sends the prompts as soon
        as the Job's pod waits for them.

        Raises:
            Conflict: an object of that name is not the order's, or the Job is not what a new one would be.
            MpctlError: an object cannot be created, or admission takes no dry run.
        """
        claim, config, wanted = self._objects(order)
        job = self._job(order.name)
        if job is None:
            owner = self._created(CLAIM, claim)["metadata"]
            reference = {
                "apiVersion": "v1",
                "kind": CLAIM.name,
                "name": owner["name"],
                "uid": owner["uid"],
            }
            for body in (config, wanted):
                body["metadata"]["ownerReferences"] = [
                    reference
                ]  # what deletes the claim deletes them, too
            self._keep(order.name, ORDER, config)
            job = self._created(JOB, wanted)
        self._require_ours(job, wanted)
        uid = str(job["metadata"]["uid"])
        self._lines[uid] = prompt_lines(prompts)
        return uid

    def _require_ours(self, job: Json, wanted: Json) -> None:
        """Refuse a Job that is not what the API server would make of a new one: another user prepared it, or the
        service has changed since."""
        name = wanted["metadata"]["name"]
        probe = {**wanted, "metadata": {**wanted["metadata"], "name": f"{name}-probe"}}
        stored = self._client.create(JOB, probe, dry_run=True)
        if not is_same(_without_places(job), _without_places(stored)):
            raise Conflict(
                f"Job {self._namespace}/{name} is not what mpctl would create now: the service or mpctl's version "
                f"changed since, or another user created it{last_writer(job)}; it gets no prompts",
                hint="purge the head and train it again",
            )

    def _keep(self, head: str, file: str, config: Json) -> None:
        """Create the ConfigMap of a file with its seal.

        Raises:
            Conflict: there is one that holds something else.
        """
        existing = self._existing(CONFIG_MAP, config)
        if existing is None:
            self._records.seal(head, file, config["data"][file])
            existing = self._created(CONFIG_MAP, config)
        if existing.get("data") != config["data"]:
            name = config["metadata"]["name"]
            raise Conflict(
                f"ConfigMap {self._namespace}/{name} holds another {file} of {head}{last_writer(existing)}",
                hint=f"'{commands.kubectl('delete', 'configmap', name, namespace=self._namespace)}', then the same "
                "command again",
            )

    def _existing(self, kind: ObjectKind, body: Json) -> Json | None:
        name, head = body["metadata"]["name"], body["metadata"]["labels"][names.HEAD_LABEL]
        return next(
            (item for item in self._list(kind, head) if item["metadata"]["name"] == name), None
        )

    def _created(self, kind: ObjectKind, body: Json) -> Json:
        name = body["metadata"]["name"]
        for _ in range(_TRIES):
            with suppress(AlreadyExists, OutcomeUnknown):
                return self._client.create(kind, body)
            existing = self._existing(kind, body)
            if existing is not None:
                return existing
            self._sleep(_PAUSE_S)
        raise Conflict(
            f"{kind.name} {self._namespace}/{name} exists and has other labels than mpctl's",
            hint=commands.kubectl(
                "get", kind.resource, name, "-o", "yaml", namespace=self._namespace
            )
            + " shows whose it is",
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
        pods, foreign = self._pods(job)
        failed = condition(job, "Failed")
        if condition(job, "Complete").get("status") == "True":
            if any((pod.get("status") or {}).get("phase") == "Succeeded" for pod in pods):
                return TrainingStatus(TrainingPhase.DONE, uid=uid)
            return TrainingStatus(
                TrainingPhase.FAILED, f"its Job ended without training{foreign}", uid
            )
        if failed.get("status") == "True":
            why = (f"{failed.get('reason')}: {failed.get('message')}", failed_stage(pods))
            return TrainingStatus(TrainingPhase.FAILED, "; ".join(filter(None, why)) + foreign, uid)
        if job["spec"].get("suspend"):
            return TrainingStatus(TrainingPhase.PENDING, "suspended until its queue admits it", uid)
        if not pods:
            problem = pod_problem(None, self._events(uid))
            message = problem.message if problem else "no pod yet"
            return TrainingStatus(TrainingPhase.PENDING, f"{message}{foreign}", uid)
        return self._running(pods[-1], uid, foreign)

    def _running(self, pod: Json, uid: str, foreign: str) -> TrainingStatus:
        stage = current_stage(pod)
        if stage is None:
            problem = pod_problem(pod, self._events(pod["metadata"]["uid"]))
            message = problem.message if problem else "its pod starts"
            return TrainingStatus(TrainingPhase.PENDING, f"{message}{foreign}", uid)
        if (
            stage == COLLECT
            and uid in self._lines
            and self._sent(pod["metadata"]["name"], self._lines[uid])
        ):
            del self._lines[uid]
        return TrainingStatus(_PHASES[stage], uid=uid)

    def _sent(self, pod: str, lines: str) -> bool:
        """Send the prompts to a pod that waits for them; False where it does not listen, or has them."""
        target = self._forwards.target(pod, PORT)
        try:
            answer = http.request(
                "POST",
                f"{target.url}/prompts",
                json={"lines": lines},
                seconds=_SEND_S,
                socket=target.socket,
            )
        except http.NoAnswer:
            return False
        return answer.status == 200

    def _pods(self, job: Json) -> tuple[list[Json], str]:
        """Return the pods that the Job's controller created, the oldest first, and a description of any other."""
        labels = f"batch.kubernetes.io/controller-uid={job['metadata']['uid']}"
        pods = self._client.list(POD, self._namespace, labels=labels) or []
        foreign = {pod["metadata"]["name"]: foreign_reason(pod, job) for pod in pods}
        described = "".join(
            f"; pod {self._namespace}/{name} is not one that the Job's controller created and gets no prompts: {reason}"
            for name, reason in foreign.items()
            if reason
        )
        created = [pod for pod in pods if not foreign[pod["metadata"]["name"]]]
        return sorted(
            created, key=lambda pod: str(pod["metadata"].get("creationTimestamp"))
        ), described

    def _events(self, uid: str) -> list[Json]:
        return self._client.list(EVENT, self._namespace, fields=f"involvedObject.uid={uid}") or []

    def running(self) -> tuple[str, ...]:
        """Describe each training that is not over: ``qwen-7: collecting``."""
        jobs = [job["metadata"] for job in self._list(JOB)]
        statuses = [
            (job["labels"].get(names.HEAD_LABEL, job["name"]), self.status(str(job["uid"])))
            for job in jobs
        ]
        return tuple(
            ", ".join(filter(None, (f"{head}: {status.phase}", status.message)))
            for head, status in statuses
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
        pods, foreign = self._pods(job)
        for pod in reversed(pods):
            log = self._client.log(pod["metadata"]["name"], self._namespace, container=CARD)
            lines = [line for line in log.splitlines() if line.startswith(CARD_LINE)]
            if lines:
                return self._recorded(job, order, lines[-1].removeprefix(CARD_LINE))
        raise MpctlError(
            f"training Job {self._namespace}/{job['metadata']['name']} has printed no card{foreign}",
            hint=commands.kubectl(
                "logs", f"job/{job['metadata']['name']}", "-c", CARD, namespace=self._namespace
            ),
        )

    def _recorded(self, job: Json, order: TrainingOrder, text: str) -> Card:
        printed = restored(
            f"the card of {order.name}", lambda text: card_of(bounded.loads(text)), text, hint=""
        )
        if printed.prompts != order.prompts:
            raise Refused(
                f"the card of {order.name} names other prompts than its order: the head is not accepted"
            )
        target = replace(order.target, digest=order.target.digest or printed.target.digest)
        fixed = {key: getattr(order, key) for key in ("name", "method", "salt")}
        card = replace(printed, **fixed, target=target, training_digests=order.training)
        copied = ("namespace", "labels", "ownerReferences")
        metadata = {key: job["metadata"][key] for key in copied if key in job["metadata"]}
        body: Json = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {**metadata, "name": f"{object_name(order.name)}-card"},
            "immutable": True,
            "data": {CARD_FILE: json.dumps(card.to_record(), sort_keys=True)},
        }
        self._keep(order.name, CARD_FILE, body)
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
                    self._client.delete(
                        kind, item["metadata"]["name"], self._namespace, uid=item["metadata"]["uid"]
                    )
        began = time.monotonic()
        while remaining := list(self._remaining(name)):
            if time.monotonic() - began > _GONE_S:
                raise MpctlError(
                    f"{', '.join(remaining)} in namespace {self._namespace} still being deleted after {_GONE_S:.0f} s",
                    hint="a pod that mounts the claim keeps it; run the same command again",
                )
            self._sleep(_PAUSE_S)
        for file in (
            ORDER,
            CARD_FILE,
        ):  # what another user puts back under this name does not count
            self._records.seal(name, file, "")

    def _remaining(self, name: str) -> Iterator[str]:
        for kind in (JOB, CLAIM, CONFIG_MAP):
            yield from (
                f"{kind.name} {item['metadata']['name']}" for item in self._list(kind, name)
            )

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
        if status["name"] in _PHASES
        and {"running", "terminated"} & (status.get("state") or {}).keys()
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
                logs = commands.kubectl(
                    "logs", name, "-c", status["name"], namespace=pod["metadata"].get("namespace")
                )
                return f"{status['name']} ended with code {code}: {logs}"
    return ""


def _statuses(pod: Json) -> list[Json]:
    status = pod.get("status") or {}
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
