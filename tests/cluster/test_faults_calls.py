"""SIGKILL at every twentieth request to the API server, before it is sent or after it is answered, then the same
command again or a rollback. ``tests/sweep`` does that at every request in memory, and with more faults.
"""

import itertools
import re
import signal
import sys
import time

import pytest

from mpctl.platform.kubernetes.service.manifest_text import text_of

from .objects import CONTAINERS, hpa
from .test_faults_matrix import MOST_TRIES, ROLLOUT, Watcher
from .unmeasured import Unmeasured

STRIDE = 20
WAYS = (ROLLOUT, ("rollback", "demo", "--yes"))


class Calling(Unmeasured):
    """Runs ``tests.cluster.killed_calling``; ``kill_after``: number and moment of the request."""

    def _line(self, arguments, kill_after=(0, "before")):
        words, options = super()._line(arguments)
        at, moment = kill_after or (0, "before")
        begin = words.index("tests.cluster.matrix")
        return [
            *words[:begin],
            "tests.cluster.killed_calling",
            str(at),
            moment,
            *arguments,
        ], options


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_killed_at_every_twentieth_request_it_resumes_or_rolls_back(cluster, namespace, mpctl):
    namespace.deploy(CONTAINERS)
    cluster.metrics.set("queue_wait_ms", 50)
    namespace.client.apply(hpa())
    scaler = namespace.client.get("hpa", "demo-queue")["spec"]
    before = text_of(namespace.client.get("isvc", "demo"))
    run = Calling(mpctl)
    count = int(re.search(r"requests: (\d+)", run(*ROLLOUT).stderr)[1])
    promoted = text_of(namespace.client.get("isvc", "demo"))
    run("rollback", "demo")
    failures, killed, began = [], 0, time.monotonic()
    points = range(STRIDE, count, STRIDE)
    ways = itertools.product(WAYS, ("before", "after"))
    for at, (way_on, moment) in zip(points, itertools.cycle(ways), strict=False):
        with Watcher(namespace) as watcher:
            ended = run(*ROLLOUT, kill_after=(at, moment), code=None)
            killed += ended.returncode == -signal.SIGKILL
            expected = promoted if way_on == ROLLOUT else before
            problem = wrong(namespace, run, way_on, expected, scaler)
        problem = "; ".join(filter(None, (*problem, watcher.empty)))
        sys.stdout.write(
            f"request {at} of {count}, {moment}, {' '.join(way_on)}: {problem or 'good'}\n"
        )
        sys.stdout.flush()
        if problem:
            failures.append(f"killed {moment} request {at}, {way_on[0]}: {problem}")
        if text_of(namespace.client.get("isvc", "demo")) != before:
            run("rollback", "demo")
    sys.stdout.write(
        f"{killed} kills, {len(failures)} failures, {time.monotonic() - began:.0f} s\n"
    )
    assert not failures, "\n".join(failures)
    assert killed >= len(points) - 1  # the number of polls differs from run to run


def wrong(namespace, run, way_on, expected, scaler):
    """Carry the interrupted rollout on, and describe what is wrong then."""
    for _ in range(MOST_TRIES):
        done = run(*way_on, code=None)
        live = text_of(namespace.client.get("isvc", "demo"))
        if done.returncode == 0 or (
            done.returncode == 2 and live == expected
        ):  # 2: nothing was begun
            break
    else:
        yield f"never succeeded: {done.stderr[-600:]}"
    if live != expected:
        yield "the live spec is not the expected one"
    if namespace.client.find("isvc", "demo-candidate") is not None:
        yield "a candidate is left"
    if namespace.client.get("hpa", "demo-queue")["spec"] != scaler:
        yield "the autoscaler is not as it was"
    operations = run.json("history", "demo")["operations"]
    yield from (
        f"{operation['id']} is not ended" for operation in operations if operation["ending"] is None
    )
