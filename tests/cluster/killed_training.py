"""Runs ``mpctl`` with a training Job whose engine stages are emulated, and ends it with SIGKILL right after its N-th
object is in the cluster.

``python -m tests.cluster.killed_training N drafts train ...``; N = 0 never kills. Emulated: what vLLM does in
``collect`` and ``card`` (tests/cluster/training). Real: the objects, the controllers, the way of the prompts, the
trainer's command, and what reaches the volume.
"""

import os
import signal
import sys
from pathlib import Path

from mpctl.cli.main import run
from mpctl.lab.training_job import manifest
from mpctl.platform.kubernetes.api.api_client import Client

limit = int(sys.argv[1])
create = Client.create
created = []


def create_and_die(self, kind, body, *, dry_run=False):
    made = create(self, kind, body, dry_run=dry_run)
    if kind.name in ("PersistentVolumeClaim", "ConfigMap", "Job") and not dry_run:
        created.append(made)
        if len(created) == limit:
            os.kill(os.getpid(), signal.SIGKILL)
    return made


Client.create = create_and_die
folder = Path(__file__).parent / "training"
manifest._PROGRAMS = {stage: folder / f"{stage}.py" for stage in ("collect", "card")}
sys.exit(run(sys.argv[2:]))
