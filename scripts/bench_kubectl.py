"""The same change by ``kubectl apply`` and ``kubectl wait``, and by mpctl, in turn, on one cluster of tests/cluster.

kubectl's way ends when the Deployment has rolled: ``kubectl wait`` on the InferenceService would return at once,
because KServe leaves it Ready meanwhile. It records nothing, checks nothing and asks no engine. mpctl's way is the
whole product but the measurement: preflight, dry run, room, revision, ledger, lease, a completion, and the comparison
with the running engine's own arguments. Both go through the counting proxy.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.conftest import make_mpctl
from tests.cluster.fixtures import Namespace
from tests.cluster.objects import CONTAINERS
from tests.cluster.rig.cluster import Cluster
from tests.cluster.rig.proxy import Call
from tests.cluster.unmeasured import Unmeasured

NGRAM = {
    "method": "ngram",
    "num_speculative_tokens": 5,
    "prompt_lookup_max": 4,
    "prompt_lookup_min": 2,
}
CHANGED = CONTAINERS.replace(
    "          - --max-model-len=2048\n",
    f"          - --max-model-len=2048\n          - '--speculative-config={json.dumps(NGRAM)}'\n",
)


@dataclass(frozen=True)
class Cost:
    """Of one change: seconds until it serves, CPU seconds of the client, requests that read and that write, requests
    per second while an engine starts, and the requests by verb and resource."""

    wall_s: float
    cpu_s: float
    reads: int
    writes: int
    waiting: float
    requests: Counter[str]


def measured(cluster: Cluster, start_s: float, change: Callable[[], object]) -> Cost:
    """Run a change; requests are those of kubectl or mpctl, told by their agents."""
    cluster.proxy.calls.clear()
    cpu, began = _children_s(), time.monotonic()
    change()
    wall = time.monotonic() - began
    calls = [c for c in cluster.proxy.calls if c.agent.startswith(("kubectl", "mpctl"))]
    writes = sum(c.write for c in calls)
    requests = Counter(
        f"{c.verb} {c.resource}{f'/{c.subresource}' if c.subresource else ''}" for c in calls
    )
    return Cost(
        wall,
        _children_s() - cpu,
        len(calls) - writes,
        writes,
        rate_waiting(calls, start_s),
        requests,
    )


def rate_waiting(calls: Sequence[Call], start_s: float) -> float:
    """Requests per second from a second after the first engine was asked for until a second before it can be ready."""
    asked = next(
        c.at
        for c in calls
        if c.write and c.resource == "inferenceservices" and "dryRun" not in c.path
    )
    window = (asked + 1, asked + start_s - 1)
    return sum(window[0] < c.at < window[1] for c in calls) / (window[1] - window[0])


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main(runs: int, start_s: float) -> int:
    """Measure and print the table."""
    costs: dict[str, list[Cost]] = {}
    with Cluster() as cluster, tempfile.TemporaryDirectory() as scratch:
        cluster.pods.rule(lambda pod: {"ready_s": start_s})
        cluster.client.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "bench"}}
        )
        namespace = Namespace(cluster, "bench")
        namespace.deploy(CONTAINERS)
        hand = make_mpctl(cluster, "bench", Path(scratch))
        mpctl = Unmeasured(hand)

        def say(*words: str, text: str = "") -> None:
            line = [
                cluster.assets["kubectl"],
                "--kubeconfig",
                str(hand.kubeconfig),
                "-n",
                "bench",
                *words,
            ]
            subprocess.run(line, input=text, text=True, check=True, capture_output=True)

        def kubectl(text: str) -> None:
            generation = namespace.client.get("deployments", "demo-predictor")["metadata"][
                "generation"
            ]
            rolled = f"--for=jsonpath={{.metadata.generation}}={generation + 1}"
            say("apply", "-f", "-", text=text)
            say("wait", "deployment/demo-predictor", "--timeout=10m", rolled)
            say("rollout", "status", "deployment/demo-predictor", "--timeout=10m")

        ways: dict[str, Callable[[], object]] = {
            "kubectl apply, wait": lambda: kubectl(CHANGED),
            "kubectl back": lambda: kubectl(CONTAINERS),
            "mpctl rollout, in place": lambda: mpctl(
                "rollout", "--spec", "ngram", "--strategy", "in-place"
            ),
            "mpctl rollback, in place": lambda: mpctl("rollback"),
            "mpctl rollout, side by side": lambda: mpctl("rollout", "--spec", "ngram"),
            "mpctl rollback, side by side": lambda: mpctl("rollback"),
        }
        say(
            "apply", "-f", "-", text=CONTAINERS
        )  # so that kubectl knows what it may take away again
        for _ in range(runs):
            for name, way in ways.items():
                namespace.ready()
                costs.setdefault(name, []).append(measured(cluster, start_s, way))
    _print(costs, start_s)
    return 0


def _print(costs: dict[str, list[Cost]], start_s: float) -> None:
    base = statistics.median(c.wall_s for c in costs["kubectl apply, wait"])
    print(
        f"an engine gets ready after {start_s:.0f} s; medians of {len(costs['kubectl apply, wait'])} or more changes"
    )
    print(
        f"{'WAY':<28}{'WALL':>8}{'TO KUBECTL':>12}{'CPU':>8}{'READS':>7}{'WRITES':>8}{'WAITING':>11}"
    )
    for name, changes in costs.items():
        wall, cpu, reads, writes, waiting = (
            statistics.median(getattr(c, field) for c in changes)
            for field in ("wall_s", "cpu_s", "reads", "writes", "waiting")
        )
        print(
            f"{name:<28}{wall:>6.1f} s{wall / base:>11.2f}x{cpu:>6.1f} s{reads:>7.0f}{writes:>8.0f}{waiting:>9.1f}/s"
        )
    for name, changes in costs.items():
        print(
            f"{name}: {', '.join(f'{count} {call}' for call, count in changes[-1].requests.most_common())}"
        )


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), float(sys.argv[2])))
