"""``matrix`` that stops itself (SIGSTOP) between the check of the Lease and a write: as a laptop that sleeps, a paused
virtual machine, or a request that hangs in a proxy. Whoever runs it continues it with SIGCONT.

``python -m tests.cluster.stopped WRITE rollout ...``. WRITE: the number of the write, or the end of the line
``PUT PATH`` of the first one that is meant. That line is on stderr when it stops. Leases and dry runs do not count.
"""

import importlib
import os
import signal
import sys

from mpctl.platform.kubernetes.api.api_client import Client

wanted = sys.argv[1]
send = Client._send
lines = []


def is_wanted(line):
    return (
        len(lines) == int(wanted)
        if wanted.isdecimal()
        else line.endswith(wanted) and lines.count(line) == 1
    )


def send_later(self, method, path, query, body, content_type):
    if (
        method != "GET"
        and self.guard is not None
        and "/leases" not in path
        and "dryRun" not in query
    ):
        lines.append(f"{method} {path}")
        if is_wanted(lines[-1]):
            sys.stderr.write(f"stopped before {lines[-1]}\n")
            sys.stderr.flush()
            os.kill(os.getpid(), signal.SIGSTOP)
    return send(self, method, path, query, body, content_type)


Client._send = send_later
sys.argv[1] = "0"  # matrix kills after no entry
importlib.import_module("tests.cluster.matrix")
