"""The verdict of a service's last rollout, as pipelines ask the watch for it over HTTP."""

import json

from watched import ACTS, BAD, Service, promoted, rounds, watch

from mpctl.app.watch.verdicts import VerdictPages
from mpctl.errors import MpctlError

PATH = "/v1/services/svc/verdict"


def pages(*sessions):
    return VerdictPages(lambda: sessions, lambda: 0.0)


def asked(verdicts, path=PATH, sent=None):
    status, text = verdicts.page(path, sent)
    return status, json.loads(text)


def test_a_promotion_that_serves_is_promote():
    status, body = asked(pages(promoted()))
    assert (status, body["verdict"], body["serves"]) == (200, "promote", True)
    assert (body["operation"], body["service"]) == ("rollout-1", "svc")
    assert body["closedAt"] >= body["openedAt"]
    assert len(body["planDigest"]) == 64


def test_a_service_that_never_had_a_rollout_has_no_verdict():
    assert asked(pages(Service()))[1]["verdict"] == "none"


def test_what_was_rolled_back_or_fell_back_serves_no_more():
    session = promoted()
    watcher, _ = watch(session, policy=ACTS)
    rounds(watcher, 2)
    session.engine.share = BAD
    rounds(watcher, 40)
    status, body = asked(pages(session))
    assert (status, body["verdict"], body["serves"]) == (200, "promote", False)


def test_a_requester_loads_the_ledger_once_in_five_seconds():
    opened = []
    times = iter([0.0, 4.0, 6.0])
    verdicts = VerdictPages(lambda: opened.append(1) or [promoted()], lambda: next(times))
    assert [asked(verdicts)[0] for _ in range(3)] == [200, 200, 200]
    assert len(opened) == 2


def test_a_cluster_that_cannot_be_read_is_no_verdict():
    def refuse():
        raise MpctlError("the API server does not answer")

    status, body = asked(VerdictPages(refuse, lambda: 0.0))
    assert (status, body) == (503, {"error": "the API server does not answer"})


def test_a_webhook_of_flagger_is_refused_unless_what_was_promoted_serves():
    hook = {"name": "svc", "namespace": promoted().namespace, "phase": "Progressing", "metadata": {}}
    good, new = pages(promoted()), pages(Service())
    assert asked(good, "/v1/flagger", json.dumps(hook).encode())[0] == 200
    assert asked(new, "/v1/flagger", json.dumps(hook).encode())[0] == 403
    named = {**hook, "name": "canary", "metadata": {"service": "svc"}}
    assert asked(good, "/v1/flagger", json.dumps(named).encode())[0] == 200
    for sent in (b"", b"[]", b"{}", b"{" * 5000, b"\xff"):
        assert asked(good, "/v1/flagger", sent)[0] == 404


def test_unknown_and_ambiguous_services_are_said():
    other = promoted()
    other.namespace = "other"
    verdicts = pages(promoted(), other)
    assert asked(verdicts)[0] == 409
    assert asked(verdicts, "/v1/services/other/svc/verdict")[1]["namespace"] == "other"
    assert asked(verdicts, "/v1/services/none/verdict")[0] == 404
    assert verdicts.page("/v1/services/svc", None) is None
    assert verdicts.page(PATH, b"{}") is None
