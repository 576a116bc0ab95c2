"""The watch's own requests through the real HTTP client: an API server that is busy, broken or contradicts."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from kubernetes.client import Configuration
from watched import promoted, rounds, watch

from mpctl.app.watch.exposition import Publisher
from mpctl.errors import MpctlError
from mpctl.platform.kubernetes.api.api_client import Client
from mpctl.platform.kubernetes.api.connection import ClusterConnection
from mpctl.platform.kubernetes.api.kinds import INFERENCE_SERVICE
from mpctl.platform.kubernetes.speculation_status import StatusWriter

OBJECT = {
    "metadata": {"name": "svc", "uid": "u1", "generation": 1, "resourceVersion": "1"},
    "items": [],
}


class Api:
    """Answers each request with the next of ``codes``, then with 200."""

    def __init__(self):
        self.codes, self.requests = [], []
        api = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self):
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                api.requests.append((self.command, self.path.partition("?")[0]))
                code = api.codes.pop(0) if api.codes else 200
                body = json.dumps(
                    OBJECT if code == 200 else {"kind": "Status", "code": code, "message": "no"}
                ).encode()
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self):
                self.answer()

            def do_PATCH(self):
                self.answer()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def client(self):
        settings = Configuration(host=f"http://127.0.0.1:{self.server.server_port}")
        return Client(ClusterConnection(settings, "chat", "test"), sleep=lambda _: None)

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def api():
    actual_api = Api()
    yield actual_api
    actual_api.close()


def published(api):
    session, warnings = promoted(), []
    watcher, _ = watch(session)
    clock = session.memory.context.clock
    writer = StatusWriter(api.client(), "watch-1")
    publisher = Publisher(writer, lambda: clock.now().timestamp(), lambda: "now", warnings.append)

    def go():
        rounds(watcher)
        publisher.publish(list(watcher.watched.values()))

    return go, warnings


@pytest.mark.parametrize("codes", [[429], [429, 429], [500], [503, 429]])
def test_a_busy_server_gets_the_same_write_again(api, codes):
    go, warnings = published(api)
    api.codes = list(codes)
    go()
    assert warnings == []
    paths = [path for _, path in api.requests]
    assert len(paths) == 2 + len(codes)
    assert paths[-1].endswith("/namespaces/chat/speculationstatuses/svc/status")


@pytest.mark.parametrize("code", [409, 403, 404])
def test_a_refused_write_is_reported_and_made_again_with_the_next_round(api, code):
    go, warnings = published(api)
    api.codes = [200, code]
    go()
    (warning,) = warnings
    assert warning.startswith("status of chat/svc not written: ")
    before = len(api.requests)
    go()
    assert len(api.requests) == before + 2  # the object, too: somebody may have deleted it
    assert len(warnings) == 1


def test_services_that_cannot_be_listed_are_reported_and_those_known_stay_watched(api):
    session, client = promoted(), api.client()
    watcher, events = watch(session)

    def services():
        client.forget_reads()  # a minute has gone by
        client.list(INFERENCE_SERVICE, "chat")
        return [session]

    watcher._services = services
    rounds(watcher)
    watcher.round()
    api.codes = [500] * 20
    rounds(watcher, 5)  # listed once a minute
    assert [e.reason for e in events] == ["NotListed"]
    assert ("chat", "svc") in watcher.watched
    api.codes = [500] * 20
    with pytest.raises(MpctlError):
        services()
