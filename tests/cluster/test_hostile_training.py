"""Other users of a namespace and its training Jobs: mallory may write ConfigMaps, eddie has the role ``edit``.

No prompt leaves, no code or image of theirs runs, and a message names the object.
"""

import json
import shlex
import subprocess
import sys

import pytest

from .conftest import ROOT
from .rig.api import ApiError
from .test_training_job import (
    ACCEPTED,
    PLANTED,
    TRAINER,
    allowed,
    demo,
    jobs,
    traffic,
    train,
    volume,
)

__all__ = ["allowed", "demo", "traffic", "volume"]  # fixtures
ORDER, CARD, JOB = "mpctl-draft-demo-1-order", "mpctl-draft-demo-1-card", "mpctl-draft-demo-1"
DIGITS = "9" * 58


def permitted(client, kind):
    """Whether a client may list a kind by now: the API server learns of a binding a moment after it is created."""
    try:
        return client.list(kind) is not None
    except ApiError as error:
        if error.status != 403:
            raise
        return False


@pytest.fixture
def mallory(cluster, namespace):
    """A client that may read and write ConfigMaps alone."""
    where = ("-n", namespace.name)
    cluster.kubectl(*where, "create", "role", "mallory", "--verb=*", "--resource=configmaps")
    cluster.kubectl(*where, "create", "rolebinding", "mallory", "--role=mallory", "--user=mallory")
    client = cluster.client_for(cluster.user("mallory"), namespace.name)
    client.wait("mallory has her role", lambda: permitted(client, "configmaps"))
    yield client
    client.close()


@pytest.fixture
def eddie(cluster, namespace):
    """A client with the role ``edit``."""
    cluster.kubectl(
        "-n", namespace.name, "create", "rolebinding", "eddie", "--clusterrole=edit", "--user=eddie"
    )
    client = cluster.client_for(cluster.user("eddie"), namespace.name)
    client.wait("eddie has his role", lambda: permitted(client, "pods"))
    yield client
    client.close()


def replaced(client, name, change):
    """Delete a ConfigMap and create it with other data: ``immutable`` prevents neither."""
    config = client.get("configmaps", name)
    client.delete("configmaps", name)
    metadata = {key: config["metadata"][key] for key in ("name", "labels", "ownerReferences")}
    client.apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata,
            "data": change(config["data"]),
        }
    )


def with_their_code(mark):
    """Return the data of an order that runs a command, and of programs as earlier versions mounted them."""
    command = ["sh", "-c", f"id > {mark}"]

    def change(data):
        order = {**json.loads(data["order.json"]), "command": command}
        order["images"] = {**order["images"], "trainer": "evil.example/x"}
        program = f"import pathlib; pathlib.Path({str(mark)!r}).touch()"
        return {"order.json": json.dumps(order), "stage.py": program, "heads.py": program}

    return change


def forged(name, file, text):
    """A ConfigMap with the labels of a head's."""
    labels = {"mpctl.dev/service": "demo", "mpctl.dev/part": "draft", "mpctl.dev/head": "demo-1"}
    metadata = {"name": name, "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {file: text}}


@pytest.mark.usefixtures("demo", "volume")
def test_who_may_write_configmaps_runs_nothing_gets_no_prompt_and_is_named(
    namespace, allowed, mallory, traffic, tmp_path
):
    mpctl, mark = allowed, tmp_path / "ran"
    train(
        mpctl, traffic, "--apply", "-y", code=-9, kill_after=2
    )  # the order is there, the Job is not
    genuine = mallory.get("configmaps", ORDER)["data"]
    replaced(mallory, ORDER, with_their_code(mark))
    done = train(mpctl, traffic, "--apply", "-y", code=3)
    assert f"ConfigMap {namespace.name}/{ORDER} holds no order.json that mpctl wrote" in done.stderr
    assert f"ConfigMap {namespace.name}/{ORDER} holds another order.json of demo-1" in done.stderr
    assert jobs(namespace) == []

    replaced(mallory, ORDER, lambda _data: genuine)
    done = train(mpctl, traffic, "--apply", "-y", trainer=shlex.join(["true", "{out}"]), code=3)
    assert 'has the command ["python3", "-c", ' in done.stderr  # both are shown
    assert ', not ["true", "{out}"]' in done.stderr
    assert not mark.exists()
    assert PLANTED not in done.stdout + done.stderr


@pytest.mark.usefixtures("demo", "volume")
def test_an_order_that_is_replaced_after_its_job_was_created_runs_nothing_in_the_pod(
    cluster, namespace, allowed, mallory, traffic, tmp_path
):
    mpctl, mark = allowed, tmp_path / "ran"
    train(
        mpctl, traffic, "--apply", "-y", "--queue", "gpus", code=-9, kill_after=3
    )  # suspended: it has no pod yet
    replaced(mallory, ORDER, with_their_code(mark))
    namespace.client.patch("jobs", JOB, {"spec": {"suspend": False}})
    namespace.client.wait("the order is not obeyed", lambda: refusals(cluster, namespace))
    done = train(mpctl, traffic, "--apply", "-y", "--queue", "gpus", code=3)
    assert f"ConfigMap {namespace.name}/{ORDER} holds no order.json that mpctl wrote" in done.stderr
    mpctl("drafts", "purge", "demo-1", "-y")
    assert [
        namespace.client.list(kind, labels="mpctl.dev/part=draft")
        for kind in ("jobs", "configmaps")
    ] == [[], []]
    assert not mark.exists()
    assert PLANTED not in done.stdout + done.stderr


def refusals(cluster, namespace):
    """The lines of stages that do not obey their order."""
    pods = namespace.client.list("pods", labels="mpctl.dev/head=demo-1")
    running = [
        pod
        for record in pods
        if (pod := cluster.pods.named(namespace.name, record["metadata"]["name"]))
    ]
    logs = [log.read_text() for pod in running if (log := pod.log("collect")).exists()]
    return [text for text in logs if "is not the order that this Job was created for" in text]


FORGERIES = [
    *(("card.json", text) for text in ("{}", "[]", "x", "[" * 100_000)),
    *(("order.json", text) for text in ("{}", "[]", "x", "[" * 100_000)),
    *(
        ("order.json", json.dumps({"name": name, "service": "demo"}))
        for name in ("abc", "demo-x", f"demo-{DIGITS}")
    ),
    (
        "card.json",
        json.dumps(
            {"name": "demo-1", "method": "eagle3", "target": {"model": "m"}, "head_digest": "0"}
        ),
    ),
    ("card.json", json.dumps({"counts": {"new": []}})),
]


@pytest.mark.usefixtures("demo")
def test_forged_orders_and_cards_stop_no_command_and_are_named(namespace, mpctl, mallory, traffic):
    for number, (file, text) in enumerate(FORGERIES):
        mallory.apply(forged(f"forged-{number}", file, text))
    listed = mpctl("drafts", "list", "demo", "-o", "json")
    assert json.loads(listed.stdout)["items"] == []
    for number, (file, _text) in enumerate(FORGERIES):
        assert (
            f"ConfigMap {namespace.name}/forged-{number} holds no {file} that mpctl wrote"
            in listed.stderr
        )
    mpctl("status", "demo")
    missing = mpctl("rollout", "demo", "--spec", "eagle3", "--draft", "made:demo-1", code=2)
    assert "'demo-1' is no head of demo" in missing.stderr
    printed = train(mpctl, traffic)
    assert "name: mpctl-draft-demo-1\n" in printed.stdout  # no forged number takes the next name
    for done in (listed, missing, printed):
        assert "bug in mpctl" not in done.stderr
        assert "Traceback" not in done.stderr


# Listens as the stage does, notes what arrives, and ends with a card once it is told to.
IMPOSTOR = """
import http.server, json, os, pathlib, sys, threading, time
folder = pathlib.Path(sys.argv[1])
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        (folder / "got").write_bytes(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")
server = http.server.ThreadingHTTPServer((os.environ.get("RIG_ADDRESS", "127.0.0.1"), 8766), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
(folder / "listens").touch()
while not (folder / "end").exists():
    time.sleep(0.1)
card = dict(name="demo-1", method="eagle3", target=dict(model="m"), head_digest="0" * 64, salt="0")
print("mpctl-card: " + json.dumps(card), flush=True)
"""


def following(mpctl, traffic):
    """Start the operator's command, which follows the Job that exists."""
    words = (
        "drafts",
        "train",
        "demo",
        "--prompts",
        str(traffic),
        "--trainer",
        TRAINER,
        "--storage-class",
        "",
    )
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.cluster.killed_training",
            "0",
            *words,
            *ACCEPTED,
            "--apply",
            "-y",
        ],
        cwd=mpctl.directory,
        env=mpctl.environment | {"KUBECONFIG": str(mpctl.kubeconfig), "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.usefixtures("demo", "volume")
def test_an_adopted_pod_gets_no_prompts_and_its_job_is_no_training(
    cluster, namespace, allowed, eddie, traffic, tmp_path
):
    mpctl = allowed
    command = ["python3", "-c", IMPOSTOR, str(tmp_path)]
    container = {"name": "collect", "image": "vllm/vllm-openai:v0.32.0", "command": command}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{JOB}-zzzzz", "finalizers": ["batch.kubernetes.io/job-tracking"]},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    eddie.apply(pod)
    namespace.client.wait("eddie's pod listens", (tmp_path / "listens").exists)
    cluster.pods.rule(
        lambda pod: (
            {"start_s": 600.0} if pod["metadata"].get("labels", {}).get("mpctl.dev/head") else None
        )
    )
    train(mpctl, traffic, "--apply", "-y", code=-9, kill_after=3)
    (job,) = jobs(namespace)
    labels = job["spec"]["template"]["metadata"]["labels"]
    eddie.patch("pods", pod["metadata"]["name"], {"metadata": {"labels": labels}})

    def adopted():
        owners = (
            namespace.client.get("pods", pod["metadata"]["name"])["metadata"].get("ownerReferences")
            or ()
        )
        return any(owner["uid"] == job["metadata"]["uid"] for owner in owners)

    namespace.client.wait("the Job's controller adopts it", adopted)
    named = f"pod {namespace.name}/{JOB}-zzzzz is not one that the Job's controller created and gets no prompts"
    namespace.client.wait(
        "the status names the pod", lambda: named in mpctl("status", "demo").stdout
    )
    with following(mpctl, traffic) as command:
        errors = ""
        while named not in errors:
            errors += command.stderr.readline() or pytest.fail(errors)
        (tmp_path / "end").touch()
        errors += command.stderr.read()
    assert command.returncode == 1, errors
    assert "the training of demo-1 failed: its Job ended without training" in errors
    assert not (tmp_path / "got").exists()
    assert namespace.client.find("configmaps", CARD) is None
    assert mpctl.json("drafts", "list", "demo")["items"][0]["card"] is None
