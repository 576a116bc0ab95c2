"""History and lease on a real API server."""

import os
from datetime import UTC, datetime

import pytest

from mpctl.errors import Conflict, MpctlError, Tampered
from mpctl.methods import Spec
from mpctl.platform.kubernetes.api.api_client import Client
from mpctl.platform.kubernetes.api.connection import connect
from mpctl.platform.kubernetes.api.kinds import CONFIG_MAP, LEASE
from mpctl.platform.kubernetes.api.replies import OutcomeUnknown
from mpctl.platform.kubernetes.lease import DURATION_S, Lease
from mpctl.platform.kubernetes.object_store import KubernetesStore
from mpctl.rollout.ledger import Entry, Event
from mpctl.rollout.revision import Revision

NOW = datetime(2026, 11, 21, tzinfo=UTC)


@pytest.fixture
def reach(cluster, namespace, tmp_path):
    """Makes clients of their own, through the fault proxy."""
    path = cluster.kubeconfig_for(
        cluster.admin, tmp_path / "kubeconfig", namespace=namespace.name, server=cluster.proxy.url
    )
    clients = []

    def client():
        clients.append(Client(connect(str(path)), timeout_s=3.0, sleep=lambda s: None))
        return clients[-1]

    yield client
    for connected in clients:
        connected.close()


def store(client, namespace, who="a@b"):
    return KubernetesStore(client, namespace.name, "demo", who)


def entry(last, **data):
    return Entry.after(
        last, at=NOW, operation="rollout-1", event=Event.BEGUN, who="a@b", step="s", data=data
    )


def revision(number, text="x\n"):
    return Revision(number, text, NOW.isoformat(), "a@b", "why", Spec("none"), "rollout-1")


def test_two_writers_cannot_both_append(reach, namespace):
    mine, other = store(reach(), namespace), store(reach(), namespace, "c@d")
    first = entry(None)
    mine.append(first)
    mine.append(entry(first, n=1))
    with pytest.raises(Conflict, match="was written by"):
        other.append(entry(first, n=2))
    assert [e.data for e in other.entries()] == [{}, {"n": 1}]


@pytest.mark.parametrize("action", [409, 500, "timeout"])
def test_an_append_of_unknown_outcome_is_recorded_once(cluster, reach, namespace, action):
    mine = store(reach(), namespace)
    first = entry(None)
    mine.append(first)
    cluster.proxy.add(action, verb="create", resource="controllerrevisions")
    mine.append(entry(first, n=1))
    assert [e.seq for e in mine.entries()] == [1, 2]


def test_an_edited_ledger_is_refused_by_the_server_and_a_removed_entry_is_found_out(
    reach, namespace
):
    mine, last = store(reach(), namespace), None
    for number in range(3):
        last = entry(last, n=number)
        mine.append(last)
    with pytest.raises(Exception, match=r"immutable|Forbidden|Invalid"):
        namespace.client.patch(
            "controllerrevisions", "mpctl-demo.ledger-2", {"data": {"data": {"n": 7}}}
        )
    namespace.client.delete("controllerrevisions", "mpctl-demo.ledger-2")
    with pytest.raises(Tampered, match="entry 2 of the ledger of demo is missing or forged"):
        mine.entries()


def test_a_record_that_another_writer_replaced_is_not_read(reach, namespace):
    mine = store(reach(), namespace)
    mine.save("rollout-1", "block", {"samples": [1]})
    (item,) = namespace.client.list("configmaps", labels="mpctl.dev/part=record")
    namespace.client.patch(
        "configmaps", item["metadata"]["name"], {"binaryData": {"record": "AAAA"}}
    )
    with pytest.raises(Tampered, match="does not hold what was kept of rollout-1, last written by"):
        store(reach(), namespace).load("rollout-1", "block")


def test_a_record_larger_than_an_object_is_read_back_whole(reach, namespace):
    mine = store(reach(), namespace)
    record = {
        "samples": [os.urandom(400).hex() for _ in range(3000)]
    }  # 2.4 MB of what cannot be compressed much
    mine.save("rollout-1", "block", record)
    assert mine.load("rollout-1", "block") == record
    mine.save("rollout-1", "block", {"small": 1})
    assert mine.load("rollout-1", "block") == {"small": 1}
    assert mine.load("rollout-1", "other") is None


def test_a_revision_is_kept_for_good(reach, namespace):
    mine = store(reach(), namespace)
    mine.add_revision(revision(1))
    mine.add_revision(revision(1))  # the same again is done already
    with pytest.raises(Conflict, match="added by another writer"):
        mine.add_revision(revision(1, "y\n"))
    assert mine.revisions() == (revision(1),)
    with pytest.raises(Exception, match=r"immutable|Forbidden|Invalid"):
        namespace.client.patch(
            "controllerrevisions", "mpctl-demo.revision-1", {"data": {"text": "changed"}}
        )


def test_a_lease_has_one_holder_and_is_released(reach, namespace):
    mine, other = (
        Lease(reach(), namespace.name, "demo", "a@b"),
        Lease(reach(), namespace.name, "demo", "c@d"),
    )
    with mine.hold("rollout"):
        assert "a@b, mpctl rollout" in other.holder()
        with pytest.raises(Conflict, match=r"held by a@b, mpctl rollout"), other.hold("rollback"):
            pass
        with pytest.raises(Conflict, match="alive"):
            other.unlock(other.read())
    assert other.holder() is None
    with other.hold("rollback"):
        pass


def test_a_stolen_lease_stops_every_write(reach, namespace):
    """Also before the next heartbeat."""
    client = reach()
    lease = Lease(client, namespace.name, "demo", "a@b", heartbeat_s=3600)
    stolen = {"spec": {"holderIdentity": "thief"}}
    with lease.hold("rollout"):
        namespace.client.patch("leases", "mpctl-demo", stolen)
        with pytest.raises(Conflict, match="is not locked by this command any more"):
            client.create(CONFIG_MAP, {"metadata": {"name": "x", "namespace": namespace.name}})
    assert namespace.client.get("leases", "mpctl-demo")["spec"]["holderIdentity"] == "thief"
    assert namespace.client.find("configmaps", "x") is None


def test_a_lease_whose_heartbeat_stands_still_is_taken_over(reach, namespace):
    looks = []
    dead = Lease(reach(), namespace.name, "demo", "gone@elsewhere")
    with dead.hold("rollout"):
        pass
    namespace.client.patch(
        "leases",
        "mpctl-demo",
        {
            "metadata": {"annotations": {"mpctl.dev/process": ""}},
            "spec": {"holderIdentity": "gone", "renewTime": "2026-01-01T00:00:00.000000Z"},
        },
    )
    mine = Lease(
        reach(), namespace.name, "demo", "a@b", pause=looks.append, elapsed=lambda: sum(looks)
    )
    with mine.hold("resume"):
        assert sum(looks) >= DURATION_S  # the time that the Lease claims decides nothing
        assert namespace.client.get("leases", "mpctl-demo")["spec"]["leaseTransitions"] == 2


def test_a_late_heartbeat_keeps_the_lease(reach, namespace):
    """Its clock is behind ours: the time looks old, but it moves."""
    client = reach()
    with Lease(client, namespace.name, "demo", "slow@elsewhere").hold("rollout"):
        old = {
            "metadata": {"annotations": {"mpctl.dev/process": ""}},
            "spec": {"renewTime": "2026-01-01T00:00:00.000000Z"},
        }
        namespace.client.patch("leases", "mpctl-demo", old)

        def beat(_):
            namespace.client.patch(
                "leases", "mpctl-demo", {"spec": {"renewTime": "2026-01-01T00:00:05.000000Z"}}
            )

        with (
            pytest.raises(Conflict, match="held by"),
            Lease(reach(), namespace.name, "demo", "a@b", pause=beat).hold("resume"),
        ):
            pass


def test_a_retry_waits_as_long_as_the_server_asks(cluster, reach, namespace):
    waits = []
    client = reach()
    client._sleep = waits.append
    cluster.proxy.add(429, verb="read", resource="leases", times=2, retry_after_s=7)
    assert client.get(LEASE, "none", namespace.name) is None
    assert waits == [7.0, 7.0]


def test_a_write_without_an_answer_is_not_repeated(cluster, reach, namespace):
    client = reach()
    fault = cluster.proxy.add("timeout", verb="create", resource="configmaps")
    body = {"metadata": {"name": "once", "namespace": namespace.name}}
    with pytest.raises(OutcomeUnknown, match="the outcome is unknown"):
        client.create(CONFIG_MAP, body)
    assert fault.matching == 1
    assert namespace.client.get("configmaps", "once")


def test_an_unknown_field_is_an_error(reach, namespace):
    body = {"metadata": {"name": "x", "namespace": namespace.name}, "dta": {}}
    with pytest.raises(MpctlError, match="dta"):
        reach().create(CONFIG_MAP, body)
