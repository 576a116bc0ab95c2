"""Runs ``mpctl`` and ends it with SIGKILL right after a ledger entry is on the disk.

``python killed.py WHEN rollout --spec ngram ...``: WHEN is the number of the entry among those that this process
writes (0 never kills), or its event and step, such as ``begun:promote``. The kill is in this test program, not in the
product.
"""

import os
import signal
import sys

from mpctl.cli.main import run
from mpctl.platform.file_store import FileStore

when = sys.argv[1]
append = FileStore.append
written = []


def append_and_die(self, *entries, with_next=False):
    for entry in entries:
        append(self, entry)
        written.append(entry.seq)
        if when in (str(len(written)), f"{entry.event.value}:{entry.step}", f"begun:{entry.then}"):
            os.kill(os.getpid(), signal.SIGKILL)


FileStore.append = append_and_die
sys.exit(run(sys.argv[2:]))
