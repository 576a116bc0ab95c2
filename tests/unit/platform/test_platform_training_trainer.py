"""A training Job is created once, whatever becomes of the answers; its state is told by its pod's containers."""

import copy
import json

import pytest
from test_platform_training_job import FORM, SERVING, order_of

from mpctl.drafts.order import Split, TrainingPhase
from mpctl.errors import Conflict, MpctlError
from mpctl.platform.kubernetes.api.replies import AlreadyExists, OutcomeUnknown
from mpctl.platform.kubernetes.in_pod.stage import CARD_LINE
from mpctl.platform.kubernetes.training_job.manifest import training_objects
from mpctl.platform.kubernetes.training_job.trainer import JobTrainer, current_stage, failed_stage

PROMPTS = Split(("first prompt", "second prompt"), ("held out",))


class Objects:
    """An API server's objects in memory. ``lost``: kinds whose first create is stored without an answer."""

    def __init__(self, *lost):
        self.stored, self.lost, self.writes = {}, set(lost), []

    def create(self, kind, body, *, dry_run=False):
        key = kind.name, body["metadata"]["name"]
        if dry_run:
            return {**copy.deepcopy(body), "metadata": {**body["metadata"], "uid": "none"}}
        if key in self.stored:
            raise AlreadyExists("exists")
        record = copy.deepcopy(body)
        record["metadata"]["uid"] = f"uid-{len(self.stored)}"
        self.stored[key] = record
        self.writes.append(kind.name)
        if kind.name in self.lost:
            self.lost.discard(kind.name)
            raise OutcomeUnknown("no answer")
        return record

    def list(self, kind, namespace, *, labels="", fields=""):
        wanted = dict(pair.split("=") for pair in labels.split(",") if pair)
        items = [record for (name, _), record in self.stored.items() if name == kind.name]
        return [item for item in items if wanted.items() <= item["metadata"].get("labels", {}).items()]

    def log(self, pod, namespace, *, container):
        return self.stored["Pod", pod]["log"]


def trainer_of(client):
    objects = lambda order: training_objects(order, FORM, SERVING, "ml")  # noqa: E731
    return JobTrainer(client, "ml", "qwen", objects, sleep=lambda s: None)


def test_the_weights_of_a_head_lie_on_its_claim():
    assert trainer_of(None).weights("qwen-7") == "pvc://mpctl-draft-qwen-7/drafts/qwen-7/head"


@pytest.mark.parametrize("lost", ["PersistentVolumeClaim", "ConfigMap", "Job"])
def test_a_create_without_an_answer_is_not_repeated(lost):
    client = Objects(lost)
    uid = trainer_of(client).submit(order_of(), PROMPTS)
    assert client.writes == ["PersistentVolumeClaim", "ConfigMap", "Job"]
    assert client.stored["Job", "mpctl-draft-qwen-7"]["metadata"]["uid"] == uid
    assert trainer_of(client).submit(order_of(), PROMPTS) == uid


def test_what_a_head_has_goes_with_its_claim():
    client = Objects()
    trainer_of(client).submit(order_of(), PROMPTS)
    claim = client.stored["PersistentVolumeClaim", "mpctl-draft-qwen-7"]["metadata"]["uid"]
    owned = [
        client.stored[key]["metadata"]["ownerReferences"] for key in client.stored if key[0] in ("ConfigMap", "Job")
    ]
    assert [reference["uid"] for (reference,) in owned] == [claim, claim]


def test_another_order_of_the_same_name_gets_no_job():
    client = Objects("ConfigMap")
    first = trainer_of(client)
    first.submit(order_of(), PROMPTS)
    del client.stored["Job", "mpctl-draft-qwen-7"]  # the first command was killed before it
    with pytest.raises(Conflict, match="has another order of qwen-7"):
        trainer_of(client).submit(order_of(("third prompt",)), PROMPTS)


def test_a_claim_of_another_is_not_taken():
    client = Objects()
    client.stored["PersistentVolumeClaim", "mpctl-draft-qwen-7"] = {"metadata": {"name": "mpctl-draft-qwen-7"}}
    with pytest.raises(Conflict, match="PersistentVolumeClaim ml/mpctl-draft-qwen-7 exists and has other labels"):
        trainer_of(client).submit(order_of(), PROMPTS)


@pytest.mark.parametrize("prepared", ["container", "programs"])
def test_a_job_or_programs_that_somebody_prepared_get_no_prompts(prepared):
    client = Objects()
    uid = trainer_of(client).submit(order_of(), PROMPTS)
    if prepared == "programs":
        client.stored["ConfigMap", "mpctl-draft-qwen-7-order"]["data"]["stage.py"] = "theirs()"
    else:
        (container,) = client.stored["Job", "mpctl-draft-qwen-7"]["spec"]["template"]["spec"]["containers"]
        container["envFrom"] = [{"secretRef": {"name": "hers"}}]
    trainer = trainer_of(client)
    assert trainer.submit(order_of(), PROMPTS) == uid
    assert trainer._lines == {}
    same = trainer_of(Objects())
    assert same._lines.keys() == set() and same.submit(order_of(), PROMPTS) in same._lines


def test_a_job_that_its_queue_placed_and_started_gets_its_prompts():
    client = Objects()
    uid = trainer_of(client).submit(order_of(), PROMPTS)
    job = client.stored["Job", "mpctl-draft-qwen-7"]
    job["spec"]["suspend"] = False
    job["spec"]["template"]["spec"]["nodeSelector"] = {"pool": "reserved"}
    job["spec"]["template"]["metadata"]["labels"]["kueue.x-k8s.io/podset"] = "main"
    trainer = trainer_of(client)
    trainer.submit(order_of(), PROMPTS)
    assert uid in trainer._lines


def status_of(pod_status, **job_status):
    client = Objects()
    trainer = trainer_of(client)
    uid = trainer.submit(order_of(), PROMPTS)
    client.stored["Job", "mpctl-draft-qwen-7"].update(job_status)
    if pod_status is not None:
        metadata = {
            "name": "pod",
            "uid": "pod",
            "labels": {"batch.kubernetes.io/controller-uid": uid},
            "ownerReferences": [{"controller": True, "uid": uid}],
        }
        client.stored["Pod", "pod"] = {"metadata": metadata, "status": pod_status, "spec": {"containers": []}}
    trainer._lines.clear()  # a pod here listens to nobody
    return trainer.status(uid)


def container(name, **state):
    return {"name": name, "state": state}


ENDED, RUNS = {"terminated": {"exitCode": 0}}, {"running": {}}


@pytest.mark.parametrize(
    ("init", "main", "phase"),
    [
        ([container("collect", **RUNS), container("train", waiting={})], {}, TrainingPhase.COLLECTING),
        ([container("collect", **ENDED), container("train", **RUNS)], {}, TrainingPhase.TRAINING),
        ([container("collect", **ENDED), container("train", **ENDED)], RUNS, TrainingPhase.CARD),
        ([container("storage-initializer", **RUNS)], {}, TrainingPhase.PENDING),
    ],
)
def test_the_phase_is_that_of_the_container_that_runs(init, main, phase):
    pod = {"phase": "Pending", "initContainerStatuses": init, "containerStatuses": [container("card", **main)]}
    assert status_of(pod).phase is phase


def test_a_failure_names_the_container_and_nothing_that_it_printed():
    failed = container("train", terminated={"exitCode": 3, "message": "planted prompt"})
    condition = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "too many"}
    status = status_of({"initContainerStatuses": [failed]}, status={"conditions": [condition]})
    assert status.phase is TrainingPhase.FAILED
    assert "train ended with code 3: kubectl logs pod -c train" in status.message
    assert "planted" not in status.message
    assert failed_stage([]) == ""
    assert current_stage({"metadata": {}}) is None


def test_a_suspended_job_waits_for_its_queue():
    status = status_of(None, spec={"suspend": True})
    assert (status.phase, status.message) == (TrainingPhase.PENDING, "suspended until its queue admits it")


@pytest.mark.parametrize("line", ["{", "[]", json.dumps({"name": "qwen-7"})])
def test_a_damaged_card_is_refused(line):
    client = Objects()
    trainer = trainer_of(client)
    uid = trainer.submit(order_of(), PROMPTS)
    metadata = {"name": "pod", "labels": {"batch.kubernetes.io/controller-uid": uid}}
    metadata["ownerReferences"] = [{"controller": True, "uid": uid}]
    client.stored["Pod", "pod"] = {"metadata": metadata, "log": f"{CARD_LINE}{line}\n"}
    with pytest.raises(MpctlError, match="the card of qwen-7 is damaged"):
        trainer.card(uid)
