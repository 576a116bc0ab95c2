"""Faults drawn by seed over rollouts and rollbacks on an API server that misbehaves: kills, stops, refusals and lost
answers at any call, stolen Leases. After each case the service is byte for byte as before, nothing is left of the
candidate, and every earlier entry of the ledger is still there.

Refusals are also tried call by call: each request of a rollout and its rollback is answered with 409 (writes), 429 or
500.

``MPCTL_FAULTS`` cases (nightly; 2 otherwise) of ``MPCTL_FAULTS_SEED``, from number ``MPCTL_FAULTS_FIRST`` on, for at
most ``MPCTL_FAULTS_S`` seconds. Each case prints what it drew, so one that fails is repeated with its seed and number.
"""

import os
import random
import signal
import sys
import time

import pytest

from .objects import ledger_entries
from .test_faults_matrix import ROLLOUT, steal
from .test_faults_outside import Served

ACTIONS = (409, 429, 500, 503, "timeout", "drop", "refuse")
VERBS = ("write", "read", "create", "update", "patch", "delete", "get", "list", "*")
STRIDE = 16  # requests from one that is refused to the next, so that a command gets on
ENTRIES = 14  # of a rollout without a measurement, and of the rollback after it
TRIES = 8
WATCH_S = 120.0
seed = int(os.environ.get("MPCTL_FAULTS_SEED", "1"))
first_number = int(os.environ.get("MPCTL_FAULTS_FIRST", "1"))
limit_s = float(os.environ.get("MPCTL_FAULTS_S", "840"))


class Drawn:
    """What a case does, drawn from its seed and number. ``end``: how the rollout ends: it is killed or stopped after an
    entry of its own, or is left alone. ``faults``: of the proxy, from the beginning; ``later``: from then on."""

    def __init__(self, number):
        draw = random.Random(f"{seed}/{number}")
        self.end = draw.choices(["kill", "stop", "none"], [6, 1, 3])[0]
        self.entry = draw.randrange(1, ENTRIES)
        self.faults, self.later = (
            [self.fault(draw) for _ in range(draw.randrange(1, 3))] for _ in range(2)
        )
        self.theft = draw.random() < 0.25
        self.way_on = draw.choice([("resume", "demo"), ("rollback", "demo", "--yes")])

    @staticmethod
    def fault(draw):
        """A fault of the proxy."""
        return {
            "action": draw.choice(ACTIONS),
            "verb": draw.choice(VERBS),
            "nth": draw.randrange(1, 25),
            "times": draw.randrange(1, 4),
        }

    def __str__(self):
        texts = [
            f"{f['action']} on {f['verb']} {f['nth']}+{f['times']}"
            for f in (*self.faults, *self.later)
        ]
        end = f"{self.end} after entry {self.entry}" if self.end != "none" else "not interrupted"
        return ", ".join([end, *texts, *(["stolen lease"] if self.theft else []), self.way_on[0]])


class Refusals:
    """A case that is not interrupted, in which every so many-th request is refused, from the ``first`` on."""

    end, entry, later, theft, way_on = "none", 0, (), False, ("rollback", "demo", "--yes")

    def __init__(self, action, first):
        verb = "write" if action == 409 else "*"  # no API server answers a read with 409
        self.faults = [{"action": action, "verb": verb, "nth": first, "every": STRIDE}]
        self.told = f"{action} to request {first} and every {STRIDE} later"

    def __str__(self):
        return self.told


class Case:
    """One case on a service; ``fired``: how many faults it met; ``refused``: how many requests they refused."""

    def __init__(self, served, drawn):
        self.served, self.drawn = served, drawn
        self.proxy, self.fired, self.refused = served.cluster.proxy, 0, 0

    def run(self):
        """Carry it out; return what is wrong at its end, empty if nothing is."""
        drawn, served = self.drawn, self.served
        before = ledger_entries(served.ledger())
        faults = [self.proxy.add(**fault) for fault in drawn.faults]
        stopped = self._begin()
        if drawn.theft:
            steal(served.namespace)
            self.fired += 1
        faults += [self.proxy.add(**fault) for fault in drawn.later]
        done = self._until_it_succeeds(drawn.way_on)
        done = self._until_it_succeeds(("rollback", "demo", "--yes"))
        self.fired += sum(fault.fired > 0 for fault in faults)
        self.refused += sum(fault.fired for fault in faults)
        self.proxy.clear()
        if stopped is not None:
            stopped.send_signal(signal.SIGCONT)
            try:
                stopped.communicate(timeout=WATCH_S)
            finally:
                stopped.kill()
            done = self._until_it_succeeds(("rollback", "demo", "--yes"))
        return "; ".join(self._wrong(before, done))

    def _begin(self):
        """The rollout, up to its interruption; its process when that is stopped."""
        drawn, run = self.drawn, self.served.run
        if drawn.end == "stop":
            process = run.start(*ROLLOUT, "demo")
            end, entries = time.monotonic() + WATCH_S, len(self.served.ledger())
            while process.poll() is None and len(self.served.ledger()) < entries + drawn.entry:
                assert time.monotonic() < end
            if process.poll() is None:
                process.send_signal(signal.SIGSTOP)
                self.fired += 1
                return process
            process.communicate()
            return None
        done = run(
            *ROLLOUT, "demo", kill_after=drawn.entry if drawn.end == "kill" else 0, code=None
        )
        self.fired += done.returncode == -signal.SIGKILL
        return None

    def _until_it_succeeds(self, command):
        """``resume`` may have nothing to continue, ``rollback`` nothing to take back; waits for a stopped holder."""
        end = time.monotonic() + WATCH_S
        for _ in range(TRIES):
            done = self.served.run(*command, code=None)
            while done.returncode == 3 and "is held by" in done.stderr and time.monotonic() < end:
                done = self.served.run(*command, code=None)
            if done.returncode in (0, 2):
                return done
        return done

    def _wrong(self, before, done):
        served = self.served
        if served.text() != served.before:
            yield f"the manifest is not as before: {done.returncode} {done.stderr[-500:]}"
        if served.client.find("isvc", "demo-candidate") is not None:
            yield "a candidate is left"
        if served.client.list("jobs"):
            yield "a Job is left"
        after = ledger_entries(served.ledger())
        if after[: len(before)] != before:
            yield "an earlier entry of the ledger is lost"
        operations = served.run.json("history", "demo")["operations"]
        yield from (f"{op['id']} is not ended" for op in operations if op["ending"] is None)
        served.namespace.ready()
        if served.speculates():
            yield "the engine speculates"


@pytest.fixture
def served(cluster, tmp_path):
    made = Served(cluster, tmp_path)
    yield made
    cluster.proxy.clear()
    made.namespace.delete()


def meet(served, count):
    """That many cases, or as many as there is time for; (cases, faults met, failures)."""
    began, cases, fired, failures = time.monotonic(), 0, 0, []
    for number in range(first_number, first_number + count):
        if time.monotonic() - began > limit_s:
            break
        cases += 1
        case = Case(served, Drawn(number))
        wrong = case.run()
        fired += case.fired
        sys.stdout.write(
            f"seed {seed}, case {number}: {case.drawn}: {wrong or 'good'} ({fired} faults met)\n"
        )
        sys.stdout.flush()
        if wrong:
            failures.append(f"seed {seed}, case {number}, {case.drawn}: {wrong}")
            if served.text() != served.before:
                break
    took = time.monotonic() - began
    sys.stdout.write(f"{cases} cases, {fired} faults met, {len(failures)} failures, {took:.0f} s\n")
    return failures


def test_a_few_random_faults_lose_nothing_and_leave_nothing(served):
    assert meet(served, 2) == []


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_random_faults_lose_nothing_and_leave_nothing(served):
    assert meet(served, int(os.environ.get("MPCTL_FAULTS", "80"))) == []


def refuse(served, action, firsts):
    """Rollouts and rollbacks with refused requests; the failures."""
    began, refused, failures = time.monotonic(), 0, []
    for first in firsts:
        case = Case(served, Refusals(action, first))
        wrong = case.run()
        refused += case.refused
        sys.stdout.write(f"{case.drawn}: {case.refused} requests: {wrong or 'good'}\n")
        sys.stdout.flush()
        if wrong:
            failures.append(f"{case.drawn}: {wrong}")
    sys.stdout.write(
        f"{action}: {refused} requests refused, {len(failures)} failures, {time.monotonic() - began:.0f} s\n"
    )
    return failures


def test_a_refusal_at_some_requests_loses_nothing_and_leaves_nothing(served):
    assert refuse(served, 500, [5]) == []


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("action", [409, 429, 500])
def test_a_refusal_at_every_request_loses_nothing_and_leaves_nothing(served, action):
    assert refuse(served, action, range(1, STRIDE + 1)) == []
