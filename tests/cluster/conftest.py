"""A real cluster for tests. How to use it:

- ``cluster``: one for the whole session, a :class:`rig.cluster.Cluster` with KServe and two nodes of one L4 each.
  ``cluster.client`` (raw objects), ``.kubectl(...)``, ``.add_node(L4)``, ``.remove_node(name)``,
  ``.set_gpus(name, 0)``, ``.pods.rule(lambda pod: {"crash": 1})`` (how pods fare; fields of ``rig.behave.Behave``),
  ``.metrics.set("queue_wait_ms", 500)``, ``.gateway.url`` and ``.gateway.routed``, ``.proxy.add(409, verb="patch")``,
  ``.user("operator")`` with ``.kubeconfig_for(...)`` and ``.client_for(...)``, ``.service_account_kubeconfig(...)``.
  For other nodes or settings open one of your own: ``with Cluster(Settings(nodes=(L4,))) as mine:``
- ``namespace``: a fresh one per test, as a :class:`Namespace`; everything in it is gone afterwards, faults of the
  proxy, rules and metric values too. ``namespace.client`` is a client within it: ``apply``, ``get``,
  ``find``, ``list``, ``patch``, ``delete``, ``wait("what", lambda: ...)``. ``namespace.deploy(MODEL)``
  applies and waits until Ready.
- ``mpctl``: the command line as a user has it, in ``namespace``, through the fault proxy: ``mpctl("status")``,
  ``mpctl.json("history")``, ``mpctl(..., kill_after=3)``, ``mpctl.as_user(pair)``, ``mpctl.proxied(False)``.

``objects.py`` has services to deploy. Timing never decides: wait for states, not for seconds.
"""

import json
import os
import secrets
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from .listed import hold_to_the_table
from .rig.cluster import Cluster

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(autouse=True)
def listed_calls(monkeypatch):
    """Fail every request of mpctl's client that ``mpctl rbac`` would not grant."""
    hold_to_the_table(monkeypatch)


@dataclass(frozen=True)
class Mpctl:
    """The command line, as a user has it: a process of its own, in ``directory``, with ``kubeconfig``."""

    cluster: Cluster
    namespace: str
    directory: Path
    kubeconfig: Path
    environment: dict

    def __call__(
        self, *arguments, code=0, kill_after=None, killer="killed", timeout=600, stdin=None
    ):
        killed = ["-m", f"tests.cluster.{killer}", str(kill_after)]
        program = ["-m", "mpctl.cli.main"] if kill_after is None else killed
        done = subprocess.run(
            [sys.executable, *program, *arguments],
            cwd=self.directory,
            env=self.environment | {"KUBECONFIG": str(self.kubeconfig), "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=timeout,
            input=stdin or "",
            check=False,
        )
        if code is not None:
            assert done.returncode == code, (
                f"{arguments} -> {done.returncode}\n{done.stdout}\n{done.stderr}"
            )
        return done

    def json(self, *arguments, **options):
        return json.loads(self(*arguments, "-o", "json", **options).stdout)

    def start(self, *arguments):
        """Start a command and return its process."""
        return subprocess.Popen(
            [sys.executable, "-m", "mpctl.cli.main", *arguments],
            cwd=self.directory,
            env=self.environment | {"KUBECONFIG": str(self.kubeconfig), "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def as_user(self, user, *, proxied=True):
        """The same command line as another user (``cluster.user(...)``)."""
        path = self.directory / f"kubeconfig-{secrets.token_hex(3)}"
        server = self.cluster.proxy.url if proxied else None
        self.cluster.kubeconfig_for(user, path, namespace=self.namespace, server=server)
        return replace(self, kubeconfig=path)

    def proxied(self, through):
        """With or without the fault proxy in between, as administrator."""
        return self.as_user(self.cluster.admin, proxied=through)


@pytest.fixture
def mpctl(cluster, namespace, tmp_path):
    return make_mpctl(cluster, namespace.name, tmp_path)


def make_mpctl(cluster, namespace, tmp_path):
    """The command line in a namespace, as administrator and through the proxy."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("MPCTL_")}
    environment = (
        inherited
        | {
            "MPCTL_YES": "1",
            "MPCTL_USERS_WINDOW": "1s",  # of users, where a test has none
            "MPCTL_FIDELITY": "off",  # test_journey_groups.py and test_watch_installed.py compare answers
            "MPCTL_BAKE": "0",
            "MPCTL_STATE_DIR": str(tmp_path / "state"),
            "XDG_CONFIG_HOME": str(tmp_path / "config"),
            "HOME": str(tmp_path),
            "NO_COLOR": "1",
        }
    )
    return Mpctl(cluster, namespace, tmp_path, Path(), environment).proxied(True)
