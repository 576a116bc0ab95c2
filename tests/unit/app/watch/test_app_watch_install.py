"""The objects that run the watch in a cluster: least rights, no way to write, and the policy that was given."""

from __future__ import annotations

import pytest
import yaml

from mpctl.app.requests import WatchInstallRequest
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
    granted = {(r, verb) for rule in rules(found) for r in rule["resources"] for verb in rule["verbs"]}
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
    assert lease["resourceNames"] == ["mpctl-watch.leader"]


def test_acting_has_the_operators_role():
    assert ("inferenceservices", "update") in writes(made(ACTS))
    assert ("Role", "mpctl-operator") in made(ACTS)
    assert not [r for r in rules(made(ACTS)) if "*" in (*r["verbs"], *r["resources"], *r["apiGroups"])]


def test_the_container_has_no_rights_and_cannot_write():
    (container,) = made()["Deployment", "mpctl-watch"]["spec"]["template"]["spec"]["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    pod = made()["Deployment", "mpctl-watch"]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert made()["Deployment", "mpctl-watch"]["spec"]["replicas"] == 2
    assert made()["ServiceAccount", "mpctl-watch"]["automountServiceAccountToken"] is False


def test_the_objects_belong_together():
    found = made(ACTS, all_namespaces=True, prometheus="http://prometheus:9090")
    assert ("ClusterRoleBinding", "mpctl-operator") in found
    labels = found["Deployment", "mpctl-watch"]["spec"]["template"]["metadata"]["labels"]
    for kind in ("NetworkPolicy", "PodMonitor", "PodDisruptionBudget"):
        spec = found[kind, "mpctl-watch"]["spec"]
        selector = spec.get("podSelector") or spec["selector"]
        assert selector["matchLabels"].items() <= labels.items()
    assert found["ConfigMap", "mpctl-watch"]["data"] == {"watch.yaml": ACTS}
    assert next(iter(yaml.safe_load_all(to_yaml(list(found.values())))))["kind"] == "CustomResourceDefinition"


def test_the_container_runs_a_command_that_exists():
    from mpctl.cli.watch.run import command

    words = arguments(WatchInstallRequest("ml", "mpctl:1", all_namespaces=True, prometheus="http://prometheus:9090"))
    assert words[:2] == ["watch", "run"]
    known = {name for option in command.params for name in option.opts}
    assert {word for word in words if word.startswith("-")} <= known


@pytest.mark.parametrize("policy", ["nonsense: 1", "fall_back: maybe"])
def test_a_policy_that_cannot_be_used_is_named(policy):
    with pytest.raises(InputError, match="--watch-policy:1"):
        objects(ASKED, policy)
