"""Runs ``mpctl`` and ends it with SIGKILL when the load Job has answered its N-th block and nothing of it is kept yet.
Prints the lines that the pod logs of these blocks.

``python -m tests.cluster.killed_sending N rollout --spec ngram ...``
"""

import hashlib
import os
import signal
import sys

from mpctl.cli.main import run
from mpctl.platform.kubernetes.load_job.job_client import JobClient

limit = int(sys.argv[1])
send = JobClient.send
answered = []


def send_and_die(self, endpoint, order, counters):
    sent = send(self, endpoint, order, counters)
    if order.key:
        answered.append(order.key)
        name = hashlib.sha256(f"{order.key}\n{endpoint.address}".encode()).hexdigest()[:20]
        sys.stdout.write(f"block {name}: {len(order.prompts)} requests to {endpoint.address}\n")
        sys.stdout.flush()
    if len(answered) == limit:
        os.kill(os.getpid(), signal.SIGKILL)
    return sent


JobClient.send = send_and_die
sys.exit(run(sys.argv[2:]))
