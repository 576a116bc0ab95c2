"""A training Job is created once, whatever becomes of the answers; its state is told by its pod's containers. Another
user's order, card, Job or pod gets no prompt, is not obeyed, and is named."""

import copy
import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from test_platform_training_job import FORM, SERVING, order_of

from mpctl.errors import Conflict, MpctlError, Refused
from mpctl.lab.drafts.card import Card, Target
from mpctl.lab.drafts.order import Split, TrainingPhase, next_name
from mpctl.lab.training_job.in_pod.stage import CARD_LINE
from mpctl.lab.training_job.manifest import training_objects
from mpctl.lab.training_job.trainer import JobTrainer, current_stage, failed_stage
from mpctl.platform.kubernetes.api import names
from mpctl.platform.kubernetes.api.replies import AlreadyExists, OutcomeUnknown

PROMPTS = Split(("first prompt", "second prompt"), ("held out",))


CREATED = "2026-11-26T01:00:00Z"
CONFIG, JOB, CARD = "mpctl-draft-qwen-7-order", "mpctl-draft-qwen-7", "mpctl-draft-qwen-7-card"


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
        record["metadata"] |= {"uid": f"uid-{len(self.stored)}", "creationTimestamp": CREATED}
        record["metadata"]["managedFields"] = [{"manager": "mpctl", "time": CREATED}]
        self.stored[key] = record
        self.writes.append(kind.name)
        if kind.name in self.lost:
            self.lost.discard(kind.name)
            raise OutcomeUnknown("no answer")
        return record

    def list(self, kind, namespace, *, labels="", fields=""):
        wanted = dict(pair.split("=") for pair in labels.split(",") if pair)
        items = [record for (name, _), record in self.stored.items() if name == kind.name]
        return [
            item for item in items if wanted.items() <= item["metadata"].get("labels", {}).items()
        ]

    def require(self, kind, name, namespace):
        return self.stored[kind.name, name]

    def delete(self, kind, name, namespace, *, uid=None):
        del self.stored[kind.name, name]

    def log(self, pod, namespace, *, container):
        return self.stored["Pod", pod]["log"]


def trainer_of(client, warn=lambda line: None):
    objects = lambda order: training_objects(order, FORM, SERVING, "ml")  # noqa: E731
    return JobTrainer(client, "ml", "qwen", objects, warn, sleep=lambda s: None)


def test_the_weights_of_a_head_lie_on_its_claim():
    assert trainer_of(None).weights("qwen-7") == "pvc://mpctl-draft-qwen-7/drafts/qwen-7/head"


@pytest.mark.parametrize("lost", ["PersistentVolumeClaim", "ConfigMap", "Job"])
def test_a_create_without_an_answer_is_not_repeated(lost):
    client = Objects(lost)
    uid = trainer_of(client).submit(order_of(), PROMPTS)
    assert client.writes == ["PersistentVolumeClaim", "ControllerRevision", "ConfigMap", "Job"]
    assert client.stored["Job", "mpctl-draft-qwen-7"]["metadata"]["uid"] == uid
    assert trainer_of(client).submit(order_of(), PROMPTS) == uid


def test_what_a_head_has_goes_with_its_claim():
    client = Objects()
    trainer_of(client).submit(order_of(), PROMPTS)
    claim = client.stored["PersistentVolumeClaim", "mpctl-draft-qwen-7"]["metadata"]["uid"]
    owned = [
        client.stored[key]["metadata"]["ownerReferences"]
        for key in client.stored
        if key[0] in ("ConfigMap", "Job")
    ]
    assert [reference["uid"] for (reference,) in owned] == [claim, claim]


def test_another_order_of_the_same_name_gets_no_job():
    client = Objects("ConfigMap")
    first = trainer_of(client)
    first.submit(order_of(), PROMPTS)
    del client.stored["Job", "mpctl-draft-qwen-7"]  # the first command was killed before it
    with pytest.raises(
        Conflict, match=f"ConfigMap ml/{CONFIG} holds another order.json of qwen-7, last written by"
    ):
        trainer_of(client).submit(order_of(("third prompt",)), PROMPTS)


def test_a_claim_of_another_is_not_taken():
    client = Objects()
    client.stored["PersistentVolumeClaim", "mpctl-draft-qwen-7"] = {
        "metadata": {"name": "mpctl-draft-qwen-7"}
    }
    with pytest.raises(
        Conflict, match="PersistentVolumeClaim ml/mpctl-draft-qwen-7 exists and has other labels"
    ):
        trainer_of(client).submit(order_of(), PROMPTS)


@pytest.mark.parametrize(
    "change", [{"envFrom": [{"secretRef": {"name": "hers"}}]}, {"command": ["sh", "-c", "id"]}]
)
def test_a_job_that_another_user_prepared_gets_no_prompts_and_is_named(change):
    client = Objects()
    trainer_of(client).submit(order_of(), PROMPTS)
    (container,) = client.stored["Job", JOB]["spec"]["template"]["spec"]["containers"]
    container |= change
    trainer = trainer_of(client)
    with pytest.raises(
        Conflict, match=f"Job ml/{JOB} is not what mpctl would create now: .*last written by mpctl"
    ):
        trainer.submit(order_of(), PROMPTS)
    assert trainer._lines == {}


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


def pod_of(client, status, log=""):
    """Add the pod that the Job's controller creates."""
    job = client.stored["Job", JOB]
    uid = job["metadata"]["uid"]
    pod = {
        "metadata": {
            "name": "pod",
            "uid": "pod",
            "creationTimestamp": "2026-11-26T01:00:01Z",
            "labels": {"batch.kubernetes.io/controller-uid": uid},
            "ownerReferences": [{"controller": True, "uid": uid}],
        },
        "spec": copy.deepcopy(job["spec"]["template"]["spec"]),
        "status": status,
        "log": log,
    }
    client.stored["Pod", "pod"] = pod
    return pod


def status_of(pod_status, **job_status):
    client = Objects()
    trainer = trainer_of(client)
    uid = trainer.submit(order_of(), PROMPTS)
    client.stored["Job", JOB].update(job_status)
    if pod_status is not None:
        pod_of(client, pod_status)
    trainer._lines.clear()  # a pod here listens to nobody
    return trainer.status(uid)


def container(name, **state):
    return {"name": name, "state": state}


ENDED, RUNS = {"terminated": {"exitCode": 0}}, {"running": {}}


@pytest.mark.parametrize(
    ("init", "main", "phase"),
    [
        (
            [container("collect", **RUNS), container("train", waiting={})],
            {},
            TrainingPhase.COLLECTING,
        ),
        ([container("collect", **ENDED), container("train", **RUNS)], {}, TrainingPhase.TRAINING),
        ([container("collect", **ENDED), container("train", **ENDED)], RUNS, TrainingPhase.CARD),
        ([container("storage-initializer", **RUNS)], {}, TrainingPhase.PENDING),
    ],
)
def test_the_phase_is_that_of_the_container_that_runs(init, main, phase):
    pod = {
        "phase": "Pending",
        "initContainerStatuses": init,
        "containerStatuses": [container("card", **main)],
    }
    assert status_of(pod).phase is phase


def test_a_failure_names_the_container_and_nothing_that_it_printed():
    failed = container("train", terminated={"exitCode": 3, "message": "planted prompt"})
    condition = {
        "type": "Failed",
        "status": "True",
        "reason": "BackoffLimitExceeded",
        "message": "too many",
    }
    status = status_of({"initContainerStatuses": [failed]}, status={"conditions": [condition]})
    assert status.phase is TrainingPhase.FAILED
    assert "train ended with code 3: kubectl logs pod -c train" in status.message
    assert "planted" not in status.message
    assert failed_stage([]) == ""
    assert current_stage({"metadata": {}}) is None


def test_a_suspended_job_waits_for_its_queue():
    status = status_of(None, spec={"suspend": True})
    assert (status.phase, status.message) == (
        TrainingPhase.PENDING,
        "suspended until its queue admits it",
    )


@pytest.mark.parametrize(
    "line",
    ["{", "[]", "x", "[" * 100_000, json.dumps({"name": "qwen-7"}), '{"counts": {"new": []}}'],
)
def test_a_damaged_card_is_refused(line):
    client = Objects()
    trainer = trainer_of(client)
    uid = trainer.submit(order_of(), PROMPTS)
    pod_of(client, SUCCEEDED, f"{CARD_LINE}{line}\n")
    with pytest.raises(MpctlError, match="the card of qwen-7 is damaged"):
        trainer.card(uid)


SUCCEEDED = {"phase": "Succeeded"}
COMPLETE = {"conditions": [{"type": "Complete", "status": "True"}]}
COLLECTS = {"phase": "Pending", "initContainerStatuses": [container("collect", **RUNS)]}


def printed(**more):
    """The log of a pod with a card, whose fields are the pod's choice."""
    card = Card(
        "qwen-7",
        "eagle3",
        Target("/mnt/models", digest="d1"),
        "ab",
        salt="5a17",
        prompts=order_of().prompts,
    )
    return f"{CARD_LINE}{json.dumps(replace(card, **more).to_record())}\n"


def submitted(pod_status, log="", **change):
    """A submitted order whose Job has a pod with changed ``metadata`` or ``spec``: client, trainer, uid, prompts that
    arrived, warnings."""
    client, warnings, sent = Objects(), [], []
    trainer = trainer_of(client, warnings.append)
    trainer._sent = lambda pod, lines: bool(sent.append(lines)) or True
    uid = trainer.submit(order_of(), PROMPTS)
    pod = pod_of(client, pod_status, log)
    for part, fields in change.items():
        pod[part] |= fields
    return SimpleNamespace(client=client, trainer=trainer, uid=uid, sent=sent, warnings=warnings)


def test_the_pod_of_the_jobs_controller_gets_the_prompts_once():
    run = submitted(COLLECTS)
    for _ in range(2):
        assert run.trainer.status(run.uid).phase is TrainingPhase.COLLECTING
    (lines,) = run.sent
    assert "first prompt" in lines


def written_by(manager):
    return [{"manager": manager, "fieldsV1": {"f:spec": {"f:containers": {}}}}]


FOREIGN = [
    (
        {"spec": {"containers": [{"name": "card", "image": "evil.example/x"}]}},
        "differs from the Job's template",
    ),
    ({"metadata": {"creationTimestamp": "2026-11-26T00:59:59Z"}}, "it is older than the Job"),
    ({"metadata": {"managedFields": written_by("kubectl")}}, "it was created by kubectl"),
    ({"metadata": {"ownerReferences": []}}, "another object controls it"),
]


@pytest.mark.parametrize(("change", "reason"), FOREIGN)
def test_a_pod_that_was_adopted_or_forged_gets_no_prompts_and_is_named(change, reason):
    run = submitted(COLLECTS, **change)
    status = run.trainer.status(run.uid)
    assert run.sent == []
    assert status.phase is TrainingPhase.PENDING
    assert (
        "pod ml/pod is not one that the Job's controller created and gets no prompts"
        in status.message
    )
    assert reason in status.message


@pytest.mark.parametrize(("change", "reason"), FOREIGN)
def test_a_job_that_a_foreign_pod_completed_is_no_training_and_its_card_is_not_read(change, reason):
    run = submitted(SUCCEEDED, printed(), **change)
    run.client.stored["Job", JOB]["status"] = COMPLETE
    status = run.trainer.status(run.uid)
    assert status.phase is TrainingPhase.FAILED
    assert "its Job ended without training; pod ml/pod is not one" in status.message
    with pytest.raises(MpctlError, match="has printed no card; pod ml/pod is not one"):
        run.trainer.card(run.uid)
    assert run.trainer.cards() == ()


def test_name_method_target_and_salt_of_a_card_are_the_orders():
    run = submitted(
        SUCCEEDED, printed(name="x", method="mtp", target=Target("other", digest="d1"), salt="0")
    )
    run.client.stored["Job", JOB]["status"] = COMPLETE
    assert run.trainer.status(run.uid).phase is TrainingPhase.DONE
    card, order = run.trainer.card(run.uid), order_of()
    assert (card.name, card.method, card.salt, card.target.model) == (
        "qwen-7",
        "eagle3",
        "5a17",
        "/mnt/models",
    )
    assert (card.target.digest, card.training_digests) == ("d1", order.training)
    assert card.trained_on(["first prompt", "another"]) == 1
    assert run.trainer.cards() == (card,)


def test_a_card_of_other_prompts_than_the_orders_is_refused():
    run = submitted(SUCCEEDED, printed(prompts="0" * 64))
    with pytest.raises(Refused, match="the card of qwen-7 names other prompts than its order"):
        run.trainer.card(run.uid)


def config_map(name, file, text, head="qwen-7"):
    labels = {names.SERVICE_LABEL: "qwen", names.PART_LABEL: names.DRAFT, names.HEAD_LABEL: head}
    written = [{"manager": "mallory", "time": "2026-11-26T02:00:00Z"}]
    return {
        "metadata": {"name": name, "labels": labels, "managedFields": written},
        "data": {file: text},
    }


FORGED_ORDER = replace(order_of(), command=("sh", "-c", "id")).to_record()
FORGERIES = [
    *(
        ("card.json", text)
        for text in ("{}", "[]", "x", "[" * 100_000, printed().removeprefix(CARD_LINE))
    ),
    *(("order.json", text) for text in ("{}", "[]", "x", "[" * 100_000, json.dumps(FORGED_ORDER))),
    *(
        ("order.json", json.dumps({**FORGED_ORDER, "name": name}))
        for name in ("abc", "qwen-x", f"qwen-{'9' * 58}")
    ),
]


@pytest.mark.parametrize(
    ("file", "text"), FORGERIES, ids=[f"{file} {text[:12]}" for file, text in FORGERIES]
)
def test_a_forged_order_or_card_is_skipped_and_named(file, text):
    run = submitted(COLLECTS)
    run.client.stored["ConfigMap", "theirs"] = config_map("theirs", file, text)
    assert run.trainer.orders() == (order_of(),)
    assert run.trainer.cards() == ()
    (warning,) = run.warnings
    assert warning.startswith(
        f"ConfigMap ml/theirs holds no {file} that mpctl wrote, last written by mallory at"
    )
    assert "'kubectl delete configmap theirs -n ml' deletes it" in warning
    assert next_name("qwen", [order.name for order in run.trainer.orders()]) == "qwen-8"
    assert run.trainer.running() == ("qwen-7: collecting",)


def test_an_order_that_was_changed_before_its_job_is_neither_listed_nor_trained():
    client, warnings = Objects(), []
    trainer_of(client).submit(order_of(), PROMPTS)
    del client.stored["Job", JOB]  # the first command was killed before it
    client.stored["ConfigMap", CONFIG] = config_map(CONFIG, "order.json", json.dumps(FORGED_ORDER))
    trainer = trainer_of(client, warnings.append)
    assert trainer.orders() == ()
    with pytest.raises(
        Conflict,
        match=f"ConfigMap ml/{CONFIG} holds another order.json of qwen-7, last written by mal",
    ):
        trainer.submit(order_of(), PROMPTS)
    assert ("Job", JOB) not in client.stored
    assert len(warnings) == 1


def test_a_card_that_another_user_created_first_is_not_taken_for_the_pods():
    run = submitted(SUCCEEDED, printed())
    run.client.stored["ConfigMap", CARD] = config_map(
        CARD, "card.json", printed(salt="0").removeprefix(CARD_LINE)
    )
    with pytest.raises(
        Conflict,
        match=f"ConfigMap ml/{CARD} holds another card.json of qwen-7, last written by mallory",
    ):
        run.trainer.card(run.uid)


def test_a_card_that_is_put_back_after_its_head_was_purged_does_not_count():
    run = submitted(SUCCEEDED, printed())
    run.trainer.card(run.uid)
    kept = {name: copy.deepcopy(run.client.stored["ConfigMap", name]) for name in (CONFIG, CARD)}
    for body in kept.values():
        del body["metadata"]["ownerReferences"]
    for name in (CONFIG, CARD):
        del run.client.stored["ConfigMap", name]  # the claim, which the purge deletes, owns them
    run.trainer.purge("qwen-7")
    run.client.stored |= {("ConfigMap", name): body for name, body in kept.items()}
    assert (run.trainer.orders(), run.trainer.cards()) == ((), ())


def test_the_seal_of_an_order_is_printed_until_it_exists():
    client = Objects()
    (seal,) = trainer_of(client).seal(order_of())
    assert (seal["kind"], seal["revision"]) == ("ControllerRevision", 1)
    trainer_of(client).submit(order_of(), PROMPTS)
    assert client.stored["ControllerRevision", seal["metadata"]["name"]]["data"] == seal["data"]
    assert trainer_of(client).seal(order_of()) == ()
