"""A fault at calls of a cycle (rollout, fallback by the watch, rollback, prune) on an API server in memory: some of
them here, every one by night. See ``tests/sweep``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sweep.ledger_states import REACHED, UNREACHED, enumerated
from tests.sweep.trips import TRIPS

pytestmark = pytest.mark.exhaustive
ROOT = Path(__file__).parents[3]
# A load Job that its command does not delete.
SABOTAGED = """\
from tests.sweep import __main__
from mpctl.platform.kubernetes.load_job.job_pods import LoadPod
LoadPod.close = lambda _: ""
__main__.main()
"""


def sweep(*arguments):
    """Run Python in a process that has virtual time."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_fault_at_a_call_leaves_the_manifest_exact_and_no_orphan():
    done = sweep("-m", "tests.sweep", "--every", "60")
    assert done.returncode == 0, done.stderr
    assert "orphans: 0; other problems: 0" in done.stdout


@pytest.mark.nightly
@pytest.mark.timeout(7200)
def test_every_fault_at_every_call_leaves_the_manifest_exact_and_no_orphan():
    done = sweep("-m", "tests.sweep")
    sys.stdout.write(done.stdout)
    assert done.returncode == 0, done.stderr
    covered, _, every = done.stdout.partition("calls covered: ")[2].splitlines()[0].split()[:3]
    assert covered == every


def test_the_sweep_finds_an_orphan():
    done = sweep("-c", SABOTAGED)
    assert "Job mpctl-demo-rollout" in done.stderr


def test_every_state_of_the_ledger_is_reached_or_listed_with_the_reason():
    placed = [state for states in REACHED.values() for state in states] + [*UNREACHED]
    assert sorted(placed) == sorted(enumerated())
    assert {*REACHED} == {"cycle", "a fault", *TRIPS}
    assert all(UNREACHED.values())
