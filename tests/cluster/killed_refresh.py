"""Trains the head of service ``demo`` anew as the watch does, and ends with SIGKILL right after its N-th ledger entry
or object of the training is in the cluster.

``python -m tests.cluster.killed_refresh N TRAFFIC TRAINER``; N = 0 never kills. Emulated is what ``killed_training``
emulates.
"""

import os
import signal
import sys
import time
from pathlib import Path

from mpctl.app.session.base import Place
from mpctl.app.session.open import open_session
from mpctl.cli.terminal import Terminal
from mpctl.lab.drafts.refresh import advance, open_training, propose
from mpctl.lab.training_job import manifest
from mpctl.methods import Spec
from mpctl.platform.kubernetes.api.api_client import Client
from mpctl.platform.kubernetes.object_store import KubernetesStore
from mpctl.rollout.plan import Kind, Plan, Strategy
from mpctl.rollout.revision import Manifest
from mpctl.watch.refresh import RefreshPolicy

limit, traffic, trainer = int(sys.argv[1]), sys.argv[2], sys.argv[3]
append, create = KubernetesStore.append, Client.create
written = []


def count(what):
    written.append(what)
    if len(written) == limit:
        os.kill(os.getpid(), signal.SIGKILL)


def append_and_die(self, *entries, with_next=False):
    append(self, *entries, with_next=with_next)
    if not with_next:
        count(entries)


def create_and_die(self, kind, body, *, dry_run=False):
    made = create(self, kind, body, dry_run=dry_run)
    if kind.name in ("PersistentVolumeClaim", "ConfigMap", "Job") and not dry_run:
        count(made)
    return made


KubernetesStore.append, Client.create = append_and_die, create_and_die
folder = Path(__file__).parent / "training"
manifest._PROGRAMS = {stage: folder / f"{stage}.py" for stage in ("collect", "card")}
session = open_session(Place("kubernetes", None), Terminal.of_environment(yes=True), "demo")
spec = Spec("eagle3", {"model": "org/head", "num_speculative_tokens": 3})
promoted = Plan(
    Kind.ROLLOUT,
    Strategy.SIDE_BY_SIDE,
    Manifest.of("none"),
    Manifest.of("eagle3"),
    spec,
    draft="org/head",
)
policy = RefreshPolicy(
    {"edits": traffic}, trainer=trainer, storage_class="", accepted=("unknown-licence",), apply=True
)
training = open_training(session, policy, promoted)
operation = propose(
    session, training, draft="org/head", cause="watch: WorseDraft: stale", by="watch"
)
while operation.ending is None:
    operation = advance(session, training)
    time.sleep(0.5)
sys.stdout.write(f"{operation.id} {operation.ending.value} {operation.detail}\n")
