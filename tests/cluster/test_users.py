"""A rollout on services with users: a copy of the baseline is measured beside the candidate, and users lose nothing."""

import itertools
import json
import random
import re
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from .asking import ask
from .measurement import LOCAL
from .objects import ANY_SPEED, CLAIM, CONTAINERS
from .rig.nodes import L4
from .test_journey_deployment import DEPLOYMENT, SERVICE
from .test_request_path import own_route

TOKEN_S = 0.02
QUICK = (
    "--requests",
    "4",
    "--repeats",
    "12",
    "--max-tokens",
    "12",
    *LOCAL,
)


class Users:
    """Send ``rate`` requests per second, each whether or not the ones before were answered. ``echoed``: a scripted
    engine answers with the question; a real one with any text."""

    def __init__(self, cluster, host, model, rate, echoed=True, words=lambda: 40):
        """``words``: of a question, and so of an answer."""
        self._ask = lambda question: ask(cluster.gateway.url, question, model, Host=host)
        self._echoed, self._words = echoed, words
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
        question = " ".join(f"word{number}" for number in range(self._words()))
        try:
            answer = self._ask(question)
            assert answer == question if self._echoed else answer
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


def serve(cluster, namespace, kind, slow, token_s=TOKEN_S, stop_s=1):
    """Deploy the service behind a route of its users. ``slow``: how much longer a speculating engine takes, which
    commits two tokens in each step. Returns the service's name and the users' host."""
    cluster.pods.rule(
        lambda pod: {
            "stop_s": stop_s,
            "script": {"token_s": token_s, "speculating": {"slow": slow}},
        }
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


@pytest.mark.nightly
@pytest.mark.usefixtures("spare")
@pytest.mark.parametrize("kind", ["deployment", "inferenceservice"])
def test_few_prompts_promote_at_no_tenth_of_the_users_load(
    cluster, namespace, mpctl, tmp_path, capsys, kind
):
    """Users at 5/s whose streams last 2 to 10 s, and 64 prompts: enough for a few at once."""
    (tmp_path / "policy.yaml").write_text(ANY_SPEED)
    prompts = tmp_path / "mine.jsonl"
    prompts.write_text(
        "".join(json.dumps({"prompt": f"question {n} about many things"}) + "\n" for n in range(64))
    )
    name, host = serve(cluster, namespace, kind, slow=1.1, token_s=0.2, stop_s=12)
    words = ("rollout", name, "--spec", "ngram", "--policy", str(tmp_path / "policy.yaml"))
    words = (*words, "--prompts", f"mine={prompts}", "--max-tokens", "12", *LOCAL)
    drawn = random.Random(1)
    with Users(cluster, host, name, rate=5, words=lambda: drawn.randint(10, 50)) as users:
        time.sleep(15)  # until as many are in flight as it will be
        held = mpctl(*words, code=6)
        assert re.search(r"\[users-load\] users keep .* in flight", held.stderr), held.stderr
        promoted = mpctl(*words, "--accept", "users-load")
        watched = mpctl("watch", name, "--once", code=None)
        history = mpctl("history", name)
        rolled_back = mpctl("rollback", name)
    with capsys.disabled():
        sys.stdout.write(
            f"\n{kind}: {users.answered} answered, {len(users.failed)} lost\n{held.stdout}{held.stderr}"
            f"{promoted.stdout}\n{watched.stdout}{watched.stderr}\n{history.stdout}\n{rolled_back.stdout}"
        )
    assert "promoted: service" in promoted.stderr
    nothing_left(namespace, name)
