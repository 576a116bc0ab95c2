"""``mpctl`` for the fault matrix: the measurement is left out, so users need not be told, the gate promotes, and a pod
that no node accepts is waited for 10 s instead of 60; everything else is the product.

``python -m tests.cluster.matrix N rollout ...`` ends with SIGKILL right after the N-th ledger entry; 0 never.
"""

import os
import signal
import sys
from dataclasses import replace

from mpctl.app.operate import rollout_place
from mpctl.cli.main import run
from mpctl.experiment.users import UserLoad
from mpctl.gate.rule import Outcome
from mpctl.gate.verdict import Verdict
from mpctl.platform.kubernetes.object_store import KubernetesStore
from mpctl.platform.kubernetes.service import reader
from mpctl.rollout import runner, sequences
from mpctl.rollout.operation import NoResult
from mpctl.rollout.steps.measure import JudgementResult

limit = int(sys.argv[1])
append = KubernetesStore.append
written = []


def append_and_die(self, *entries, with_next=False):
    reached = entries[: limit - len(written)] if limit else entries
    written.extend(reached)
    append(self, *reached, with_next=with_next and len(written) != limit)
    if len(written) == limit:
        os.kill(os.getpid(), signal.SIGKILL)


def measured(context, operation):
    return NoResult()


def judged(context, operation):
    return JudgementResult(Verdict(Outcome.PROMOTE, (), summary="as the test wants"))


def sequence(plan, *, replaces_pods):
    acts = {"measure": measured, "judge": judged}
    steps = sequences.sequence(plan, replaces_pods=replaces_pods)
    return tuple(
        replace(step, act=acts.get(step.name.partition("-")[0], step.act)) for step in steps
    )


rollout_place.read_users = lambda session, known, wanted: UserLoad(
    0.0, 1, seen=False, window_s=known.request.traffic.users_window_s
)
reader.UNSCHEDULABLE_S = 10.0  # no node is about to join the test cluster
KubernetesStore.append = append_and_die
runner.sequence = sequence
sys.exit(run(sys.argv[2:]))
