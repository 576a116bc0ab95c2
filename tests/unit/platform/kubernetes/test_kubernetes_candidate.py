"""The second InferenceService: what is waited for before it is removed, and for how long."""

from __future__ import annotations

import pytest

from mpctl.errors import MpctlError
from mpctl.platform import http
from mpctl.platform.kubernetes.api.kinds import INFERENCE_SERVICE
from mpctl.platform.kubernetes.api.port_forward import ForwardTarget
from mpctl.platform.kubernetes.service import live
from mpctl.platform.kubernetes.service.engine_reader import EngineReader
from mpctl.platform.kubernetes.service.live import Candidate
from mpctl.platform.kubernetes.service.manifest_text import ARM_ANNOTATION
from mpctl.platform.kubernetes.service.workload import ServiceWorkload

ISVC = {
    "metadata": {
        "name": "demo-candidate",
        "uid": "u",
        "resourceVersion": "1",
        "annotations": {ARM_ANNOTATION: "arm-1"},
    }
}


def pod(name="a", *, ready=True):
    return {
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "kserve-container", "ports": [{"containerPort": 8080}]}]},
        "status": {"conditions": [{"type": "Ready", "status": str(ready)}]},
    }


class PlacementWishes:
    """A reader whose engines say one thing after the other; the last one again and again."""

    namespace = "ns"

    def __init__(self, *answers, pods=None):
        self.answers, self.pods, self.asked = list(answers), pods or [[pod()]], 0

    def isvc(self, name):
        return ISVC

    def workload(self, isvc):
        return ServiceWorkload(isvc, None, self.pods[min(self.asked, len(self.pods) - 1)])

    @property
    def engines(self):
        return self

    def requests(self, found):
        self.asked += 1
        return self.answers[min(self.asked, len(self.answers)) - 1]


def drained(reader):
    return Candidate(None, reader, None, "demo", sleep=lambda _: None).drain()


def test_an_engine_that_cannot_be_asked_is_asked_again_until_it_is_quiet_twice():
    lost, busy, quiet = (0.0, ("a",)), (3.0, ()), (0.0, ())
    reader = PlacementWishes(lost, busy, quiet, lost, quiet, quiet)
    assert drained(reader) == ()
    assert reader.asked == 6


def test_a_pod_that_ended_meanwhile_is_not_waited_for():
    reader = PlacementWishes((0.0, ("a",)), pods=[[pod()], [pod()], [pod(ready=False)]])
    assert drained(reader) == ()
    assert reader.asked == 2
    assert drained(PlacementWishes((9.0, ()), pods=[[]])) == ()


def test_what_is_still_open_when_time_is_up_is_named(monkeypatch):
    monkeypatch.setattr(live, "_DRAIN_TIMEOUT_S", -1.0)
    monkeypatch.setattr(live, "_grace_s", lambda pod: -2.0)
    assert drained(PlacementWishes((2.0, ("a",)))) == (
        "demo-candidate has 2 unanswered requests after -1 s",
        "pod a did not report its open requests after -1 s",
    )


@pytest.mark.parametrize(("grace_s", "patience"), [(None, 600), (120, 600), (1830, 1830)])
def test_requests_are_waited_for_as_long_as_the_grace_period_and_ten_minutes_at_least(
    monkeypatch, grace_s, patience
):
    seconds = iter(range(0, 10_000, 30))
    monkeypatch.setattr(live.time, "monotonic", lambda: next(seconds))
    busy = pod()
    busy["spec"] |= {"terminationGracePeriodSeconds": grace_s} if grace_s else {}
    (note,) = drained(PlacementWishes((1.0, ()), pods=[[busy]]))
    assert note == f"demo-candidate has 1 unanswered requests after {patience} s"


def test_ready_pods_that_do_not_answer_are_told_from_idle_ones(monkeypatch):
    def get(url, **_):
        if "lost" in url:
            raise http.NoAnswer("connection refused")
        return http.HttpAnswer(500 if "odd" in url else 200, b"oops" if "odd" in url else text)

    text = b"# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 2.0\n"
    reader = EngineReader(None, "ns")
    monkeypatch.setattr(
        reader.forwards, "target", lambda name, port, tls: ForwardTarget(f"http://{name}")
    )
    monkeypatch.setattr(http, "get", get)
    pods = [pod("good"), pod("lost"), pod("odd"), pod("new", ready=False)]
    assert reader.requests(ServiceWorkload(ISVC, None, pods)) == (2.0, ("lost", "odd"))


class Ending:
    """An InferenceService whose pods end after ``ends_s`` of a clock that only sleeping moves."""

    namespace, resource = "ns", INFERENCE_SERVICE

    def __init__(self, monkeypatch, ends_s, grace_s):
        self.now, self.ends_s = 0.0, ends_s
        self.pod = pod()
        if grace_s is not None:
            self.pod["spec"]["terminationGracePeriodSeconds"] = grace_s
        monkeypatch.setattr(live.time, "monotonic", lambda: self.now)

    def sleep(self, seconds):
        self.now += seconds

    def isvc(self, name):
        return None

    def delete(self, kind, name, namespace, **_):
        pass

    def list(self, kind, namespace, *, labels):
        return [self.pod] if self.now < self.ends_s else []

    def require_idle(self):
        pass


@pytest.mark.parametrize(
    ("grace_s", "ends_s", "limit"),
    [(None, 179, 180), (30, 179, 180), (600, 650, 660), (600, 662, 660), (30, 182, 180)],
)
def test_pods_have_their_grace_period_to_end(monkeypatch, grace_s, ends_s, limit):
    world = Ending(monkeypatch, ends_s, grace_s)
    candidate = Candidate(world, world, world, "demo", sleep=world.sleep)
    if ends_s <= limit:
        candidate.remove(ISVC)
        assert world.now == ends_s
    else:
        with pytest.raises(MpctlError, match=f"did not terminate within {limit} s"):
            candidate.remove(ISVC)
