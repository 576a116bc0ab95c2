"""How long an engine may take: as asked, else ten minutes, in a cluster at least three starts measured there."""

from types import SimpleNamespace

import pytest
from console import RecordingConsole
from session import MemorySession

from mpctl.app.session import cluster as cluster_sessions
from mpctl.app.session.base import Place, ServiceNotFound, Session
from mpctl.app.session.cluster import ClusterSession, open_cluster
from mpctl.errors import NotPermitted


def cluster(measured):
    session = ClusterSession.__new__(ClusterSession)
    session.platform = SimpleNamespace(workload=lambda: SimpleNamespace(cold_start_s=measured()))
    return session


def never():
    raise AssertionError("nothing is read when a time is asked for")


@pytest.mark.parametrize(("measured", "waited"), [(None, 600), (12, 600), (200, 600), (420, 1260)])
def test_a_cluster_is_waited_for_three_of_its_own_starts(measured, waited):
    assert cluster(lambda: measured).ready_timeout_s(None) == waited


def test_what_is_asked_for_wins():
    assert cluster(never).ready_timeout_s(30.0) == 30


@pytest.mark.parametrize("leftover", ["", "Job ml/load was not deleted"])
def test_a_load_client_that_leaves_something_is_warned_of_on_every_platform(leftover):
    session = MemorySession()
    session.memory.context.meter.close = lambda: leftover
    with Session.context(session) as context:
        assert (context.service, context.namespace) == ("svc", "chat")
    assert session.console.warnings == [leftover] * bool(leftover)
    assert ClusterSession.context is Session.context


class Namespaces:
    """A cluster with a service qwen in some namespaces. ``everywhere``: whether they may be listed all together."""

    listing, namespace, context = False, "default", "prod"

    def __init__(self, *namespaces, everywhere=True):
        self._namespaces, self._everywhere = namespaces, everywhere

    def get(self, kind, name, namespace=None):
        return None

    def list(self, kind, namespace=None, *, labels="", fields=""):
        if namespace is None and not self._everywhere:
            raise NotPermitted(f"not allowed to list {kind.plural}")
        if kind.name != "InferenceService" or fields not in ("", "metadata.name=qwen"):
            return []
        return [
            {"metadata": {"namespace": n, "name": "qwen"}}
            for n in self._namespaces
            if namespace in (None, n)
        ]


@pytest.mark.parametrize(
    ("client", "message", "hint"),
    [
        (
            Namespaces("team-b", "team-a"),
            "; one of that name is in namespace team-a, team-b",
            "add -n team-a",
        ),
        (Namespaces("team-a", everywhere=False), "", None),
        (Namespaces(), "", None),
    ],
)
def test_a_service_asked_for_in_another_namespace_is_named_where_it_may_be_seen(
    monkeypatch, client, message, hint
):
    monkeypatch.setattr(cluster_sessions, "open_client", lambda place: client)
    with pytest.raises(ServiceNotFound) as caught:
        open_cluster(Place(), RecordingConsole(), "qwen")
    assert (
        caught.value.message
        == f"service qwen: not found in namespace default of context prod{message}"
    )
    assert "mpctl status -A" in caught.value.hint if hint is None else caught.value.hint == hint
