"""A command that lost its Lease never writes what serves: not after it was taken over, and not with a write that it had
checked before. The client and both commands are real, the API server is in memory."""

from __future__ import annotations

import copy
import json
from urllib.parse import unquote

import pytest
from test_kubernetes_platform import beside, deployment, pod, service, shared

from mpctl.errors import Conflict, NotPermitted
from mpctl.platform.kubernetes.api.api_client import Client
from mpctl.platform.kubernetes.api.connection import ClusterConnection
from mpctl.platform.kubernetes.api.kinds import (
    DEPLOYMENT,
    HPA,
    HTTP_ROUTE,
    INFERENCE_SERVICE,
    LEASE,
    POD,
    SERVICE,
)
from mpctl.platform.kubernetes.api.replies import NoResponse, Response
from mpctl.platform.kubernetes.cluster_platform import KubernetesPlatform
from mpctl.platform.kubernetes.object_store import KubernetesStore
from mpctl.platform.kubernetes.service.fence import fence
from mpctl.platform.kubernetes.service.manifest_text import text_of
from mpctl.rollout.ports import Arm

KINDS = {
    kind.name: kind
    for kind in (DEPLOYMENT, HPA, HTTP_ROUTE, INFERENCE_SERVICE, LEASE, POD, SERVICE)
}


class Server:
    """Objects by path, with resourceVersions and preconditions as an API server has them. A write that changes nothing
    keeps the version; one empty entry of managedFields stands for none."""

    def __init__(self, *things):
        self.objects, self.version = {}, 0
        self.sent = []  # method and path of every write
        self.forbidden = ""
        for thing in things:
            name = thing["metadata"]["name"]
            self.store(KINDS[thing["kind"]].path("ns", name), thing)

    def store(self, path, record):
        self.version += 1
        metadata = {
            "uid": path,
            **record["metadata"],
            "namespace": "ns",
            "resourceVersion": str(self.version),
        }
        self.objects[path] = {**copy.deepcopy(record), "metadata": metadata}
        return Response(200, {}, json.dumps(self.objects[path]).encode())

    def answer(self, method, path, query, body):
        if method == "GET":
            return self.read(path)
        if "dryRun" not in query:
            self.sent.append(f"{method} {path}")
        if self.forbidden and self.forbidden in path:
            return self.refusal(403, "Forbidden")
        if method == "POST":
            path = f"{path}/{body['metadata']['name']}"
            return (
                self.refusal(409, "AlreadyExists")
                if path in self.objects
                else self.store(path, body)
            )
        if path not in self.objects:
            return self.refusal(404, "NotFound")
        present = self.objects[path]["metadata"]
        wanted = (body.get("preconditions") or {}) if method == "DELETE" else body["metadata"]
        if any(
            wanted.get(field, present[field]) != present[field]
            for field in ("uid", "resourceVersion")
        ):
            return self.refusal(409, "Conflict")
        if method == "DELETE":
            return Response(200, {}, json.dumps(self.objects.pop(path)).encode())
        if method == "PATCH":
            body = merged(self.objects[path], body)
        if body["metadata"].get("managedFields") == [{}]:
            del body["metadata"]["managedFields"]
        unchanged = body == self.objects[path]
        return Response(200, {}, json.dumps(body).encode()) if unchanged else self.store(path, body)

    def read(self, path):
        if path in self.objects:
            return Response(200, {}, json.dumps(self.objects[path]).encode())
        items = [thing for name, thing in self.objects.items() if name.rpartition("/")[0] == path]
        is_list = path.endswith(tuple(kind.plural for kind in KINDS.values())) or path.endswith(
            "controllerrevisions"
        )
        return (
            Response(200, {}, json.dumps({"items": items}).encode())
            if is_list
            else self.refusal(404, "NotFound")
        )

    def refusal(self, code, reason):
        return Response(code, {}, json.dumps({"reason": reason, "message": reason}).encode())


def merged(item, patch):
    """A JSON merge patch (RFC 7386)."""
    fields = {**item, **{k: v for k, v in patch.items() if not isinstance(v, dict)}}
    fields |= {k: merged(item.get(k) or {}, v) for k, v in patch.items() if isinstance(v, dict)}
    return {k: v for k, v in fields.items() if v is not None}


class Command(Client):
    """A command on the service. ``stops``: called once before the next write of what serves is sent, and after the
    Lease was checked for it."""

    def __init__(self, server):
        from kubernetes.client import Configuration

        super().__init__(ClusterConnection(Configuration(), "ns", "test"), sleep=lambda _: None)
        self.server, self.stops, self.unanswered = server, None, False
        self.platform = KubernetesPlatform(self, "ns", "demo", sleep=lambda _: None)
        self.store = KubernetesStore(self, "ns", "demo", "ann@here")
        self.store.held.fence = lambda: fence(self, INFERENCE_SERVICE, "ns", "demo")

    def _send(self, method, path, query, body, content_type):
        path = unquote(path)
        is_write = method != "GET" and "/leases" not in path and "dryRun" not in query
        if self.stops is not None and is_write:
            stops, self.stops = self.stops, None
            stops()
        answer = self.server.answer(method, path, query, copy.deepcopy(body))
        return NoResponse("connection reset") if self.unanswered and is_write else answer


def taken_over(server):
    """Another command unlocks the service, and then holds and releases the Lease."""
    other = Command(server)
    lease = other.store.held
    lease.unlock(lease.read(), force=True)
    with other.store.lease("rollback"):
        pass


def hpa():
    target = {"kind": "Deployment", "name": "demo-predictor"}
    spec = {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 3}
    return {
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "queue", "uid": "h"},
        "spec": spec,
    }


BEFORE, AFTER = Arm(text_of(service())), Arm(text_of(service(more="x")))
ROUTE = {"name": "users", "spec": shared(0)["spec"]}
WRITES = {
    "the promotion": (
        (),
        lambda platform: platform.replace(AFTER, expect=(BEFORE,), downtime=False),
    ),
    "the pin of the autoscaler": (
        (hpa(),),
        lambda platform: platform.scaler.pin(platform.scaling()),
    ),
    "the weights of the route": ((shared(0),), lambda platform: platform.router.shift(ROUTE, 10)),
    "the removal of the candidate": (
        (beside(AFTER),),
        lambda platform: platform.engines.stop(AFTER),
    ),
}


def serving(server):
    """What serves, without the versions."""
    return {
        path: {**record, "metadata": {**record["metadata"], "resourceVersion": ""}}
        for path, record in server.objects.items()
        if not any(part in path for part in ("/leases/", "/controllerrevisions/"))
    }


def run_into_loss(command, write):
    """Write with a Lease that is lost; the error of the command."""
    with pytest.raises(Conflict) as lost, command.store.lease("rollout"):
        write(command.platform)
    assert lost.value.exit_code == 3
    assert (
        "service ns/demo is not locked by this command any more: it was taken by"
        in lost.value.message
    )
    return lost.value


@pytest.mark.parametrize(
    "things", [pytest.param(things, id=name) for name, things in WRITES.items()]
)
def test_a_write_that_was_checked_before_the_lease_was_taken_over_is_refused_after_it(things):
    more, write = things
    server = Server(service(), deployment(), pod(), *more)
    command, before = Command(server), serving(server)
    command.stops = lambda: taken_over(server)
    error = run_into_loss(command, write)
    assert serving(server) == before
    assert "nothing was written to the service by this command" in error.hint


@pytest.mark.parametrize(
    "things", [pytest.param(things, id=name) for name, things in WRITES.items()]
)
def test_the_lease_is_read_before_each_write(things):
    """A thief without a fence: the heartbeat of the command is young, and nothing is sent all the same."""
    more, write = things
    server = Server(service(), deployment(), pod(), *more)
    command = Command(server)

    def robbed(platform):
        steal(server)
        server.sent.clear()
        write(platform)

    run_into_loss(command, robbed)
    assert server.sent == []


def steal(server):
    path = LEASE.path("ns", "mpctl-demo")
    record = copy.deepcopy(server.objects[path])
    record["spec"]["holderIdentity"] = "thief"
    server.store(path, record)


def test_a_write_on_its_way_when_the_lease_is_stolen_is_named_as_possibly_later():
    server = Server(service(), deployment(), pod())
    command = Command(server)
    command.stops = lambda: steal(server)

    def write(platform):
        platform.replace(AFTER, expect=(BEFORE,), downtime=False)
        platform.replace(BEFORE, expect=(AFTER,), downtime=False)

    hint = run_into_loss(command, write).hint
    assert "the last write of this command may have come after that" in hint
    assert "it wrote InferenceService ns/demo (unchanged since)" in hint


def test_after_a_loss_the_command_says_what_it_wrote_and_what_became_of_it():
    server = Server(service(), deployment(), pod(), hpa())
    command = Command(server)

    def write(platform):
        platform.scaler.pin(platform.scaling())
        platform.replace(AFTER, expect=(BEFORE,), downtime=False)
        command.store.held.require()
        path = INFERENCE_SERVICE.path("ns", "demo")
        server.store(path, {**server.objects[path], "spec": {"predictor": {"containers": []}}})
        steal(server)
        command.store.held.require()

    hint = run_into_loss(command, write).hint
    assert "nothing was written since; before, this command wrote" in hint
    assert "HorizontalPodAutoscaler ns/queue (unchanged since)" in hint
    assert "InferenceService ns/demo (changed since)" in hint


def test_a_write_without_an_answer_is_named():
    server = Server(service(), deployment(), pod())
    command = Command(server)

    def write(platform):
        command.unanswered, command.stops = True, lambda: steal(server)
        platform.replace(AFTER, expect=(BEFORE,), downtime=False)
        command.store.held.require()

    hint = run_into_loss(command, write).hint
    assert "it wrote InferenceService ns/demo (no answer came)" in hint


def test_a_candidate_that_was_created_after_the_lease_was_taken_over_is_named():
    """The bound: what does not exist has no version, so its creation cannot be fenced off."""
    server = Server(service(), deployment(), pod())
    command, before = Command(server), serving(server)
    command.stops = lambda: taken_over(server)

    def write(platform):
        platform.engines.start(AFTER)
        command.store.held.require()

    hint = run_into_loss(command, write).hint
    assert "the last write of this command may have come after that" in hint
    assert "it wrote InferenceService ns/demo-candidate (unchanged since)" in hint
    candidate = INFERENCE_SERVICE.path("ns", "demo-candidate")
    assert {path: record for path, record in serving(server).items() if path != candidate} == before


# When a fence is due


def fences(server):
    """Writes of the service itself so far."""
    return len(
        [line for line in server.sent if line == f"PUT {INFERENCE_SERVICE.path('ns', 'demo')}"]
    )


def test_a_fence_changes_the_version_and_nothing_else():
    server = Server(service(), deployment(), pod(), hpa(), shared(0), beside(AFTER))
    before = copy.deepcopy(server.objects)
    fence(Command(server), INFERENCE_SERVICE, "ns", "demo")
    for path, record in server.objects.items():
        version = record["metadata"].pop("resourceVersion")
        is_fenced = version != before[path]["metadata"].pop("resourceVersion")
        assert is_fenced == any(
            path.endswith(name) for name in ("/demo", "/demo-candidate", "/queue", "/users")
        ), path
    assert server.objects == before


def test_the_mark_of_a_killed_command_is_removed_by_the_next_fence():
    server = Server(service(), deployment(), pod())
    killed = Command(server)
    killed._send = lambda method, *rest: killed_after_first_write(killed, method, *rest)
    with pytest.raises(KeyboardInterrupt):
        fence(killed, INFERENCE_SERVICE, "ns", "demo")
    path = INFERENCE_SERVICE.path("ns", "demo")
    (mark,) = server.objects[path]["metadata"]["managedFields"]
    assert mark["manager"] == "mpctl-fence"
    version = server.objects[path]["metadata"]["resourceVersion"]
    fence(Command(server), INFERENCE_SERVICE, "ns", "demo")
    assert "managedFields" not in server.objects[path]["metadata"]
    assert server.objects[path]["metadata"]["resourceVersion"] != version


def killed_after_first_write(command, method, *rest):
    answer = Command._send(command, method, *rest)
    if method == "PUT":
        raise KeyboardInterrupt
    return answer


def test_a_lease_that_its_holder_released_needs_no_fence():
    server = Server(service(), deployment(), pod())
    for _ in range(2):
        with Command(server).store.lease("rollout"):
            pass
    assert fences(server) == 0


@pytest.mark.parametrize("how", ["cleared", "deleted"])
def test_a_lease_that_another_client_cleared_or_deleted_is_fenced_off_as_one_that_is_taken_over(
    how,
):
    server = Server(service(), deployment(), pod())
    path, stopped = LEASE.path("ns", "mpctl-demo"), Command(server)
    with stopped.store.lease("rollout"):
        server.store("/apis/apps/v1/namespaces/ns/controllerrevisions/mpctl-demo.ledger-1", LEDGER)
        held = server.objects.pop(path)
        if how == "cleared":
            server.store(path, {**held, "spec": {}})
        with Command(server).store.lease("rollback"):
            assert fences(server) == 2


LEDGER = {
    "metadata": {
        "name": "mpctl-demo.ledger-1",
        "labels": {"mpctl.dev/service": "demo", "mpctl.dev/part": "ledger"},
    },
    "revision": 1,
    "data": {},
}


def test_a_fence_that_failed_is_made_by_the_next_command():
    server = Server(service(), deployment(), pod())
    with Command(server).store.lease("rollout"):
        pass
    steal(server)
    lease = Command(server).store.held
    server.forbidden = "inferenceservices/demo"
    with pytest.raises(NotPermitted):
        lease.unlock(lease.read(), force=True)
    with pytest.raises(NotPermitted), Command(server).store.lease("rollback"):
        pass
    server.forbidden = ""
    server.sent.clear()
    with Command(server).store.lease("rollback"):
        assert fences(server) == 2
