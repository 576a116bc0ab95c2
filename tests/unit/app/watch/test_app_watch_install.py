"""The objects that run the watch in a cluster: least rights, no way to write, and the policy that was given."""

from __future__ import annotations

import pytest
import yaml

from mpctl.app.environment_requests import WatchInstallRequest
from mpctl.app.watch.install import arguments, objects
from mpctl.errors import InputError
from mpctl.platform.kubernetes.access.rbac import to_yaml

ASKED = WatchInstallRequest("ml", "registry.example.com/mpctl@sha256:1234")
ACTS = "fall_back: true\n"


def made(policy="", **changes):
    request = WatchInstallRequest(**{"namespace": "ml", "image": "mpctl:1", **changes})
    return {(o["kind"], o["metadata"]["name"]): o for o in objects(request, policy)}


def rules(found, kinds=("Role", "ClusterRole")):
    return [rule for (kind, _), o in found.items() if kind in kinds for rule in o["rules"]]


def writes(found):
    granted = {
        (r, verb) for rule in rules(found) for r in rule["resources"] for verb in rule["verbs"]
    }
    return {pair for pair in granted if pair[1] not in ("get", "list", "watch")}


def test_reporting_may_write_nothing_but_the_leaders_lease_and_its_own_reports():
    # A port-forward is created, too: the counters of pods are read through it.
    assert writes(made()) == {
        ("leases", "create"),
        ("leases", "patch"),
        ("leases", "update"),
        ("pods/portforward", "create"),
        ("speculationstatuses", "create"),
        ("speculationstatuses", "patch"),
        ("speculationstatuses/status", "patch"),
        ("events", "create"),
    }
    (lease,) = [r for r in rules(made()) if "leases" in r["resources"] and "patch" in r["verbs"]]
    assert lease["resourceNames"] == ["mpctl--watch.leader.ml"]


def test_acting_has_the_operators_role():
    assert ("inferenceservices", "update") in writes(made(ACTS))
    assert ("Role", "mpctl-watch.mpctl-system") in made(ACTS)
    assert not [
        r for r in rules(made(ACTS)) if "*" in (*r["verbs"], *r["resources"], *r["apiGroups"])
    ]


def test_the_container_has_no_rights_and_cannot_write():
    (container,) = made()["Deployment", "mpctl-watch-ml"]["spec"]["template"]["spec"]["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    pod = made()["Deployment", "mpctl-watch-ml"]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert made()["Deployment", "mpctl-watch-ml"]["spec"]["replicas"] == 2
    assert made()["ServiceAccount", "mpctl-watch-ml"]["automountServiceAccountToken"] is False


def test_the_objects_belong_together():
    found = made(ACTS, namespace=None, prometheus="http://prometheus:9090")
    assert [
        o["roleRef"]["name"] for (kind, _), o in found.items() if kind == "ClusterRoleBinding"
    ] == ["mpctl-watch.mpctl-system"]
    labels = found["Deployment", "mpctl-watch"]["spec"]["template"]["metadata"]["labels"]
    for kind in ("NetworkPolicy", "PodMonitor", "PodDisruptionBudget"):
        spec = found[kind, "mpctl-watch"]["spec"]
        selector = spec.get("podSelector") or spec["selector"]
        assert selector["matchLabels"].items() <= labels.items()
    assert found["ConfigMap", "mpctl-watch"]["data"] == {"watch.yaml": ACTS}
    assert (
        next(iter(yaml.safe_load_all(to_yaml(list(found.values())))))["kind"]
        == "CustomResourceDefinition"
    )


def test_the_container_runs_a_command_that_exists():
    from mpctl.cli.watch import run

    words = arguments(WatchInstallRequest(None, "mpctl:1", prometheus="http://prometheus:9090"))
    assert words[:2] == ["watch", "run"]
    names = {name for option in run.params for name in option.opts}
    assert {word for word in words if word.startswith("-")} <= names


@pytest.mark.parametrize("policy", ["nonsense: 1", "fall_back: maybe"])
def test_a_policy_that_cannot_be_used_is_named(policy):
    with pytest.raises(InputError, match="--watch-policy:1"):
        objects(ASKED, policy)


def test_the_pod_monitor_can_be_left_out():
    assert ("PodMonitor", "mpctl-watch-ml") in made()
    assert ("PodMonitor", "mpctl-watch-ml") not in made(without=("podmonitor",))


def test_a_slow_start_is_no_reason_to_kill_the_watch():
    (container,) = made()["Deployment", "mpctl-watch-ml"]["spec"]["template"]["spec"]["containers"]
    startup, liveness = container["startupProbe"], container["livenessProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 300
    assert min(startup["timeoutSeconds"], liveness["timeoutSeconds"]) >= 5
    assert liveness["periodSeconds"] * liveness["failureThreshold"] >= 120


def test_the_webhook_of_the_installed_watch_comes_from_a_secret():
    objects_ = made(webhook_secret="pager")
    (container,) = objects_["Deployment", "mpctl-watch-ml"]["spec"]["template"]["spec"][
        "containers"
    ]
    env = {e["name"]: e.get("valueFrom", {}).get("secretKeyRef") for e in container["env"]}
    assert env["MPCTL_WEBHOOK"] == {"name": "pager", "key": "url"}
    assert "pager" not in str(made())


def test_the_watch_lives_in_a_namespace_of_its_own_and_its_rights_are_in_the_watched_one():
    actual_objects = objects(WatchInstallRequest("ml", "mpctl:1"), ACTS)
    places = {(o["kind"], o["metadata"].get("namespace")) for o in actual_objects}
    assert ("ServiceAccount", "mpctl-system") in places and ("Deployment", "mpctl-system") in places
    assert {kind for kind, place in places if place == "ml"} == {"Role", "RoleBinding"}
    subjects = [s for o in actual_objects for s in o.get("subjects", ())]
    assert {(s["name"], s["namespace"]) for s in subjects} == {("mpctl-watch-ml", "mpctl-system")}
    (home,) = [o for o in actual_objects if o["kind"] == "Namespace"]
    assert home["metadata"]["name"] == "mpctl-system"


@pytest.mark.parametrize(
    ("watched", "home"), [("ml", "ml"), (None, "ml"), ("mpctl-system", "mpctl-system")]
)
def test_a_home_whose_users_could_act_as_the_watch_is_refused_unless_asked_for(watched, home):
    with pytest.raises(InputError, match=f"namespace {home} is watched: whoever has the role edit"):
        objects(WatchInstallRequest(watched, "mpctl:1", home=home), ACTS)
    kinds = {
        o["kind"]
        for o in objects(WatchInstallRequest(watched, "mpctl:1", home=home, shared_home=True), ACTS)
    }
    assert "Deployment" in kinds
    assert "Namespace" not in kinds  # it exists, with labels of its own


def test_watches_of_two_namespaces_share_a_home_without_overwriting_each_other():
    def keys(namespace):
        documents = objects(WatchInstallRequest(namespace, "mpctl:1"), ACTS)
        return {
            (o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]) for o in documents
        }

    assert {kind for kind, *_ in keys("ml") & keys("chat")} == {
        "CustomResourceDefinition",
        "Namespace",
    }
    assert {kind for kind, *_ in keys("ml") & keys(None)} == {
        "CustomResourceDefinition",
        "Namespace",
    }


def test_a_watch_that_no_longer_falls_back_loses_the_operators_rights():
    acts, reports = (objects(WatchInstallRequest("ml", "mpctl:1"), policy) for policy in (ACTS, ""))
    assert [(o["kind"], o["metadata"]) for o in acts] == [
        (o["kind"], o["metadata"]) for o in reports
    ]


def test_named_secrets_alone_are_readable_and_that_of_sentinels_writable():
    found = made(secrets=("mpctl-sentinels",))
    (rule,) = [rule for rule in rules(found) if "secrets" in rule["resources"]]
    assert (rule["resourceNames"], sorted(rule["verbs"])) == (["mpctl-sentinels"], ["get", "patch"])
    assert not [rule for rule in rules(made()) if "secrets" in rule["resources"]]


def ingress(**changes):
    return made(**changes)["NetworkPolicy", "mpctl-watch-ml"]["spec"]["ingress"]


def test_no_pod_reaches_metrics_and_verdicts_but_those_of_named_namespaces():
    assert ingress() == []
    (rule,) = ingress(allow_from=("monitoring", "flagger-system"))
    assert rule["ports"] == [{"protocol": "TCP", "port": 9464}]
    assert [source["namespaceSelector"]["matchLabels"] for source in rule["from"]] == [
        {"kubernetes.io/metadata.name": "monitoring"},
        {"kubernetes.io/metadata.name": "flagger-system"},
    ]
    with pytest.raises(InputError, match="--allow-from"):
        made(allow_from=("*",))
