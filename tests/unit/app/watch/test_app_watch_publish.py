"""What the watch publishes of each service: when it writes, what kstatus and kubectl read, and what a refusal costs."""

from __future__ import annotations

from watched import BAD, promoted, rounds, watch

from mpctl.app.environment_requests import WatchInstallRequest
from mpctl.app.watch.events import WatchEvent
from mpctl.app.watch.exposition import Publisher
from mpctl.app.watch.install import objects
from mpctl.errors import MpctlError
from mpctl.platform.kubernetes.speculation_status import StatusWriter, since
from mpctl.watch.watch_policy import WatchPolicy


class Writer:
    def __init__(self):
        self.statuses, self.told, self.forgotten, self.why = [], [], [], ""

    def write(self, namespace, service, status):
        if self.why:
            raise MpctlError(self.why)
        self.statuses.append(status)

    def tell(self, namespace, service, reason, message, at, *, warning):
        if self.why:
            raise MpctlError(self.why)
        self.told.append((reason, warning, message))

    def forget(self, namespace, service):
        self.forgotten.append(service)


def published(policy=None):
    """A watched service, a round that also publishes, and where that writes to."""
    session, writer, warnings = promoted(), Writer(), []
    watcher, events = watch(session, policy=policy or WatchPolicy())
    clock = session.memory.context.clock
    publisher = Publisher(
        writer,
        lambda: clock.now().timestamp(),
        lambda: clock.now().strftime("%H:%M:%S"),
        warnings.append,
    )

    def go(count=1):
        for _ in range(count):
            actual_count = len(events)
            rounds(watcher)
            for event in events[actual_count:]:
                publisher.tell(event)
            publisher.publish(list(watcher.watched.values()))

    return session, writer, warnings, go


def statuses(status):
    performs = ("Ready", "Reconciling", "Stalled")
    return {c["type"]: c["status"] for c in status["conditions"] if c["type"] in performs}


def test_a_status_is_written_when_it_changes_and_now_and_then():
    _, writer, _, go = published(WatchPolicy(sentinel_s=0.0))
    go(2)
    assert statuses(writer.statuses[0]) == {
        "Ready": "Unknown",
        "Reconciling": "False",
        "Stalled": "False",
    }
    assert statuses(writer.statuses[-1]) == {
        "Ready": "True",
        "Reconciling": "False",
        "Stalled": "False",
    }
    assert writer.statuses[-1]["reference"] == "rollout-1"
    before = len(writer.statuses)
    go(10)
    assert len(writer.statuses) == before
    go(11)  # five minutes later
    assert len(writer.statuses) == before + 1
    assert writer.forgotten == ["svc"]


def test_a_finding_is_stalled_since_it_began_and_a_warning():
    session, writer, _, go = published()
    go(3)
    session.engine.share = BAD
    go(1)
    found = writer.statuses[-1]
    assert statuses(found) == {"Ready": "False", "Reconciling": "False", "Stalled": "True"}
    began = found["conditions"][0]["lastTransitionTime"]
    go(25)
    assert writer.statuses[-1]["conditions"][0]["lastTransitionTime"] == began
    ((reason, warning, message),) = writer.told
    assert (reason, warning) == ("NoDrafts", True)
    assert "run 'mpctl status svc -n chat'" in message


def test_a_status_that_cannot_be_written_is_reported_and_written_later():
    session, writer, warnings, go = published(WatchPolicy(fall_back=True, confirm_s=0.0))
    go(2)
    writer.why = "the API server answered 500"
    session.engine.share = BAD
    go(1)
    assert warnings == [
        *["event NoDrafts of chat/svc not written: the API server answered 500"],
        *["event FellBack of chat/svc not written: the API server answered 500"],
        *["status of chat/svc not written: the API server answered 500"],
    ]
    assert (
        session.memory.operations()[-1].plan.by == "watch"
    )  # what the watch does depends on none of it
    writer.why = ""
    go(1)
    assert writer.statuses[-1]["spec"] == "none"


def test_conditions_keep_the_time_of_their_last_change():
    first = since([{"type": "Ready", "status": "True"}], [], "1")
    same = since([{"type": "Ready", "status": "True", "reason": "Other"}], first, "2")
    assert same == [
        {"type": "Ready", "status": "True", "reason": "Other", "lastTransitionTime": "1"}
    ]
    assert since([{"type": "Ready", "status": "False"}], same, "3")[0]["lastTransitionTime"] == "3"


class Api:
    """A client that remembers what it was asked to write."""

    def __init__(self):
        self.made = []

    def apply(self, kind, body, *, force=False, subresource=None):
        self.made.append((kind.name, subresource, body))
        return {"metadata": {"uid": "u1", "generation": 3}}

    def create(self, kind, body):
        self.made.append((kind.name, None, body))
        return body


def test_the_object_is_made_once_and_its_status_names_the_generation_that_was_seen():
    api = Api()
    writer = StatusWriter(api, "watch-1")
    conditions = [{"type": "Ready", "status": "True"}]
    for _ in range(2):
        writer.write("ml", "qwen", {"signal": "Healthy", "conditions": conditions})
    assert [(name, sub) for name, sub, _ in api.made] == [
        ("SpeculationStatus", None),
        ("SpeculationStatus", "status"),
        ("SpeculationStatus", "status"),
    ]
    status = api.made[1][2]["status"]
    assert (status["observedGeneration"], status["conditions"][0]["observedGeneration"]) == (3, 3)
    writer.tell("ml", "qwen", "FellBack", "x" * 2000, "2026-01-01T00:00:00+00:00", warning=False)
    event = api.made[-1][2]
    assert (event["involvedObject"]["uid"], event["type"], len(event["message"])) == (
        "u1",
        "Normal",
        1000,
    )


def test_every_field_that_is_written_is_in_the_schema():
    _, writer, _, go = published()
    go(3)
    definition, *_ = objects(WatchInstallRequest(None, "mpctl:1"), "")
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"][
        "properties"
    ]
    assert writer.statuses[-1].keys() <= schema.keys()
    assert (
        writer.statuses[-1]["conditions"][0].keys()
        <= schema["conditions"]["items"]["properties"].keys()
    )


def test_an_event_of_the_watch_itself_has_no_service():
    writer = Writer()
    Publisher(writer, lambda: 0.0, str, str).tell(
        WatchEvent("now", "-", "-", "error", "NotListed", "no answer")
    )
    assert writer.told == []
