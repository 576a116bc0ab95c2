"""Runs ``mpctl`` and ends it with SIGKILL right after its N-th ledger entry is in the cluster.

``python -m tests.cluster.killed N rollout --spec ngram ...``; N = 0 never kills. The kill is in this test program, not
in the product.
"""

import os
import signal
import sys

from mpctl.cli.main import run
from mpctl.platform.kubernetes.object_store import KubernetesStore

limit = int(sys.argv[1])
append = KubernetesStore.append
written = []


def append_and_die(self, *entries, with_next=False):
    reached = entries[: limit - len(written)] if limit else entries
    written.extend(reached)
    append(self, *reached, with_next=with_next and len(written) != limit)
    if len(written) == limit:
        os.kill(os.getpid(), signal.SIGKILL)


KubernetesStore.append = append_and_die
sys.exit(run(sys.argv[2:]))
