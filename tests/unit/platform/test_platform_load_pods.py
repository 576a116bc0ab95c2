"""The load Job found, made, watched and removed, on objects in memory; its pod answers from this process."""

import copy
import hashlib
import http.server
import json
import threading
from types import SimpleNamespace

import pytest
from test_platform_load_job import POD

from mpctl.errors import MpctlError, NotPermitted
from mpctl.experiment.block import LoadResult
from mpctl.experiment.cell import Cell
from mpctl.experiment.counters import Counters
from mpctl.platform.http import HttpAnswer, NoAnswer
from mpctl.platform.kubernetes.api.port_forward import ForwardTarget
from mpctl.platform.kubernetes.api.replies import OutcomeUnknown, Stale
from mpctl.platform.kubernetes.load_job import owner_secret
from mpctl.platform.kubernetes.load_job.job_client import JobClient
from mpctl.platform.kubernetes.load_job.job_pods import LoadPod
from mpctl.rollout.ports import BlockLost, Endpoint, LoadOrder

ENGINE = Endpoint("http://127.0.0.1:1", "demo", token="sk-1", inside="http://100.64.0.7:8080")
CELL = Cell("edits", 1)
KILLED = {"terminated": {"reason": "Error", "exitCode": 137}}
COUNTED = "vllm:generation_tokens_total {}.0\n"


class Api:
    """``Client`` on a dictionary: every Job has a pod that runs."""

    def __init__(self):
        self.jobs, self.refuse = {}, None
        self.made, self.lost, self.killed = 0, 0, set()
        self.conflicts = 0  # answers to the next deletions
        self.dry_runs, self.no_dry_run = 0, False
        self.phase, self.state = "Running", {"running": {}}
        self.other_spec = {}  # fields of the pods that differ from the Job's template
        self.evicted = []  # the uid of a Job without its pods; it has failed when it was listed four times

    def _allowed(self, verb, kind):
        if self.refuse == f"{verb} {kind.plural}":
            raise NotPermitted(f"not allowed to {verb} {kind.plural}")

    def list(self, kind, namespace, *, labels="", fields=""):
        self._allowed("list", kind)
        if kind.name == "Job":
            for job in self.jobs.values():
                if job["metadata"]["uid"] in self.evicted:
                    self.evicted.append("listed")
                    job["status"] = {"failed": 1} if len(self.evicted) > 4 else {}
            return list(self.jobs.values())
        if kind.name == "Pod":
            uid = labels.partition("=")[2]
            if uid in self.evicted:
                return []
            jobs = [job for job in self.jobs.values() if job["metadata"]["uid"] == uid]
            return [self._pod(job) for job in jobs]
        return []

    def _pod(self, job):
        status = {"phase": self.phase, "containerStatuses": [{"name": "load", "state": self.state}]}
        uid = job["metadata"]["uid"]
        if uid in self.killed:
            status = {"phase": "Failed", "containerStatuses": [{"name": "load", "state": KILLED}]}
        owners = [{"kind": "Job", "uid": uid, "controller": True}]
        metadata = {
            "name": f"pod-{uid}",
            "uid": f"of-{uid}",
            "labels": {},
            "ownerReferences": owners,
        }
        spec = copy.deepcopy(job["spec"]["template"]["spec"]) | self.other_spec
        return {"metadata": metadata, "spec": spec, "status": status}

    def create(self, kind, body, *, dry_run=False):
        self._allowed("create", kind)
        if dry_run:
            self.dry_runs += 1
            if self.no_dry_run:
                raise MpctlError("admission webhook does not support dry run")
            return {**body, "metadata": {**body["metadata"], "uid": "never-stored"}}
        self.made += 1
        metadata = {**body["metadata"], "uid": f"u{self.made}"}
        self.jobs[metadata["name"]] = {**body, "metadata": metadata}
        if self.lost:
            self.lost -= 1
            raise OutcomeUnknown("no answer came")
        return self.jobs[metadata["name"]]

    def delete(self, kind, name, namespace, *, uid):
        self._allowed("delete", kind)
        assert self.jobs[name]["metadata"]["uid"] == uid
        if self.conflicts:
            self.conflicts -= 1
            raise Stale("the object has been modified")
        del self.jobs[name]

    def log(self, name, namespace, *, container):
        return "first\nlast"


@pytest.fixture
def pod_side():
    """What listens in the pod: remembers blocks; ``answers`` are given in turn."""
    rows, answers, statuses, sent_by = [], [], [], []

    class Side(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path == "/ready":
                self._tell(200, {})
            else:
                self._tell(*answers.pop(0))

        def do_POST(self):
            rows.append(
                (self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            )
            sent_by.append(self.headers["Authorization"])
            self._tell(statuses.pop(0) if statuses else 202, {})

        def _tell(self, status, record):
            if status is None:
                return  # hangs up
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(record).encode())

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Side)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield SimpleNamespace(
        url=f"http://127.0.0.1:{server.server_port}",
        asked=rows,
        answers=answers,
        statuses=statuses,
        sent_by=sent_by,
    )
    server.shutdown()
    server.server_close()


@pytest.fixture
def world(pod_side, monkeypatch, tmp_path):
    """An API and clients of it, each as a new command has one."""
    owner_secret._key.cache_clear()
    api = Api()
    found = SimpleNamespace(pods=[{**POD, "status": {}}])
    monkeypatch.setenv("MPCTL_STATE_DIR", str(tmp_path))
    service = {"metadata": {"uid": "isvc-1"}}
    reader = SimpleNamespace(
        namespace="chat", isvc=lambda name: service, workload=lambda isvc: found
    )

    def client():
        pod = LoadPod(api, reader, "demo", scope="rollout", sleep=lambda seconds: None)
        pod._forwards = SimpleNamespace(
            target=lambda name, port: ForwardTarget(pod_side.url),
            refusal=lambda name, port: None,
            close=lambda: None,
        )
        return JobClient(pod)

    return SimpleNamespace(api=api, client=client, side=pod_side, found=found)


RESULT = {"started": "2026-01-01T00:00:00+00:00", "duration_s": 1.0, "requests": []}


def done(before=1, after=9, **more):
    return 200, {
        "result": RESULT,
        "before": COUNTED.format(before),
        "after": COUNTED.format(after),
        **more,
    }


def send(client, key="rollout-1/block", endpoint=ENGINE, cell=CELL):
    return client.send(endpoint, LoadOrder(("a", "b"), cell, 16, key), Counters)


def test_a_block_goes_to_the_pods_own_address_with_the_key_in_no_object(world):
    world.side.answers += [(202, {}), done()]
    sent = send(world.client())
    assert (sent.before.generation_tokens, sent.after.generation_tokens) == (1.0, 9.0)
    ((_, block),) = world.side.asked
    assert block["address"] == "http://100.64.0.7:8080"
    assert [body["messages"][0]["content"] for body in block["load"]["bodies"]] == ["a", "b"]
    assert (block["metrics"], block["token"]) == ("http://100.64.0.7:8080/metrics", "sk-1")
    assert "sk-1" not in json.dumps(list(world.api.jobs.values()))


def test_the_name_of_a_block_is_its_own_and_the_engines(world):
    client = world.client()
    world.side.answers += [done()] * 5
    send(client)
    send(world.client())
    send(client, key="rollout-1/other")
    send(client, key="")
    send(client, key="")
    paths = [path for path, _ in world.side.asked]
    assert paths[0] == paths[1]
    assert len(set(paths)) == 4
    assert world.api.made == 1  # a later command finds the Job


def test_a_question_without_an_answer_is_asked_again(world):
    world.side.answers += [(None, None), (202, {}), (None, None), done()]
    assert send(world.client()).result == LoadResult("2026-01-01T00:00:00+00:00", 1.0, ())
    assert len(world.side.asked) == 1


def test_a_job_whose_making_was_not_answered_is_found(world):
    world.api.lost = 1
    world.side.answers.append(done())
    send(world.client())
    assert world.api.made == 1


def test_a_job_that_is_over_and_one_of_another_image_are_replaced(world):
    client = world.client()
    client.prepare()
    (name,) = world.api.jobs
    world.api.jobs[name]["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    other = copy.deepcopy(world.api.jobs[name])
    other["spec"]["template"]["spec"]["containers"][0]["image"] = "other"
    world.api.jobs["other"] = {**other, "metadata": {"name": "other", "uid": "u0"}}
    world.side.answers.append(done())
    send(client)
    (job,) = world.api.jobs.values()
    assert job["metadata"]["uid"] == "u2"
    assert job["metadata"]["name"] != name


def prepared(world, change):
    """A Job with our labels that somebody prepared: as a command would create it, and ``change``."""
    other = world.client()
    other.prepare()
    (job,) = world.api.jobs.values()
    change(job["spec"]["template"]["spec"])
    return job["metadata"]["uid"]


def test_a_prepared_job_gets_no_prompt_and_is_replaced(world):
    uid = prepared(world, lambda spec: spec.update(hostPID=True))
    world.side.answers.append(done())
    send(world.client())
    (job,) = world.api.jobs.values()
    assert job["metadata"]["uid"] != uid
    assert "hostPID" not in job["spec"]["template"]["spec"]


def owner_of(world):
    """The digest in the command of the only Job."""
    (job,) = world.api.jobs.values()
    return job["spec"]["template"]["spec"]["containers"][0]["command"][-1]


def test_every_request_brings_the_secret_whose_digest_alone_is_in_the_job(world):
    world.side.answers.append(done())
    send(world.client())
    (authorization,) = world.side.sent_by
    assert hashlib.sha256(authorization.encode()).hexdigest() == owner_of(world)
    assert authorization.removeprefix("Bearer ") not in json.dumps(list(world.api.jobs.values()))


def test_a_command_on_another_machine_does_not_know_the_secret_and_gets_a_new_job(
    world, monkeypatch, tmp_path
):
    world.client().prepare()
    here = owner_of(world)
    world.client().prepare()
    assert (world.api.made, owner_of(world)) == (1, here)
    owner_secret._key.cache_clear()
    monkeypatch.setenv("MPCTL_STATE_DIR", str(tmp_path / "another"))
    world.client().prepare()
    assert owner_of(world) != here
    (job,) = world.api.jobs.values()
    assert job["metadata"]["uid"] == "u2"


def test_a_state_directory_that_cannot_be_written_stops_no_measurement(
    world, monkeypatch, tmp_path
):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MPCTL_STATE_DIR", str(tmp_path / "file"))
    world.side.answers += [done()] * 2
    client = world.client()
    send(client)
    send(client, key="rollout-1/other")
    assert world.api.made == 1


def test_a_block_that_another_client_sent_under_its_name_is_lost_and_not_taken(world):
    world.side.statuses.append(409)
    with pytest.raises(BlockLost, match="its pod has other requests under this block's name"):
        send(world.client())
    assert not world.api.jobs


IMPOSTOR = {"containers": [{"name": "load", "image": "evil"}]}


def test_a_pod_that_the_job_adopted_gets_no_prompt_and_is_named(world):
    world.api.other_spec = IMPOSTOR
    with pytest.raises(
        MpctlError, match="pod pod-u1 is not one that the Job's controller created: it differs"
    ) as refusal:
        send(world.client())
    assert world.side.asked == []
    assert "MPCTL_LOAD=local" in refusal.value.hint


def test_a_pod_that_was_changed_between_two_blocks_gets_no_more_prompts(world):
    client = world.client()
    world.side.answers += [done()] * 2
    send(client)
    world.api.other_spec = {"ephemeralContainers": [{"name": "debug", "image": "evil"}]}
    with pytest.raises(MpctlError, match="differs from the Job's template: ephemeralContainers"):
        send(client, key="rollout-1/other")
    assert len(world.side.asked) == 1


def test_where_no_dry_run_is_possible_a_new_job_is_created(world):
    uid = prepared(world, lambda spec: None)
    world.api.no_dry_run = True
    world.side.answers.append(done())
    send(world.client())
    assert [job["metadata"]["uid"] == uid for job in world.api.jobs.values()] == [False]


def test_without_a_job_of_an_earlier_command_nothing_is_asked_twice(world):
    world.side.answers += [done()] * 2
    client = world.client()
    send(client)
    send(client, key="rollout-1/other")
    assert (world.api.made, world.api.dry_runs) == (1, 0)


def test_a_job_whose_pod_was_evicted_between_two_blocks_is_replaced(world):
    client = world.client()
    world.side.answers += [done()] * 2
    send(client)
    world.api.evicted.append("u1")
    send(client, key="rollout-1/other")
    (job,) = world.api.jobs.values()
    assert job["metadata"]["uid"] == "u2"


def test_a_pod_that_ends_is_named_with_its_last_words(world):
    world.api.phase, world.api.state = (
        "Failed",
        {"terminated": {"reason": "OOMKilled", "exitCode": 137}},
    )
    with pytest.raises(
        MpctlError, match="cannot send the load: pod pod-u1: OOMKilled with code 137"
    ) as told:
        send(world.client())
    assert "last" in told.value.hint
    assert "MPCTL_LOAD=local" in told.value.hint


def test_a_pod_that_ends_in_the_middle_of_a_block_is_named(world, monkeypatch):
    def hang_up(method, url, **_):
        if url.endswith("/ready"):
            return HttpAnswer(200, b"{}")
        world.api.phase, world.api.state = (
            "Failed",
            {"terminated": {"reason": "Error", "exitCode": 1}},
        )
        raise NoAnswer("gone")

    monkeypatch.setattr("mpctl.platform.http.request", hang_up)
    with pytest.raises(
        MpctlError,
        match=r"load Job chat/mpctl-demo-rollout-\w+ ended: pod pod-u1: Error with code 1",
    ):
        send(world.client())


def test_what_the_client_says_is_told(world):
    world.side.answers.append((200, {"error": "SystemExit: 2"}))
    with pytest.raises(MpctlError, match=r"the load client in load Job .* failed: SystemExit: 2"):
        send(world.client())


def test_without_a_pod_there_is_no_image(world):
    world.found.pods.clear()
    world.client().prepare()  # said when it is needed
    with pytest.raises(MpctlError, match="has no pod to take the load client's image from"):
        send(world.client())


@pytest.mark.parametrize("call", ["list jobs", "create jobs"])
def test_a_missing_right_is_said_before_an_engine_starts(world, call):
    world.api.refuse = call
    with pytest.raises(NotPermitted, match=call):
        world.client().prepare()


def test_at_the_end_it_is_removed_also_by_another_command(world):
    world.client().prepare()
    assert world.client().close() == ""
    assert not world.api.jobs


def test_a_conflict_leaves_no_job(world):
    client = world.client()
    client.prepare()
    world.api.conflicts = 3
    assert client.close() == ""
    assert not world.api.jobs
    client.prepare()
    world.api.conflicts = 9
    assert (
        "was not deleted and ends within 20 minutes: the object has been modified" in client.close()
    )


def test_what_cannot_be_removed_is_said(world):
    client = world.client()
    client.prepare()
    world.api.refuse = "delete jobs"
    assert "ends within 20 minutes: not allowed to delete jobs" in client.close()
    assert "was not deleted" in world.client().close()
    world.api.refuse = "list jobs"
    assert world.client().close() == ""  # a way back that never had one


def test_a_lost_pod_ends_the_job_and_the_next_block_gets_a_new_one(world, monkeypatch):
    def hang_up(method, url, **_):
        if url.endswith("/ready"):
            return HttpAnswer(200, b"{}")
        world.api.killed.add("u1")
        raise NoAnswer("gone")

    monkeypatch.setattr("mpctl.platform.http.request", hang_up)
    client = world.client()
    with pytest.raises(BlockLost, match="ended: pod pod-u1: Error with code 137"):
        send(client)
    assert not world.api.jobs
    client.prepare()
    (job,) = world.api.jobs.values()
    assert job["metadata"]["uid"] == "u2"


def test_a_job_of_which_a_pod_has_ended_is_replaced(world):
    client = world.client()
    client.prepare()
    (job,) = world.api.jobs.values()
    job["status"] = {"succeeded": 1}
    client.prepare()
    assert [job["metadata"]["uid"] for job in world.api.jobs.values()] == ["u2"]
