"""A user with Kubernetes' default role ``edit`` in the namespace of a service tries to stop, redirect and forge.

docs/explanation/threat-model.md says what each attempt ends with.
"""

import json
import secrets
import subprocess
import sys
from datetime import UTC, datetime

import pytest
import yaml

from mpctl.app.watch.install import name_of
from mpctl.app.watch.loop import lease_of
from mpctl.platform.kubernetes.service.manifest_text import text_of

from .conftest import ROOT, make_mpctl
from .fixtures import Namespace
from .objects import CONTAINERS
from .rig.api import ApiError
from .unmeasured import Unmeasured

ROLLBACK = ("rollback", "demo", "--yes")
RBAC = "rbac.authorization.k8s.io"


class Edited:
    """A promoted service, a watch that may fall back, an operator, and eddie, who has the role edit beside them."""

    def __init__(self, cluster, folder):
        name = f"t-{secrets.token_hex(3)}"
        self.home, self.account = (
            f"{name}-watch",
            f"system:serviceaccount:{name}-watch:{name_of(name)}",
        )
        cluster.client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        self.cluster, self.namespace = cluster, Namespace(cluster, name)
        self.client = self.namespace.client
        self.mpctl = make_mpctl(cluster, name, folder)
        policy = folder / "watch.yaml"
        policy.write_text("fall_back: true\n")
        install = ("watch", "install", "-n", name, "--home", self.home, "--image", "mpctl:1")
        printed = [self.mpctl(*install, "--watch-policy", str(policy)).stdout]
        printed.append(self.mpctl("rbac", "-n", name, "--to", "user:oscar").stdout)
        documents = [
            d for text in printed for d in yaml.safe_load_all(text) if d["kind"] != "PodMonitor"
        ]
        for document in documents:
            if document["kind"] == "Deployment":
                document["spec"]["replicas"] = 0
        self.installed = json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})
        cluster.kubectl("apply", "-f", "-", stdin=self.installed)
        cluster.kubectl(
            "create", "rolebinding", "eddie", "--clusterrole=edit", "--user=eddie", "-n", name
        )
        self.user = cluster.user("eddie")
        self.eddie = cluster.client_for(self.user, name)
        self.oscar = Unmeasured(self.mpctl.as_user(cluster.user("oscar")))
        self.namespace.deploy(CONTAINERS)
        self.before = text_of(self.client.get("isvc", "demo"))
        self.client.wait("eddie has his role", lambda: self.eddie.list("configmaps") is not None)

    def promoted(self):
        self.oscar("rollout", "demo", "--spec", "ngram", "-y")

    def rolled_back(self):
        """Roll back as the operator: the service is as it was."""
        self.oscar(*ROLLBACK)
        assert text_of(self.client.get("isvc", "demo")) == self.before

    def kubectl(self, *arguments, stdin=""):
        path = self.mpctl.directory / "eddie"
        self.cluster.kubeconfig_for(self.user, path, namespace=self.namespace.name)
        return self.cluster.kubectl(*arguments, kubeconfig=path, stdin=stdin, code=None)

    def remove(self):
        self.eddie.close()
        self.cluster.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=self.installed)
        self.namespace.delete()


@pytest.fixture(scope="module")
def edited(cluster, tmp_path_factory):
    made = Edited(cluster, tmp_path_factory.mktemp("edit"))
    yield made
    made.remove()


def revision(name):
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": name,
            "labels": {"mpctl.dev/service": "demo", "mpctl.dev/part": "ledger"},
        },
        "revision": 99,
        "data": {},
    }


def token_of(where, account):
    path = f"/api/v1/namespaces/{where}/serviceaccounts/{account}/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    return lambda edited: edited.eddie.request("POST", path.format(**vars_of(edited)), body)


def vars_of(edited):
    return {
        "home": edited.home,
        "watch": name_of(edited.namespace.name),
        "namespace": edited.namespace.name,
    }


def pod_as_the_watch(edited):
    container = {"name": "a", "image": "busybox"}
    spec = {"serviceAccountName": name_of(edited.namespace.name), "containers": [container]}
    edited.eddie.apply(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "thief"}, "spec": spec}
    )


def binding(edited):
    edited.eddie.apply(
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "mine"},
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": "mpctl-operator"},
            "subjects": [{"apiGroup": RBAC, "kind": "User", "name": "eddie"}],
        }
    )


def newest_revision(edited):
    return edited.client.list("controllerrevisions", labels="mpctl.dev/service=demo")[-1][
        "metadata"
    ]["name"]


REFUSED = {
    "a token of the watch": token_of("{home}", "{watch}"),
    "a pod with the watch's account": pod_as_the_watch,
    "a pod in the watch's namespace": lambda e: e.eddie.within(e.home).apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "thief"},
            "spec": {"containers": [{"name": "a", "image": "b"}]},
        }
    ),
    "the watch's policy changed": lambda e: e.eddie.within(e.home).patch(
        "configmaps", name_of(e.namespace.name), {"data": {"watch.yaml": "fall_back: false"}}
    ),
    "the watch's Lease taken": lambda e: e.eddie.within(e.home).apply(
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": lease_of(e.namespace.name)},
        }
    ),
    "the operator's role bound": binding,
    "a forged ledger entry": lambda e: e.eddie.apply(revision("mpctl-demo.ledger-99")),
    "an entry changed": lambda e: e.eddie.patch(
        "controllerrevisions", newest_revision(e), {"revision": 7}
    ),
    "an entry deleted": lambda e: e.eddie.delete("controllerrevisions", newest_revision(e)),
    "the service changed": lambda e: e.eddie.patch(
        "isvc", "demo", {"metadata": {"labels": {"a": "b"}}}
    ),
    "a candidate created": lambda e: e.eddie.apply(
        {**yaml.safe_load(CONTAINERS), "metadata": {"name": "demo-candidate"}}
    ),
    "a route to another Service": lambda e: e.eddie.apply(
        {
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "HTTPRoute",
            "metadata": {"name": "mine"},
            "spec": {"rules": [{"backendRefs": [{"name": "evil", "port": 80}]}]},
        }
    ),
    "a status of the watch": lambda e: e.eddie.apply(
        {
            "apiVersion": "mpctl.dev/v1alpha1",
            "kind": "SpeculationStatus",
            "metadata": {"name": "demo"},
        }
    ),
}


@pytest.fixture(scope="module")
def promoted(edited):
    edited.promoted()
    return edited


@pytest.mark.parametrize("attempt", REFUSED.values(), ids=REFUSED)
def test_the_api_server_refuses(promoted, attempt):
    with pytest.raises(ApiError) as refusal:
        attempt(promoted)
    assert refusal.value.status == 403
    assert "forbidden" in refusal.value.message


def test_the_watchs_account_is_not_impersonated(promoted):
    output = promoted.kubectl("--as", promoted.account, "get", "pods")
    assert "(Forbidden)" in output and "cannot impersonate" in output


def test_no_service_account_of_the_service_namespace_may_do_what_mpctl_may(promoted):
    """Tokens of these accounts are eddie's, which is why mpctl puts none there."""
    accounts = [a["metadata"]["name"] for a in promoted.client.list("serviceaccounts")]
    assert accounts
    for account in accounts:
        name = f"system:serviceaccount:{promoted.namespace.name}:{account}"
        for verb, kind in (
            ("create", "controllerrevisions.apps"),
            ("update", "inferenceservices.serving.kserve.io"),
        ):
            output = promoted.namespace.kubectl(
                "auth", "can-i", verb, kind, "--as", name, code=None
            )
            assert output.strip().splitlines()[-1] == "no", (account, verb, kind)


def lease(edited, holder=None, **annotations):
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    notes = {f"mpctl.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    spec = {"holderIdentity": holder, "renewTime": now}
    edited.eddie.patch("leases", "mpctl-demo", {"metadata": {"annotations": notes}, "spec": spec})


def test_a_lease_that_is_taken_is_named_and_unlocked(promoted):
    lease(promoted, "eddie")
    done = promoted.oscar(*ROLLBACK, code=3)
    text = " ".join(done.stderr.split())
    assert "is held by eddie, last heartbeat" in text and "and not by mpctl" in text, text
    assert "mpctl unlock demo --force" in text
    promoted.oscar("unlock", "demo", "--force", "--yes")
    promoted.rolled_back()
    promoted.promoted()


def test_a_lease_with_a_false_newest_entry_is_named_and_unlocked(promoted):
    lease(promoted, newest_entry="9999 0123", process="garbage")
    done = promoted.oscar(*ROLLBACK, code=3)
    assert (
        f"entry 9999 is named by Lease {promoted.namespace.name}/mpctl-demo, last written by"
        in " ".join(done.stderr.split())
    )
    promoted.oscar("unlock", "demo", "--force", "--yes")
    promoted.rolled_back()
    promoted.promoted()


def test_a_lease_that_is_deleted_stops_nothing(promoted):
    promoted.eddie.delete("leases", "mpctl-demo")
    promoted.rolled_back()
    promoted.promoted()


def test_a_job_that_looks_like_the_load_client_gets_no_prompt(promoted):
    labels = {"mpctl.dev/service": "demo", "mpctl.dev/part": "load", "mpctl.dev/scope": "bench"}
    container = {
        "name": "load",
        "image": "vllm/vllm-openai:v0.32.0",
        "command": ["python3", "-c", "import time"],
    }
    template = {
        "metadata": {"labels": labels},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "mpctl-demo-bench-0", "labels": labels},
    }
    promoted.eddie.apply({**job, "spec": {"suspend": True, "template": template}})
    few = ("--requests", "4", "--repeats", "1", "--max-tokens", "16")
    promoted.mpctl("bench", "demo", *few)
    assert promoted.client.get("jobs", "mpctl-demo-bench-0")["status"].get("startTime") is None
    promoted.eddie.delete("jobs", "mpctl-demo-bench-0")


# Answers as the load client does, and prints what it gets.
LISTENER = """
import http.server, os
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        print("GET", self.path, flush=True)
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")
    def do_POST(self):
        print(self.rfile.read(int(self.headers["Content-Length"])), flush=True)
        self.do_GET()
print("listens", flush=True)
http.server.ThreadingHTTPServer((os.environ["RIG_ADDRESS"], 8765), Handler).serve_forever()
"""
TRACKED = ["batch.kubernetes.io/job-tracking"]
BENCH = ("bench", "demo", "--requests", "4", "--repeats", "1", "--max-tokens", "16")


LOAD = "mpctl.dev/part=load"


def is_load(pod):
    return pod["metadata"]["labels"].get("mpctl.dev/part") == "load"


@pytest.fixture
def unloaded(promoted):
    """The promoted service without a load client, or a pod of eddie's, that an earlier test or try left: a bench that
    continues would take the Job as its own."""

    def left():
        pods = promoted.client.list("pods", labels=LOAD)
        friendly = promoted.client.find("pods", "friendly")
        return [
            *promoted.client.list("jobs", labels=LOAD),
            *pods,
            *([friendly] if friendly else ()),
        ]

    for job in promoted.client.list("jobs", labels=LOAD):
        promoted.client.delete("jobs", job["metadata"]["name"])
    promoted.client.wait("no load client is left", lambda: not left())
    return promoted


def started_before(edited, job):
    """A pod that runs before the Job is there, and gets the labels of its template then."""
    edited.eddie.patch(
        "pods",
        "friendly",
        {"metadata": {"labels": job()["spec"]["template"]["metadata"]["labels"]}},
    )


def started_after(edited, job, **changes):
    """A pod from the Job's own template, made by eddie, with changes of its container."""
    edited.eddie.delete("pods", "friendly", grace_s=0)
    template = job()["spec"]["template"]
    template["spec"]["containers"][0] |= changes
    metadata = {**template["metadata"], "finalizers": TRACKED, "name": "friendly"}
    edited.client.wait(
        "his first pod is gone", lambda: edited.client.find("pods", "friendly") is None
    )
    edited.eddie.apply(
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
    )


def started_with_his_command(edited, job):
    """A pod from the Job's own template, but for the command."""
    started_after(edited, job, command=["python3", "-c", LISTENER])


@pytest.mark.parametrize(
    ("attempt", "reason"),
    [
        (started_before, "it is older than the Job"),
        (started_with_his_command, "it differs from the Job's template: command of container load"),
        (started_after, "it was created by tests, not by the Job's controller"),
    ],
)
def test_a_pod_that_the_load_job_adopted_gets_no_prompt_and_decides_nothing(
    unloaded, attempt, reason
):
    """The Job's controller takes eddie's running pod for its own, and deletes the one that still starts."""
    promoted = unloaded
    container = {
        "name": "load",
        "image": "vllm/vllm-openai:v0.32.0",
        "command": ["python3", "-c", LISTENER],
    }
    metadata = {"name": "friendly", "labels": {"app": "friendly"}, "finalizers": TRACKED}
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}
    promoted.eddie.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    running = lambda: promoted.client.get("pods", "friendly")["status"].get("phase") == "Running"  # noqa: E731
    promoted.client.wait("his pod runs", running)
    slow = promoted.cluster.pods.rule(
        lambda pod: (
            {"start_s": 120.0} if is_load(pod) and pod["metadata"]["name"] != "friendly" else None
        )
    )
    bench = promoted.mpctl.start(*BENCH)
    owners, logs = [], []

    def job():
        jobs = promoted.client.list("jobs", labels=LOAD)
        return jobs[0] if jobs else None

    try:
        promoted.client.wait("the Job is there", job)
        attempt(promoted, job)

        # mpctl may refuse the pod, and end the Job with it, before anybody else sees that it was adopted.
        def ended():
            if pod := promoted.client.find("pods", "friendly"):
                owners.extend(pod["metadata"].get("ownerReferences", ()))
            if started := promoted.cluster.pods.named(promoted.namespace.name, "friendly"):
                logs.append(started.log("load"))
            return bench.poll() is not None

        promoted.client.wait("mpctl has refused the pod", ended)
        _, stderr = bench.communicate(timeout=300)
    finally:
        slow()
        bench.kill()
        promoted.eddie.delete("pods", "friendly", grace_s=0)
    assert all((owner["kind"], owner["controller"]) == ("Job", True) for owner in owners)
    assert bench.returncode not in (0, -9), stderr
    text = " ".join(stderr.split())
    assert f"pod friendly is not one that the Job's controller created: {reason}" in text
    assert "MPCTL_LOAD=local" in text
    # The template's own agent may write why it could not start; the listener would write what it was sent.
    heard = [line for log in logs if log.exists() for line in log.read_text().splitlines()]
    assert attempt is started_after or {*heard} <= {"listens"}
    assert not any("Return th" in line for line in heard)  # as every built-in prompt has it


def test_a_block_forged_through_a_port_forward_is_refused(unloaded):
    """Eddie may forward the port of the load Job's pod. Without the operator's secret it neither takes nor tells."""
    kubeconfig = unloaded.mpctl.directory / "eddie-forwards"
    namespace = unloaded.namespace.name
    unloaded.cluster.kubeconfig_for(unloaded.user, kubeconfig, namespace=namespace)
    forge = [sys.executable, "-m", "tests.cluster.forged_block", str(kubeconfig), namespace]

    def running():
        pods = unloaded.client.list("pods", labels=LOAD)
        return [pod["metadata"]["name"] for pod in pods if pod["status"].get("phase") == "Running"]

    def statuses():
        """The pod may be another one by now: of a Job that the bench replaced before it was killed."""
        pods = running()
        if len(pods) != 1:
            return []
        done = subprocess.run(
            [*forge, *pods], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    bench = unloaded.mpctl.start(*BENCH)
    unloaded.client.wait("the load client's pod runs", running)
    bench.kill()  # its Job stays, so that no end of the measurement is raced for
    bench.communicate()
    assert unloaded.client.wait("the load client answers", statuses) == [403] * 4
    for job in unloaded.client.list("jobs", labels=LOAD):
        unloaded.client.delete("jobs", job["metadata"]["name"])


def test_an_engine_beside_the_services_is_not_taken_for_one(promoted):
    """Kubernetes gives users' requests to every pod with the Service's labels, which edit may start; mpctl does not.
    With a forged owner Kubernetes takes a pod for a replica, and stops the younger of two."""
    labels = {
        "serving.kserve.io/inferenceservice": "demo",
        "app": "isvc.demo-predictor",
        "component": "predictor",
    }
    container = {
        "name": "kserve-container",
        "image": "vllm/vllm-openai:v0.32.0",
        "args": ["--model=m"],
    }
    metadata = {"name": "impostor", "labels": labels}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [container]},
    }
    promoted.eddie.apply(pod)
    promoted.client.wait(
        "it runs",
        lambda: promoted.client.get("pods", "impostor")["status"].get("phase") == "Running",
    )
    (engine,) = (p for p in promoted.namespace.pods() if p["metadata"]["name"] != "impostor")
    forged = {key: engine["metadata"][key] for key in ("labels", "ownerReferences")} | {
        "name": "forged"
    }
    promoted.eddie.apply({**pod, "metadata": forged})
    promoted.client.wait("it is stopped", lambda: promoted.client.find("pods", "forged") is None)
    assert (
        promoted.client.get("pods", engine["metadata"]["name"])["metadata"]["uid"]
        == engine["metadata"]["uid"]
    )
    (item,) = promoted.mpctl.json("status", "demo")["items"]
    assert "ngram" in item["status"]["speculation"]
    assert [arm["argumentsMatch"] for arm in item["status"]["arms"]] == [True]
    promoted.rolled_back()
    promoted.eddie.delete("pods", "impostor")
    promoted.promoted()


def test_records_that_were_deleted_or_forged_change_no_rollback(promoted):
    records = promoted.eddie.list("configmaps", labels="mpctl.dev/service=demo")
    for record in records:
        promoted.eddie.delete("configmaps", record["metadata"]["name"])
    forged = {"mpctl.dev/service": "demo", "mpctl.dev/part": "record"}
    metadata = {"name": "mpctl-demo-rollout-1-plan", "labels": forged}
    data = {"operation": "rollout-1", "name": "plan"}
    promoted.eddie.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
    )
    promoted.rolled_back()
    promoted.eddie.delete("configmaps", metadata["name"])
