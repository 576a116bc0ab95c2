"""Users' traffic shared out by an HTTPRoute of theirs, and an old arm that is kept, while users go on asking.

KServe is in Gateway API mode, where it writes HTTPRoutes of its own for every InferenceService, candidates too. The
gateway (``rig/gateway.py``) is a real HTTP server that keeps a route's weights exactly. Pods take a second to stop,
as with a preStop hook: what an engine without one drops when it is replaced is not mpctl's to prevent.
"""

import itertools
import json
import re
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from mpctl.platform.kubernetes.service.manifest_text import text_of

from .asking import ask
from .meanwhile import Meanwhile
from .objects import CONTAINERS, ROUTE, taken_route
from .rig.gateway import CLASS
from .rig.nodes import L4
from .unmeasured import Unmeasured

SENTENCE = " ".join(["words"] * 16)
QUESTION = "one two three four"  # the scripted engine answers with it
ROLLOUT = ("rollout", "--spec", "ngram")
STEPS = (*ROLLOUT, "--traffic-steps", "10,20", "--step-duration", "1s")
OURS = (
    "configmaps",
    "leases",
    "controllerrevisions",
)  # ledger, records and the hold: written about, not changed
AT_10 = 7  # ledger entries until 10 % are on the candidate: opened, and one for each of six steps


def host_of(namespace):
    """A name of its own: the route of another test's namespace may still be there."""
    return f"{namespace.name}.example.com"


class Users(Meanwhile):
    """Asks one question after the other; ``seen`` has (began, weights, backend) of each, ``failed`` what went wrong."""

    pause_s = 0.005  # both processors are needed by others, too

    def __init__(self, cluster, namespace):
        super().__init__()
        self.cluster, self.namespace = cluster, namespace
        self.routed, self.failed = [], []

    def weights(self):
        """The current weights of the gateway."""
        routes = (
            r for r in self.cluster.gateway._routes.values() if r["metadata"]["name"] == "users"
        )
        (route,) = (r for r in routes if r["metadata"]["namespace"] == self.namespace.name)
        return tuple(
            (ref["name"], ref["weight"]) for ref in route["spec"]["rules"][0]["backendRefs"]
        )

    def _counts(self):
        routed = self.cluster.gateway.routed
        return {
            s: routed[self.namespace.name, s]
            for s in ("demo-predictor", "demo-candidate-predictor")
        }

    def look(self):
        began, weights, before = time.monotonic(), self.weights(), self._counts()
        try:
            if ask(self.cluster.gateway.url, QUESTION, Host=host_of(self.namespace)) != QUESTION:
                self.failed.append("another answer")
        except OSError as error:
            self.failed.append(repr(error))
        after = self._counts()
        went = [s for s in after if after[s] > before[s]]
        if weights == self.weights():
            self.routed.append((began, weights, went[0] if went else ""))

    def shares(self):
        """{candidate's weight in percent: (requests, those that went to the candidate)}"""
        counts = {}
        for _, weights, backend in self.routed:
            percent = dict(weights).get("demo-candidate-predictor", 0)
            asked, got = counts.get(percent, (0, 0))
            counts[percent] = (asked + 1, got + (backend == "demo-candidate-predictor"))
        return counts


class Crowd(Meanwhile):
    """Five users' requests a second, whether or not earlier ones are answered; ``failed`` and ``answered`` of them."""

    pause_s = 0.2

    def __init__(self, cluster, namespace):
        super().__init__()
        self.url, self.host = cluster.gateway.url, host_of(namespace)
        self.pool = ThreadPoolExecutor(32)
        self.answered, self.failed = [], []

    def look(self):
        self.pool.submit(self.ask)

    def ask(self):
        try:
            (
                self.answered
                if ask(self.url, SENTENCE, Host=self.host) == SENTENCE
                else self.failed
            ).append(SENTENCE)
        except OSError as error:
            self.failed.append(repr(error))

    def __exit__(self, *reason):
        super().__exit__(*reason)
        self.pool.shutdown(wait=True)


class Service:
    """A deployed service with a route of its users'."""

    def __init__(self, cluster, namespace, script=None):
        self.cluster, self.namespace = cluster, namespace
        cluster.pods.rule(lambda pod: {"stop_s": 1, "script": script or {}})
        namespace.deploy(CONTAINERS)
        taken_route(namespace.client, host_of(namespace))
        self.before, self.found = self.text(), self.route()

    def object(self):
        return self.namespace.client.get("httproutes", "users")

    def route(self):
        """Everything of the route that a user can set."""
        route = self.object()
        metadata = {k: route["metadata"].get(k) for k in ("name", "labels", "annotations")}
        return json.dumps({"metadata": metadata, "spec": route["spec"]}, sort_keys=True)

    def text(self):
        return text_of(self.namespace.client.get("isvc", "demo"))

    def candidate(self):
        return self.namespace.client.find("isvc", "demo-candidate")

    def as_it_was(self):
        assert self.text() == self.before
        assert self.route() == self.found
        assert self.candidate() is None


@pytest.fixture(scope="module", autouse=True)
def gateway_api(cluster):
    """KServe's mode, which it reads at its start."""
    cluster.kserve.configure({"ingress": {"enableGatewayApi": True}})
    cluster.kserve.restart()
    yield
    cluster.kserve.configure({})
    cluster.kserve.restart()


@pytest.fixture
def service(cluster, namespace):
    return Service(cluster, namespace)


@pytest.fixture
def run(mpctl):
    return Unmeasured(mpctl)


@pytest.fixture
def short_windows(mpctl):
    """Windows of users' requests of a second: the engines are scripted, so no window differs from another."""
    (mpctl.directory / "windows.yaml").write_text(
        "traffic_window_s: 1\ntraffic_window_requests: 2\n"
    )
    return "--policy", "windows.yaml"


@pytest.fixture
def third_node(cluster):
    name = cluster.add_node(L4)
    yield
    cluster.remove_node(name)


def test_traffic_steps_send_the_requested_shares_and_lose_no_request(
    cluster, third_node, service, run
):
    with Users(cluster, service.namespace) as users:
        done = run(
            *ROLLOUT, "--traffic-steps", "5,10,20,40", "--step-duration", "2s", "--keep-baseline"
        )
    assert "promoted" in done.stderr
    assert users.failed == []
    shares = users.shares()
    assert set(shares) == {0, 5, 10, 20, 40}
    for percent, (asked, got) in shares.items():
        assert abs(got - asked * percent / 100) <= 1, shares
    assert shares[40][1] > 1
    sys.stdout.write(f"requests and those of the candidate, by percent: {shares}\n")
    assert service.route() == service.found

    (status,) = run.json("status")["items"]
    assert [bool(a["keptSince"]) for a in status["status"]["arms"]] == [False, True]
    assert "(mpctl retire" in run("status").stdout
    assert "one write gives the retained baseline" in run("rollback", "--dry-run=client").stderr
    assert "no baseline is retained" in run("retire").stderr
    assert service.candidate() is None
    assert "has no retained baseline" in run("retire").stderr
    assert "one write" not in run("rollback", "--dry-run=client").stderr


def test_a_candidate_that_fails_under_production_traffic_is_rolled_back(cluster, service, run):
    cluster.pods.rule(lambda pod: {"stop_s": 1, "script": {"speculating": {"accept": 0.0}}})
    with Users(cluster, service.namespace):
        done = run(*ROLLOUT, "--traffic-steps", "10,20", "--step-duration", "30s", code=7)
    # A page of metrics that is read within a step has its tokens without the step, or the other way round.
    per_step = r"of the traffic: tokens per step (0\.9|1\.0)\d \(at least 1\.10; 99\.9% CI"
    assert re.search(per_step, done.stderr), done.stderr
    service.as_it_was()


def test_a_rollout_killed_during_a_traffic_step_resumes(cluster, service, run):
    run(*STEPS, kill_after=AT_10, code=-signal.SIGKILL)
    (status,) = run.json("status")["items"]
    assert [a["traffic"] for a in status["status"]["arms"]] == ["90 %", "10 %"]
    names = {route["metadata"]["name"] for route in service.namespace.client.list("httproutes")} - {
        "users"
    }
    assert {
        "demo-candidate",
        "demo-candidate-predictor",
    } <= names  # KServe's, and no traffic of users
    with Users(cluster, service.namespace) as users:
        run("resume")
    assert users.failed == []
    assert service.text() != service.before
    assert service.route() == service.found
    assert service.candidate() is None


def test_a_candidate_stays_while_a_foreign_edit_of_the_httproute_sends_it_traffic(
    cluster, service, run
):
    def write(hosts):
        change = json.dumps([{"op": "replace", "path": "/spec/hostnames", "value": hosts}])
        patch = (
            "patch",
            "httproute",
            "users",
            "--type=json",
            "-p",
            change,
            "--field-manager=somebody",
        )
        service.namespace.kubectl(*patch)

    run(*STEPS, kill_after=AT_10, code=-signal.SIGKILL)
    with Users(cluster, service.namespace) as users:
        write([host_of(service.namespace), "more.example.com"])
        done = run("rollback", code=3)
        assert "HTTPRoute users gives Service demo-candidate-predictor traffic" in done.stderr
        assert "was changed by somebody at" in done.stderr
        assert "kubectl edit httproute users" in done.stderr
        assert service.candidate() is not None
        write([host_of(service.namespace)])
        run("rollback")
    assert users.failed == []
    service.as_it_was()


def test_impossible_traffic_steps_are_refused_before_anything_changes(cluster, service, run):
    namespace = service.namespace
    done = run(*ROLLOUT, "--traffic-steps", "10,60", code=9)
    assert "60 % of the traffic" in done.stderr
    assert "at most 50 %" in done.stderr
    done = run(
        "rollout", "--spec", "ngram", "--keep-baseline", code=9
    )  # two GPUs: one serves, one is free
    assert "the retained baseline's 1 pods and one surge pod" in done.stderr
    done = run(*STEPS, "--strategy", "in-place", code=2)
    assert "--strategy side-by-side" in done.stderr
    second = {**ROUTE, "metadata": {"name": "more"}}
    namespace.client.apply(second)
    done = run(*STEPS, code=2)
    assert "2 HTTPRoutes lead to Service demo-predictor: more, users" in done.stderr
    for name in ("more", "users"):
        namespace.client.delete("httproutes", name)
    done = run(*STEPS, code=9)
    assert "no HTTPRoute of a user" in done.stderr
    offered = done.stderr[done.stderr.index("apiVersion:") :]
    assert "demo-predictor, port: 80" in offered
    assert {(c.verb, c.resource) for c in cluster.proxy.calls if c.write} == {
        ("update", "inferenceservices")
    }  # dry
    assert service.text() == service.before


def test_rollback_to_a_retained_baseline_is_one_write(cluster, third_node, service, run):
    run(*ROLLOUT, "--keep-baseline")
    with Users(cluster, service.namespace) as users:
        before = len(cluster.proxy.calls)
        done = run("rollback")
    assert "restored" in done.stderr
    assert users.failed == []
    service.as_it_was()
    # One write counts as one: what the ledger and the hold write about it are records, not changes.
    writes = [c for c in cluster.proxy.calls[before:] if c.write and c.resource not in OURS]
    moves = [c for c in writes if c.resource == "httproutes" and c.status == 200]
    assert len(moves) == 2  # there, and back once the service is restored
    assert writes[0] is moves[0]
    starts = [began for began, _, backend in users.routed if backend == "demo-candidate-predictor"]
    # Traffic is back before anything else is written.
    between = {backend for began, _, backend in users.routed if writes[1].at < began < moves[1].at}
    assert between == {"demo-candidate-predictor"}
    sys.stdout.write(
        f"the first request on the retained baseline began {starts[0] - moves[0].at:.3f} s after the write\n"
    )


def test_the_candidate_is_compared_on_copies_of_users_requests_which_nobody_notices(
    cluster, service, run, short_windows
):
    route = service.object()
    with Users(cluster, service.namespace) as users:
        done = run(*ROLLOUT, "--mirror", "100", "--step-duration", "8s", *short_windows)
    assert "copies of 100 % of users' requests" in done.stderr
    assert re.search(r"mirrored 100 %: time per output token \d+\.\d\dx", done.stderr), done.stderr
    assert users.failed == []
    assert {backend for _, _, backend in users.routed} <= {
        "demo-predictor",
        "",
    }  # no user met the candidate
    copies = cluster.gateway.mirrored[service.namespace.name, "demo-candidate-predictor"]
    assert copies > 5
    assert service.route() == service.found
    assert service.object()["metadata"]["uid"] == route["metadata"]["uid"]
    assert service.candidate() is None
    run("rollback")
    service.as_it_was()


def test_killed_while_requests_are_mirrored_it_resumes_or_rolls_back(
    cluster, service, run, short_windows
):
    mirror = (*ROLLOUT, "--mirror", "100", "--step-duration", "2s", *short_windows)
    for again in ("resume", "rollback"):
        run(
            *mirror, kill_after=AT_10 - 1, code=-signal.SIGKILL
        )  # begun: the filter is written or about to be
        with Users(cluster, service.namespace) as users:
            run(again)
        assert users.failed == []
        assert service.route() == service.found
        assert service.candidate() is None
        if again == "resume":
            assert service.text() != service.before
            run("rollback")
    service.as_it_was()


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_killed_after_every_entry_of_a_mirrored_rollout_it_resumes_or_rolls_back(
    cluster, service, run, short_windows
):
    with Users(cluster, service.namespace) as users:
        for entry in itertools.count(1):
            done = run(
                *ROLLOUT,
                "--mirror",
                "100",
                "--step-duration",
                "2s",
                *short_windows,
                kill_after=entry,
                code=None,
            )
            if done.returncode == 0:
                break
            assert done.returncode == -signal.SIGKILL, done.stderr
            run("resume" if entry % 2 else "rollback")
            assert service.route() == service.found
            assert service.candidate() is None
            if service.text() != service.before:
                run("rollback")
            service.as_it_was()
    assert entry > AT_10
    assert users.failed == []
    assert {backend for _, _, backend in users.routed} <= {"demo-predictor", ""}


def test_a_gateway_that_lists_no_mirror_is_refused_before_anything_changes(cluster, service, run):
    listed = cluster.client.get("gatewayclasses", CLASS)["status"]["supportedFeatures"]
    try:
        write = {
            "status": {
                "supportedFeatures": [
                    feature for feature in listed if "Mirror" not in feature["name"]
                ]
            }
        }
        cluster.client.patch("gatewayclasses", CLASS, write, subresource="status")
        done = run(*ROLLOUT, "--mirror", "100", code=9)
    finally:
        cluster.client.patch(
            "gatewayclasses", CLASS, {"status": {"supportedFeatures": listed}}, subresource="status"
        )
    assert f"GatewayClass {CLASS} lists no HTTPRouteRequestMirror" in done.stderr
    service.as_it_was()


MEASURED_ON_USERS = """\
traffic_window_s: 4
traffic_window_requests: 4
max_failed_excess: 1
"""


@pytest.fixture
def on_users(cluster, namespace, mpctl, tmp_path):
    """A rollout measured on users' requests at five a second: (placement, how much slower the candidate's steps are,
    exit code) -> the finished command, what users got, and the requests that they sent to the candidate. A step of the
    candidate brings two tokens."""

    def measured(placement, slow, code):
        service = Service(cluster, namespace, {"token_s": 0.05, "slow": slow})
        policy = tmp_path / "policy.yaml"
        policy.write_text(MEASURED_ON_USERS)
        asked = (
            "--measure-on",
            placement,
            *(("--users-share", "50") if placement == "split" else ()),
        )
        quick = ("--requests", "4", "--repeats", "2", "--max-tokens", "8", "--bake", "0")
        with Crowd(cluster, namespace) as crowd:
            mpctl.environment["MPCTL_USERS_WINDOW"] = "3s"
            done = mpctl(*ROLLOUT, *asked, *quick, "--policy", str(policy), code=code)
        assert crowd.failed == []
        assert len(crowd.answered) > 50
        assert service.route() == service.found
        assert service.candidate() is None
        slowed = cluster.gateway.routed[namespace.name, "demo-candidate-predictor"]
        counted = f"{placement}, slow {slow}: {len(crowd.answered)} requests of users, {slowed} on the candidate\n"
        sys.stdout.write(f"{counted}{done.stderr}\n")
        if code:
            assert service.text() == service.before
        return done, slowed

    return measured


@pytest.mark.nightly  # the copies themselves are tried above, and a slow candidate below
def test_a_faster_candidate_is_promoted_on_copies_of_users_requests(on_users):
    done, on_candidate = on_users("mirror", 2 / 1.8, 0)
    assert "promoted" in done.stderr
    assert "users' requests: time per output token 0.56x (96.6% CI 0.5" in done.stderr
    assert on_candidate == 0


@pytest.mark.nightly  # tests/unit/rollout/test_rollout_users.py stops a slower one every day
def test_a_candidate_at_half_the_speed_leaves_users_after_few_requests(on_users):
    done, on_candidate = on_users("split", 4, 5)
    assert (
        "users are spared the candidate: its time per output token is 2.00x the baseline's"
        in done.stderr
    )
    assert on_candidate <= 25
