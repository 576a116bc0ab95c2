"""Heads trained in a Job, with the real Job controller: never a second Job, and no prompt where none belongs.

``killed_training`` says what of the pod's work is emulated.
"""

import json
import shlex

import pytest
import yaml

from .objects import CONTAINERS
from .roles import Granted

STALE = {"method": "eagle3", "model": "org/head", "num_speculative_tokens": 3}
PLANTED = "planted prompt"
WRITE_HEAD = (
    "import pathlib, sys; out = pathlib.Path(sys.argv[1]); out.mkdir(exist_ok=True); "
    "(out / 'model.safetensors').write_bytes(b'weights'); (out / 'config.json').write_text('{}')"
)
TRAINER = shlex.join(["python3", "-c", WRITE_HEAD, "{out}"])
VOLUME = {
    "apiVersion": "v1",
    "kind": "PersistentVolume",
    "spec": {
        "capacity": {"storage": "40Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "",
        "hostPath": {"path": "/drafts"},
    },
}


ACCEPTED = ("--accept", "unknown-licence")


@pytest.fixture
def traffic(tmp_path):
    file = tmp_path / "traffic.jsonl"
    file.write_text(
        "".join(json.dumps({"prompt": f"{PLANTED} {number}"}) + "\n" for number in range(40))
    )
    return file


@pytest.fixture
def volume(cluster, namespace, tmp_path):
    """The folder that the head's claim is; its volume is bound to it by name."""
    folder = tmp_path / "volume"
    folder.mkdir()
    claim = {"namespace": namespace.name, "name": "mpctl-draft-demo-1"}
    metadata = {"name": f"{namespace.name}-drafts"}
    cluster.client.apply(
        {**VOLUME, "metadata": metadata, "spec": {**VOLUME["spec"], "claimRef": claim}}
    )
    cluster.pods.claims["mpctl-draft-demo-1"] = folder
    yield folder
    del cluster.pods.claims["mpctl-draft-demo-1"]
    cluster.client.delete("persistentvolumes", metadata["name"])


@pytest.fixture
def allowed(cluster, namespace, mpctl):
    """The command line of a user who may train heads, and no more."""
    granted = Granted(cluster, namespace.name, allow=["drafts"])
    granted.apply()
    yield mpctl.as_user(granted.user)
    granted.remove()


@pytest.fixture
def demo(namespace):
    service = yaml.safe_load(CONTAINERS)
    (container,) = service["spec"]["predictor"]["containers"]
    container["args"].append(f"--speculative-config={json.dumps(STALE)}")
    namespace.deploy(service)


def train(mpctl, traffic, *options, trainer=TRAINER, code=0, kill_after=0):
    words = (
        "drafts",
        "train",
        "demo",
        "--prompts",
        str(traffic),
        "--trainer",
        trainer,
        "--storage-class",
        "",
    )
    return mpctl(
        *words, *ACCEPTED, *options, code=code, kill_after=kill_after, killer="killed_training"
    )


def jobs(namespace):
    return namespace.client.list("jobs", labels="mpctl.dev/part=draft")


def planted_objects(namespace):
    """Objects of the namespace, and lines of the pods' logs, that hold a prompt or an answer."""
    kinds = (
        "jobs",
        "configmaps",
        "pods",
        "persistentvolumeclaims",
        "events",
        "controllerrevisions",
        "leases",
    )
    return [kind for kind in kinds if "planted" in json.dumps(namespace.client.list(kind))]


@pytest.mark.usefixtures("demo")
def test_a_command_killed_after_each_object_makes_no_second_job(
    namespace, allowed, traffic, volume
):
    mpctl = allowed
    for written in (
        1,
        1,
        1,
    ):  # the claim; the ConfigMap; the Job: a command creates what is missing
        train(mpctl, traffic, "--apply", "-y", code=-9, kill_after=written)
    (killed,) = jobs(namespace)
    namespace.client.wait(
        "the pod waits for its prompts", lambda: "demo-1: collecting" in mpctl("status").stdout
    )
    done = train(mpctl, traffic, "--apply", "-y")
    assert [job["metadata"]["uid"] for job in jobs(namespace)] == [killed["metadata"]["uid"]]
    assert "3.10 (95% CI 3 to 3.20) tokens per step" in done.stdout
    assert "rollout demo --spec eagle3 --draft made:demo-1" in done.stderr
    assert not [
        path for path in volume.rglob("*") if path.is_file() and b"planted" in path.read_bytes()
    ]
    assert (volume / "drafts" / "demo-1" / "head" / "model.safetensors").exists()
    assert planted_objects(namespace) == []
    assert "planted" not in done.stdout + done.stderr
    (head,) = mpctl.json("drafts", "list", "demo")["items"]
    assert (head["name"], head["state"], head["trainingPrompts"]) == ("demo-1", "trained", 32)
    assert len(head["card"]["training_digests"]) == 32
    mpctl("drafts", "purge", "demo-1", "-y")
    left = [
        namespace.client.list(kind, labels="mpctl.dev/part=draft")
        for kind in ("jobs", "persistentvolumeclaims")
    ]
    assert left == [[], []]
    assert mpctl.json("drafts", "list", "demo")["items"] == []


@pytest.mark.usefixtures("demo")
def test_a_failed_trainer_is_named_without_its_output_and_purge_leaves_no_data(
    namespace, mpctl, traffic, volume
):
    prints = "import pathlib, sys; sys.exit((pathlib.Path(sys.argv[1]) / '0.json').read_text())"
    fails = shlex.join(["python3", "-c", prints, "{transcripts}"])
    done = train(mpctl, traffic, "--apply", "-y", trainer=fails, code=1)
    assert "train ended with code 1" in done.stderr
    assert "planted" not in done.stdout + done.stderr
    assert planted_objects(namespace) == []
    assert [
        path for path in volume.rglob("*") if path.is_file() and b"planted" in path.read_bytes()
    ]
    mpctl("drafts", "purge", "demo-1", "-y")
    kinds = ("jobs", "persistentvolumeclaims", "configmaps")
    assert [namespace.client.list(kind, labels="mpctl.dev/part=draft") for kind in kinds] == [
        [],
        [],
        [],
    ]


@pytest.mark.usefixtures("demo")
def test_every_printed_object_is_valid_to_the_api_server(namespace, mpctl, traffic):
    """By a dry run that refuses unknown and dropped fields."""
    printed = train(mpctl, traffic, "--queue", "gpus").stdout
    kinds = [document["kind"] for document in yaml.safe_load_all(printed)]
    assert kinds == ["PersistentVolumeClaim", "ConfigMap", "Job", "ControllerRevision"]
    assert "planted" not in printed
    namespace.kubectl("apply", "-f", "-", "--dry-run=server", "--validate=strict", stdin=printed)
    assert jobs(namespace) == []


@pytest.mark.usefixtures("demo", "volume")
def test_other_prompts_do_not_continue_an_unfinished_order(namespace, mpctl, traffic, tmp_path):
    other = tmp_path / "other.jsonl"
    other.write_text(traffic.read_text().replace(PLANTED, f"other {PLANTED}"))
    train(mpctl, traffic, "--apply", "-y", code=-9, kill_after=2)
    done = train(mpctl, other, "--apply", "-y", code=3)
    assert "the training of demo-1 is unfinished and has other prompts" in done.stderr
    assert "mpctl drafts purge demo-1" in done.stderr
    assert jobs(namespace) == []
