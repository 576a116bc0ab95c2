"""The admission policies of ``mpctl rbac --admission-policy`` on the real API server: an operator writes objects of
mpctl alone, a rollout still passes."""

import json

import pytest

from mpctl.platform.kubernetes.service.manifest_text import text_of

from .objects import ANY_SPEED, CONTAINERS
from .rig.api import ApiError
from .unmeasured import Unmeasured


@pytest.fixture
def oscar(cluster, namespace, mpctl):
    """mpctl as an operator whom the policies limit."""
    printed = mpctl("rbac", "-n", namespace.name, "--to", "user:oscar", "--admission-policy", "-o", "json").stdout
    cluster.kubectl("apply", "-f", "-", stdin=printed)
    yield mpctl.as_user(cluster.user("oscar"))
    for document in json.loads(printed)["items"]:
        where = document["metadata"].get("namespace")
        arguments = ["-n", where] if where else []
        cluster.kubectl(*arguments, "delete", document["kind"], document["metadata"]["name"], "--ignore-not-found")


def config_map(name):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}}


def job(name="mpctl-demo-x", **changes):
    container = {
        "name": "load",
        "image": "busybox",
        "securityContext": {"allowPrivilegeEscalation": False},
        **changes.pop("container", {}),
    }
    spec = {"restartPolicy": "Never", "automountServiceAccountToken": False, "containers": [container], **changes}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": {"spec": spec}}}


SECRET = {"secretKeyRef": {"name": "db", "key": "password"}}
ATTACKS = {
    "a ConfigMap of an application": config_map("application"),
    "a Job of another name": job("miner"),
    "a Secret in a variable": job(container={"env": [{"name": "A", "valueFrom": SECRET}]}),
    "a Secret as variables": job(container={"envFrom": [{"secretRef": {"name": "db"}}]}),
    "a Secret as a volume": job(volumes=[{"name": "a", "secret": {"secretName": "db"}}]),
    "a token": job(automountServiceAccountToken=True),
    "another service account": job(serviceAccountName="admin"),
    "the node's network": job(hostNetwork=True),
    "the node's files": job(volumes=[{"name": "a", "hostPath": {"path": "/"}}]),
    "privileges": job(container={"securityContext": {"privileged": True}}),
    "an init container": job(initContainers=[{"name": "a", "image": "busybox"}]),
}


def tried(cluster, namespace, document):
    """Try to create an object as the operator; what kubectl says."""
    arguments = ("--as", "oscar", "-n", namespace.name, "create", "--dry-run=server", "-f", "-")
    return cluster.kubectl(*arguments, stdin=json.dumps(document), code=None)


@pytest.mark.usefixtures("oscar")
def test_an_operator_writes_objects_of_mpctl_alone(cluster, namespace):
    refusal = "ValidatingAdmissionPolicy"
    namespace.client.wait("the policies hold", lambda: refusal in tried(cluster, namespace, config_map("application")))
    refused = {name: tried(cluster, namespace, attack) for name, attack in ATTACKS.items()}
    assert {name: text for name, text in refused.items() if refusal not in text} == {}
    assert tried(cluster, namespace, config_map("mpctl-demo-ledger-0")).endswith("created (server dry run)\n")
    assert tried(cluster, namespace, job()).endswith("created (server dry run)\n")


def test_a_rollout_passes_the_policies(cluster, namespace, oscar, tmp_path):
    cluster.pods.rule(lambda pod: {"script": {"token_s": 0.02}})
    namespace.deploy(CONTAINERS)
    policy = tmp_path / "policy.yaml"
    policy.write_text(ANY_SPEED)
    few = ("--requests", "4", "--repeats", "2", "--max-tokens", "16", "--policy", str(policy), "-y")
    assert "promoted" in oscar("rollout", "--spec", "ngram", *few).stderr


NO_RESTORE = {
    "failurePolicy": "Fail",
    "matchConstraints": {
        "resourceRules": [
            {
                "apiGroups": ["serving.kserve.io"],
                "apiVersions": ["*"],
                "operations": ["UPDATE"],
                "resources": ["inferenceservices"],
            }
        ]
    },
    "validations": [
        {
            "expression": "object.metadata.name != 'demo' || "
            "object.spec.predictor.containers[0].args.exists(a, a.startsWith('--speculative-config'))",
            "message": "speculation stays on",
        }
    ],
}


def test_a_policy_that_denies_only_the_restore_is_named_and_the_rollback_continues(cluster, namespace, mpctl):
    namespace.deploy(CONTAINERS)
    run = Unmeasured(mpctl)
    before = text_of(namespace.client.get("isvc", "demo"))
    run("rollout", "--spec", "ngram", "-y")
    name, api = f"no-restore-{namespace.name}", "admissionregistration.k8s.io/v1"
    selector = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace.name}}}
    policy = {"apiVersion": api, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}, "spec": NO_RESTORE}
    spec = {"policyName": name, "validationActions": ["Deny"], "matchResources": selector}
    binding = {**policy, "kind": "ValidatingAdmissionPolicyBinding", "spec": spec}
    for document in (policy, binding):
        namespace.client.apply(document)
    namespace.client.wait("the policy holds", lambda: denied(namespace))
    done = run("rollback", "-y", code=4)
    assert "refused by an admission policy" in done.stderr
    assert "speculation stays on" in done.stderr
    for document in (binding, policy):
        namespace.client.delete(document["kind"], name)
    namespace.client.wait("the policy is gone", lambda: not denied(namespace))
    assert "restored" in run("rollback", "-y").stderr
    assert text_of(namespace.client.get("isvc", "demo")) == before


def denied(namespace):
    """Whether a restore would be refused now."""
    isvc = namespace.client.get("isvc", "demo")
    args = isvc["spec"]["predictor"]["containers"][0]["args"]
    isvc["spec"]["predictor"]["containers"][0]["args"] = [a for a in args if not a.startswith("--speculative")]
    path = f"/apis/serving.kserve.io/v1beta1/namespaces/{namespace.name}/inferenceservices/demo"
    try:
        namespace.client.request("PUT", path, isvc, dryRun="All")
    except ApiError as error:
        return "speculation stays on" in error.message
    return False
