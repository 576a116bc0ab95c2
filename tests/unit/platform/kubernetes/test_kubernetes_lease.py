"""A lease whose holder was stopped for a while: nothing is written before it is known to be held still."""

from __future__ import annotations

import copy

import pytest

from mpctl.errors import Conflict
from mpctl.platform.kubernetes.api.failure import Stale, Unreachable
from mpctl.platform.kubernetes.lease import DURATION_S, Lease


class Server:
    """One Lease with versions, as an API server keeps it; ``guard`` and ``down`` are the client's."""

    def __init__(self):
        self.guard = None
        self.there = None
        self.down = False

    def get(self, kind, name, namespace):
        if self.down:
            raise Unreachable("no answer")
        return copy.deepcopy(self.there)

    def create(self, kind, body):
        self.there = {**copy.deepcopy(body), "metadata": {**body["metadata"], "resourceVersion": "1"}}

    def replace(self, kind, body):
        seen = self.there["metadata"]["resourceVersion"]
        if body["metadata"]["resourceVersion"] != seen:
            raise Stale("changed")
        self.create(kind, body)
        self.there["metadata"]["resourceVersion"] = str(int(seen) + 1)

    def merge(self, kind, name, namespace, patch):
        self.there["spec"] |= patch["spec"]
        self.there["metadata"]["resourceVersion"] += "0"


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


def test_a_lease_that_was_taken_meanwhile_stops_the_next_write_and_every_later_one():
    server = Server()
    lease, clock = held(server)
    with lease.hold("rollout"):
        server.there["spec"]["holderIdentity"] = "c@d/1"
        server.there["metadata"]["annotations"]["mpctl.dev/who"] = "c@d"
        clock.now = DURATION_S + 1
        for _ in range(2):
            with pytest.raises(Conflict, match="is lost: it was taken by c@d"):
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
