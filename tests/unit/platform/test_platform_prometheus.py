"""Counters of all services by one query, and the watch's own pages."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from mpctl.app.watch.sources import from_prometheus
from mpctl.errors import MpctlError
from mpctl.experiment.counters import Counters
from mpctl.platform import notify, prometheus
from mpctl.watch.reading import window_between


def series(name, value, pod="qwen-a", **more):
    labels = {"__name__": name, "namespace": "ml", "inference_service": "qwen", "pod": pod, **more}
    return {"metric": labels, "value": [1.0, str(value)]}


VECTOR = [
    series("vllm:generation_tokens_total", 100),
    series("vllm:spec_decode_num_drafts_total", 40),
    series("vllm:spec_decode_num_accepted_tokens_per_pos_total", 30, position="0"),
    series("vllm:generation_tokens_total", "NaN", pod="qwen-b"),
]


@pytest.fixture
def server():
    """Answers what ``body`` and ``status`` say, and keeps what it is sent."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.reply()

        def do_POST(self):
            served.sent.append(
                (self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            )
            self.reply()

        def reply(self):
            body = served.body.encode()
            self.send_response(served.status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    served = HTTPServer(("127.0.0.1", 0), Handler)
    served.sent, served.status, served.body = [], 200, ""
    served.url = f"http://127.0.0.1:{served.server_address[1]}"
    thread = threading.Thread(target=served.serve_forever)
    thread.start()
    yield served
    served.shutdown()
    served.server_close()
    thread.join()


def test_pods_are_read_as_if_they_had_answered_themselves():
    counters = prometheus.counters_of(VECTOR)
    assert counters["ml", "qwen"]["qwen-a"] == Counters(
        generation_tokens=100.0, drafts=40.0, per_position=(30.0,)
    )
    assert counters["ml", "qwen"]["qwen-b"] == "vllm:generation_tokens_total is nan"
    assert "duplicate" in prometheus.counters_of([VECTOR[0], VECTOR[0]])["ml", "qwen"]["qwen-a"]


def test_the_query_names_only_what_is_read():
    assert "generation_tokens_total" in prometheus.QUERY
    assert prometheus.QUERY.count("(") == prometheus.QUERY.count(")")


@dataclass
class Named:
    namespace: str
    name: str


def test_one_answer_serves_all_services_and_a_missing_one_is_named(server):
    server.body = json.dumps({"status": "success", "data": {"result": VECTOR}})
    services = [Named("ml", "qwen"), Named("ml", "other")]
    with ThreadPoolExecutor(1) as readers:
        found = from_prometheus(server.url)(services, readers, lambda: 5.0)
    assert set(found["ml", "qwen"].engines) == {"qwen-a"}
    assert (found["ml", "qwen"].failed, found["ml", "qwen"].wanted) == (
        {"qwen-b": "vllm:generation_tokens_total is nan"},
        2,
    )
    assert (found["ml", "other"].engines, found["ml", "other"].at) == ({}, 5.0)


def paths_of(value, path=()):
    """The path of every value in a JSON object."""
    yield path
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inner in items:
        yield from paths_of(inner, (*path, key))


ODD = (None, [], {}, "x", -1, 1e999, True)


@pytest.mark.parametrize("path", list(paths_of(VECTOR[0])), ids=str)
def test_an_odd_series_of_one_service_hides_no_other(server, path):
    healthy = [
        series(name, value, inference_service="other")
        for name, value in (("vllm:generation_tokens_total", 7),)
    ]
    services = [Named("ml", "qwen"), Named("ml", "other")]
    for odd in ODD:
        changed = {"series": json.loads(json.dumps(VECTOR[0]))}
        target = changed
        for key in ("series", *path)[:-1]:
            target = target[key]
        target[("series", *path)[-1]] = odd
        server.body = json.dumps(
            {"status": "success", "data": {"result": [changed["series"], *healthy]}}
        )
        with ThreadPoolExecutor(1) as readers:
            found = from_prometheus(server.url)(services, readers, lambda: 5.0)
        assert found["ml", "other"].engines["qwen-a"].generation_tokens == 7.0
        assert found["ml", "other"].failed == {}


def test_a_series_without_a_value_is_named_with_its_pod():
    read = prometheus.counters_of([{**VECTOR[0], "value": []}])
    assert read["ml", "qwen"] == {
        "qwen-a": "a series of Prometheus cannot be read: IndexError: list index out of range"
    }


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, "no"),
        (503, "{}"),
        (200, '{"status": "error", "error": "too slow"}'),
        (200, '{"status":"success","data":{}}'),
        (200, '{"status":"success","data":[]}'),
        (200, '{"status":"success","data":{"result":1}}'),
    ],
)
def test_an_unusable_answer_leaves_every_service_blind(server, status, body):
    server.status, server.body = status, body
    with pytest.raises(MpctlError, match="Prometheus at"):
        prometheus.read(server.url)
    with ThreadPoolExecutor(1) as readers:
        found = from_prometheus(server.url)([Named("ml", "qwen")], readers, lambda: 0.0)
    assert not found["ml", "qwen"].engines
    (why,) = found["ml", "qwen"].failed.values()
    assert why.startswith("Prometheus at")


def test_a_prometheus_that_does_not_answer_is_a_sentence_and_no_query():
    with ThreadPoolExecutor(1) as readers:
        found = from_prometheus("http://127.0.0.1:9")([Named("ml", "qwen")], readers, lambda: 0.0)
    reading = found["ml", "qwen"]
    interval = window_between(reading, replace(reading, at=1.0), 60.0)
    assert (
        interval.blind
        == "Prometheus at http://127.0.0.1:9 does not answer: [Errno 111] Connection refused"
    )


def test_a_receiver_that_refuses_an_event_is_named(server):
    server.status = 500
    with pytest.raises(MpctlError, match="answered 500"):
        notify.post(server.url, {})


@pytest.mark.parametrize("status", [500, None])
def test_a_receivers_url_is_a_secret_that_no_message_shows(server, status):
    server.status = status or 200
    port = server.url.rpartition(":")[2] if status else "1"
    with pytest.raises(MpctlError) as caught:
        notify.post(f"http://user:PLANTED@127.0.0.1:{port}/services/PLANTED?token=PLANTED", {})
    assert caught.value.message.startswith(f"http://127.0.0.1:{port}")
    assert "PLANTED" not in f"{caught.value.message}{caught.value.hint}"
