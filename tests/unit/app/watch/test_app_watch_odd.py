"""Odd answers about one service, of its API objects, its counters or its own code: the watch names that service, judges
the others as before, and does not end."""

from __future__ import annotations

import copy
import json

import pytest
from fake_api import FakeApi
from watched import Service, disk_after_promotion, promoted, watch
from yaml import safe_load

from mpctl.app.session.cluster import ClusterSession, cluster_services
from mpctl.app.watch.exposition import Publisher, metrics, record
from mpctl.app.watch.verdicts import VerdictPages
from mpctl.platform.kubernetes.api.kinds import INFERENCE_SERVICE, SPECULATION_STATUS
from mpctl.platform.kubernetes.object_store import KubernetesStore
from mpctl.platform.kubernetes.speculation_status import StatusWriter
from mpctl.watch.assessment import Signal
from mpctl.watch.reading import Reading
from mpctl.watch.reference import RECORD as REFERENCE
from mpctl.watch.sentinel import RECORD as SENTINELS

pytestmark = pytest.mark.exhaustive

ODD = (None, [], {}, "x", -1, 1e999, True)
GONE = object()


def paths_of(value, path=()):
    """The path of every value below a JSON object."""
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inner in items:
        yield (*path, key)
        yield from paths_of(inner, (*path, key))


def replaced(value, path, odd):
    """A copy with an odd value, or nothing, at a path."""
    changed = copy.deepcopy(value)
    target = changed
    for key in path[:-1]:
        target = target[key]
    if odd is GONE:
        del target[path[-1]]
    else:
        target[path[-1]] = odd
    return changed


class OddApi(FakeApi):
    """An API server with a promoted service, whose objects of one plural are answered with an odd value at a path."""

    def __init__(self):
        super().__init__()
        self.context, self.plural, self.path, self.odd = "test", "", (), None
        disk = disk_after_promotion().copy()
        service = safe_load(disk.text)
        service["metadata"] |= {
            "name": "odd",
            "uid": "u",
            "generation": 1,
            "resourceVersion": "1",
            "annotations": {},
        }
        self.objects["inferenceservices", "odd"] = service
        store = KubernetesStore(self, "chat", "odd", "somebody@here")
        for revision in disk.revisions:
            store.add_revision(revision)
        store.append(*disk.ledger[:-1])
        with store.lease("rollout"):
            for name in (REFERENCE, SENTINELS):
                store.save("rollout-1", name, promoted().store.load("rollout-1", name))
            store.append(disk.ledger[-1])

    def answer(self, kind, value):
        if value is None or kind.plural != self.plural:
            return value
        try:
            return replaced(value, self.path, self.odd)
        except (LookupError, TypeError):
            return value

    def get(self, kind, name, namespace=None):
        return self.answer(kind, super().get(kind, name, namespace))

    def list(self, kind, namespace=None, *, labels="", fields=""):
        return [
            self.answer(kind, item)
            for item in super().list(kind, namespace, labels=labels, fields=fields)
        ]

    def apply(self, kind, body, *, force=False, subresource=None):
        if kind is not SPECULATION_STATUS:
            return super().apply(kind, body, force=force)
        return self.answer(kind, {"metadata": {"uid": "u", "generation": 1, **body["metadata"]}})


API = OddApi()
OBJECTS = {plural: item for (plural, _), item in API.objects.items()}
OBJECTS["speculationstatuses"] = {"metadata": {"uid": "u", "generation": 1}}
PLACES = [(plural, path) for plural, item in OBJECTS.items() for path in paths_of(item)]


class OddSession(ClusterSession):
    """A service behind an odd API server, whose engine can be read."""

    def __init__(self, engine):
        super().__init__(API, "chat", "odd", Service().console)
        self.engine = engine

    def counters(self):
        return self.engine.read()


class Both:
    """A watch of a healthy service and another one, that publishes statuses and answers verdicts."""

    def __init__(self, other, source=None):
        self.healthy = promoted()
        self.watcher, self.events = watch(self.healthy, other)
        if source is not None:
            self.watcher._source = source
        self.published, self.warnings = [], []
        self.clock = self.healthy.memory.context.clock
        now = lambda: self.clock.now().timestamp()  # noqa: E731
        self.publisher = Publisher(
            Writer(API, self.published), now, lambda: "now", self.warnings.append
        )
        self.verdicts = VerdictPages(lambda: [other, self.healthy], now, self.warnings.append)

    def go(self, count=3):
        for _ in range(count):
            self.clock.sleep(self.watcher.policy.interval_s)
            self.watcher.round()
            for event in self.events:
                self.publisher.tell(event)
            self.publisher.publish(list(self.watcher.watched.values()))
        self.verdicts.read_due()

    def require_healthy(self):
        """The healthy service is judged, published and answered for, and the pages can be written."""
        assert self.watcher.rounds >= 3
        assert self.watcher.watched["chat", "svc"].assessment.signal is Signal.HEALTHY
        assert "svc" in self.published
        status, text = self.verdicts.page("/v1/services/chat/svc/verdict", None)
        assert (status, json.loads(text)["serves"]) == (200, True)
        assert 'mpctl_watch_finding{namespace="chat",inference_service="svc"} 0' in metrics(
            self.watcher
        )
        assert json.dumps([record(watched) for watched in self.watcher.watched.values()])


class Writer(StatusWriter):
    """Writes through the odd API server; the healthy service's objects are answered as they should be."""

    def __init__(self, api, published):
        super().__init__(api, "watch-1")
        self.published = published

    def write(self, namespace, service, status):
        if service == "odd":
            super().write(namespace, service, status)
        self.published.append(service)

    def tell(self, namespace, service, *more, **event):
        if service == "odd":
            super().tell(namespace, service, *more, **event)


@pytest.fixture(autouse=True)
def unchanged():
    API.plural = ""


def flagger(both):
    """The status that Flagger's webhook gets for the other service."""
    return both.verdicts.page("/v1/flagger", b'{"name": "odd", "namespace": "chat"}')[0]


def test_a_setting_that_kubectl_edit_removes_is_refused_to_flagger_within_a_minute():
    both = Both(OddSession(promoted().engine))
    both.go()
    assert flagger(both) == 200
    API.plural, API.path, API.odd = (
        "inferenceservices",
        ("spec", "predictor", "containers", 0, "args"),
        ["--port=8080"],
    )
    both.clock.sleep(60.0)
    both.verdicts.read_due()
    assert flagger(both) == 403


def test_without_an_odd_answer_both_are_healthy():
    both = Both(OddSession(promoted().engine))
    both.go()
    both.require_healthy()
    assert both.watcher.watched["chat", "odd"].assessment.signal is Signal.HEALTHY
    assert flagger(both) == 200
    assert (both.warnings, both.published.count("odd")) == ([], both.published.count("svc"))


@pytest.mark.parametrize("plural", sorted(OBJECTS))
def test_an_odd_value_in_any_field_of_any_object_of_a_service_ends_no_watch_of_another(plural):
    for path in (path for of, path in PLACES if of == plural):
        for odd in (GONE, *ODD):
            API.plural, API.path, API.odd = plural, path, odd
            both = Both(OddSession(promoted().engine))
            both.go()
            both.require_healthy()


def test_an_answer_without_a_generation_is_a_warning_that_names_the_service():
    API.plural, API.path, API.odd = "speculationstatuses", ("metadata", "generation"), GONE
    both = Both(OddSession(promoted().engine))
    both.go(1)
    assert both.warnings == ["status of chat/odd not written: KeyError: 'generation'"]


@pytest.mark.parametrize("odd", [{"engine": None}, {"engine": "text"}], ids=str)
def test_a_fault_of_the_watch_on_one_service_is_reported_once_by_name(odd):
    def source(sessions, readers, monotonic):
        return {
            (s.namespace, s.name): Reading(
                monotonic(), odd if s.name == "odd" else s.counters().engines, {}, 1
            )
            for s in sessions
        }

    both = Both(promoted(name="odd"), source)
    both.go(5)
    both.require_healthy()
    faults = [event for event in both.events if event.reason == "WatchFailed"]
    assert [(event.namespace, event.service) for event in faults] == [("chat", "odd")]
    assert both.watcher.watched["chat", "odd"].assessment.signal is Signal.BLIND


def test_a_service_recovers_from_a_fault_of_the_watch():
    odd = promoted(name="odd")
    both = Both(odd)
    both.go()
    odd.command = None  # a message about this service fails
    odd.engine.share = 0.0
    both.go()
    assert [e.service for e in both.events if e.reason == "WatchFailed"] in ([], ["odd"])
    del odd.command
    odd.engine.share = 1.0
    both.go(30)
    both.require_healthy()
    assert both.watcher.watched["chat", "odd"].fault == ""


def test_the_end_of_the_process_is_not_taken_for_an_odd_answer():
    class Interrupted(Service):
        def counters(self):
            raise KeyboardInterrupt

    both = Both(Interrupted(name="odd", disk=disk_after_promotion().copy()))
    with pytest.raises(KeyboardInterrupt):
        both.go(1)


@pytest.mark.parametrize(
    "odd", [*ODD, {"metadata": []}, {"metadata": {"name": [], "namespace": "chat"}}], ids=str
)
def test_an_object_that_is_no_service_hides_no_service_of_a_listing(odd):
    def list_(kind, namespace=None, **_):
        return (
            [*filter(None, [odd if isinstance(odd, dict) else None]), OBJECTS["inferenceservices"]]
            if (kind is INFERENCE_SERVICE)
            else []
        )

    api = OddApi()
    api.list = list_
    assert cluster_services(api, None) == [("chat", "odd", INFERENCE_SERVICE)]


def test_a_first_listing_with_an_odd_answer_is_reported_and_tried_again():
    healthy = promoted()
    watcher, events = watch(healthy)
    listings = [[{}], [{"metadata": healthy}]]
    watcher._services = lambda: [item["metadata"] for item in listings.pop(0)]
    for _ in range(2):
        healthy.memory.context.clock.sleep(60.0)
        watcher.round()
    assert [(event.service, event.text) for event in events] == [("-", "KeyError: 'metadata'")]
    assert ("chat", "svc") in watcher.watched
