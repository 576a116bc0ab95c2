"""Engines that answer /metrics with pages that take long to read: the other services are judged in the same rounds."""

import sys
import threading
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from watched import ACTS, BAD, Service, disk_after_promotion, promoted, rounds, watch

from mpctl.app.session.base import EngineCounters
from mpctl.app.watch.sources import Readers
from mpctl.errors import MpctlError
from mpctl.experiment.counters import CounterError, Counters
from mpctl.platform.http import metrics
from mpctl.watch.assessment import Signal

MIB = 2**20
COUNTER = "vllm:generation_tokens_total"
PAGES = {
    "one-series": COUNTER + '{a="' + "x" * 16 * MIB + '"} 1\n',
    "many-series": "".join(f'{COUNTER}{{engine="{number}"}} 1\n' for number in range(200_000)),
    "many-labels": COUNTER + "{" + ",".join(f'l{number}="1"' for number in range(10**6)) + "} 1\n",
    # The largest pages that are read at all, slow to parse.
    "labels-in-limit": COUNTER
    + "{"
    + ",".join(f'l{number}="1"' for number in range(150_000))
    + "} 1\n",
    "series-in-limit": "".join(f'{COUNTER}{{engine="{number}"}} 1\n' for number in range(40_000)),
    "escapes-in-limit": COUNTER + '{a="' + "\\\\" * (MIB - 64) + '"} 1\n',
}
REASONS = {
    "one-series": "larger than 2 MiB",
    "many-series": "larger than 2 MiB",
    "many-labels": "larger than 2 MiB",
    "labels-in-limit": "64 labels",
    "series-in-limit": "10000 series",
    "escapes-in-limit": "8192 characters",
}
CPU_S = 2.0  # of a round with all of them; 0.2 s on a quiet core


class Fetching(Service):
    """A service whose counters come from a page over HTTP, as those of an engine do."""

    url = ""

    def counters(self):
        try:
            return EngineCounters({self.name: Counters.parse(metrics(self.url))}, {}, 1)
        except (CounterError, MpctlError) as error:
            return EngineCounters({}, {self.name: str(error)}, 1)


@pytest.fixture
def hostile():
    """A service for each page of PAGES."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            page = PAGES[self.path.split("/")[1]].encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            try:
                self.wfile.write(page)
            except OSError:
                return  # the reader has had enough

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    services = []
    for name in PAGES:
        service = Fetching(name=name, disk=disk_after_promotion().copy())
        service.url = f"http://127.0.0.1:{server.server_port}/{name}"
        service.memory.context.clock.sleep(3600.0)
        services.append(service)
    yield services
    server.shutdown()
    server.server_close()


def test_pages_of_16_mb_200_000_series_and_1_000_000_labels_delay_no_other_service(hostile):
    session = promoted()
    watcher, events = watch(
        session, *hostile, readers=Readers(10.0), policy=replace(ACTS, fleet_share=1.0)
    )
    began = time.process_time()
    rounds(watcher, 3)
    cpu_s = (time.process_time() - began) / 3
    sys.stdout.write(f"a round took {cpu_s:.2f} s of CPU\n")
    assert cpu_s < CPU_S
    assert watcher.watched["chat", "svc"].assessment.signal is Signal.HEALTHY
    session.engine.share = BAD
    rounds(watcher, 3)
    assert "FellBack" in [event.reason for event in events]
    blind = {name: watcher.watched["chat", name].assessment for name in PAGES}
    assert {assessment.signal for assessment in blind.values()} == {Signal.BLIND}
    for name, assessment in blind.items():
        assert REASONS[name] in assessment.text, assessment.text
    watcher.close()
