"""The platform against a cluster in memory: what it refuses before anything is changed, and what it writes again."""

from __future__ import annotations

import contextlib
import copy

import pytest

from mpctl.errors import Conflict, InputError, MpctlError, NotPermitted, Refused
from mpctl.experiment.counters import Counters
from mpctl.platform.kubernetes.api.api_client import CannotWatch
from mpctl.platform.kubernetes.api.kinds import DEPLOYMENT, INFERENCE_SERVICE
from mpctl.platform.kubernetes.cluster_platform import KubernetesPlatform
from mpctl.platform.kubernetes.service.conditions import is_at_rest
from mpctl.platform.kubernetes.service.manifest_text import (
    candidate_of,
    object_of,
    text_of,
    with_transition_strategy,
)
from mpctl.platform.kubernetes.service.preconditions import request_path_findings
from mpctl.rollout.ports import Arm, Demand, Endpoint, Phase


def path_findings(platform):
    return request_path_findings(platform.client, platform.live.require(), platform.reader.resource)


class Cluster:
    """Objects by kind and name, with the client's methods that the platform uses."""

    listing = False

    one_reading = staticmethod(contextlib.nullcontext)

    def __init__(self, *things):
        self.things = {(t["kind"], t["metadata"]["name"]): t for t in things}
        self.reads = 0
        self.written = []
        self.watched = []
        self.may_watch = True

    def changed(self, kind, name, namespace, version, timeout_s):
        if not self.may_watch:
            raise CannotWatch("answer 403")
        self.watched.append((kind.name, name, version))
        return True

    def get(self, kind, name, namespace=None):
        return copy.deepcopy(self.things.get((kind.name, name)))

    def list(self, kind, namespace=None, *, labels="", fields=""):
        return [copy.deepcopy(t) for (k, _), t in self.things.items() if k == kind.name]

    def delete(self, kind, name, namespace=None, **_):
        del self.things[kind.name, name]

    def replace(self, kind, body, *, dry_run=False):
        self.things[kind.name, body["metadata"]["name"]] = copy.deepcopy(body)
        self.written.append(body)
        return body


ENGINE = {"name": "kserve-container", "image": "vllm/vllm-openai:v0.32.0", "args": ["--model=m"]}


def service(**annotations):
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {
            "name": "demo",
            "namespace": "ns",
            "uid": "u1",
            "resourceVersion": "1",
            "annotations": {"a": "b", **annotations},
        },
        "spec": {"predictor": {"containers": [ENGINE]}},
    }


def deployment(*, replicas=1, ready=1):
    counted = {"updatedReplicas": ready, "availableReplicas": ready, "replicas": replicas}
    return {
        "kind": "Deployment",
        "metadata": {"name": "demo-predictor", "resourceVersion": "7"},
        "spec": {"replicas": replicas, "template": {"spec": {"containers": [ENGINE]}}},
        "status": counted,
    }


def pod(*, ready=True):
    return {
        "kind": "Pod",
        "metadata": {"name": "p", "uid": "p"},
        "spec": {"containers": [ENGINE]},
        "status": {"conditions": [{"type": "Ready", "status": str(ready)}]},
    }


def platform(*things):
    cluster = Cluster(*things)
    return KubernetesPlatform(cluster, "ns", "demo", sleep=lambda _: None), cluster


@pytest.mark.parametrize(
    ("things", "said"),
    [
        ((deployment(replicas=0, ready=0),), "scaled to zero pods"),
        ((deployment(ready=0), pod(ready=False)), "0 of 1 new pods ready"),
        ((), "KServe has not made the Deployment"),
    ],
)
@pytest.mark.parametrize("downtime", [False, True])
def test_a_service_that_does_not_serve_is_refused_before_anything(things, said, downtime):
    cluster_platform, cluster = platform(service(), *things)
    with pytest.raises(Refused, match=said):
        cluster_platform.fits(Demand(Arm(text_of(service(more="x"))), downtime=downtime))[
            0
        ].require()
    assert cluster.written == []


def test_a_stopped_service_is_refused_by_that_name():
    cluster_platform, _ = platform(service(**{"serving.kserve.io/stop": "true"}))
    with pytest.raises(Refused, match="stopped by annotation"):
        cluster_platform.fits(Demand(Arm(text_of(service())), side_by_side=True))[0].require()


def test_a_claim_by_name_of_its_runtime_would_be_shared():
    claiming = pod()
    claiming["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "mine"}]
    cluster_platform, _ = platform(service(), deployment(), claiming)
    with pytest.raises(
        Refused, match="demo takes ResourceClaim mine by name: a candidate would share its GPU"
    ):
        cluster_platform.fits(Demand(Arm(text_of(service(more="x"))), side_by_side=True))[
            0
        ].require()


@pytest.mark.parametrize(
    ("name", "owner", "told"),
    [("demo-predictor", "", 1), ("demo-predictor", "u1", 0), ("x", "", 0)],
)
def test_an_autoscaler_that_kserve_would_delete_is_named(name, owner, told):
    owners = [{"uid": owner}] if owner else []
    scaler = {
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "ownerReferences": owners},
    }
    cluster_platform, _ = platform(service(), deployment(), pod(), scaler)
    notes = cluster_platform.fits(Demand(Arm(text_of(service(more="x"))), downtime=True))[
        0
    ].require()
    assert len([n for n in notes if "HPA demo-predictor" in n]) == told


@pytest.mark.parametrize(("ready", "writes"), [(1, 0), (0, 1)])
def test_a_way_back_that_waits_for_a_gpu_is_written_again_once_downtime_is_accepted(ready, writes):
    arm = Arm(text_of(service()))
    waiting = {
        **service(),
        "spec": object_of(with_transition_strategy(arm.manifest, downtime=False))["spec"],
    }
    cluster_platform, cluster = platform(waiting, deployment(ready=ready), pod(ready=bool(ready)))
    cluster_platform.promote(arm, expect=(arm,))
    assert cluster.written == []
    cluster_platform.promote(arm, expect=(arm,), downtime=True)
    assert len(cluster.written) == writes
    if writes:
        rolling = cluster.written[0]["spec"]["predictor"]["deploymentStrategy"]["rollingUpdate"]
        assert rolling == {"maxSurge": 0, "maxUnavailable": 1}


def test_a_right_that_is_missing_ends_a_rollout_at_once_and_leaves_a_status_to_be_shown(
    monkeypatch,
):
    cluster_platform, _ = platform(service(), deployment(), pod())

    def refuse(*_):
        raise NotPermitted("not allowed to create pods/portforward")

    monkeypatch.setattr(cluster_platform.reader.engines, "endpoint", refuse)
    with pytest.raises(NotPermitted):
        cluster_platform.engines.state(Arm(text_of(service())))
    (shown,) = cluster_platform.engines.states()
    assert shown.phase is Phase.READY
    assert "engine not asked: not allowed to create pods/portforward" in shown.message


@pytest.mark.parametrize("answers", [True, False])
def test_an_arm_that_waits_for_one_more_pod_is_reached_at_one_that_serves(answers, monkeypatch):
    more = {**pod(ready=False), "metadata": {"name": "q", "uid": "q"}}
    cluster_platform, _ = platform(service(), deployment(replicas=2), pod(), more)
    asked = []

    def endpoint(workload, name):
        asked.append(name)
        if not answers:
            raise MpctlError("its engine does not answer")
        return Endpoint("http://p", "m"), Counters(0.0, 0.0, 0.0)

    monkeypatch.setattr(cluster_platform.reader.engines, "endpoint", endpoint)
    state = cluster_platform.engines.state(Arm(text_of(service())))
    assert (state.phase, state.pods_ready, asked) == (Phase.STARTING, 1, ["p"])
    assert state.message == "1 of 2 new pods ready"
    assert (state.endpoint is not None) is answers


@pytest.mark.parametrize("tainted", [False, True])
def test_free_gpus_that_the_pods_may_not_use_are_said(tainted):
    limits = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    actual_deployment, running = deployment(), pod()
    for spec in (actual_deployment["spec"]["template"]["spec"], running["spec"]):
        spec["containers"] = [ENGINE | limits]
    running["spec"]["nodeName"] = "full"
    nodes = [
        {
            "kind": "Node",
            "metadata": {"name": name},
            "spec": {
                "taints": [{"key": "kept", "effect": "NoSchedule"}]
                if tainted and name == "free"
                else []
            },
            "status": {
                "allocatable": {"nvidia.com/gpu": "1"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
        for name in ("full", "free")
    ]
    cluster_platform, _ = platform(service(), actual_deployment, running, *nodes)
    notes = cluster_platform.fits(Demand(Arm(text_of(service(more="x")))))[0].require()
    assert any("1 of 2 GPUs" in n for n in notes)
    assert any("free has taint kept:NoSchedule" in n for n in notes) is tainted


def gpu_nodes(count):
    return [
        {
            "kind": "Node",
            "metadata": {"name": f"n{place}"},
            "spec": {},
            "status": {
                "allocatable": {"nvidia.com/gpu": "1"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
        for place in range(count)
    ]


@pytest.mark.parametrize(("nodes", "fits"), [(2, False), (3, True)])
def test_an_old_arm_is_kept_only_with_room_for_its_pods_and_one_more(nodes, fits):
    limits = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    actual_deployment, running = deployment(), pod()
    for spec in (actual_deployment["spec"]["template"]["spec"], running["spec"]):
        spec["containers"] = [ENGINE | limits]
    running["spec"]["nodeName"] = "n0"
    cluster_platform, _ = platform(service(), actual_deployment, running, *gpu_nodes(nodes))
    arm = Arm(text_of(service(more="x")))
    assert any(
        "1 of" in note or "2 of" in note
        for note in cluster_platform.fits(Demand(arm, side_by_side=True))[0].require()
    )
    if fits:
        cluster_platform.fits(Demand(arm, side_by_side=True, retain=True))[0].require()
    else:
        with pytest.raises(Refused, match="the retained baseline's 1 pods and one surge pod"):
            cluster_platform.fits(Demand(arm, side_by_side=True, retain=True))[0].require()


def beside(arm, **more):
    candidate = candidate_of(arm.manifest, arm.id, namespace="ns", **more)
    stored = {"uid": "u2", "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {**candidate, "metadata": {**candidate["metadata"], **stored}}


def shared(weight):
    refs = [
        {"name": "demo-predictor", "weight": 9},
        {"name": "demo-candidate-predictor", "weight": weight},
    ]
    return {
        "kind": "HTTPRoute",
        "metadata": {"name": "users", "namespace": "ns"},
        "spec": {"rules": [{"backendRefs": refs}]},
    }


def test_the_path_to_the_engine_is_judged_by_the_live_pod_and_its_routes():
    cluster_platform, cluster = platform(service(), pod(), shared(1))
    assert [finding.id for finding in path_findings(cluster_platform)] == [
        "answers-cut",
        "requests-lost",
    ]
    assert path_findings(cluster_platform)[0].reason.startswith(
        "HTTPRoute users sets no timeouts.request"
    )

    route, drained = shared(1), pod()
    route["spec"]["rules"][0]["timeouts"] = {"request": "90s"}
    engine = {
        **ENGINE,
        "args": ["--shutdown-timeout=90"],
        "lifecycle": {"preStop": {"sleep": {"seconds": 15}}},
    }
    drained["spec"] = {"containers": [engine], "terminationGracePeriodSeconds": 120}
    cluster_platform, _ = platform(service(), drained, route)
    assert path_findings(cluster_platform) == ()

    second = {**drained, "metadata": {**drained["metadata"], "name": "demo-2"}}
    cluster_platform, cluster = platform(service(), drained, second, route)
    (finding,) = path_findings(cluster_platform)
    assert finding.id == "no-disruption-budget"
    assert finding.todo == (
        "kubectl create poddisruptionbudget demo "
        "--selector serving.kserve.io/inferenceservice=demo --max-unavailable 1 -n ns"
    )
    budget = {"kind": "PodDisruptionBudget", "metadata": {"name": "demo"}, "spec": {"selector": {}}}
    assert path_findings(platform(service(), drained, second, route, budget)[0]) == ()

    def refused(kind, *_, **__):
        if kind.name == "HTTPRoute":
            raise NotPermitted("httproutes are forbidden")
        return []

    cluster_platform, cluster = platform(service())
    cluster.list = refused
    assert path_findings(cluster_platform) == (), (
        "what may not be read, and a pod that does not run, are no finding"
    )


@pytest.mark.parametrize("way", ["promote", "stop_all_except", "stop", "start"])
def test_an_arm_that_a_route_gives_traffic_is_never_removed(way):
    candidate, other = Arm(text_of(service(more="x"))), Arm(text_of(service(more="y")))
    live = Arm(text_of(service()))
    cluster_platform, cluster = platform(
        service(), deployment(), pod(), beside(candidate), shared(1)
    )
    act = {
        "promote": lambda: cluster_platform.promote(candidate, expect=(live,)),
        "stop_all_except": lambda: cluster_platform.engines.stop_all_except(live),
        "stop": lambda: cluster_platform.engines.stop(candidate),
        "start": lambda: cluster_platform.engines.start(other),
    }[way]
    with pytest.raises(
        Conflict, match="HTTPRoute users gives Service demo-candidate-predictor traffic"
    ):
        act()
    assert ("InferenceService", "demo-candidate") in cluster.things
    assert cluster.written == []


@pytest.mark.parametrize(("there", "alongside"), [(False, True), (True, True), (True, False)])
def test_what_could_not_be_removed_again_is_refused_before_anything(there, alongside):
    candidate, other = Arm(text_of(service(more="x"))), Arm(text_of(service(more="y")))
    things = [service(), deployment(), pod(), *([beside(candidate)] if there else [])]
    cluster_platform, cluster = platform(*things, shared(1))
    with pytest.raises(
        Conflict, match=r"HTTPRoute users gives Service demo-candidate-predictor traffic.*"
    ):
        cluster_platform.fits(Demand(other, side_by_side=alongside))[0].require()
    cluster_platform, cluster = platform(*things)
    cluster_platform.reader.client.list = forbidding(cluster.list)
    with pytest.raises(NotPermitted, match="not allowed to list httproutes"):
        cluster_platform.fits(Demand(other, side_by_side=alongside))[0].require()
    assert cluster.written == []


def forbidding(listed):
    def refuse(kind, namespace=None, **more):
        if kind.name == "HTTPRoute":
            raise NotPermitted("not allowed to list httproutes")
        return listed(kind, namespace, **more)

    return refuse


def test_without_the_pods_of_all_namespaces_the_capacity_is_unknown():
    limits = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    actual_deployment, running = deployment(), pod()
    for spec in (actual_deployment["spec"]["template"]["spec"], running["spec"]):
        spec["containers"] = [ENGINE | limits]
    running["spec"]["nodeName"] = "n0"
    cluster_platform, cluster = platform(service(), actual_deployment, running, *gpu_nodes(1))
    listed = cluster.list

    def refuse(kind, namespace=None, **more):
        if kind.name == "Pod" and namespace is None:
            raise NotPermitted("not allowed to list pods")
        return listed(kind, namespace, **more)

    cluster_platform.reader.client.list = refuse
    notes = cluster_platform.fits(Demand(Arm(text_of(service(more="x"))), side_by_side=True))[
        0
    ].require()
    assert "capacity for a candidate side by side is unknown: not allowed to list pods" in notes


def test_a_change_in_place_needs_no_look_at_routes():
    cluster_platform, cluster = platform(service(), deployment(), pod(), shared(1))
    cluster_platform.reader.client.list = forbidding(cluster.list)
    cluster_platform.fits(Demand(Arm(text_of(service(more="y"))), downtime=True))[0].require()


def test_a_kept_arm_has_the_services_pods_and_is_told_apart_from_a_candidate():
    old = Arm(text_of(service(more="x")))
    kept = beside(old, pods=3, retained_for="users")
    assert {kept["spec"]["predictor"][limit] for limit in ("minReplicas", "maxReplicas")} == {3}
    cluster_platform, _ = platform(service(), deployment(), pod(), kept)
    retained_baseline = cluster_platform.retained_baseline()
    assert (
        retained_baseline.arm,
        retained_baseline.route,
        retained_baseline.since,
        retained_baseline.pods,
    ) == (
        old.id,
        "users",
        "2026-01-01T00:00:00Z",
        1,
    )
    cluster_platform, _ = platform(service(), deployment(), pod(), beside(old))
    assert cluster_platform.retained_baseline() is None


def test_what_it_was_sent_is_answered_before_it_goes(monkeypatch):
    cluster_platform, _ = platform(
        service(), deployment(), pod(), beside(Arm(text_of(service(more="x"))))
    )
    asked = iter([3.0, 0.0, 1.0, 0.0, 0.0])
    monkeypatch.setattr(
        cluster_platform.reader.engines, "requests", lambda found: (next(asked), ())
    )
    assert cluster_platform.router.unshift({"name": "users", "spec": {}}) == (
        "HTTPRoute ns/users was deleted meanwhile; the change is kept",
    )
    assert next(asked, None) is None
    monkeypatch.setattr("mpctl.platform.kubernetes.service.live._DRAIN_TIMEOUT_S", 0.0)
    monkeypatch.setattr("mpctl.platform.kubernetes.service.live._grace_s", lambda pod: 0.0)
    monkeypatch.setattr(cluster_platform.reader.engines, "requests", lambda found: (2.0, ()))
    assert (
        "has 2 unanswered requests"
        in cluster_platform.router.unshift({"name": "users", "spec": {}})[1]
    )


def test_a_caller_that_polls_an_arm_waits_for_a_change_of_its_deployment():
    cluster_platform, cluster = platform(service(), deployment(ready=0), pod(ready=False))
    arm = Arm(text_of(service()))
    assert cluster_platform.engines.state(arm).phase is Phase.STARTING
    assert cluster.watched == []  # the first reading waits for nothing
    cluster_platform.engines.state(arm)
    assert cluster.watched == [("Deployment", "demo-predictor", "7")]
    cluster_platform.engines.states()  # a look waits for nothing
    cluster_platform.engines.state(
        Arm(text_of(service(more="x")))
    )  # nor does another arm's first reading
    assert len(cluster.watched) == 1


def test_an_arm_that_was_found_beside_the_service_is_looked_for_there_until_it_is_gone_or_promoted():
    arm = Arm(text_of(service(more="x")))
    cluster_platform, cluster = platform(service(), deployment(), pod(), beside(arm))
    names, get = [], cluster.get
    cluster.get = lambda kind, name, namespace=None: (
        names.append(name) or get(kind, name, namespace)
    )
    cluster_platform.engines.state(arm)
    assert names[:2] == ["demo", "demo-candidate"]
    names.clear()
    cluster_platform.engines.state(arm)
    assert names[0] == "demo-candidate"
    del cluster.things["InferenceService", "demo-candidate"]
    assert cluster_platform.engines.state(arm).phase is Phase.ABSENT
    names.clear()
    cluster_platform.engines.state(arm)
    assert names[0] == "demo"


def test_a_candidate_is_removed_before_pods_start_also_where_another_writer_made_them_start():
    before, arm = Arm(text_of(service())), Arm(text_of(service(more="x")))
    cluster_platform, cluster = platform(service(), deployment(), beside(arm))
    cluster_platform.promote(before, expect=(before, arm))
    assert ("InferenceService", "demo-candidate") not in cluster.things
    assert text_of(cluster.things["InferenceService", "demo"]) == before.manifest


def test_without_the_right_to_watch_it_reads_again():
    cluster_platform, cluster = platform(service(), deployment(ready=0), pod(ready=False))
    cluster.may_watch = False
    arm = Arm(text_of(service()))
    assert [cluster_platform.engines.state(arm).phase for _ in range(3)] == [Phase.STARTING] * 3
    cluster.may_watch = True
    cluster_platform.engines.state(arm)
    assert cluster.watched == []  # it was refused once


def test_a_stuck_pod_is_read_again_without_a_watch():
    stuck = pod(ready=False)
    stuck["status"]["conditions"].append(
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    )
    cluster_platform, cluster = platform(service(), deployment(ready=0), stuck)
    arm = Arm(text_of(service()))
    cluster_platform.engines.state(arm)
    cluster_platform.engines.state(arm)
    assert cluster.watched == []


@pytest.mark.parametrize(
    ("defined", "said"),
    [
        (True, "service ns/demo: InferenceService not found"),
        (
            False,
            "service ns/demo: the cluster does not know the kind InferenceService; without its definition ",
        ),
    ],
)
def test_a_service_that_is_not_found_is_told_from_a_definition_that_was_removed(
    monkeypatch, defined, said
):
    cluster_platform, cluster = platform()
    if not defined:
        monkeypatch.setattr(cluster, "list", lambda *_, **__: None)
    with pytest.raises(InputError) as raised:
        cluster_platform.live.require()
    absence = raised.value
    assert absence.message.startswith(said)
    assert (
        "mpctl history demo --revision N -o yaml --show-secrets -n ns | kubectl apply -f - -n ns"
        in absence.hint
    )
    assert ("install KServe's definitions again" in absence.hint) is not defined
    assert platform(service())[0].live.require()["kind"] == "InferenceService"


@pytest.mark.parametrize(
    ("condition", "at_rest"),
    [
        ({"type": "Progressing", "status": "False", "message": "Replicas are progressing"}, True),
        ({"type": "UpdateInProgress", "status": "False"}, True),
        ({"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}, False),
        ({"type": "PredictorReady", "status": "False"}, False),
    ],
)
def test_a_group_that_has_no_update_under_way_has_no_problem(condition, at_rest):
    assert is_at_rest(condition) is at_rest


# Labels that others give a Deployment: no pod gets them, so they are no change of the service, and stay

PLAIN = {"name": "qwen", "namespace": "ns", "uid": "u", "resourceVersion": "7"}
CHANGES = {
    "added": {"labels": {"team": "chat", "owner": "alice"}},
    "changed": {"labels": {"team": "search"}},
    "removed": {"labels": {}},
    "annotated": {"annotations": {"argocd.argoproj.io/tracking-id": "apps"}},
}


def plain(*arguments, **metadata):
    engine = {"name": "engine", "image": "vllm/vllm-openai:v0.32.0", "args": ["m", *arguments]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {**PLAIN, "labels": {"team": "chat"}, **metadata},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": "qwen"}},
            "template": {"spec": {"containers": [engine]}},
        },
    }


def live_service(record, kind=DEPLOYMENT):
    cluster = Cluster(record)
    name = record["metadata"]["name"]
    return KubernetesPlatform(cluster, "ns", name, resource=kind, sleep=lambda _: None), cluster


BASELINE, CANDIDATE = (Arm(text_of(plain(*more))) for more in ((), ("--eager",)))


@pytest.mark.parametrize("changed", CHANGES.values(), ids=CHANGES)
def test_others_labels_of_a_deployment_are_no_change_of_it_and_stay(changed):
    platform, cluster = live_service(plain(**changed))
    labels = copy.deepcopy(cluster.get(DEPLOYMENT, "qwen")["metadata"])
    assert platform.describe_foreign_change((BASELINE, CANDIDATE)) is None
    platform.live.write(CANDIDATE, (BASELINE,), downtime=True)
    platform.live.restore_strategy(CANDIDATE)
    written = cluster.get(DEPLOYMENT, "qwen")
    for kind in ("labels", "annotations"):
        assert written["metadata"].get(kind, {}) == labels.get(kind, {})
    assert written["spec"] == plain("--eager")["spec"]
    assert platform.added_fields(CANDIDATE, platform.read()) == ()  # and so recorded without them


def test_an_exact_rollback_takes_a_recorded_label_away():
    labelled = Arm(text_of(plain(labels={"team": "chat", "owner": "alice"})))
    platform, cluster = live_service(plain(labels={"team": "chat", "owner": "alice"}))
    platform.live.write(BASELINE, (labelled,), downtime=True)
    platform.live.restore_strategy(BASELINE)
    assert text_of(cluster.get(DEPLOYMENT, "qwen")) == BASELINE.manifest


def test_another_argument_is_a_change_with_or_without_a_label():
    platform, cluster = live_service(plain("--seed=1", labels={"owner": "alice"}))
    assert "args" in platform.describe_foreign_change((BASELINE, CANDIDATE))
    with pytest.raises(Conflict):
        platform.live.write(CANDIDATE, (BASELINE,), downtime=True)
    assert cluster.written == []


def test_a_label_that_kserve_gives_the_pods_is_a_change():
    platform, cluster = live_service(service(owner="alice"), INFERENCE_SERVICE)
    cluster.replace = lambda kind, body, *, dry_run=False: body
    assert "owner" in platform.describe_foreign_change((Arm(text_of(service())),))
