"""Runs ``mpctl`` and ends it with SIGKILL when the load Job has answered its N-th block and nothing of it is kept yet.

``python -m tests.cluster.killed_sending N rollout --spec ngram ...``
"""

import os
import signal
import sys

from mpctl.cli.main import run
from mpctl.platform.kubernetes.load_job.job_client import JobClient

limit = int(sys.argv[1])
send = JobClient.send
answered = []


def send_and_die(self, *arguments, key, **options):
    sent = send(self, *arguments, key=key, **options)
    answered.extend([key] if key else [])
    if len(answered) == limit:
        os.kill(os.getpid(), signal.SIGKILL)
    return sent


JobClient.send = send_and_die
sys.exit(run(sys.argv[2:]))
