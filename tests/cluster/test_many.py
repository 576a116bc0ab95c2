"""Ten services in one command: one rejects, the command is killed in the middle, and the same one finishes."""

import json

import pytest

from mpctl.platform.kubernetes.service.manifest_text import text_of

from .measurement import LOCAL
from .objects import ANY_SPEED, CLAIM, CONTAINERS
from .rig.nodes import Machine

# How busy the machine is decides nothing: n-gram halves the time per token, the slow candidate doubles it.
POLICY = ANY_SPEED.replace("max_time_per_token_ratio: 1000", "max_time_per_token_ratio: 1.4")
SERVICES = [f"demo-{number}" for number in range(10)]
REJECTING, KILLED = "demo-2", "demo-5"
ROLLOUT = (
    *("rollout", "-l", "team=chat", "--spec", "ngram", *LOCAL),
    *("--requests", "4", "--repeats", "8", "--max-tokens", "8"),
)


@pytest.fixture
def room(cluster):
    """GPUs for ten services, one that is not selected, and a candidate."""
    name = cluster.add_node(Machine(gpus=12, cpu="64", memory="200Gi"))
    yield
    cluster.remove_node(name)


def script(pod):
    """Engines on which n-gram gains, but for one service's candidate, which is slow."""
    rejects = pod["metadata"]["name"].startswith(f"{REJECTING}-candidate")
    return {"script": {"token_s": 0.02, **({"slow": 4} if rejects else {})}}


@pytest.mark.nightly  # minutes of both cores
def test_ten_services_of_which_one_rejects_and_one_is_killed(cluster, room, namespace, mpctl):
    cluster.pods.rule(script)
    policy = mpctl.directory / "policy.yaml"
    policy.write_text(POLICY)
    mpctl.environment.update(MPCTL_POLICY=str(policy))
    namespace.client.apply(CLAIM)
    for service in (*SERVICES, "other"):
        team = "chat" if service in SERVICES else "search"
        named = f"name: {service}\n  labels: {{team: {team}}}\n"
        namespace.client.apply(CONTAINERS.replace("name: demo\n", named))
    before = {service: text_of(namespace.ready(service)) for service in (*SERVICES, "other")}

    def live():
        return {isvc["metadata"]["name"]: text_of(isvc) for isvc in namespace.client.list("isvc")}

    def results(done):
        return {
            item["service"].removeprefix(f"{namespace.name}/"): item["result"]
            for item in json.loads(done.stdout)["items"]
        }

    # It stops at the first rejection.
    stopped = mpctl(*ROLLOUT, "-o", "json", code=5)
    promoted = dict.fromkeys(SERVICES, "promoted") | {REJECTING: "rejected"}
    number = SERVICES.index(REJECTING) + 1
    not_started = dict.fromkeys(SERVICES[number:], "not started")
    assert results(stopped) == promoted | not_started
    assert all(live()[service] == before[service] for service in SERVICES[number - 1 :])

    # Killed while the candidate of one service is measured.
    process = mpctl.start(*ROLLOUT, "--keep-going")
    namespace.client.wait(
        "the candidate is there",
        lambda: namespace.client.find("isvc", f"{KILLED}-candidate") or process.poll() is not None,
        timeout_s=600,
    )
    process.kill()
    process.communicate()
    assert live()[KILLED] == before[KILLED]
    (item,) = mpctl.json("status", KILLED)["items"]
    assert item["status"]["operation"] is not None

    # The same command brings all to their end, and measures nothing twice.
    done = mpctl(*ROLLOUT, "--keep-going", "-o", "json", code=5)
    assert results(done) == promoted
    assert f"{SERVICES.index(KILLED)} of 10 services are done" in done.stderr
    assert not list(mpctl.directory.glob("state/sequences/*.json"))
    after = live()
    assert [s for s in (*SERVICES, "other") if after[s] == before[s]] == [REJECTING, "other"]
    assert set(after) == set(before), "no candidate is left"
    for service in SERVICES:
        argv = str(namespace.argv(service))
        assert ("--speculative-config" in argv) == (service != REJECTING), service
        endings = [op["ending"] for op in mpctl.json("history", service)["operations"]]
        assert endings == (["rejected", "rolled back"] if service == REJECTING else ["promoted"]), (
            service
        )
    statuses = mpctl.json("status", "-l", "team=chat")["items"]
    assert [status["status"]["operation"] for status in statuses] == [None] * 10
