"""The admission policies of ``mpctl rbac --admission-policy`` on the real API server: an operator writes objects of
mpctl alone, a rollout still passes."""

import copy

import pytest

from mpctl.platform.kubernetes.load_job.job_manifest import load_job
from mpctl.platform.kubernetes.service.manifest_text import text_of

from .objects import ANY_SPEED, CONTAINERS, taken_route
from .rig.api import ApiError
from .unmeasured import Unmeasured


@pytest.fixture
def oscar(cluster, namespace, mpctl, as_oscar):
    """mpctl as an operator whom the policies limit."""
    printed = mpctl(
        "rbac", "-n", namespace.name, "--to", "user:oscar", "--admission-policy", "-o", "json"
    ).stdout
    cluster.kubectl("apply", "-f", "-", stdin=printed)
    yield mpctl.as_user(cluster.user("oscar"))
    cluster.kubectl("delete", "--ignore-not-found", "--wait=false", "-f", "-", stdin=printed)
    gone = lambda: "Policy" not in tried(as_oscar, config_map("application"))  # noqa: E731
    cluster.client.wait("the policies no longer hold", gone)


def config_map(name):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}}


SERVING = {
    "metadata": {"labels": {"serving.kserve.io/inferenceservice": "demo"}},
    "spec": {
        "containers": [
            {
                "name": "kserve-container",
                "image": "vllm/vllm-openai:v0.32.0",
                "command": ["python3"],
            }
        ],
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "securityContext": {"runAsUser": 1000, "fsGroup": 1000},
        "nodeSelector": {"kubernetes.io/os": "linux"},
    },
}


def job(path="", value=None):
    """A load Job of mpctl in which the field at ``path`` (below spec) has another value."""
    document = copy.deepcopy(load_job(SERVING, "demo", "", "rollout", "c0ffee"))
    del document["metadata"]["namespace"]
    *parents, last = path.split("/")
    target = document["spec"]
    for part in parents:
        target = target[int(part) if part.isdigit() else part]
    if path:
        target[last] = value
    return document


def volume(**source):
    """A load Job with one more volume."""
    volumes = job()["spec"]["template"]["spec"]["volumes"]
    return job("template/spec/volumes", [*volumes, {"name": "extra", **source}])


def another_job(name):
    document = job()
    return {**document, "metadata": {"name": name}}


def taking_over():
    """A Job that adopts pods by labels of its choice."""
    document = job("manualSelector", True)
    labels = document["spec"]["template"]["metadata"]["labels"]
    return {**document, "spec": {**document["spec"], "selector": {"matchLabels": labels}}}


POD, CONTAINER = "template/spec", "template/spec/containers/0"
SECRET = {"secretKeyRef": {"name": "db", "key": "password"}}
HOOK = {"postStart": {"exec": {"command": ["sh"]}}}
PROBE = {"exec": {"command": ["sh"]}}
ATTACKS = {
    "a ConfigMap of an application": config_map("application"),
    "a Job of another name": another_job("miner"),
    "a Secret in a variable": job(f"{CONTAINER}/env", [{"name": "A", "valueFrom": SECRET}]),
    "a Secret as variables": job(f"{CONTAINER}/envFrom", [{"secretRef": {"name": "db"}}]),
    "a Secret as a volume": volume(secret={"secretName": "db"}),
    "a token": job(f"{POD}/automountServiceAccountToken", True),
    "a projected token": volume(projected={"sources": [{"serviceAccountToken": {"path": "t"}}]}),
    "another service account": job(f"{POD}/serviceAccountName", "admin"),
    "the node's network": job(f"{POD}/hostNetwork", True),
    "the node's processes": job(f"{POD}/hostPID", True),
    "the node's users": job(f"{POD}/hostUsers", False),
    "the node's files": volume(hostPath={"path": "/"}),
    "the node's memory": volume(emptyDir={"medium": "Memory"}),
    "a port of the node": job(f"{CONTAINER}/ports", [{"containerPort": 80, "hostPort": 80}]),
    "privileges": job(f"{CONTAINER}/securityContext", {"privileged": True}),
    "a capability": job(
        f"{CONTAINER}/securityContext/capabilities", {"drop": ["ALL"], "add": ["SYS_ADMIN"]}
    ),
    "all capabilities": job(f"{CONTAINER}/securityContext/capabilities", {}),
    "no seccomp profile": job(f"{POD}/securityContext/seccompProfile", {"type": "Unconfined"}),
    "a sysctl": job(
        f"{POD}/securityContext/sysctls", [{"name": "kernel.shm_rmid_forced", "value": "1"}]
    ),
    "a writable root": job(f"{CONTAINER}/securityContext/readOnlyRootFilesystem", False),
    "an init container": job(f"{POD}/initContainers", [{"name": "a", "image": "busybox"}]),
    "a second container": job(
        f"{POD}/containers",
        [*job()["spec"]["template"]["spec"]["containers"], {"name": "a", "image": "b"}],
    ),
    "a hook": job(f"{CONTAINER}/lifecycle", HOOK),
    "a probe": job(f"{CONTAINER}/livenessProbe", PROBE),
    "a device": job(
        f"{CONTAINER}/resources/limits", {"cpu": "1", "memory": "4Gi", "nvidia.com/gpu": "1"}
    ),
    "a GPU by a claim": job(
        f"{POD}/resourceClaims", [{"name": "gpu", "resourceClaimTemplateName": "one-l4"}]
    ),
    "every GPU by the runtime": job(
        f"{CONTAINER}/env", [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    ),
    "a whole node's memory": job(f"{CONTAINER}/resources/limits/memory", "512Gi"),
    "no limit": job(f"{CONTAINER}/resources", {}),
    "a node by name": job(f"{POD}/nodeName", "control-plane"),
    "every taint": job(f"{POD}/tolerations", [{"operator": "Exists"}]),
    "the control plane's taint": job(
        f"{POD}/tolerations", [{"key": "node-role.kubernetes.io/control-plane"}]
    ),
    "another's pods kept away": job(f"{POD}/affinity/podAntiAffinity", {}),
    "a high priority": job(f"{POD}/priorityClassName", "system-node-critical"),
    "a pull secret": job(f"{POD}/imagePullSecrets", [{"name": "team-b"}]),
    "a runtime class": job(f"{POD}/runtimeClassName", "nvidia"),
    "another scheduler": job(f"{POD}/schedulerName", "mine"),
    "names of hosts": job(
        f"{POD}/hostAliases", [{"ip": "10.0.0.1", "hostnames": ["demo-predictor"]}]
    ),
    "another DNS": job(f"{POD}/dnsPolicy", "Default"),
    "another's pods taken over": taking_over(),
    "a thousand pods": job("parallelism", 1000),
    "a Job without end": job("activeDeadlineSeconds", 10_000_000),
    "retries": job("backoffLimit", 6),
    "a Job of another controller": job("managedBy", "example.com/mine"),
    "a label of a Service": job(
        "template/metadata/labels/serving.kserve.io~inferenceservice", "other"
    ),
    "an annotation of the node": job("template/metadata/annotations/x", "y"),
}
for _document in ATTACKS.values():
    _labels = _document.get("spec", {}).get("template", {}).get("metadata", {}).get("labels", {})
    if "serving.kserve.io~inferenceservice" in _labels:
        _labels["serving.kserve.io/inferenceservice"] = _labels.pop(
            "serving.kserve.io~inferenceservice"
        )


@pytest.fixture
def as_oscar(cluster, namespace):
    """A client that acts as the operator."""
    client = cluster.client_for(cluster.user("oscar"), namespace.name)
    yield client
    client.close()


def refusal(client, method, collection, document, name=""):
    """Try a write without its effect; why the API server refuses it, empty if it does not."""
    path = (
        f"/apis/{document['apiVersion']}"
        if "/" in document["apiVersion"]
        else f"/api/{document['apiVersion']}"
    )
    path += f"/namespaces/{client.namespace}/{collection}" + (f"/{name}" if name else "")
    try:
        client.request(method, path, document, dryRun="All", fieldValidation="Strict")
    except ApiError as error:
        return error.message
    return ""


def tried(client, document):
    """Try to create an object; why that is refused."""
    return refusal(
        client, "POST", {"ConfigMap": "configmaps", "Job": "jobs"}[document["kind"]], document
    )


@pytest.mark.usefixtures("oscar")
def test_an_operator_writes_objects_of_mpctl_alone(namespace, as_oscar):
    policy = "ValidatingAdmissionPolicy"
    namespace.client.wait(
        "the policies hold", lambda: policy in tried(as_oscar, config_map("application"))
    )
    # The API server takes up one policy after the other, so each attack is tried until its policy is in force.
    for name, attack in ATTACKS.items():
        namespace.client.wait(
            f"{name} is refused", lambda attack=attack: policy in tried(as_oscar, attack)
        )
    for harmless in (config_map("mpctl-demo-ledger-0"), job()):
        assert tried(as_oscar, harmless) == ""


def with_backends(route, **weights):
    changed = copy.deepcopy(route)
    changed["spec"]["rules"][0]["backendRefs"] = [
        {"name": name.replace("_", "-"), "port": 80, "weight": weight}
        for name, weight in weights.items()
    ]
    return changed


def with_mirror(route, service, **fields):
    changed = copy.deepcopy(route)
    mirror = {
        "type": "RequestMirror",
        "requestMirror": {"backendRef": {"name": service, "port": 80, **fields}},
    }
    changed["spec"]["rules"][0]["filters"] = [mirror]
    return changed


def replaced(namespace, client, route):
    """Try to replace the route; why that is refused, "allowed" if it is not."""

    def attempt():
        current = namespace.client.get("httproutes", "users")["metadata"]["resourceVersion"]
        newest = {**route, "metadata": {**route["metadata"], "resourceVersion": current}}
        actual_refusal = refusal(client, "PUT", "httproutes", newest, "users")
        return (
            None if "has been modified" in actual_refusal else actual_refusal or "allowed"
        )  # the gateway writes its status

    return namespace.client.wait("an answer", attempt)


@pytest.mark.usefixtures("oscar")
def test_an_operator_routes_users_to_a_service_and_its_candidate_alone(namespace, as_oscar):
    namespace.deploy(CONTAINERS)
    plain = taken_route(namespace.client)
    namespace.client.wait(
        "the policies hold",
        lambda: "Policy" in replaced(namespace, as_oscar, with_backends(plain, evil=1)),
    )
    (rule,) = plain["spec"]["rules"]
    redirect = {"type": "RequestRedirect", "requestRedirect": {"hostname": "evil.example.com"}}
    attacks = {
        "all traffic to another Service": with_backends(plain, evil=1),
        "a share to another Service": with_backends(plain, demo_predictor=9, evil=1),
        "a share to another's candidate": with_backends(
            plain, demo_predictor=9, other_candidate_predictor=1
        ),
        "no backend": with_backends(plain),
        "a mirror to another Service": with_mirror(plain, "evil"),
        "a mirror to another namespace": with_mirror(
            plain, "demo-candidate-predictor", namespace="evil"
        ),
        "a redirect": {**plain, "spec": {**plain["spec"], "rules": [{"filters": [redirect]}]}},
        "another host": {**plain, "spec": {**plain["spec"], "hostnames": ["bank.example.com"]}},
        "another gateway": {**plain, "spec": {**plain["spec"], "parentRefs": [{"name": "other"}]}},
        "a second rule": {
            **plain,
            "spec": {**plain["spec"], "rules": [rule, {**rule, "matches": []}]},
        },
        "an annotation": {
            **plain,
            "metadata": {**plain["metadata"], "annotations": {"proxy/snippet": "x"}},
        },
    }
    refused = {name: replaced(namespace, as_oscar, attack) for name, attack in attacks.items()}
    assert {
        name: text
        for name, text in refused.items()
        if "denied request: operators of mpctl" not in text
    } == {}
    split = with_backends(plain, demo_predictor=90, demo_candidate_predictor=10)
    for done in (
        split,
        with_backends(plain, demo_candidate_predictor=1),
        with_mirror(plain, "demo-candidate-predictor"),
    ):
        assert replaced(namespace, as_oscar, done) == "allowed"
    namespace.client.apply(
        {k: split[k] for k in ("apiVersion", "kind", "spec")} | {"metadata": {"name": "users"}}
    )
    current = namespace.client.get("httproutes", "users")
    assert replaced(namespace, as_oscar, with_backends(current, demo_predictor=1)) == "allowed"


def test_a_rollout_with_traffic_steps_passes_the_policies(cluster, namespace, oscar, tmp_path):
    cluster.pods.rule(lambda pod: {"script": {"token_s": 0.02}})
    namespace.deploy(CONTAINERS)
    before = taken_route(namespace.client)["spec"]
    policy = tmp_path / "policy.yaml"
    policy.write_text(ANY_SPEED)
    few = ("--requests", "4", "--repeats", "2", "--max-tokens", "16", "--policy", str(policy), "-y")
    steps = ("--traffic-steps", "10", "--step-duration", "1s")
    assert "promoted" in oscar("rollout", "--spec", "ngram", *few, *steps).stderr
    oscar("rollback", "-y")
    assert namespace.client.get("httproutes", "users")["spec"] == before


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


def test_a_policy_that_denies_only_the_restore_is_named_and_the_rollback_continues(
    cluster, namespace, mpctl
):
    namespace.deploy(CONTAINERS)
    run = Unmeasured(mpctl)
    before = text_of(namespace.client.get("isvc", "demo"))
    run("rollout", "--spec", "ngram", "-y")
    name, api = f"no-restore-{namespace.name}", "admissionregistration.k8s.io/v1"
    selector = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace.name}}
    }
    policy = {
        "apiVersion": api,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": NO_RESTORE,
    }
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
    isvc["spec"]["predictor"]["containers"][0]["args"] = [
        a for a in args if not a.startswith("--speculative")
    ]
    path = f"/apis/serving.kserve.io/v1beta1/namespaces/{namespace.name}/inferenceservices/demo"
    try:
        namespace.client.request("PUT", path, isvc, dryRun="All")
    except ApiError as error:
        return "speculation stays on" in error.message
    return False
