"""Another user of this machine, who listens on a port in the place of an engine and keeps what is sent there."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psutil
import pytest

NOBODY = 65534
_LISTENS = """
import os, socket, sys, threading
os.setgroups([])
os.setgid(int(sys.argv[2]))
os.setuid(int(sys.argv[2]))
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
while True:
    try:
        listener.bind(("127.0.0.1", int(sys.argv[1])))
        break
    except OSError:
        pass  # the engine has it: it is taken when that is gone
listener.listen(64)
print("listens", flush=True)

def answer(connection):
    with connection:
        print(repr(connection.recv(65536)), flush=True)
        connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\n{}")

while True:
    threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()
"""

needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can start a process of another user"
)


class Squatter:
    """``heard``: what was sent to the port since it listens there."""

    def __init__(self, port, log):
        self.port, self._log = port, log
        with log.open("w") as output:
            # The interpreter may be where the other user cannot read: it becomes that user after its start.
            command = [sys.executable, "-I", "-c", _LISTENS, str(port), str(NOBODY)]
            self.process = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, cwd="/"
            )

    def wait_until_it_listens(self, seconds=60.0):
        deadline = time.monotonic() + seconds
        while "listens" not in self._log.read_text():
            assert self.process.poll() is None, self._log.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert psutil.Process(self.process.pid).uids().real == NOBODY

    @property
    def heard(self):
        return self._log.read_text().partition("listens\n")[2]


@contextmanager
def squatting(port, log, *, wait=True):
    squatter = Squatter(port, log)
    try:
        if wait:
            squatter.wait_until_it_listens()
        yield squatter
    finally:
        squatter.process.kill()
        squatter.process.wait()


@contextmanager
def answering():
    """A server of this user, which answers every GET; its port."""

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()
