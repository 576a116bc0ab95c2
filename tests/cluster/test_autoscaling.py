"""The shipped autoscaler with Kubernetes' own controller: under a constant load the number of pods settles.

Every window of manifests/autoscaling/hpa.yaml is a sixtieth. The metrics are those of the pods, without the minute's
mean of the recording rules; scripted engines have slots and a queue. Users are clients that ask again when they have
an answer, so six of them are one and a half pods' worth of load, whatever the number of pods.
"""

import threading
import time
import urllib.error
from string import Template

import yaml

from .asking import ask
from .objects import CONTAINERS, taken_route

SLOTS, CLIENTS, FASTER = 4, 6, 60
FOUR_WORDS = "one two three four"
SERVICE = CONTAINERS.replace("--port=8080", f"--port=8080\n          - --max-num-seqs={SLOTS}")


def shipped(namespace, *, metrics=3):
    """The manifest with shorter windows, and its first *metrics*."""
    from tests.autoscaling.conftest import MANIFESTS, NAMES

    text = (MANIFESTS / "autoscaling" / "hpa.yaml").read_text()
    document = yaml.safe_load(
        Template(text).substitute(NAMES | {"service": "demo", "namespace": namespace.name})
    )
    document["spec"]["metrics"] = document["spec"]["metrics"][:metrics]
    for side in document["spec"]["behavior"].values():
        side["stabilizationWindowSeconds"] //= FASTER
        for policy in side["policies"]:
            policy["periodSeconds"] //= FASTER
    return document


class Users:
    """Clients that ask all the time."""

    def __init__(self, url, host):
        self.ended = threading.Event()
        self.threads = [
            threading.Thread(target=self.loop, args=(url, host), daemon=True)
            for _ in range(CLIENTS)
        ]

    def loop(self, url, host):
        while not self.ended.is_set():
            try:
                ask(url, FOUR_WORDS, Host=host)
            except urllib.error.HTTPError as refused:  # while the only pod starts or stops
                refused.close()
                time.sleep(1)

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        for thread in self.threads:
            thread.join()


def test_under_constant_load_the_number_of_pods_settles(cluster, namespace):
    cluster.pods.rule(lambda pod: {"script": {"token_s": 0.25, "slots": SLOTS}})
    namespace.deploy(SERVICE)
    host = f"{namespace.name}.example.com"
    taken_route(namespace.client, host)

    def wanted():
        return namespace.client.get("deployments", "demo-predictor")["spec"]["replicas"]

    with Users(cluster.gateway.url, host):
        namespace.client.apply(shipped(namespace))
        namespace.client.wait("the second pod is ordered", lambda: wanted() == 2)
        namespace.client.wait("the second pod serves", lambda: namespace.settled("demo-predictor"))
        window = shipped(namespace)["spec"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"]
        replicas = set()
        for _ in range(4 * window):
            replicas.add(wanted())
            time.sleep(1)
        assert replicas == {2}, "pods are given up or ordered under a load that does not change"

        namespace.client.apply(shipped(namespace, metrics=1))
        namespace.client.wait(
            "queue wait alone gives a busy pod up", lambda: wanted() == 1, 8 * window
        )
