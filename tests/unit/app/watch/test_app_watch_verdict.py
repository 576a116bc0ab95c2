"""The verdict of a service's last rollout, as pipelines ask the watch for it over HTTP."""

import json

from watched import ACTS, BAD, Service, promoted, rounds, watch

from mpctl.app.watch.exposition import verdict_page
from mpctl.watch.watch_policy import WatchPolicy

PATH = "/v1/services/svc/verdict"


def asked(watcher, path=PATH, sent=None):
    status, text = verdict_page(watcher, path, sent)
    return status, json.loads(text)


def watching(*sessions, policy=None):
    watcher, _ = watch(*sessions, policy=policy or WatchPolicy())
    watcher.round()
    return watcher


def test_a_promotion_that_serves_is_promote():
    status, body = asked(watching(promoted()))
    assert (status, body["verdict"], body["serves"]) == (200, "promote", True)
    assert (body["operation"], body["service"]) == ("rollout-1", "svc")
    assert body["closedAt"] >= body["openedAt"]
    assert len(body["planDigest"]) == 64


def test_a_service_that_never_had_a_rollout_has_no_verdict():
    assert asked(watching(Service()))[1]["verdict"] == "none"


def test_a_fallback_is_not_served_any_more():
    session = promoted()
    watcher = watching(session, policy=ACTS)
    rounds(watcher, 2)
    session.engine.share = BAD
    rounds(watcher, 40)
    status, body = asked(watcher)
    assert (status, body["verdict"], body["serves"]) == (200, "promote", False)


def test_a_webhook_of_flagger_is_refused_unless_what_was_promoted_serves():
    hook = {"name": "svc", "namespace": promoted().namespace, "phase": "Progressing", "metadata": {}}
    good, new = watching(promoted()), watching(Service())
    assert asked(good, "/v1/flagger", json.dumps(hook).encode())[0] == 200
    assert asked(new, "/v1/flagger", json.dumps(hook).encode())[0] == 403
    named = {**hook, "name": "canary", "metadata": {"service": "svc"}}
    assert asked(good, "/v1/flagger", json.dumps(named).encode())[0] == 200
    for sent in (b"", b"[]", b"{}", b"{" * 5000, b"\xff"):
        assert asked(good, "/v1/flagger", sent)[0] == 404


def test_unknown_and_ambiguous_services_are_said():
    other = promoted()
    other.namespace = "other"
    watcher = watching(promoted(), other)
    assert asked(watcher)[0] == 409
    assert asked(watcher, "/v1/services/other/svc/verdict")[1]["namespace"] == "other"
    assert asked(watcher, "/v1/services/none/verdict") == (404, {"error": "service none is not watched"})
    assert verdict_page(watcher, "/v1/services/svc", None) is None
    assert verdict_page(watcher, PATH, b"{}") is None
