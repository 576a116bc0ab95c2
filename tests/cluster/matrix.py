"""``mpctl`` for the fault matrix: the measurement is left out, the gate promotes, and a pod that no node accepts is
waited for 10 s instead of 60; everything else is the product.

``python -m tests.cluster.matrix N rollout ...`` ends with SIGKILL right after the N-th ledger entry; 0 never.
"""

import os
import signal
import sys

from mpctl.cli.main import run
from mpctl.gate.outcome import Outcome
from mpctl.gate.verdict import Verdict
from mpctl.platform.kubernetes.service import reader
from mpctl.platform.kubernetes.store import KubernetesStore
from mpctl.rollout import sequences
from mpctl.rollout.operation import Nothing
from mpctl.rollout.steps.judge import Judged

limit = int(sys.argv[1])
append = KubernetesStore.append
written = []


def append_and_die(self, *entries):
    reached = entries[: limit - len(written)] if limit else entries
    append(self, *reached)
    written.extend(reached)
    if len(written) == limit:
        os.kill(os.getpid(), signal.SIGKILL)


def measured(context, operation):
    return Nothing()


def judged(context, operation):
    return Judged(Verdict(Outcome.PROMOTE, (), summary="as the test wants"))


reader.UNSCHEDULABLE_S = 10.0  # no node is about to join the test cluster
KubernetesStore.append = append_and_die
for every in sequences.STEPS.values():
    for name in every:
        if name.startswith("measure"):
            every[name] = measured
        elif name == "judge":
            every[name] = judged
sys.exit(run(sys.argv[2:]))
