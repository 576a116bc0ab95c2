"""The watch as its Deployment runs it: two processes with the same arguments, of which one leads and is killed."""

import json
import os
import signal
import subprocess
import sys
import time

from .conftest import ROOT
from .objects import CONTAINERS

WAIT_S = 90.0


class Replica:
    """A pod of the Deployment, as a process with the entry point that the container has."""

    def __init__(self, mpctl, directory, name, namespace):
        self.log = directory / f"{name}.log"
        words = ["watch", "run", "--platform", "kubernetes", "-n", namespace, "--interval", "1s", "--leader-elect"]
        words += ["--listen", "127.0.0.1:0", "-o", "json"]
        environment = mpctl.environment | {"KUBECONFIG": str(mpctl.kubeconfig), "PYTHONPATH": str(ROOT)}
        with self.log.open("w") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "mpctl.cli.main", *words],
                cwd=directory,
                env=environment,
                stdout=out,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            )

    def says(self, text):
        deadline = time.monotonic() + WAIT_S
        while text not in self.log.read_text():
            assert time.monotonic() < deadline, f"no {text!r} in: {self.log.read_text()}"
            assert self.process.poll() is None or text in self.log.read_text(), self.log.read_text()
            time.sleep(0.2)

    def end(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            os.kill(self.process.pid, number)
        return self.process.wait(timeout=60)


def test_a_leader_is_killed_and_the_other_watch_leads(namespace, mpctl, tmp_path):
    namespace.deploy(CONTAINERS)
    replicas = []
    try:
        replicas.append(Replica(mpctl, tmp_path, "first", namespace.name))
        replicas[0].says("this watch leads")
        replicas.append(Replica(mpctl, tmp_path, "second", namespace.name))
        replicas[1].says("another watch leads")
        replicas[0].end(signal.SIGKILL)
        replicas[1].says("this watch leads")
        assert replicas[1].end() == 0
    finally:
        for replica in replicas:
            replica.end(signal.SIGKILL)
    done = mpctl("watch", "demo", "--once", "--interval", "1s", "-o", "json")
    (item,) = json.loads(done.stdout)["items"]
    assert item["signal"] in ("Idle", "Healthy")
    assert item["figures"] is None or item["figures"]["tokensPerStep"] is not None
