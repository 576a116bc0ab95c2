"""The same cluster by hand: ``python -m tests.cluster.rig up|down|env|run FOLDER`` (``scripts/cluster`` calls it).

``run`` is the cluster itself and stays until it is told to end; ``up`` starts that in the background and returns when
it is ready; ``env`` prints what a shell evaluates to use it. FOLDER holds the kubeconfig, the process id and the log.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

from . import binaries
from .cluster import Cluster, Settings
from .nodes import L4, L4_EKS

START_S = 600.0


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="scripts/cluster", description="A Kubernetes cluster with KServe on loopback."
    )
    parser.add_argument("folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("command", choices=["up", "down", "env", "run"])
    parser.add_argument("--nodes", type=int, default=2, help="nodes (2)")
    parser.add_argument("--gpus", type=int, default=1, help="L4s of each node (1)")
    parser.add_argument(
        "--cloud", choices=["gke", "eks"], default="gke", help="whose labels the nodes have (gke)"
    )
    parser.add_argument(
        "--with", dest="extras", metavar="NAMES", type=_extras, default=frozenset(),
        help=f"also {', '.join(binaries.extras())}, each a build of its own; named with commas",
    )  # fmt: skip
    parser.add_argument(
        "--gateway-api", action="store_true", help="KServe writes HTTPRoutes instead of Ingresses"
    )
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    return {"up": up, "down": down, "env": env, "run": run}[options.command](options)


def up(options: argparse.Namespace) -> int:
    """Start in the background; returns when the cluster is ready."""
    if _running(options.folder):
        missing = sorted(options.extras - set((options.folder / "extras").read_text().split()))
        if missing:
            sys.stderr.write(
                f"error: the cluster is up without {', '.join(missing)}\nhint: scripts/cluster down\n"
            )
            return 2
        sys.stderr.write("the cluster is up already\n")
        return 0
    try:
        binaries.build(binaries.BASE, *(binaries.extras()[name] for name in sorted(options.extras)))
    except binaries.Missing as missing:
        sys.stderr.write(f"error: {missing}\n")
        return 2
    for name in ("kubeconfig", "prometheus"):
        (options.folder / name).unlink(missing_ok=True)
    (options.folder / "extras").write_text(" ".join(options.extras))
    log = options.folder / "log"
    command = [
        sys.executable,
        "-m",
        "tests.cluster.rig",
        str(options.folder),
        "run",
        *_settings(options),
    ]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    (options.folder / "pid").write_text(str(process.pid))
    end = time.monotonic() + START_S
    while not (options.folder / "kubeconfig").exists():
        if process.poll() is not None or time.monotonic() > end:
            sys.stderr.write(
                f"error: the cluster did not start; the end of {log}:\n{log.read_text()[-2000:]}\n"
            )
            return 1
        time.sleep(0.2)
    sys.stderr.write(
        f'the cluster is up; to use it: eval "$(scripts/cluster env)"; its log is {log}\n'
    )
    return 0


def down(options: argparse.Namespace) -> int:
    """End it; returns when everything is gone."""
    pid = _running(options.folder)
    if pid is None:
        sys.stderr.write("no cluster is up\n")
        return 0
    os.kill(pid, signal.SIGTERM)
    while _running(options.folder):
        time.sleep(0.1)
    (options.folder / "pid").unlink(missing_ok=True)
    (options.folder / "kubeconfig").unlink(missing_ok=True)
    return 0


def env(options: argparse.Namespace) -> int:
    """Print the shell's settings."""
    if _running(options.folder) is None or not (options.folder / "kubeconfig").exists():
        sys.stderr.write("error: no cluster is up\nhint: scripts/cluster up\n")
        return 2
    kubectl = Path(binaries.find()["kubectl"]).parent
    gateway = (options.folder / "gateway").read_text()
    sys.stdout.write(f"export KUBECONFIG={shlex.quote(str(options.folder / 'kubeconfig'))}\n")
    sys.stdout.write(f'export PATH={shlex.quote(str(kubectl))}:"$PATH"\n')
    sys.stdout.write(f"export RIG_GATEWAY={shlex.quote(gateway)}\n")
    if (options.folder / "prometheus").exists():
        address = (options.folder / "prometheus").read_text()
        sys.stdout.write(f"export RIG_PROMETHEUS={shlex.quote(address)}\n")
    return 0


def run(options: argparse.Namespace) -> int:
    """Be the cluster until SIGTERM."""
    machine = (L4_EKS if options.cloud == "eks" else L4).with_gpus(options.gpus)
    settings = Settings(
        nodes=(machine,) * options.nodes, gateway_api=options.gateway_api, extras=options.extras
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with Cluster(settings) as cluster:
        (options.folder / "gateway").write_text(cluster.gateway.url)
        if "prometheus" in options.extras:
            (options.folder / "prometheus").write_text(cluster.prometheus.url)
        scratch = cluster.kubeconfig_for(cluster.admin, options.folder / ".kubeconfig")
        scratch.replace(options.folder / "kubeconfig")
        sys.stderr.write(
            f"ready: {cluster.timing.parts}, MiB: {cluster.memory()}, logs: {cluster.processes.logs}\n"
        )
        while True:
            signal.pause()


def _settings(options: argparse.Namespace) -> list[str]:
    arguments = [
        "--nodes",
        str(options.nodes),
        "--gpus",
        str(options.gpus),
        "--cloud",
        options.cloud,
    ]
    arguments += ["--with", ",".join(sorted(options.extras))] if options.extras else []
    return arguments + (["--gateway-api"] if options.gateway_api else [])


def _extras(text: str) -> frozenset[str]:
    names = frozenset(text.split(","))
    if unknown := sorted(names - binaries.extras().keys()):
        raise argparse.ArgumentTypeError(
            f"{unknown[0]!r} is none of {', '.join(binaries.extras())}"
        )
    return names


def _running(folder: Path) -> int | None:
    """The process of the cluster in ``folder``, if it runs."""
    try:
        pid = int((folder / "pid").read_text())
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return None
    return pid if b"tests.cluster.rig" in command and str(folder).encode() in command else None


if __name__ == "__main__":
    sys.exit(main())
