"""Runs ``mpctl`` and ends it with SIGKILL right after its N-th ledger entry is on the disk.

``python killed.py N rollout --spec ngram ...``; N = 0 never kills. The kill is in this test program, not in the
product.
"""

import os
import signal
import sys

from mpctl.cli.main import run
from mpctl.platform.local.store import LocalStore

limit = int(sys.argv[1])
append = LocalStore.append
written = []


def append_and_die(self, entry):
    append(self, entry)
    written.append(entry.seq)
    if len(written) == limit:
        os.kill(os.getpid(), signal.SIGKILL)


LocalStore.append = append_and_die
sys.exit(run(sys.argv[2:]))
