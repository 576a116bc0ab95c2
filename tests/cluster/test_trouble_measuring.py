"""Somebody else changes the service while a rollout measures, or its command ends: the cause is named first, the
service is as it was with that change kept, and no candidate stays."""

import json
import re
import shlex
import signal
from dataclasses import dataclass

import pytest

from mpctl.platform.kubernetes.service.manifest_text import text_of

from .measurement import REPEATED
from .objects import ANY_SPEED, CONTAINERS, hpa
from .unmeasured import Unmeasured

ROLLOUT = ("rollout", "demo", "--spec", "ngram", "--policy", "policy.yaml", *REPEATED)
LONG = ("--requests", "4", "--repeats", "40", "--max-tokens", "16")
IMAGE = "vllm/vllm-openai:v0.32.0-cu130"


def label(namespace):
    namespace.kubectl("label", "isvc", "demo", "owner=search")


def image(namespace):
    patch = [{"op": "replace", "path": "/spec/predictor/containers/0/image", "value": IMAGE}]
    namespace.kubectl("patch", "isvc", "demo", "--type=json", "-p", json.dumps(patch))


def scale(namespace):
    namespace.kubectl(
        "patch", "hpa", "demo-queue", "--type=merge", "-p", '{"spec": {"maxReplicas": 3}}'
    )
    namespace.kubectl("scale", "deployment/demo-predictor", "--replicas=2")


def delete(service):
    def act(namespace):
        (pod,) = namespace.pods(service)
        namespace.kubectl("delete", "pod", pod["metadata"]["name"], "--wait=false")

    return act


@dataclass(frozen=True)
class Event:
    """``codes`` that the rollout may end with, ``cause`` as a pattern where it is rolled back, and what ``kept`` finds
    in the service afterwards."""

    act: object
    cause: str
    codes: tuple = (7,)
    kept: str = ""


EVENTS = {
    "a label": Event(
        label, r"was changed by kubectl-label at .*metadata\.labels", kept="owner: search"
    ),
    "another image": Event(image, r"was changed by kubectl-patch at .*image", kept=IMAGE),
    "the baseline's pod is deleted": Event(delete("demo"), r"pod demo-predictor-\S+", codes=(0, 7)),
    "the candidate's pod is deleted": Event(
        delete("demo-candidate"), r"pod demo-candidate-\S+", codes=(0, 7)
    ),
}


@pytest.fixture
def demo(cluster, namespace, mpctl):
    """A service that serves, and the gate's limits beside the command."""
    cluster.pods.rule(lambda pod: {"script": {"token_s": 0.05}})
    cluster.metrics.set("queue_wait_ms", 150)  # within its tolerance: it wants one pod
    namespace.deploy(CONTAINERS)
    namespace.client.apply(hpa())
    (mpctl.directory / "policy.yaml").write_text(ANY_SPEED)
    return namespace


def until(process, word):
    """Read what the command says until it says ``word``."""
    lines = []
    while process.poll() is None and word not in "".join(lines[-1:]):
        lines.append(process.stderr.readline())
    assert word in lines[-1], "".join(lines)
    return "".join(lines)


def meanwhile(demo, mpctl, act):
    """Exit code and messages of a rollout in whose second round ``act`` changes something; no candidate stays."""
    ended = interrupted(demo, mpctl, act)
    assert demo.client.find("isvc", "demo-candidate") is None
    return ended


def interrupted(demo, mpctl, act):
    """Exit code and messages of a rollout in whose second round ``act`` changes something."""
    under_way = mpctl.start(*ROLLOUT, *LONG)
    try:
        until(under_way, "round 2 of")
        act(demo)
        _, written = under_way.communicate(timeout=240)
    finally:
        under_way.kill()
    assert not re.search(r"arm-[0-9a-f]{10}|OSError|a prompt is left out|Absent", written), written
    return under_way.returncode, written


@pytest.mark.nightly
@pytest.mark.parametrize("event", EVENTS.values(), ids=EVENTS)
def test_the_cause_comes_first_and_a_foreign_change_is_kept(demo, mpctl, event):
    before = text_of(demo.client.get("isvc", "demo"))
    code, written = meanwhile(demo, mpctl, event.act)
    assert code in event.codes, written
    after = text_of(demo.client.get("isvc", "demo"))
    if code == 0:
        assert "promoted: service" in written
        return
    error = next(line for line in written.splitlines() if line.startswith("error: "))
    assert re.search(event.cause, written[written.index(error) :]), written
    assert event.kept in after
    assert after == before or event.kept
    assert "--speculative-config" not in after


@pytest.mark.nightly
def test_a_foreign_change_of_the_autoscaler_stops_no_measurement_and_is_kept_and_named(demo, mpctl):
    code, written = meanwhile(demo, mpctl, scale)
    assert code == 0, written
    assert (
        "HorizontalPodAutoscaler demo-queue was changed meanwhile and keeps the change" in written
    )
    spec = demo.client.get("hpa", "demo-queue")["spec"]
    assert (spec["minReplicas"], spec["maxReplicas"]) == (1, 3)


@pytest.mark.nightly
def test_a_namespace_that_is_deleted_is_the_cause_and_nothing_is_left_to_restore(demo, mpctl):
    delete_all = lambda namespace: namespace.kubectl(  # noqa: E731
        "delete", "namespace", namespace.name, "--wait=false"
    )
    code, written = interrupted(demo, mpctl, delete_all)
    assert code == 1, written
    demo.client.wait("nothing stays", lambda: demo.client.find("isvc", "demo-candidate") is None)
    assert f"namespace {demo.name} is being deleted" in written
    assert "nothing is left to restore there" in written


def commands_in(text):
    return [shlex.split(line)[1:] for line in re.findall(r"'(mpctl [^']+)'", text)]


@pytest.mark.nightly
@pytest.mark.parametrize("verb", ["resume", "rollback"])
def test_killed_in_the_middle_of_a_measurement_one_command_leads_out(demo, mpctl, verb):
    before = text_of(demo.client.get("isvc", "demo"))
    prompts = mpctl.directory / "users.jsonl"
    prompts.write_text(
        "".join(json.dumps({"prompt": f"question {n} about many things"}) + "\n" for n in range(60))
    )
    under_way = mpctl.start(
        *ROLLOUT, "--prompts", f"users={prompts}", "--requests", "4", "--repeats", "12"
    )
    try:
        until(under_way, "round 2 of")
    finally:
        under_way.send_signal(signal.SIGKILL)
        under_way.communicate()
    done = mpctl(verb, "demo")  # the prompts are read where they lie
    assert ("promoted: service" if verb == "resume" else "restored") in done.stderr
    assert (text_of(demo.client.get("isvc", "demo")) == before) is (verb == "rollback")
    assert demo.client.find("isvc", "demo-candidate") is None


@pytest.mark.nightly
def test_terminated_while_it_bakes_or_rolls_back_it_says_what_continues(demo, mpctl):
    before = text_of(demo.client.get("isvc", "demo"))
    run = Unmeasured(mpctl)
    for arguments, word in (
        (("rollout", "demo", "--spec", "ngram", "--bake", "300s"), "is watched under users"),
        (("rollback", "demo"), "settle"),
    ):
        under_way = run.start(*arguments)
        try:
            until(under_way, word)
            under_way.send_signal(signal.SIGTERM)
            _, written = under_way.communicate(timeout=60)
        finally:
            under_way.kill()
        assert under_way.returncode == 2, written
        assert "is unfinished" in written
        assert "rollback" in {command[0] for command in commands_in(written)}, written
    run("rollback", "demo")
    assert text_of(demo.client.get("isvc", "demo")) == before
