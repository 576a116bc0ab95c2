"""Faults of processes by seed: the command, its supervisor or an engine is killed, or the command is stopped while
another one tries. Afterwards the text is as before, one engine runs, and every earlier entry of the ledger is there.

``MPCTL_FAULTS`` cases of ``MPCTL_FAULTS_SEED``, for at most ``MPCTL_FAULTS_S`` seconds.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time

import psutil
import pytest

from tests.local.test_orphans import supervisor_of

ROLLOUT = (
    "rollout",
    "--spec",
    "ngram",
    "--requests",
    "4",
    "--repeats",
    "3",
    "--max-tokens",
    "8",
    "--yes",
)
FAULTS = ("kill", "kill", "supervisor", "engine", "stop")
ENTRIES = 16
seed = int(os.environ.get("MPCTL_FAULTS_SEED", "1"))
limit_s = float(os.environ.get("MPCTL_FAULTS_S", "600"))


def entries(mpctl):
    path = mpctl.service / "ledger.jsonl"
    return path.read_text().splitlines() if path.exists() else []


def begun(mpctl, words, count):
    """A command that has written so many entries, or has ended before."""
    before = len(entries(mpctl))
    command = subprocess.Popen(
        [sys.executable, "-m", "mpctl.cli.main", *words],
        cwd=mpctl.directory,
        env=mpctl.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while command.poll() is None and len(entries(mpctl)) < before + count:
        time.sleep(0.01)
    return command


def meet(mpctl, fault, words, count):
    """Carry a command out and let the fault happen after that entry."""
    if fault == "kill":
        mpctl(*words, kill_after=count, code=None)
        return
    with begun(mpctl, words, count) as command:
        if fault == "stop":
            command.send_signal(signal.SIGSTOP)
            refused = mpctl("rollback", "--yes", code=None)
            assert refused.returncode != 0 or command.poll() is not None, "two commands at once"
            command.send_signal(signal.SIGCONT)
        else:
            victims = mpctl.engines() if fault == "engine" else [supervisor_of(mpctl)]
            for victim in victims[-1:]:
                try:
                    victim.kill()
                except psutil.NoSuchProcess:
                    continue
        command.wait(timeout=300)


def restored(mpctl, before):
    for _ in range(6):
        done = mpctl("rollback", "--yes", code=None)
        if mpctl.live_text() == before and done.returncode in (0, 2):
            return
    raise AssertionError(done.stderr)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_random_faults_of_processes_lose_nothing_and_leave_one_engine(up):
    before, began, number, faults = up.live_text(), time.monotonic(), 0, 0
    while number < int(os.environ.get("MPCTL_FAULTS", "40")) and time.monotonic() - began < limit_s:
        number += 1
        draw = random.Random(f"{seed}/{number}")
        ledger, texts = entries(up), []
        for words in (ROLLOUT, draw.choice([("resume",), ("rollback", "--yes")])):
            fault, count = draw.choice(FAULTS), draw.randrange(1, ENTRIES)
            texts.append(f"{fault} after entry {count} of {words[0]}")
            meet(
                up, fault, (*words, *(("--policy", up.policy()) if words is ROLLOUT else ())), count
            )
            faults += 1
        up(
            "local", "up", "-f", str(up.manifest()), code=None
        )  # a supervisor that was killed comes with any command
        restored(up, before)
        case = f"seed {seed}, case {number}: {', '.join(texts)}"
        sys.stdout.write(f"{case}\n")
        sys.stdout.flush()
        assert entries(up)[: len(ledger)] == ledger, case
        assert None not in [
            operation["ending"] for operation in up.json("history")["operations"]
        ], case
        deadline = time.monotonic() + 90
        while len(up.engines()) != 1 and time.monotonic() < deadline:
            time.sleep(0.1)
        (engine,) = up.engines()
        assert "speculative" not in " ".join(engine.cmdline()), case
        assert json.loads((up.service / "desired.json").read_text())["text"] == before, case
    sys.stdout.write(f"{number} cases, {faults} faults, {time.monotonic() - began:.0f} s\n")
