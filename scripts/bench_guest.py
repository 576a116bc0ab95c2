"""What mpctl leaves in a cluster of tests/cluster, and what one look at many services costs."""

from __future__ import annotations

import json
import socket
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.cluster.conftest import Mpctl, make_mpctl
from tests.cluster.fixtures import Namespace
from tests.cluster.measurement import LOCAL
from tests.cluster.objects import ANY_SPEED, CONTAINERS
from tests.cluster.rig.cluster import Cluster

KINDS = ("configmaps", "controllerrevisions", "leases")
STOPPED = {"serving.kserve.io/stop": "true"}
ROUNDS = ("--requests", "4", "--repeats", "24", "--max-tokens", "16", *LOCAL)


def records(cluster: Cluster, mpctl: Mpctl, rollouts: int, scratch: Path) -> None:
    """Roll one service out again and again, and print the objects with mpctl's label."""
    namespace = Namespace(cluster, "records")
    cluster.pods.rule(lambda pod: {"script": {"token_s": 0.02}})
    namespace.deploy(CONTAINERS)
    policy = scratch / "policy.yaml"
    policy.write_text(ANY_SPEED)
    for number in range(rollouts):
        spec = ("ngram", "--set", f"num_speculative_tokens={2 + number}")
        mpctl("rollout", "--spec", *spec, "--policy", str(policy), *ROUNDS)
    _print_objects(namespace, f"after {rollouts} rollouts")
    for keep in (10, 3, 0):
        mpctl("prune", "demo", "--keep", str(keep))
        _print_objects(namespace, f"after prune --keep {keep}")
    cluster.pods.rule(lambda pod: {})
    namespace.client.delete("isvc", "demo")


def _print_objects(namespace: Namespace, when: str) -> None:
    parts = []
    for kind in KINDS:
        objects = namespace.client.list(kind, labels="app.kubernetes.io/managed-by=mpctl")
        parts.append(f"{len(objects)} {kind} {sum(map(_size, objects)) / 1024:.0f} KiB")
    print(f"{when}: {', '.join(parts)}", flush=True)


def _size(cluster_object: dict[str, Any]) -> int:
    return len(
        json.dumps(
            {
                key: cluster_object[key]
                for key in ("data", "binaryData", "metadata")
                if key in cluster_object
            }
        )
    )


def fleet(cluster: Cluster, mpctl: Mpctl, services: int, scratch: Path) -> None:
    """Print time, requests and bytes of ``mpctl status -A`` with services that are stopped: no pod runs."""
    import yaml

    record = yaml.safe_load(CONTAINERS)
    client = cluster.client.within("fleet")

    def make(number: int) -> None:
        client.apply(
            json.dumps({**record, "metadata": {"name": f"llm-{number:04}", "annotations": STOPPED}})
        )

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(make, range(services)))
    began = time.monotonic()
    cluster.proxy.calls.clear()
    mpctl("status", "-A", "-o", "name")
    print(
        f"status -A -o name: {time.monotonic() - began:.1f} s, {_requests(cluster)} requests",
        flush=True,
    )
    cluster.proxy.calls.clear()
    began = time.monotonic()
    shown = mpctl("status", "-A").stdout.count("llm-")
    print(
        f"status -A: {shown} services, {time.monotonic() - began:.1f} s, {_requests(cluster)} requests",
        flush=True,
    )
    meter = Meter(mpctl.proxied(False).kubeconfig, scratch / "metered")
    began = time.monotonic()
    replace(mpctl, kubeconfig=meter.kubeconfig)("status", "-A")
    print(
        f"the same without the proxy: {time.monotonic() - began:.1f} s, {meter.bytes / 2**20:.2f} MiB",
        flush=True,
    )


def _requests(cluster: Cluster) -> int:
    return sum(call.agent.startswith("mpctl") for call in cluster.proxy.calls)


class Meter:
    """Forwards connections to the API server and counts what it answers."""

    def __init__(self, kubeconfig: Path, path: Path) -> None:
        text = kubeconfig.read_text()
        server = str(json.loads(text)["clusters"][0]["cluster"]["server"])
        self._target = (str(urlsplit(server).hostname), int(urlsplit(server).port or 443))
        self._listener = socket.create_server((self._target[0], 0))
        self.kubeconfig, self.bytes = path, 0
        path.write_text(
            text.replace(server, f"https://{self._target[0]}:{self._listener.getsockname()[1]}")
        )
        path.chmod(0o600)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            near, _ = self._listener.accept()
            far = socket.create_connection(self._target)
            threading.Thread(target=self._copy, args=(near, far, False), daemon=True).start()
            threading.Thread(target=self._copy, args=(far, near, True), daemon=True).start()

    def _copy(self, source: socket.socket, target: socket.socket, answers: bool) -> None:
        try:
            while chunk := source.recv(2**16):
                self.bytes += len(chunk) if answers else 0
                target.sendall(chunk)
        except OSError:
            pass
        finally:
            target.close()


def main(rollouts: int, services: int) -> int:
    """Measure and print."""
    with Cluster() as cluster, tempfile.TemporaryDirectory() as directory:
        scratch = Path(directory)
        for name in ("records", "fleet"):
            cluster.client.apply(
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            )
        mpctl = make_mpctl(cluster, "records", scratch)
        if rollouts:
            records(cluster, mpctl, rollouts, scratch)
        if services:
            fleet(cluster, mpctl, services, scratch)
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
