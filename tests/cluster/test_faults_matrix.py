"""SIGKILL after every ledger entry, then resume or rollback on an API server that misbehaves.

Every sixth kill point meets one fault, in turn; by night every point does, and with ``MPCTL_MATRIX=full`` every point
meets every fault, a test for each fault. The figures are printed (``pytest -s``). After each case: the live spec is
byte for byte the promoted or the recorded one, no candidate is left, the autoscaler is as it was, and no look at the
service ever found zero ready pods.
"""

import os
import signal
import sys
import time

import pytest

from mpctl.platform.kubernetes.service.manifest_text import text_of

from .meanwhile import Meanwhile
from .objects import CONTAINERS, hpa, ledger_entries
from .unmeasured import Unmeasured

ROLLOUT = ("rollout", "--spec", "ngram")
# What the API server does to the first requests of their kind after the kill.
FAULTS = {
    "409": {"action": 409, "verb": "update", "times": 2},
    "429": {"action": 429, "verb": "write", "retry_after_s": 1, "times": 2},
    "500": {"action": 500, "verb": "write", "times": 2},
    "timeout after commit": {"action": "timeout", "verb": "write", "times": 1},
    "reads fail": {"action": 500, "verb": "read", "times": 3},
    "answers dropped half-way": {"action": "drop", "verb": "read", "times": 3},
    "port-forwards dropped": {
        "action": "drop",
        "verb": "get",
        "resource": "pods/portforward",
        "after": 3,
        "times": 2,
    },
    "stolen lease": None,
}
IN_TURN = "each in turn"
MOST_TRIES = 6


class Watcher(Meanwhile):
    """Reads the ready pods of the service again and again."""

    def __init__(self, namespace):
        super().__init__()
        self.namespace, self.looks, self.empty = namespace, 0, ""

    def look(self):
        deployment = self.namespace.client.find("deployments", "demo-predictor")
        if deployment is not None:
            status = deployment.get("status", {})
            if not status.get("readyReplicas"):
                self.empty = (
                    self.empty or f"no ready pod: wanted {deployment['spec']['replicas']}, {status}"
                )
            self.looks += 1


def steal(namespace):
    """Put another holder on the lease, without a heartbeat: mpctl must wait and then take it over."""
    namespace.client.patch(
        "leases",
        "mpctl-demo",
        {
            "metadata": {
                "annotations": {"mpctl.dev/process": "", "mpctl.dev/who": "thief@elsewhere"}
            },
            "spec": {"holderIdentity": "thief", "renewTime": "2026-01-01T00:00:00.000000Z"},
        },
    )


def entries_of_a_rollout(run, namespace, before):
    """Number of ledger entries of an undisturbed rollout, and the promoted text."""
    run(*ROLLOUT)
    promoted = text_of(namespace.client.get("isvc", "demo"))
    run("rollback")
    assert text_of(namespace.client.get("isvc", "demo")) == before
    appended = namespace.client.list("controllerrevisions", labels="mpctl.dev/part=ledger")
    return len(
        [entry for entry in ledger_entries(appended) if entry["operation"] == "rollout-1"]
    ), promoted


@pytest.mark.parametrize(  # the halves so that each ends within its time
    ("first", "stride"),
    [
        pytest.param(3, 6, id="every sixth entry"),
        pytest.param(0, 2, id="odd entries", marks=pytest.mark.nightly),
        pytest.param(1, 2, id="even entries", marks=pytest.mark.nightly),
    ],
)
@pytest.mark.parametrize("met", FAULTS if os.environ.get("MPCTL_MATRIX") == "full" else [IN_TURN])
def test_killed_after_every_ledger_entry_it_resumes_or_rolls_back_through_a_fault(
    cluster, namespace, mpctl, met, first, stride
):
    namespace.deploy(CONTAINERS)
    # It wants one pod, also in the moment in which two are ready while pods are replaced: 50 of 200 for each.
    cluster.metrics.set("queue_wait_ms", 50)
    namespace.client.apply(hpa())
    scaler = namespace.client.get("hpa", "demo-queue")["spec"]
    before = text_of(namespace.client.get("isvc", "demo"))
    run = Unmeasured(mpctl)
    count, promoted = entries_of_a_rollout(run, namespace, before)
    faults = list(FAULTS) if met == IN_TURN else [met]
    failures, began = [], time.monotonic()
    points = range(first, count, stride)
    for number in points:
        point, fault = number + 1, faults[number % len(faults)]
        way_on = (
            ("resume",)
            if (number // len(faults) + list(FAULTS).index(fault)) % 2
            else ("rollback",)
        )
        with Watcher(namespace) as watcher:
            problem = case(
                cluster, namespace, run, point, fault, way_on, (before, promoted), scaler
            )
        problem = "; ".join(filter(None, (problem, watcher.empty)))
        sys.stdout.write(
            f"entry {point}, {fault}, {way_on[0]}: {problem or 'good'}, {watcher.looks} looks\n"
        )
        sys.stdout.flush()
        if problem:
            failures.append(f"killed after entry {point}, {fault}, {way_on[0]}: {problem}")
        cluster.proxy.clear()
        if (
            text_of(namespace.client.get("isvc", "demo")) != before
        ):  # the next case starts from there
            again = run("rollback", code=None)
            if again.returncode != 0 or text_of(namespace.client.get("isvc", "demo")) != before:
                failures.append(
                    f"killed after entry {point}, {fault}: not back: {again.stderr[-400:]}"
                )
                break
    took = time.monotonic() - began
    sys.stdout.write(
        f"\nfault matrix, {met}: {len(points)} cases, {len(failures)} failures, {took:.0f} s\n"
    )
    assert not failures, "\n".join(failures)


def case(cluster, namespace, run, point, fault, way_on, texts, scaler):
    """Run one case and describe what is wrong; empty if nothing is."""
    killed = run(*ROLLOUT, kill_after=point, code=None)
    if killed.returncode != -signal.SIGKILL:
        return f"not killed: {killed.returncode} {killed.stderr[-300:]}"
    if FAULTS[fault] is None:
        steal(namespace)
    else:
        cluster.proxy.add(**FAULTS[fault])
    for _ in range(MOST_TRIES):
        done = run(*way_on, code=None)
        if done.returncode == 0:
            break
    else:
        return f"{way_on[0]} never succeeded: {done.stderr[-600:]}"
    live = text_of(namespace.client.get("isvc", "demo"))
    wrong = []
    if live not in texts:
        wrong.append("the live spec is neither the recorded nor the promoted one")
    if namespace.client.find("isvc", "demo-candidate") is not None:
        wrong.append("a candidate is left")
    if namespace.client.get("hpa", "demo-queue")["spec"] != scaler:
        wrong.append("the autoscaler is not as it was")
    return "; ".join(wrong)
