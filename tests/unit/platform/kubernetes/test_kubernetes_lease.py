"""A lease whose holder was stopped for a while: nothing is written before it is known to be held still."""

from __future__ import annotations

import copy
from datetime import UTC, datetime, timedelta

import pytest

from mpctl.errors import Conflict, InputError, MpctlError
from mpctl.platform.kubernetes import lease as lease_module
from mpctl.platform.kubernetes.api.replies import OutcomeUnknown, Stale, Unreachable
from mpctl.platform.kubernetes.lease import DURATION_S, Lease, process_is_gone, this_process


class Server:
    """One Lease with versions, as an API server keeps it; ``guard`` and ``down`` are the client's."""

    def __init__(self):
        self.guard = self.written = None
        self.there = None
        self.down = False

    def get(self, kind, name, namespace):
        if self.down:
            raise Unreachable("no answer")
        return copy.deepcopy(self.there)

    def create(self, kind, body):
        self.there = {
            **copy.deepcopy(body),
            "metadata": {**body["metadata"], "resourceVersion": "1"},
        }

    def replace(self, kind, body):
        resource_version = self.there["metadata"]["resourceVersion"]
        if body["metadata"]["resourceVersion"] != resource_version:
            raise Stale("changed")
        self.create(kind, body)
        self.there["metadata"]["resourceVersion"] = str(int(resource_version) + 1)

    def merge(self, kind, name, namespace, patch):
        self.there["spec"] |= patch["spec"]
        self.there["metadata"]["resourceVersion"] += "0"

    def forget_reads(self):
        """Every read is answered anew."""


class Clock:
    """Seconds that pass when a test says so."""

    now = 0.0

    def __call__(self):
        return self.now


def held(server):
    clock = Clock()
    # The heartbeat's own thread never gets to it: what is tested is the look before a write.
    return Lease(server, "ns", "demo", "a@b", heartbeat_s=3600, elapsed=clock), clock


def test_an_old_heartbeat_is_renewed_before_a_write():
    server = Server()
    lease, clock = held(server)
    with lease.hold("rollout"):
        version = server.there["metadata"]["resourceVersion"]
        server.guard()
        assert server.there["metadata"]["resourceVersion"] == version
        clock.now = DURATION_S + 1
        server.guard()
        assert server.there["metadata"]["resourceVersion"] != version
    assert server.there["spec"]["holderIdentity"] is None


def test_a_release_that_meets_a_conflict_is_written_again(monkeypatch):
    server = Server()
    merge, conflicts = server.merge, ["once"]

    def conflicting(*arguments):
        if conflicts:
            raise Stale(f"changed {conflicts.pop()}")
        merge(*arguments)

    lease, _ = held(server)
    with lease.hold("rollout"):
        monkeypatch.setattr(server, "merge", conflicting)
    assert server.there["spec"]["holderIdentity"] is None


def test_a_lease_that_was_taken_meanwhile_stops_the_next_write_and_every_later_one():
    server = Server()
    lease, clock = held(server)
    with lease.hold("rollout"):
        server.there["spec"]["holderIdentity"] = "c@d/1"
        server.there["metadata"]["annotations"]["mpctl.dev/who"] = "c@d"
        clock.now = DURATION_S + 1
        for _ in range(2):
            with pytest.raises(
                Conflict, match="is not locked by this command any more: it was taken by c@d"
            ):
                server.guard()
    assert server.there["spec"]["holderIdentity"] == "c@d/1"


def test_nothing_is_written_while_an_old_heartbeat_cannot_be():
    server = Server()
    lease, clock = held(server)
    with lease.hold("rollout"):
        server.down, clock.now = True, DURATION_S + 1
        with pytest.raises(Unreachable):
            server.guard()
        server.down = False
        server.guard()  # it was ours all the time


# A Lease that others wrote: whatever it claims, a heartbeat that stands still for a lease's time is dead


def foreign(renewed, process=""):
    return {
        "metadata": {
            "resourceVersion": "7",
            "annotations": {"mpctl.dev/process": process, "mpctl.dev/who": "x@y"},
        },
        "spec": {"holderIdentity": "x@y/1", "renewTime": renewed},
    }


def watcher(server, *, beats=False):
    """A lease whose clock moves with its pauses; with ``beats`` the foreign holder renews meanwhile."""
    clock = Clock()

    def pause(seconds):
        clock.now += seconds
        if beats:
            server.there["spec"]["renewTime"] = f"9999-01-01T00:00:{int(clock.now) % 60:02}Z"

    return Lease(server, "ns", "demo", "a@b", heartbeat_s=3600, elapsed=clock, pause=pause), clock


@pytest.mark.parametrize(
    "renewed",
    ["2999-01-01T00:00:00.000000Z", "1999-01-01T00:00:00Z", "never", "2999-01-01T00:00", ""],
)
def test_a_dead_holder_is_dead_whatever_time_it_claims(renewed):
    server = Server()
    server.there = foreign(renewed)
    lease, clock = watcher(server)
    with lease.hold("rollout"):
        assert server.there["spec"]["holderIdentity"].startswith("a@b/")
    assert DURATION_S <= clock.now < DURATION_S + 2


@pytest.mark.parametrize("renewed", ["2999-01-01T00:00:00Z", "1999-01-01T00:00:00Z"])
def test_a_heartbeat_that_changes_is_alive_whatever_time_it_claims(renewed):
    server = Server()
    server.there = foreign(renewed)
    lease, _ = watcher(server, beats=True)
    with pytest.raises(Conflict, match="is held by x@y"), lease.hold("rollout"):
        pass


@pytest.mark.parametrize(
    "jump", [timedelta(days=1), timedelta(days=-1)], ids=["forward", "backward"]
)
@pytest.mark.parametrize("whose", ["holder", "other"])
def test_setting_a_clock_neither_ends_a_lease_that_is_held_nor_prolongs_one_that_is_not(
    monkeypatch, jump, whose
):
    class Set(datetime):
        moved = timedelta()

        @classmethod
        def now(cls, tz=None):
            return datetime(2026, 1, 1, tzinfo=UTC) + cls.moved

    monkeypatch.setattr(lease_module, "datetime", Set)
    server = Server()
    lease, clock = held(server)
    other, others_clock = watcher(server)

    def renew(seconds):
        others_clock.now += seconds
        clock.now += DURATION_S + 1
        if whose == "holder":
            Set.moved = jump
        else:
            Set.moved += timedelta(seconds=1)
        server.there["metadata"]["annotations"]["mpctl.dev/process"] = ""  # of another machine
        server.guard()
        Set.moved = jump if whose == "other" else Set.moved + timedelta(seconds=1)

    other._pause = renew
    with lease.hold("rollout"):
        clock.now = DURATION_S + 1
        server.guard()
        server.there["metadata"]["annotations"]["mpctl.dev/process"] = ""
        with pytest.raises(Conflict, match="is held by"), other.hold("rollback"):
            pass
        server.guard()
    Set.moved = jump
    with other.hold("rollback"):
        assert others_clock.now < DURATION_S


def test_unlock_frees_a_lease_from_the_future_and_force_also_a_live_one():
    server = Server()
    server.there = foreign("2999-01-01T00:00:00Z")
    lease, _ = watcher(server)
    lease.unlock(lease.read())
    assert server.there["spec"]["holderIdentity"] is None
    server.there = foreign("2999-01-01T00:00:00Z")
    lease, _ = watcher(server, beats=True)
    with pytest.raises(Conflict, match="which is alive"):
        lease.unlock(lease.read())
    lease.unlock(lease.read(), force=True)
    assert server.there["spec"]["holderIdentity"] is None


def test_a_holder_of_this_machine_that_was_killed_just_now_is_dead_at_once():
    server = Server()
    boot, pid, started = this_process().split()
    server.there = foreign(datetime.now(UTC).isoformat(), f"{boot} {pid} {int(started) + 1}")
    lease, clock = watcher(server)
    with lease.hold("resume"):
        assert clock.now == 0


def test_a_fresh_heartbeat_of_another_machine_is_refused_at_once():
    server = Server()
    server.there = foreign(datetime.now(UTC).isoformat())
    lease, clock = watcher(server)
    with pytest.raises(Conflict, match="is held by x@y"), lease.hold("resume"):
        pass
    assert clock.now == 0


def test_a_fresh_heartbeat_that_stands_still_between_two_tries_is_dead_without_more_waiting():
    server = Server()
    server.there = foreign(datetime.now(UTC).isoformat())
    lease, clock = watcher(server)
    assert lease.holder() is not None
    clock.now += DURATION_S - 1
    assert lease.holder() is not None
    with pytest.raises(Conflict), lease.hold("resume"):
        pass
    clock.now += 1
    assert lease.holder() is None
    with lease.hold("resume"):
        assert clock.now == DURATION_S


def test_a_heartbeat_that_changed_between_two_tries_is_alive():
    server = Server()
    server.there = foreign(datetime.now(UTC).isoformat())
    lease, clock = watcher(server)
    assert lease.holder() is not None
    clock.now += DURATION_S
    server.there = foreign(datetime.now(UTC).isoformat())
    assert lease.holder() is not None


@pytest.mark.parametrize("rest", ["notanint 5", "5 notanint", "²³ 5", "-1 5", "", "1 2 3"])
def test_garbage_in_the_process_annotation_names_no_dead_process(rest):
    assert not process_is_gone(f"{this_process().split()[0]} {rest}")


def test_garbage_in_annotations_stops_neither_status_nor_a_rollout():
    server = Server()
    server.there = foreign("2999-01-01T00:00:00Z", f"{this_process().split()[0]} notanint 5")
    lease, _ = watcher(server)
    assert lease.holder() is not None
    with lease.hold("rollback"):
        pass


def written(lease, manager):
    """The same Lease, whose heartbeat a client wrote under this name."""
    fields = {"f:spec": {"f:renewTime": {}, "f:holderIdentity": {}}}
    own = {
        "manager": "mpctl",
        "time": "2026-01-01T00:00:09Z",
        "fieldsV1": {"f:metadata": {"f:labels": {}}},
    }
    theirs = {"manager": manager, "time": "2026-01-01T00:00:05Z", "fieldsV1": fields}
    return {**lease, "metadata": {**lease["metadata"], "managedFields": [own, theirs]}}


@pytest.mark.parametrize(("manager", "foreign"), [("mpctl", False), ("curl", True)])
def test_a_heartbeat_that_another_client_wrote_is_refused_with_its_writer_and_the_way_out(
    manager, foreign
):
    server = Server()
    fresh = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    server.create(
        None, {"metadata": {"annotations": {}}, "spec": {"holderIdentity": "x", "renewTime": fresh}}
    )
    server.there = written(server.there, manager)
    with pytest.raises(Conflict) as refused, held(server)[0].hold("rollout"):
        pass
    text = "written by curl at 2026-01-01T00:00:05Z and not by mpctl"
    assert (text in refused.value.message) is foreign
    assert ("mpctl unlock demo --force" in refused.value.hint) is foreign


def test_a_lease_that_another_client_took_is_not_free_because_the_process_before_it_ended():
    server = Server()
    boot, pid, started = this_process().split()
    taken = foreign(datetime.now(UTC).isoformat(), f"{boot} {pid} {int(started) + 1}")
    server.there = written(taken, "kubectl")
    lease, _ = watcher(server)
    with (
        pytest.raises(Conflict, match=r"held by x@y/1, last heartbeat .*, written by kubectl"),
        lease.hold("rollback"),
    ):
        pass


# What another client writes into the Lease


class Strict(Server):
    """Refuses numbers that are no int32, as the API server does."""

    def create(self, kind, body):
        if not 0 <= body["spec"]["leaseTransitions"] < 2**31:
            raise InputError(
                "cannot unmarshal number 2147483648 into Go struct field of type int32"
            )
        super().create(kind, body)


@pytest.mark.parametrize("transitions", [2**31 - 1, 2**31 - 2, 0, None])
def test_no_number_of_transitions_stops_an_acquisition(transitions):
    server = Strict()
    lease, _ = held(server)
    with lease.hold("rollout"):
        pass
    server.there["spec"]["leaseTransitions"] = transitions
    for purpose in ("rollback", "resume"):
        with lease.hold(purpose):
            assert server.there["spec"]["holderIdentity"]


def test_a_lease_that_the_server_refuses_is_a_conflict_that_names_its_writer():
    server = Server()
    lease, _ = held(server)
    with lease.hold("rollout"):
        pass
    server.there["metadata"]["managedFields"] = [
        {"manager": "mallory", "time": "2026-11-23T08:00:00Z"}
    ]

    def refuse(kind, body):
        raise InputError("metadata: too long")

    server.replace = refuse
    with pytest.raises(
        Conflict, match=r"Lease ns/mpctl-demo cannot be written, last written by mallory .*too long"
    ):
        lease.hold("rollout").__enter__()


def test_a_full_store_is_named_when_the_service_cannot_be_locked():
    server = Server()
    lease, _ = held(server)

    def full(kind, body):
        raise OutcomeUnknown("etcdserver: mvcc: database space exceeded")

    server.create = full
    with pytest.raises(
        MpctlError,
        match="could not be locked in 4 tries: etcdserver: mvcc: database space exceeded",
    ):
        lease.hold("rollout").__enter__()
