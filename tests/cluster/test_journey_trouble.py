"""Failures during a rollout: the service is unchanged, or the error names the next command."""

import json
import re
import shlex
import signal
from dataclasses import replace

import pytest

from mpctl.platform.kubernetes.service.manifest_text import text_of

from .objects import BUSY, CONTAINERS, hpa
from .unmeasured import Unmeasured

ROLLOUT = ("rollout", "--spec", "ngram")


class Service:
    """The deployed service, as it was before the test."""

    def __init__(self, namespace):
        self.namespace = namespace
        self.before = self.text()
        self.uids = self.pods()

    def text(self):
        return text_of(self.namespace.client.get("isvc", "demo"))

    def pods(self):
        return sorted(p["metadata"]["uid"] for p in self.namespace.pods())

    def as_it_was(self):
        assert self.text() == self.before
        assert self.pods() == self.uids
        assert self.namespace.client.find("isvc", "demo-candidate") is None

    def foreign_edit(self):
        change = '{"spec":{"predictor":{"maxReplicas":3}}}'
        self.namespace.kubectl(
            "patch", "isvc", "demo", "--type=merge", "-p", change, "--field-manager=somebody"
        )
        return self.text()


@pytest.fixture
def service(cluster, namespace):
    namespace.deploy(CONTAINERS)
    return Service(namespace)


@pytest.fixture
def run(mpctl):
    return Unmeasured(mpctl)


def ended(run):
    return [op["ending"] for op in run.json("history")["operations"]]


def test_an_unschedulable_candidate_is_named_and_removed(cluster, namespace, service, run):
    for node in cluster.nodes.numbers:
        cluster.kubectl("taint", "node", node, "test=yes:NoSchedule")
    try:
        done = run(*ROLLOUT, code=7)
    finally:
        for node in cluster.nodes.numbers:
            cluster.kubectl("taint", "node", node, "test-")
    assert "cannot be scheduled" in done.stderr
    assert "untolerated taint" in done.stderr
    assert "demo-candidate-predictor" in done.stderr
    service.as_it_was()


def test_the_last_words_of_a_crashed_engine_are_in_the_error(cluster, namespace, service, run):
    cluster.pods.rule(lambda pod: {"script": {"exit": 3, "only_speculating": True}})
    done = run(*ROLLOUT, code=7)
    assert "exit code 3" in done.stderr
    assert "scripted to end at start-up" in done.stderr
    service.as_it_was()


def test_a_side_by_side_rollout_without_a_free_gpu_is_refused_before_anything_changes(
    cluster, namespace, service, run
):
    namespace.client.apply(BUSY.replace("@NAME@", "busy"))
    namespace.client.wait(
        "it runs", lambda: namespace.client.get("pods", "busy")["status"].get("phase") == "Running"
    )
    version = namespace.client.get("isvc", "demo")["metadata"]["resourceVersion"]
    done = run(*ROLLOUT, code=9)
    assert "no free GPU for a candidate side by side" in done.stderr
    assert "0 of 2 GPUs" in done.stderr
    assert "--accept-downtime" in done.stderr
    written = {(c.verb, c.resource) for c in cluster.proxy.calls if c.write}
    assert written == {("update", "inferenceservices")}  # the dry run
    assert namespace.client.get("isvc", "demo")["metadata"]["resourceVersion"] == version
    service.as_it_was()


def test_a_quota_without_room_for_the_candidate_is_named_before_anything_changes(
    namespace, service, run
):
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "team"},
        "spec": {"hard": {"pods": "1"}},
    }
    namespace.client.apply(quota)
    path = f"/api/v1/namespaces/{namespace.name}/resourcequotas/team"
    namespace.client.wait(
        "it is counted",
        lambda: (
            namespace.client.request("GET", path).get("status", {}).get("used") == {"pods": "1"}
        ),
    )
    done = run(*ROLLOUT, code=9)
    assert (
        "ResourceQuota team has no room for 2 more pods: pods used 1, hard 1, needed 2"
        in done.stderr
    )
    service.as_it_was()
    assert run.json("history")["operations"] == []


def test_on_a_full_node_accepted_downtime_changes_the_service_in_place(
    cluster, namespace, service, run
):
    namespace.client.apply(BUSY.replace("@NAME@", "busy"))
    namespace.client.wait(
        "it runs", lambda: namespace.client.get("pods", "busy")["status"].get("phase") == "Running"
    )
    done = run(*ROLLOUT, "--accept-downtime")
    assert "promoted" in done.stderr
    assert "deploymentStrategy" not in service.text()
    run("rollback", "--accept-downtime")
    assert service.text() == service.before


def test_a_second_operator_is_refused_while_the_first_is_alive(cluster, namespace, service, run):
    cluster.pods.rule(
        lambda pod: {"never_ready": True}
    )  # the first is still waiting when the second comes
    first = run.start(*ROLLOUT)
    try:
        namespace.client.wait(
            "it is under way", lambda: namespace.client.find("isvc", "demo-candidate")
        )
        done = run("rollback", code=3)
        assert "is held by" in done.stderr
        assert "mpctl rollout" in done.stderr
        done = run("unlock", code=3)
        assert "is alive" in done.stderr
        done = run(*ROLLOUT, "--set", "num_speculative_tokens=2", code=3)
        assert "is held by" in done.stderr
        assert "unfinished" not in done.stderr
    finally:
        first.send_signal(signal.SIGKILL)
        first.communicate()
    (status,) = run.json("status")["items"]
    assert status["status"]["state"] == "Interrupted"
    assert status["status"]["heldBy"] is None
    run("rollback")
    service.as_it_was()


@pytest.fixture
def waiting(cluster, namespace, run):
    """A rollout whose candidate never gets ready; ends after the edit that is made meanwhile."""
    cluster.pods.rule(lambda pod: {"never_ready": "candidate" in pod["metadata"]["name"]})

    def during(edit, *, code, seconds="8s"):
        process = run.start(*ROLLOUT, "--timeout", seconds)
        try:
            namespace.client.wait(
                "it is under way", lambda: namespace.client.find("isvc", "demo-candidate")
            )
            edit(process)
        finally:
            _, err = process.communicate(timeout=120)
        assert process.returncode == code, err
        assert not re.search("arm-[0-9a-f]{10}", err), err
        return err

    return during


def test_the_commands_after_an_edit_of_the_speculative_setting_work(
    cluster, namespace, service, run, waiting
):
    theirs = '--speculative-config={"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_max": 4}'
    (engine,) = namespace.client.get("isvc", "demo")["spec"]["predictor"]["containers"]
    err = waiting(lambda _: replace_args(namespace, [*engine["args"], theirs]), code=3)
    assert "was changed by somebody at" in err
    exact, abandon = (
        next(c for c in commands_in(err) if word in c) for word in ("--exact", "abandon")
    )
    done = run("rollback", code=3)
    assert 'num_speculative_tokens": 5' not in done.stderr  # of the candidate, which was never live
    assert f"+ {theirs}" in done.stderr or "+" in done.stderr
    assert exact in commands_in(done.stderr)
    run(*shlex.split(abandon)[1:])
    assert namespace.client.find("isvc", "demo-candidate") is None
    assert (
        theirs in namespace.client.get("isvc", "demo")["spec"]["predictor"]["containers"][0]["args"]
    )


def test_a_terminated_rollout_says_what_it_left_and_what_continues_it(
    cluster, namespace, service, run, waiting
):
    err = waiting(lambda process: process.send_signal(signal.SIGTERM), code=2, seconds="60s")
    assert "is unfinished: the service runs none, its candidate runs side by side" in err
    rollback = next(c for c in commands_in(err) if "rollback" in c)
    run(*shlex.split(rollback)[1:])
    service.as_it_was()


def test_nothing_of_a_deleted_service_stays_unseen_or_on_a_gpu(
    cluster, namespace, service, run, waiting
):
    other = replace(run.mpctl, kubeconfig=run.mpctl.directory / "default")
    cluster.kubeconfig_for(
        cluster.admin, other.kubeconfig, namespace="default", server=cluster.proxy.url
    )
    err = waiting(lambda _: namespace.kubectl("delete", "isvc", "demo", "--wait=false"), code=1)
    assert "was deleted; step ready failed" in err
    namespace.client.wait(
        "its candidate is gone, too",
        lambda: namespace.client.find("isvc", "demo-candidate") is None,
    )
    done = other("status", "-n", namespace.name)
    assert f"service {namespace.name}/demo is gone" in done.stderr
    assert "is unfinished" in done.stderr
    (leftover,) = other.json("status", "-A")["leftovers"]
    assert leftover["command"] in done.stderr
    other(*shlex.split(leftover["command"])[1:])  # from another namespace, as it was printed
    assert other.json("status", "-A")["leftovers"] == []


def commands_in(text):
    return re.findall("'(mpctl [^']+)'", text)


def test_a_rollout_over_a_foreign_edit_is_rolled_back_and_keeps_it(
    cluster, namespace, service, run
):
    run(*ROLLOUT, kill_after=4, code=-signal.SIGKILL)
    edited = service.foreign_edit()
    done = run("resume", code=7)
    assert "was changed by somebody at" in done.stderr
    assert "spec.predictor.maxReplicas" in done.stderr
    assert "args" not in done.stderr
    assert service.text() == edited
    assert namespace.client.find("isvc", "demo-candidate") is None
    assert run("history", "--revision", "3", "-o", "yaml").stdout == edited  # 2 is the candidate


def test_abandon_keeps_a_foreign_edit(cluster, namespace, service, run):
    run(*ROLLOUT, kill_after=4, code=-signal.SIGKILL)
    edited = service.foreign_edit()
    run("abandon")
    assert service.text() == edited
    assert namespace.client.find("isvc", "demo-candidate") is None
    assert set(ended(run)) == {"abandoned"}
    assert run("history", "--revision", "3", "-o", "yaml").stdout == edited  # 2 is the candidate


def test_an_exact_rollback_records_a_foreign_edit_as_a_revision(cluster, namespace, service, run):
    run(*ROLLOUT, kill_after=4, code=-signal.SIGKILL)
    edited = service.foreign_edit()
    run("rollback", "--exact")
    assert service.text() == service.before
    assert run("history", "--revision", "3", "-o", "yaml").stdout == edited  # 2 is the candidate
    assert None not in ended(run)
    assert namespace.client.find("isvc", "demo-candidate") is None


def test_a_rollback_after_promotion_keeps_what_others_changed(cluster, namespace, service, run):
    run(*ROLLOUT)
    isvc = namespace.client.get("isvc", "demo")
    (engine,) = isvc["spec"]["predictor"]["containers"]
    spec = next(a for a in engine["args"] if a.startswith("--speculative-config"))
    other = spec.replace('"num_speculative_tokens": 5', '"num_speculative_tokens": 2')
    assert other != spec
    replace_args(namespace, [other if a == spec else a for a in engine["args"]])
    done = run("rollback", code=3)
    assert f"- {spec}" in done.stderr and f"+ {other}" in done.stderr
    replace_args(namespace, [*engine["args"], "--max-num-seqs=8"])
    namespace.kubectl("label", "isvc", "demo", "team=search")
    namespace.kubectl("annotate", "isvc", "demo", "note=theirs")
    service.foreign_edit()
    done = run("rollback")
    assert "not touched, as others changed it: metadata." in done.stderr
    for path in ("labels", "annotations", "--max-num-seqs", "spec.predictor.maxReplicas"):
        assert path in done.stderr.splitlines()[-2], done.stderr
    live = namespace.client.get("isvc", "demo")
    before = [a for a in engine["args"] if a != spec]
    assert live["spec"]["predictor"]["containers"][0]["args"] == [*before, "--max-num-seqs=8"]
    assert live["metadata"]["labels"]["team"] == "search"
    assert live["spec"]["predictor"]["maxReplicas"] == 3


def replace_args(namespace, args):
    patch = [{"op": "replace", "path": "/spec/predictor/containers/0/args", "value": args}]
    namespace.kubectl(
        "patch", "isvc", "demo", "--type=json", "-p", json.dumps(patch), "--field-manager=somebody"
    )


def test_a_service_deleted_during_a_rollout_leaves_nothing_behind(cluster, namespace, service, run):
    run(*ROLLOUT, kill_after=4, code=-signal.SIGKILL)
    namespace.kubectl("delete", "isvc", "demo")
    done = run("resume", "demo", code=1)
    assert "mpctl abandon demo" in done.stderr
    run("abandon", "demo")
    assert namespace.client.find("isvc", "demo-candidate") is None
    assert run("history", "demo", "--revision", "1", "-o", "yaml").stdout == service.before


def test_the_autoscaler_is_pinned_and_restored(cluster, namespace, service, run):
    cluster.metrics.set("queue_wait_ms", 150)  # within its tolerance: it wants one pod
    namespace.client.apply(hpa())
    spec = namespace.client.get("hpa", "demo-queue")["spec"]
    run(*ROLLOUT, kill_after=3, code=-signal.SIGKILL)
    actual_spec = namespace.client.get("hpa", "demo-queue")["spec"]
    assert (actual_spec["minReplicas"], actual_spec["maxReplicas"]) == (1, 1)
    cluster.metrics.set("queue_wait_ms", 900)  # it would want two
    done = run("resume")
    assert "unpinning the autoscaler" in done.stderr
    assert namespace.client.get("hpa", "demo-queue")["spec"] == spec
    namespace.client.wait(
        "it scales again",
        lambda: namespace.client.get("deployments", "demo-predictor")["spec"]["replicas"] == 2,
    )
