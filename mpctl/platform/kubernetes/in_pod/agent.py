"""The load client of a cluster, asked over a loopback port.

Runs in a Job's pod with ``stream.py`` and ``paced.py``; imports nothing of mpctl. It listens on
127.0.0.1 only, which is where the API server's port-forward arrives: nothing else of the cluster reaches it. The load
itself goes from here to the engine's pod.

``POST /blocks/KEY`` takes ``{"address", "token", "metrics", "load"}``: the engine, its key, its address for counters
and the arguments of ``send_block``. A key that is known is not sent again, unless its block failed; with another body
it is refused with 409. ``GET /blocks/KEY?wait=S`` answers 202 while it runs, then ``{"result", "before", "after"}`` or
``{"error"}``: the engine's counters are read here, right around the block, so that a block is whole also for a command
that was killed meanwhile and asks again. Such a command asks for every block whose record was not sealed, so all are
kept that fit into ``KEPT_BYTES``. ``POST /paced``, ``GET /paced`` and ``DELETE /paced`` start, ask and end the server
of known timing. Without a request for ``IDLE`` seconds the process ends, and the Job is complete.

``agent.py PORT IDLE OWNER``. OWNER is the sha256 of the ``Authorization`` header that every request has to bring: who
may forward the port but does not know it gets 403, and keeps nothing alive.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import hmac
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections import OrderedDict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from stream import LoadTarget, send_block  # type: ignore[import-not-found,unused-ignore]

REQUEST_BYTES = 64 * 2**20  # prompts of one block
REFUSED_BYTES = 64 * 2**10  # read of a request that is refused
ANSWER_BYTES = 16 * 2**20
METRICS_BYTES = 2 * 2**20
KEPT_BYTES = 128 * 2**20  # compressed; the pod may use 4 GiB
HERE = Path(__file__).parent


class BlockRegister:
    """The requested blocks, run one after the other. ``used``: the time of the last request."""

    def __init__(self) -> None:
        self.used = time.monotonic()
        self.working = 0
        self._known: OrderedDict[str, bytes | None] = (
            OrderedDict()
        )  # compressed; None while it is sent
        self._failed: set[str] = set()
        self._digests: dict[str, str] = {}  # of each block's body
        self._waiting: queue.Queue[tuple[str, dict[str, Any]]] = queue.Queue()
        self._changed = threading.Condition()
        self._paced: subprocess.Popen[str] | None = None
        self._port = ""
        threading.Thread(target=self._work, daemon=True).start()

    def add(self, key: str, block: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Take a block on, unless it is known and did not fail; return status and answer."""
        # A command that continues another has a new salt.
        unsalted = {**block, "load": {**block["load"], "salt": ""}}
        digest = hashlib.sha256(json.dumps(unsalted, sort_keys=True).encode()).hexdigest()
        with self._changed:
            if key in self._known and key not in self._failed:
                same = self._digests[key] == digest
                return (202, {}) if same else (409, {"error": "another block has this key"})
            self._known[key] = None
            self._digests[key] = digest
            self._failed.discard(key)
            self.working += 1
        self._waiting.put((key, block))
        return 202, {}

    def find(self, key: str, wait_s: float) -> tuple[int, dict[str, Any]]:
        """Return status and answer of a block after at most ``wait_s`` seconds."""
        with self._changed:
            if key not in self._known:
                return 404, {"error": "no such block"}
            self._changed.wait_for(lambda: self._known[key] is not None, wait_s)
            packed = self._known[key]
        return (202, {}) if packed is None else (200, json.loads(gzip.decompress(packed)))

    def _work(self) -> None:
        while True:
            key, block = self._waiting.get()
            try:
                answer = self._send(key, block)
            except (OSError, ValueError) as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            packed = gzip.compress(json.dumps(answer).encode(), compresslevel=3)
            with self._changed:
                self._known[key] = packed
                self._known.move_to_end(key)
                if "error" in answer:
                    self._failed.add(key)
                self.working -= 1
                self._forget_oldest(key)
                self._changed.notify_all()
            self.used = time.monotonic()

    def _forget_oldest(self, newest: str) -> None:
        done = {key: len(packed) for key, packed in self._known.items() if packed is not None}
        size = sum(done.values())
        for key, length in done.items():
            if size <= KEPT_BYTES or key == newest:
                return
            size -= length
            del self._known[key]
            del self._digests[key]
            self._failed.discard(key)

    def _send(self, key: str, block: dict[str, Any]) -> dict[str, Any]:
        before, count = scrape(block), len(block["load"]["bodies"])
        sys.stderr.write(f"block {key}: {count} requests to {block['address']}\n")
        result = asyncio.run(
            send_block(LoadTarget(block["address"], block["token"]), **block["load"])
        )
        return {"result": result, "before": before, "after": scrape(block)}

    # The server of known timing

    def pace(self, pace: dict[str, Any]) -> str:
        """Start it, or find it started; its port."""
        if self._paced is None:
            self._paced = subprocess.Popen(
                [sys.executable, str(HERE / "paced.py"), json.dumps(pace)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            assert self._paced.stdout is not None
            self._port = self._paced.stdout.readline().strip()
        return self._port

    def truth(self) -> Any:
        """Return the times of the requests sent."""
        return json.loads(fetch(f"http://127.0.0.1:{self._port}/truth", {}))

    def unpace(self) -> None:
        """Stop the paced engine."""
        if self._paced is not None:
            self._paced.communicate()  # closing its input is what ends it
        self._paced = None


def scrape(block: dict[str, Any]) -> str:
    """The engine's counters; empty where none are asked for."""
    if not block["metrics"]:
        return ""
    headers = {"Authorization": f"Bearer {block['token']}"} if block["token"] else {}
    try:
        return fetch(block["metrics"], headers, METRICS_BYTES).decode()
    except OSError as error:
        raise OSError(f"{block['metrics']} does not answer: {error}") from error


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """An engine's key and counters are for the given address alone."""

    def redirect_request(self, *_: Any) -> None:
        """Refuse: the answer stays the redirect itself, an HTTPError."""


OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}), NoRedirect)


def fetch(url: str, headers: dict[str, str], limit: int = ANSWER_BYTES) -> bytes:
    """GET without proxies and redirects, of at most ``limit`` bytes."""
    with OPENER.open(urllib.request.Request(url, headers=headers), timeout=30.0) as answer:
        body: bytes = answer.read(limit + 1)
    if len(body) > limit:
        raise OSError(f"the answer is larger than {limit // 2**20} MiB")
    return body


class AgentHandler(BaseHTTPRequestHandler):
    """The requests; see the module."""

    blocks: BlockRegister
    owner: str
    protocol_version = "HTTP/1.0"  # a connection of its own each: so is a port-forward's

    def do_GET(self) -> None:
        """Ready, a block, or the truth."""
        if not self._is_owner():
            return
        split = urlsplit(self.path)
        if split.path == "/ready":
            self._respond(200, {})
        elif split.path == "/paced":
            self._respond(200, self.blocks.truth())
        else:
            wait_s = float(parse_qs(split.query).get("wait", ["0"])[0])
            self._respond(*self.blocks.find(split.path.removeprefix("/blocks/"), wait_s))

    def do_POST(self) -> None:
        """A block or a pace."""
        if not self._is_owner():
            return
        length = self.headers.get("Content-Length") or "0"
        if not length.isascii() or not length.isdecimal() or int(length) > REQUEST_BYTES:
            self._respond(413, {"error": f"a request has at most {REQUEST_BYTES // 2**20} MiB"})
            return
        try:
            body = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError) as error:
            self._respond(400, {"error": f"the request is not JSON: {error}"})
            return
        if self.path == "/paced":
            self._respond(200, {"port": self.blocks.pace(body)})
        else:
            self._respond(*self.blocks.add(self.path.removeprefix("/blocks/"), body))

    def do_DELETE(self) -> None:
        """No pace."""
        if self._is_owner():
            self.blocks.unpace()
            self._respond(200, {})

    def _is_owner(self) -> bool:
        """Return whether the request is from the Job's operator; refuse it if not."""
        sent = self.headers.get("Authorization") or ""
        if hmac.compare_digest(hashlib.sha256(sent.encode()).hexdigest(), self.owner):
            self.blocks.used = time.monotonic()
            return True
        length = self.headers.get("Content-Length") or "0"
        if (
            length.isascii() and length.isdecimal()
        ):  # an unread body resets the connection before the answer arrives
            self.rfile.read(min(int(length), REFUSED_BYTES))
        self._respond(403, {"error": "this load client belongs to another command"})
        return False

    def _respond(self, status: int, record: Any) -> None:
        packed = gzip.compress(json.dumps(record).encode(), compresslevel=3)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(packed)))
        self.end_headers()
        self.wfile.write(packed)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """The pod's log has blocks and errors alone."""


def end_when_idle(blocks: BlockRegister, idle_s: float) -> None:
    """End the process once nobody asked for so long."""
    while time.monotonic() - blocks.used < idle_s or blocks.working:
        time.sleep(min(1.0, idle_s))
    os._exit(0)


def main(port: int, idle_s: float, owner: str) -> None:
    """Listen until nobody asks any more."""
    # The first process of a container is not ended by a signal it does not handle.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    AgentHandler.blocks = blocks = BlockRegister()
    AgentHandler.owner = owner
    server = ThreadingHTTPServer(("127.0.0.1", port), AgentHandler)
    server.daemon_threads = True
    threading.Thread(target=end_when_idle, args=(blocks, idle_s), daemon=True).start()
    server.serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3])
