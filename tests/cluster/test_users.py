"""A rollout on services with users: a copy of the baseline is measured beside the candidate, and users lose nothing."""

import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from .asking import ask
from .objects import ANY_SPEED, CLAIM, CONTAINERS
from .rig.nodes import L4
from .test_journey_deployment import DEPLOYMENT, SERVICE
from .test_request_path import own_route

TOKEN_S = 0.02
QUESTION = " ".join(f"word{number}" for number in range(40))
QUICK = (
    "--requests",
    "4",
    "--repeats",
    "12",
    "--max-tokens",
    "12",
    "--load",
    "local",
    "--users-window",
    "3s",
)


class Users:
    """Send ``rate`` requests per second, each whether or not the ones before were answered. ``echoed``: a scripted
    engine answers with the question; a real one with any text."""

    def __init__(self, cluster, host, model, rate, echoed=True):
        self._ask = lambda: ask(cluster.gateway.url, QUESTION, model, Host=host)
        self._echoed = echoed
        self._rate, self._ended = rate, threading.Event()
        self.answered, self.failed, self.times = 0, [], []

    def __enter__(self):
        self._pool = ThreadPoolExecutor(64)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._thread.join()
        self._pool.shutdown()

    def _run(self):
        began = time.monotonic()
        for number in itertools.count(1):
            self._pool.submit(self._one)
            if self._ended.wait(max(began + number / self._rate - time.monotonic(), 0.0)):
                return

    def _one(self):
        began = time.monotonic()
        try:
            answer = self._ask()
            assert answer == QUESTION if self._echoed else answer
        except (OSError, AssertionError) as error:
            self.failed.append(repr(error))
        else:
            self.answered += 1
            self.times.append(time.monotonic() - began)


@pytest.fixture
def spare(cluster):
    name = cluster.add_node(L4)
    yield
    cluster.remove_node(name)


def serve(cluster, namespace, kind, slow):
    """Deploy the service behind a route of its users. ``slow``: how much longer a speculating engine takes, which
    commits two tokens in each step. Returns the service's name and the users' host."""
    cluster.pods.rule(
        lambda pod: {"stop_s": 1, "script": {"token_s": TOKEN_S, "speculating": {"slow": slow}}}
    )
    if kind == "deployment":
        for text in (CLAIM, SERVICE, DEPLOYMENT):
            namespace.client.apply(text)
        namespace.client.wait("the engine is ready", lambda: namespace.settled("qwen"))
    else:
        namespace.deploy(CONTAINERS)
    name, backend = ("qwen", "qwen") if kind == "deployment" else ("demo", "demo-predictor")
    return name, own_route(namespace, backend)


def nothing_left(namespace, name):
    for kind in ("isvc", "deployments"):
        names = {record["metadata"]["name"] for record in namespace.client.list(kind)}
        assert not names & {f"{name}-copy", f"{name}-candidate", f"{name}-copy-predictor"}, names


@pytest.mark.usefixtures("spare")
def test_a_copy_of_the_baseline_is_measured_while_users_stay_on_the_service(
    cluster, namespace, mpctl, tmp_path
):
    policy = tmp_path / "any-speed.yaml"
    policy.write_text(ANY_SPEED)
    name, host = serve(cluster, namespace, "deployment", slow=1.1)
    with Users(cluster, host, name, rate=5) as users:
        namespace.client.wait("users are answered", lambda: users.answered > 3)
        done = mpctl("rollout", name, "--spec", "ngram", *QUICK, "--policy", str(policy))
    assert "promoted: service" in done.stderr
    assert users.failed == []
    assert users.answered > 20
    nothing_left(namespace, name)
    report = mpctl.json("report", "rollout-1")
    assert {arm["device"] for arm in report["conditions"].values()} == {"NVIDIA L4"}
    (note,) = (note for note in report["notes"] if "copy of the baseline" in note)
    assert "users send" in note
