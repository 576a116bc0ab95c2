"""A command that lost its Lease never writes the service afterwards: stopped between its check and its write, or robbed
of the Lease while a write is on its way."""

import itertools
import os
import re
import signal
import sys

import pytest

from mpctl.platform.kubernetes.service.manifest_text import text_of

from .objects import CONTAINERS, hpa
from .unmeasured import Unmeasured

ROLLOUT = ("rollout", "demo", "--spec", "ngram")
ROLLBACK = ("rollback", "demo", "--yes")
UNLOCK = ("unlock", "demo", "--force", "--yes")
PROMOTION = "inferenceservices/demo"
UNGUARDED = ("leases", "selfsubjectaccessreviews", "selfsubjectrulesreviews")
CLOSED = re.compile(r"stopped before DELETE \S+/jobs/")
LOST = "is not locked by this command any more"


class Service:
    """A service with an autoscaler, and the command line on it."""

    def __init__(self, cluster, namespace, mpctl):
        self.cluster, self.namespace, self.client = cluster, namespace, namespace.client
        self.run, self.mpctl = Unmeasured(mpctl), mpctl
        cluster.metrics.set("queue_wait_ms", 50)  # it wants one pod
        namespace.deploy(CONTAINERS)
        self.client.apply(hpa())

    def state(self):
        """What a rollback restores: the manifest and the autoscaler's limits."""
        return text_of(self.client.get("isvc", "demo")), self.client.get("hpa", "demo-queue")[
            "spec"
        ]

    def speculates(self):
        return any(
            word.startswith("--speculative-config")
            for argv in self.namespace.argv()
            for word in argv
        )

    def stopped(self, write):
        """A rollout that is stopped before a write; None when it ended without that write."""
        process = self.run.start(*ROLLOUT, program="stopped", point=write)
        how = os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        if how.si_code == os.CLD_STOPPED:
            return process
        _, stderr = process.communicate()
        assert process.returncode == 0, stderr
        return None

    def continued(self, process):
        """Let a stopped command go on; its last words. It ends with exit code 3 and no traceback: it finds another
        name in the Lease, or its number of the ledger taken. An operation that was closed before keeps its ending, and
        deletes its load Job."""
        os.kill(process.pid, signal.SIGCONT)
        _, stderr = process.communicate(timeout=240)
        stderr = " ".join(stderr.split())
        if CLOSED.search(stderr):
            assert process.returncode == 0, stderr
        else:
            assert process.returncode == 3, stderr
            assert LOST in stderr or "the ledger of demo was written by" in stderr, stderr
        assert "Traceback" not in stderr, stderr
        assert "bug in mpctl" not in stderr, stderr
        return stderr

    def rolled_back(self):
        """The state after a rollout and its rollback: from then on there is something to restore at any write."""
        self.run(*ROLLOUT)
        self.run(*ROLLBACK)
        return self.state()

    def retire(self):
        """Remove a candidate that a stopped command created: no object could be fenced before it existed."""
        if self.client.find("isvc", "demo-candidate") is not None:
            self.run("retire", "demo", "--yes")
        assert self.client.find("isvc", "demo-candidate") is None


@pytest.fixture
def service(cluster, namespace, mpctl):
    yield Service(cluster, namespace, mpctl)
    cluster.metrics.clear()


@pytest.mark.parametrize(
    "takes",
    [pytest.param("after 30 s without a heartbeat", marks=pytest.mark.nightly), "unlock --force"],
)
def test_a_rollout_that_was_stopped_before_its_promotion_changes_nothing_after_a_rollback(
    service, takes
):
    before, pods = service.state(), {pod["metadata"]["uid"] for pod in service.namespace.pods()}
    process = service.stopped(PROMOTION)
    try:
        if takes == "unlock --force":
            service.run(*UNLOCK)
        while service.run(*ROLLBACK, code=None).returncode == 3:
            assert (
                takes != "unlock --force"
            )  # refused while the heartbeat is younger than 30 s, and then waits as long
        assert service.state() == before
        stderr = service.continued(process)
    finally:
        process.kill()
    assert LOST in stderr
    assert "nothing was written since; before, this command wrote" in stderr
    assert service.state() == before
    assert not service.speculates()
    assert {
        pod["metadata"]["uid"] for pod in service.namespace.pods()
    } == pods  # fencing restarts none
    managers = [
        entry["manager"]
        for entry in service.client.get("isvc", "demo")["metadata"]["managedFields"]
    ]
    assert "mpctl-fence" not in managers
    service.retire()
    service.run(*ROLLOUT)
    assert service.speculates()


@pytest.mark.nightly
@pytest.mark.parametrize("first", [1, 2], ids=["odd writes", "even writes"])
def test_a_rollout_that_was_stopped_before_any_of_its_writes_changes_nothing_after_a_rollback(
    service, first
):
    before, failures = service.rolled_back(), []
    for number in itertools.count(first, 2):
        process = service.stopped(str(number))
        if process is None:
            break
        try:
            service.run(*UNLOCK)
            service.run(*ROLLBACK)
            stderr = service.continued(process)
        finally:
            process.kill()
        sys.stdout.write(f"write {number}: {stderr[stderr.index('stopped before') :]}\n")
        if service.state() != before or service.speculates():
            failures.append(f"write {number}: {stderr}")
            service.run(*ROLLBACK)
        service.retire()
    assert number > 10
    assert not failures, "\n".join(failures)


class Theft:
    """Puts another holder into the Lease when the proxy has a certain write of mpctl's, as any client that may write
    Leases can."""

    def __init__(self, service, number=0, promotion=False):
        self.service, self.number, self.promotion = service, number, promotion
        self.writes, self.later = 0, None
        self.proxy = service.cluster.proxy
        self.proxy.clear()
        self.proxy.add(self.see, verb="write", times=10**6)

    async def see(self, call):
        if not is_guarded(call):
            return
        self.writes += 1
        is_promotion = (call.verb, call.resource, call.name) == (
            "update",
            "inferenceservices",
            "demo",
        )
        if (is_promotion if self.promotion else self.writes == self.number) and self.later is None:
            self.later = len(self.proxy.calls)
            patch = {
                "spec": {"holderIdentity": "thief"},
                "metadata": {"annotations": {"mpctl.dev/process": ""}},
            }
            await self.service.client.api.patch(
                "leases", "mpctl-demo", patch, self.service.namespace.name
            )

    def writes_after(self):
        """Writes that were sent later than the one that was on its way."""
        return [
            f"{call.verb} {call.path}"
            for call in self.proxy.calls[self.later :]
            if is_guarded(call)
        ]


def is_guarded(call):
    """Whether a write of mpctl's may only be sent with the Lease."""
    return (
        call.write
        and call.agent == "mpctl"
        and "dryRun" not in call.path
        and call.resource not in UNGUARDED
    )


def robbed(service, theft):
    """A rollout during a theft; its last words, empty when the theft came with its last write or later."""
    done = service.run(*ROLLOUT, code=None)
    if done.returncode == 0:
        assert theft.later is None or theft.writes_after() == []
        return ""
    assert done.returncode == 3, done.stderr
    stderr = " ".join(done.stderr.split())
    assert LOST in stderr and "it was taken by" in stderr, stderr
    assert "Traceback" not in stderr and "bug in mpctl" not in stderr, stderr
    return stderr


def test_a_lease_that_is_stolen_during_the_promotion_stops_every_later_write(service):
    """The promotion was on its way already: it is done, and the command says so."""
    theft = Theft(service, promotion=True)
    stderr = robbed(service, theft)
    assert theft.writes_after() == []
    assert "the last write of this command may have come after that" in stderr
    assert f"InferenceService {service.namespace.name}/demo (unchanged since)" in stderr


@pytest.mark.nightly
@pytest.mark.parametrize("first", [1, 2], ids=["odd writes", "even writes"])
def test_a_lease_that_is_stolen_during_any_write_stops_every_later_one(service, first):
    before, failures = service.rolled_back(), []
    for number in itertools.count(first, 2):
        theft = Theft(service, number)
        if not robbed(service, theft):
            break
        if theft.writes_after():
            failures.append(f"write {number}: {theft.writes_after()}")
        service.run(*UNLOCK)
        service.run(*ROLLBACK)
        assert service.state() == before
        service.retire()
    assert number > 10
    assert not failures, "\n".join(failures)
