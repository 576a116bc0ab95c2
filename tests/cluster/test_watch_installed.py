"""The watch as ``mpctl watch install`` deploys it: two pods. The leader falls back and is killed on the way.

Of the users' requests none may fail. Figures are printed (``pytest -s``). In the rig a container's process ids are its
own, as in a cluster, so a killed leader is dead only when its Leases stand still.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
import urllib.request
from contextlib import suppress

import pytest
import yaml

from mpctl.app.watch.install import name_of
from mpctl.app.watch.loop import lease_of
from mpctl.experiment.prompt_files import built_in_prompts
from mpctl.platform.kubernetes.service.manifest_text import text_of
from scripts.drills.users import Answer, throughput
from tests.local.planted import PROMPT, finds, write_prompts

from .conftest import ROOT
from .fixtures import Namespace
from .objects import ANY_SPEED, ledger_entries
from .test_faults_matrix import steal
from .test_faults_random import Drawn, limit_s, seed
from .test_hostile_records import planted_service
from .test_journey_real_engine import CLAIMED, service

POLICY = {
    "interval_s": 1.0,
    "fall_back": True,
    "confirm_s": 2.0,
    "cool_down_s": 0.0,
    "per_day": 100,
    "fleet_window_s": 1.0,
    "sentinel_s": 1.0,
    "sentinel_share": 0.05,
}


class Users:
    """Clients that ask one question after the other, through the cluster's network."""

    def __init__(self, cluster, namespace, clients, max_tokens):
        proxy = urllib.request.ProxyHandler({"http": cluster.gateway.proxy_url})
        self.open = urllib.request.build_opener(proxy).open
        self.url = f"http://demo-predictor.{namespace.name}.svc.cluster.local/v1/chat/completions"
        self.max_tokens, self.answers, self.prompts, self.busy = max_tokens, [], (), 0
        self.ended = threading.Event()
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.work, daemon=True) for _ in range(clients)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        for thread in self.threads:
            thread.join(200)

    def pause(self):
        self.prompts = ()
        while self.busy:
            time.sleep(0.1)

    def failed(self):
        return [answer.error for answer in self.answers if answer.error]

    def work(self):
        while not self.ended.is_set():
            with self.lock:
                prompts, number = self.prompts, len(self.answers)
                self.busy += bool(prompts)
            if not prompts:
                self.ended.wait(0.1)
                continue
            answer = self.ask(prompts[number % len(prompts)])
            with self.lock:
                self.answers.append(answer)
                self.busy -= 1
            time.sleep(0.5 if answer.error else 0.02)

    def ask(self, prompt):
        salt = os.urandom(8).hex()
        messages = [{"role": "user", "content": prompt}]
        body = {
            "model": "demo",
            "messages": messages,
            "max_tokens": self.max_tokens,
            "temperature": 0,
        }
        request = urllib.request.Request(
            self.url,
            json.dumps(body | {"cache_salt": salt}).encode(),
            {"Content-Type": "application/json"},
        )
        began, tokens, error = time.monotonic(), 0, ""
        try:
            with self.open(request, timeout=180) as answer:
                tokens = json.load(answer)["usage"]["completion_tokens"]
        except OSError as failure:
            error = repr(failure)
        return Answer(began, time.monotonic(), tokens, error)


class Watch:
    """The installation of the watch of a namespace, in a namespace of its own."""

    def __init__(self, cluster, namespace, mpctl, policy):
        self.cluster, self.namespace, self.mpctl = cluster, namespace, mpctl
        self.home = Namespace(cluster, f"{namespace.name}-watch")
        self.name, self.lease = name_of(namespace.name), lease_of(namespace.name)
        file = mpctl.directory / "watch.yaml"
        file.write_text(yaml.safe_dump(policy))
        words = (
            "watch",
            "install",
            "-n",
            namespace.name,
            "--home",
            self.home.name,
            "--image",
            "mpctl:1",
        )
        done = mpctl(
            *words, "--watch-policy", str(file), "--without", "podmonitor"
        )  # no Prometheus operator
        documents = [d for d in yaml.safe_load_all(done.stdout) if d]
        (self.deployment,) = (d for d in documents if d["kind"] == "Deployment")
        self.deployment["spec"]["replicas"] = 0
        self.kills, self.stopped = [], []
        self.wanted = text_of(namespace.client.get("isvc", "demo"))  # what a fallback replaces
        cluster.kubectl("apply", "-f", "-", stdin=json.dumps(as_list(documents)))
        cluster.kubectl(
            "wait",
            "--for=condition=Established",
            "crd/speculationstatuses.mpctl.dev",
            "--timeout=60s",
        )

    def pods(self):
        values = self.cluster.pods.running.values()
        return [p for p in values if p.namespace == self.home.name and p.name.startswith(self.name)]

    def logs(self):
        return "\n".join(
            f"--- {p.name}\n{p.log('watch').read_text()}"
            for p in self.pods()
            if p.log("watch").exists()
        )

    def scale(self, replicas):
        self.home.client.patch("deployments", self.name, {"spec": {"replicas": replicas}})
        self.home.client.wait(f"{replicas} pods of the watch", lambda: len(self.pods()) == replicas)
        if replicas:
            self.home.client.wait("a watch leads", lambda: self.leader() is not None, 120)

    def leader(self):
        """The pod whose process holds the Lease."""
        lease = self.home.client.find("leases", self.lease) or {}
        if not (lease.get("spec") or {}).get("holderIdentity"):
            return None
        number = int(lease["metadata"]["annotations"]["mpctl.dev/process"].split()[1])
        return next(
            (p for p in self.pods() if p.units[0].process and p.units[0].process.pid == number),
            None,
        )

    def kill_after(self, number, *, stop=False):
        """Kill the leader when the API server has stored the ``number``-th entry or revision from now on. ``stop``:
        stop it instead."""

        async def kill(_call):
            lease = await self.cluster.api.get("leases", self.lease, self.home.name)
            process = int(lease["metadata"]["annotations"]["mpctl.dev/process"].split()[1])
            os.kill(process, signal.SIGSTOP if stop else signal.SIGKILL)
            self.kills.append(time.monotonic())
            self.stopped += [process] if stop else []

        self.cluster.proxy.add(
            kill, verb="create", resource="controllerrevisions", nth=number, late=True
        )

    def continue_stopped(self):
        while self.stopped:
            with suppress(ProcessLookupError):  # its liveness probe ended it
                os.kill(self.stopped.pop(), signal.SIGCONT)

    def remove(self):
        self.continue_stopped()
        self.scale(0)
        self.home.delete()
        self.cluster.kubectl("delete", "crd", "speculationstatuses.mpctl.dev")


def as_list(documents):
    return {"apiVersion": "v1", "kind": "List", "items": documents}


def written(namespace):
    """Entries of the ledger and revisions."""
    return namespace.client.list("controllerrevisions")


def fallbacks(mpctl):
    """Ended fallbacks of the watch, and the operation that is not ended."""
    operations = mpctl.json("history")["operations"]
    mine = [op for op in operations if op["detail"].startswith("watch: ")]
    return [op for op in mine if op["ending"]], [op["id"] for op in operations if not op["ending"]]


def wait_for(what, look, watch, timeout_s):
    end = time.monotonic() + timeout_s
    while not look():
        assert time.monotonic() < end, f"{what}: not within {timeout_s} s\n{watch.logs()}"
        time.sleep(0.5)
    return time.monotonic()


SCRIPT = {"accept": 0.4, "novel": 0.0, "speculating": {"slow": 1.3}}
USUAL = tuple(f"usual {PROMPT} {n} " * 40 for n in range(20))
NOVEL = tuple(f"novel {PROMPT} {n} " * 40 for n in range(20))


@pytest.fixture
def promoted(cluster, namespace, mpctl):
    """A service with planted secrets and n-gram speculation, and the watch's installation without pods."""
    turns = {"other": str(mpctl.directory / "wrong")}
    cluster.pods.rule(
        lambda pod: {"script": SCRIPT | {"speculating": SCRIPT["speculating"] | turns}, "stop_s": 2}
    )
    namespace.deploy(planted_service())
    policy = mpctl.directory / "policy.yaml"
    policy.write_text(ANY_SPEED)
    plain = text_of(namespace.client.get("isvc", "demo"))
    users = f"users={write_prompts(mpctl.directory / 'prompts.jsonl')}"
    few = ("--prompts", users, "--requests", "4", "--repeats", "4", "--policy", str(policy))
    mpctl("rollout", "--spec", "ngram", *few, "--fidelity", "quick")
    watch = Watch(cluster, namespace, mpctl, POLICY)
    yield watch, plain
    watch.remove()


def fall_back(watch, users, plain, kill, prompts=(USUAL, NOVEL)):
    """One fallback with the leader killed after the ``kill``-th write to the history (0: not); (seconds until it
    ended, those after the kill)."""
    before = len(fallbacks(watch.mpctl)[0])
    users.prompts = prompts[0]
    watch.scale(2)
    if kill:
        watch.kill_after(kill)
    began = time.monotonic()
    users.prompts = prompts[1]
    client = watch.namespace.client

    def ended():
        if text_of(client.get("isvc", "demo")) != plain:
            return False
        done, unfinished = fallbacks(watch.mpctl)
        return len(done) > before and not unfinished

    at = wait_for(f"a fallback with the leader killed after write {kill}", ended, watch, 300)
    assert len(fallbacks(watch.mpctl)[0]) == before + 1
    watch.scale(0)
    return at - began, at - watch.kills[-1] if kill else None


def killed_fall_backs(watch, users, plain, kills, prompts=(USUAL, NOVEL)):
    """Fallbacks with the leader killed after these writes, each from the promoted revision."""
    wanted = watch.wanted
    for number in kills:
        users.prompts = prompts[0]
        watch.mpctl("rollback", "--to-revision", "2")
        assert text_of(watch.namespace.client.get("isvc", "demo")) == wanted
        took, after = fall_back(watch, users, plain, number, prompts)
        sys.stdout.write(
            f"killed after write {number}: ended after {took:.0f} s, {after:.0f} s after the kill\n"
        )
        sys.stdout.flush()
    users.pause()
    sys.stdout.write(f"{len(users.answers)} requests, {len(users.failed())} failed\n")
    assert users.failed() == []
    assert len(watch.kills) == len(kills)
    done, _ = fallbacks(watch.mpctl)
    assert {op["ending"] for op in done} == {"rolled back"}


def marked_objects(namespace):
    """The marks in the objects of every kind that the namespace has, Secrets aside, by (kind, labels' part, name)."""
    names = namespace.kubectl("api-resources", "--verbs=list", "--namespaced", "-o", "name").split()
    kinds = sorted(
        {name for name in names if name != "secrets" and not name.endswith("metrics.k8s.io")}
    )
    records = json.loads(
        namespace.kubectl("get", ",".join(kinds), "--show-managed-fields", "-o", "json")
    )["items"]
    listed = {record["kind"] for record in records}
    assert listed >= {"ConfigMap", "ControllerRevision", "Event", "Lease", "SpeculationStatus"}
    return {
        (
            record["kind"],
            record["metadata"].get("labels", {}).get("mpctl.dev/part"),
            record["metadata"]["name"],
        ): marks
        for record in records
        if (marks := finds(json.dumps(record).encode()))
    }


def test_a_fallback_leaves_no_prompt_in_any_object_and_no_secret_but_where_its_author_wrote_it(
    cluster, namespace, promoted
):
    watch, plain = promoted
    with Users(cluster, namespace, 1, 100) as users:
        fall_back(watch, users, plain, 0)
        users.pause()
    assert users.failed() == []
    assert any("WorseDraft" in event["message"] for event in namespace.client.list("events"))
    assert finds(watch.logs().encode()) == set()
    once = ("watch", "run", "demo", "--once", "--interval", "1s", "-o", "json")
    (item,) = json.loads(watch.mpctl(*once, code=9).stdout)["items"]
    assert (item["signal"], item["command"].split()[:4]) == (
        "FellBack",
        ["mpctl", "watch", "acknowledge", "demo"],
    )
    watch.mpctl("watch", "acknowledge", "demo")
    (item,) = json.loads(watch.mpctl(*once).stdout)["items"]
    assert item["signal"] in ("Healthy", "Idle")
    marked = marked_objects(namespace)
    assert {key: marks for key, marks in marked.items() if PROMPT in marks} == {}
    theirs = (
        "InferenceService",
        "Deployment",
        "ReplicaSet",
        "Pod",
    )  # and the manifest that a rollback restores
    assert {(kind, part) for kind, part, _ in marked if kind not in theirs} == {
        ("ControllerRevision", "ledger")
    }


def answers_are(reason, watch):
    """Wait until the published condition AnswersRight has a reason."""

    def look():
        published = watch.namespace.client.find("speculationstatuses", "demo") or {}
        rows = published.get("status", {}).get("conditions", [])
        return reason in [row["reason"] for row in rows if row["type"] == "AnswersRight"]

    return wait_for(f"answers are {reason}", look, watch, 120)


def test_an_engine_that_turns_wrong_after_its_promotion_is_replaced_at_once(
    cluster, namespace, promoted
):
    watch, plain = promoted
    with Users(cluster, namespace, 1, 100) as users:
        users.prompts = USUAL
        watch.scale(2)
        answers_are("Right", watch)
        assert fallbacks(watch.mpctl) == ([], [])
        (watch.mpctl.directory / "wrong").touch()
        ended = lambda: (  # noqa: E731
            text_of(namespace.client.get("isvc", "demo")) == plain and not fallbacks(watch.mpctl)[1]
        )
        wait_for("a fallback from wrong answers", ended, watch, 120)
        users.pause()
    assert users.failed() == []
    (fallback,), _ = fallbacks(watch.mpctl)
    assert fallback["detail"].startswith(
        "watch: WrongAnswers: wrong answers: 3 of 3, and 2 of 2 with a cache salt"
    )
    assert {key: marks for key, marks in marked_objects(namespace).items() if PROMPT in marks} == {}
    assert finds(watch.logs().encode()) == set()


def test_answers_after_an_upgrade_of_the_image_are_unverified_and_no_alarm(
    cluster, namespace, promoted
):
    watch, _ = promoted
    with Users(cluster, namespace, 1, 100) as users:
        users.prompts = USUAL
        watch.scale(2)
        answers_are("Right", watch)
        (container,) = namespace.client.get("isvc", "demo")["spec"]["predictor"]["containers"]
        container["image"] = "vllm/vllm-openai:v0.33.0"
        namespace.client.patch("isvc", "demo", {"spec": {"predictor": {"containers": [container]}}})
        answers_are("Unverified", watch)
        (watch.mpctl.directory / "wrong").touch()  # a newer engine may answer otherwise
        namespace.ready()
        answered = len(users.answers)
        wait_for(
            "users are answered by the new engine",
            lambda: len(users.answers) >= answered + 50,
            watch,
            120,
        )
        answers_are("Unverified", watch)
        users.pause()
    assert "image changed since the sentinels were recorded" in watch.logs()
    assert "WrongAnswers" not in watch.logs() and fallbacks(watch.mpctl) == ([], [])


@pytest.mark.nightly
@pytest.mark.parametrize("half", [0, 1], ids=["odd writes", "even writes"])
def test_the_leader_is_killed_after_every_write_of_a_fallback_and_the_other_pod_ends_it(
    cluster, namespace, promoted, half
):
    watch, plain = promoted
    with Users(cluster, namespace, 1, 100) as users:
        before = len(written(namespace))
        took, _ = fall_back(watch, users, plain, 0)
        count = len(written(namespace)) - before
        sys.stdout.write(f"not killed: ended after {took:.0f} s, {count} writes\n")
        killed_fall_backs(watch, users, plain, range(1 + half, count + 1, 2))


def faulty_fall_back(watch, users, plain, number):
    """One fallback with the leader killed or stopped after a write, refused requests, and a stolen Lease, drawn by
    seed; (what was drawn, how many faults it met)."""
    draw, namespace, proxy = (
        random.Random(f"{seed}/fallback/{number}"),
        watch.namespace,
        watch.cluster.proxy,
    )
    end, write, theft = (
        draw.choice(["kill", "stop", "none"]),
        draw.randrange(1, 9),
        draw.random() < 0.3,
    )
    faults = [Drawn.fault(draw) for _ in range(draw.randrange(1, 4))]
    ledger = lambda: ledger_entries(  # noqa: E731
        namespace.client.list("controllerrevisions", labels="mpctl.dev/part=ledger")
    )
    users.prompts = USUAL
    if text_of(namespace.client.get("isvc", "demo")) != watch.wanted:
        watch.mpctl("rollback", "--to-revision", "2")
    assert text_of(namespace.client.get("isvc", "demo")) == watch.wanted
    before, count, kills = ledger(), len(fallbacks(watch.mpctl)[0]), len(watch.kills)
    watch.scale(2)
    if end != "none":
        watch.kill_after(write, stop=end == "stop")
    users.prompts = NOVEL
    wait_for("a fallback begins", lambda: len(ledger()) > len(before), watch, 300)
    added = [proxy.add(**fault) for fault in faults]
    if theft:
        steal(namespace)
    unproxied = watch.mpctl.proxied(False)

    def ended():
        if text_of(namespace.client.get("isvc", "demo")) != plain:
            return False
        done, unfinished = fallbacks(unproxied)
        return len(done) > count and not unfinished

    drawn = (
        f"{end} after write {write}, {[tuple(fault.values()) for fault in faults]}, theft: {theft}"
    )
    wait_for(drawn, ended, watch, 400)
    met = sum(fault.fired > 0 for fault in added) + theft + len(watch.kills) - kills
    proxy.clear()
    watch.continue_stopped()
    watch.scale(0)
    assert ended(), drawn
    assert ledger()[: len(before)] == before, drawn
    assert namespace.client.find("isvc", "demo-candidate") is None, drawn
    assert users.failed() == [], drawn
    return drawn, met


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_random_faults_of_a_fallback_lose_nothing_and_leave_nothing(cluster, namespace, promoted):
    watch, plain = promoted
    began, number, met = time.monotonic(), 0, 0
    with Users(cluster, namespace, 1, 100) as users:
        while (
            number < int(os.environ.get("MPCTL_FAULTS", "20"))
            and time.monotonic() - began < limit_s
        ):
            number += 1
            drawn, more = faulty_fall_back(watch, users, plain, number)
            met += more
            sys.stdout.write(f"seed {seed}, fallback {number}: {drawn}: good ({met} faults met)\n")
            sys.stdout.flush()
        users.pause()


@pytest.mark.engine
@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_with_a_real_engine_the_traffic_turns_and_the_leader_is_killed_after_every_write(
    cluster, namespace, mpctl
):
    cluster.pods.rule(lambda pod: {"engine": "real", "stop_s": 2})
    cluster.pods.claims["models"] = ROOT / "scripts" / "demo_model"
    namespace.kubectl("apply", "-f", "-", stdin=CLAIMED.replace("@NAMESPACE@", namespace.name))
    manifest = service()
    (container,) = manifest["spec"]["predictor"]["containers"]
    container["args"][0] = "--model=/mnt/models/model"
    namespace.deploy(manifest, timeout_s=600)
    plain = text_of(namespace.client.get("isvc", "demo"))
    policy = mpctl.directory / "policy.yaml"
    policy.write_text(ANY_SPEED)
    head = json.dumps({"model": "/mnt/models/eagle3", "num_speculative_tokens": 3})
    few = ("--prompts", "edits", "--requests", "4", "--repeats", "6", "--max-tokens", "64")
    done = mpctl(
        "rollout",
        "--spec",
        "eagle3",
        "--spec-config",
        head,
        *few,
        "--policy",
        str(policy),
        timeout=900,
    )
    assert "promoted: service" in done.stderr
    # Hardly a draft of this small head is accepted on prose, which may be taken for an engine's fault.
    watch = Watch(cluster, namespace, mpctl, POLICY | {"interval_s": 3.0, "restart": False})
    usual, novel = prompts = tuple(built_in_prompts(name)[0] for name in ("edits", "math"))
    try:
        with Users(cluster, namespace, 1, 64) as users:
            watch.scale(2)
            users.prompts = usual
            quiet = time.monotonic()
            time.sleep(30)
            assert fallbacks(mpctl) == ([], [])
            turned, entries = time.monotonic(), len(written(namespace))
            users.prompts = novel
            wait_for("the fallback begins", lambda: len(written(namespace)) > entries, watch, 300)
            begun = time.monotonic()
            fall_back(watch, users, plain, 0, (novel, novel))
            ended = time.monotonic()
            time.sleep(30)
            before = throughput(users.answers, quiet, turned)
            during = throughput(users.answers, turned, ended)
            after = throughput(users.answers, ended, time.monotonic())
            count = len(written(namespace)) - entries
            sys.stdout.write(
                f"not killed: began {begun - turned:.0f} s after the traffic turned, ended after "
                f"{ended - turned:.0f} s, {count} writes; tokens/s before {before:.0f}, during {during:.0f}, "
                f"after {after:.0f}\n"
            )
            killed_fall_backs(watch, users, plain, range(1, count + 1), prompts)
    finally:
        watch.remove()
    operations, _ = fallbacks(mpctl)
    assert {op["detail"].split(": ")[1] for op in operations} <= {"WorseDraft", "StepToZero"}
