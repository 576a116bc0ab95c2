"""The verdict of a service's last rollout, as pipelines ask the watch for it over HTTP."""

import json
import threading

from hypothesis import given
from hypothesis import strategies as st
from watched import ACTS, BAD, Service, promoted, rounds, watch

from mpctl.app.watch.verdicts import VerdictPages
from mpctl.errors import MpctlError

PATH = "/v1/services/svc/verdict"
FLAGGER = "/v1/flagger"
HOOK = json.dumps(
    {"name": "svc", "namespace": "chat", "phase": "Progressing", "metadata": {}}
).encode()


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Watching:
    """Pages over sessions, and how often these were listed and read."""

    def __init__(self, *sessions):
        self.sessions, self.clock, self.warnings, self.requests, self.why = (
            sessions,
            Clock(),
            [],
            0,
            "",
        )
        self.pages = VerdictPages(self.listed, self.clock, self.warnings.append)
        for session in sessions:
            self.count_readings(session)

    def count_readings(self, session):
        entries, service = session.store.entries, session.service
        session.store.entries = lambda: self.request(entries)
        session.service = lambda: self.request(service)

    def request(self, read):
        self.requests += 1
        if self.why:
            raise MpctlError(self.why)
        return read()

    def listed(self):
        return self.request(lambda: self.sessions)

    def after(self, seconds=0.0):
        self.clock.now += seconds
        self.pages.read_due()
        return self

    def asked(self, path=PATH, sent=None):
        status, text = self.pages.page(path, sent)
        return status, json.loads(text)


def asked(*sessions):
    return Watching(*sessions).after().asked()


def test_a_promotion_that_serves_is_promote():
    status, body = asked(promoted())
    assert (status, body["verdict"], body["serves"]) == (200, "promote", True)
    assert (body["operation"], body["service"]) == ("rollout-1", "svc")
    assert body["closedAt"] >= body["openedAt"]
    assert len(body["planDigest"]) == 64


def test_a_service_that_never_had_a_rollout_has_no_verdict():
    assert asked(Service())[1]["verdict"] == "none"


def test_what_was_rolled_back_or_fell_back_serves_no_more():
    session = promoted()
    watcher, _ = watch(session, policy=ACTS)
    rounds(watcher, 2)
    session.engine.share = BAD
    rounds(watcher, 40)
    status, body = asked(session)
    assert (status, body["verdict"], body["serves"]) == (200, "promote", False)


def test_a_setting_that_was_edited_out_of_the_service_serves_no_more_within_a_minute():
    session = promoted()
    watching = Watching(session).after()
    assert watching.asked(FLAGGER, HOOK)[0] == 200
    edited = session.service().with_speculation(None)
    session.service = lambda: edited
    assert watching.after(60.0).asked(FLAGGER, HOOK)[0] == 403
    assert watching.asked()[1]["serves"] is False


def test_no_requester_causes_a_reading_whatever_name_it_asks_for():
    watching = Watching(promoted()).after()
    before = watching.requests
    for number in range(1000):
        assert watching.asked(f"/v1/services/random-{number}/verdict")[0] == 404
        assert watching.asked()[0] == 200
        assert watching.asked(FLAGGER, HOOK)[0] == 200
    assert watching.requests == before


def test_an_answer_says_how_old_it_is_and_none_is_older_than_a_minute():
    watching = Watching(promoted()).after()
    watching.clock.now = 9.0
    assert watching.asked()[1]["readSecondsAgo"] == 9.0
    watching.why = "the API server does not answer"
    assert watching.after(51.0).asked()[0] == 200
    status, body = watching.after(1.0).asked()
    assert (status, body) == (503, {"error": "the service was last read 61 s ago"})
    assert watching.asked(FLAGGER, HOOK)[0] == 503
    assert watching.warnings == [
        "verdicts: services cannot be listed: the API server does not answer",
        "verdict of chat/svc cannot be read: the API server does not answer",
    ]
    watching.why = ""
    assert watching.after(60.0).asked()[0] == 200


def test_before_the_first_reading_there_is_no_verdict():
    watching = Watching(promoted())
    assert (watching.asked()[0], watching.asked(FLAGGER, HOOK)[0]) == (503, 503)
    watching.why = "no answer"
    assert watching.after().asked()[0] == 503


def test_one_service_that_cannot_be_read_hides_no_other():
    odd = promoted(name="odd")
    watching = Watching(odd, promoted())
    odd.store.entries = lambda: [{}]
    assert watching.after().asked()[0] == 200
    assert watching.asked("/v1/services/odd/verdict")[0] == 503
    (warning,) = watching.warnings
    assert warning.startswith("verdict of chat/odd cannot be read: AttributeError: ")


def test_a_webhook_of_flagger_is_refused_unless_what_was_promoted_serves():
    good, new = Watching(promoted()).after(), Watching(Service()).after()
    assert good.asked(FLAGGER, HOOK)[0] == 200
    assert new.asked(FLAGGER, HOOK)[0] == 403
    named = {"name": "canary", "namespace": "chat", "metadata": {"service": "svc"}}
    assert good.asked(FLAGGER, json.dumps(named).encode())[0] == 200
    for sent in (b"", b"[]", b"{}", b"{" * 5000, b"\xff"):
        assert good.asked(FLAGGER, sent)[0] == 404


def test_wrong_and_ambiguous_names_learn_of_no_service():
    other = promoted()
    other.namespace = "elsewhere"
    watching = Watching(promoted(), other).after()
    answers = {
        json.dumps(watching.asked(f"/v1/services/{name}/verdict"))
        for name in ("svc", "none", "chat/none")
    }
    (answer,) = answers
    assert answer.startswith("[404, ")
    assert not [name for name in ("chat", "elsewhere", "svc") if name in answer]
    assert watching.asked("/v1/services/elsewhere/svc/verdict")[1]["namespace"] == "elsewhere"
    assert watching.pages.page("/v1/services/svc", None) is None
    assert watching.pages.page(PATH, b"{}") is None


def test_services_are_read_while_the_watch_waits_to_lead():
    read = threading.Event()
    pages = VerdictPages(lambda: read.set() or [], Clock(), lambda _: None)
    with pages.reading():
        assert read.wait(30.0)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.sampled_from(["name", "namespace", "metadata", "service"]), inner)
    ),
)
WATCHING = Watching(promoted()).after()


@given(st.binary() | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_body_of_a_webhook_is_answered_with_a_refusal(sent):
    assert WATCHING.asked(FLAGGER, sent)[0] in (403, 404)


@given(st.text() | st.text().map(lambda name: f"/v1/services/{name}/verdict"))
def test_any_path_is_answered_without_a_reading(path):
    before = WATCHING.requests
    page = WATCHING.pages.page(path, None)
    assert page is None or page[0] == 404 or path in (PATH, "/v1/services/chat/svc/verdict")
    assert WATCHING.requests == before
