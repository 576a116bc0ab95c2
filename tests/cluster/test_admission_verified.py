"""manifests/admission/speculation.yaml on the real API server: a speculative setting changes to what a signed verdict
measured, to nothing, or by mpctl's operators; every other edit passes."""

import json

import pytest
import yaml
from signed import write_keys

from .conftest import ROOT
from .objects import ANY_SPEED, CONTAINERS

POLICY = (ROOT / "manifests" / "admission" / "speculation.yaml").read_text()
QUICK = ("--requests", "4", "--repeats", "8", "--max-tokens", "16")
OTHER = '{"method": "ngram", "num_speculative_tokens": 9}'


@pytest.fixture(scope="module")
def policy(cluster):
    """The policy of the example, which holds in namespaces with its label."""
    home = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "mpctl-system"}}
    cluster.client.apply(home)
    cluster.kubectl("apply", "-f", "-", stdin=POLICY)
    yield
    cluster.kubectl("delete", "--ignore-not-found", "--wait=false", "-f", "-", stdin=POLICY)
    cluster.client.delete("namespaces", "mpctl-system")


@pytest.fixture
def guarded(cluster, namespace, policy):
    """The namespace with the policy, once that is called."""

    def guard():
        cluster.kubectl(
            "label", "namespace", namespace.name, "mpctl.dev/verified-speculation=required"
        )
        words = [f"--speculative-config={OTHER}"]
        cluster.client.wait(
            "the policy holds", lambda: "no verified measurement" in edited(namespace, words)
        )

    return guard


def edited(namespace, words, *, user=None, really=False, **fields):
    """What kubectl prints when the service's arguments get ``words``; it is only tried unless ``really``."""
    record = yaml.safe_load(CONTAINERS)
    record["spec"]["predictor"]["containers"][0]["args"] += words
    record["spec"]["predictor"].update(fields)
    patch = json.dumps({"spec": record["spec"]})
    options = ["--type=merge", "-p", patch, *([] if really else ["--dry-run=server"])]
    return namespace.kubectl("patch", "isvc", "demo", *options, code=None, kubeconfig=user)


def test_a_setting_changes_only_to_what_a_verdict_verified(
    cluster, namespace, mpctl, guarded, tmp_path
):
    write_keys(tmp_path)
    (tmp_path / "policy.yaml").write_text(ANY_SPEED)
    cluster.pods.rule(lambda pod: {"script": {"token_s": 0.02}})
    namespace.deploy(CONTAINERS)
    mpctl.environment.update(MPCTL_SIGN_WITH="key.pem", MPCTL_BUNDLE="verdict.intoto.jsonl")
    mpctl("rollout", "--spec", "ngram", "--policy", "policy.yaml", *QUICK)
    (container,) = namespace.client.get("isvc", "demo")["spec"]["predictor"]["containers"]
    (promoted,) = [word for word in container["args"] if "spec" in word]
    mpctl("rollback")
    guarded()

    value = promoted.partition("=")[2]
    assert "no verified measurement" in edited(namespace, [promoted])
    verified = mpctl.json(
        "verify", "verdict.intoto.jsonl", "--key", "key.pub", "--max-age", "1d", "--offline"
    )
    uid = cluster.kubectl("get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}")
    assert verified["clusterId"] == uid
    record = json.dumps({"data": {f"{namespace.name}.demo": verified["setting"]}})
    cluster.kubectl(
        "patch", "configmap", "mpctl-verified", "-n", "mpctl-system", "--type=merge", "-p", record
    )
    cluster.client.wait(
        "the record is read", lambda: "no verified" not in edited(namespace, [promoted])
    )

    refused = (
        [f"--speculative-config={OTHER}"],
        ["--speculative-config", OTHER],
        ["-sc", value],
        [promoted, "--speculative-config.num_speculative_tokens", "9"],
        ["--spec-method=ngram"],
    )
    for words in refused:
        shown = edited(namespace, words)
        assert f"no verified measurement of the speculative setting {words[0][:6]}" in shown, (
            words,
            shown,
        )
        assert f"of {namespace.name}.demo" in shown
    for words in (
        ["--speculative-config", value],
        [f"--speculative-config={value.replace(' ', '')}"],
    ):
        assert "patched" in edited(namespace, words)
    assert "patched" in edited(namespace, [promoted], really=True)
    assert "patched" in edited(namespace, [promoted, "--max-num-seqs=64"], minReplicas=2)
    assert "patched" in edited(namespace, [])
    operator = tmp_path / "operator.kubeconfig"
    cluster.kubeconfig_for(
        cluster.user("ann", groups=["system:masters", "mpctl-operators"]), operator
    )
    assert "patched" in edited(namespace, refused[0], user=operator)
    another = CONTAINERS.replace("name: demo\n", "name: another\n")
    new = another.replace("- --port=8080", f"- --port=8080\n          - '{promoted}'")
    assert "no verified measurement" in namespace.kubectl(
        "create", "--dry-run=server", "-f", "-", stdin=new, code=None
    )
    assert "created" in namespace.kubectl("create", "--dry-run=server", "-f", "-", stdin=another)


def service(**predictor):
    """A new service of another name; ``predictor`` replaces its spec."""
    record = yaml.safe_load(CONTAINERS)
    record["metadata"]["name"] = "another"
    record["spec"]["predictor"] = predictor or record["spec"]["predictor"]
    return record


def started(command=None, *args, env=(), **more):
    """A service whose container has these words."""
    record = service()
    (container,) = record["spec"]["predictor"]["containers"]
    container |= {
        "args": [*container["args"], *args],
        "env": [*env],
        **({"command": command} if command else {}),
    }
    record["spec"]["predictor"] |= more
    return record


SERVE = f"exec vllm serve m --speculative-config '{OTHER}'"
FLAG = {"name": "FLAG", "value": "--speculative-config"}
VALUE = {"name": "VALUE", "value": OTHER}
STARTER = {"name": "worker-container", "image": "vllm/vllm-openai:v0.32.0"}
MODEL_COMMAND = {"modelFormat": {"name": "vLLM"}, "storageUri": "hf://org/target"}
UNVERIFIED, UNREAD = (
    "no verified measurement of the speculative setting --spec",
    "no speculative setting can be read from",
)
FORMS = {
    "sh -c in the command": (started(["sh", "-c", SERVE]), UNVERIFIED),
    "sh -c in the arguments": (started(["sh"], "-c", SERVE), UNVERIFIED),
    "sh -c with a line break": (started(["sh", "-c", SERVE.replace(" --", "\n--")]), UNVERIFIED),
    "sh -c with the short flag": (
        started(["sh", "-c", f"vllm serve m -sc '{OTHER}'"]),
        UNVERIFIED[:-6] + "-sc",
    ),
    "python -c": (
        started(["python3", "-c", f"run(['--speculative-config', '{OTHER}'])"]),
        UNVERIFIED,
    ),
    "a leading space": (started(None, f" --speculative-config={OTHER}"), UNVERIFIED),
    "a leading tab": (started(None, f"\t--speculative-config={OTHER}"), UNVERIFIED),
    "flag and value in variables": (
        started(None, "$(FLAG)", "$(VALUE)", env=[FLAG, VALUE]),
        UNREAD + " $(FLAG)",
    ),
    "a dash in a variable": (
        started(None, "$(D)-speculative-config", OTHER, env=[{"name": "D", "value": "-"}]),
        UNREAD + " $(D)-speculative-config",
    ),
    "all of it in one variable": (
        started(None, "$(F)", env=[{"name": "F", "value": f"--speculative-config={OTHER}"}]),
        UNREAD + " $(F)",
    ),
    "the value in a variable": (
        started(None, "--speculative-config=$(VALUE)", env=[VALUE]),
        UNVERIFIED,
    ),
    "a file of settings": (
        started(None, "--config", "/mnt/vllm.yaml"),
        UNREAD + " --config /mnt/vllm.yaml",
    ),
    "the model's command": (
        service(
            model={**MODEL_COMMAND, "command": ["vllm", "serve", "--speculative-config", OTHER]}
        ),
        UNVERIFIED,
    ),
    "a worker's container": (
        started(
            None,
            workerSpec={"containers": [{**STARTER, "args": [f"--speculative-config={OTHER}"]}]},
        ),
        UNVERIFIED,
    ),
    "an init container": (
        started(None, initContainers=[{**STARTER, "command": ["sh", "-c", SERVE]}]),
        UNVERIFIED,
    ),
}


def test_no_spelling_hides_a_setting_that_was_not_verified(cluster, namespace, guarded):
    """Forms that passed an earlier version of the policy, on a new service and as a change of one that serves."""
    namespace.deploy(CONTAINERS)
    guarded()
    create = ("create", "--dry-run=server", "-f", "-")
    shown = {
        form: namespace.kubectl(*create, stdin=json.dumps(body), code=None)
        for form, (body, _) in FORMS.items()
    }
    assert {form: text for form, text in shown.items() if FORMS[form][1] not in text} == {}
    plain = started(None, "--served-model-name=$(NAME)", env=[{"name": "NAME", "value": "m"}])
    assert "created" in namespace.kubectl(*create, stdin=json.dumps(plain), code=None)
    assert UNREAD in edited(namespace, ["$(FLAG)", "$(VALUE)"])
    cluster.kubectl("label", "namespace", namespace.name, "mpctl.dev/verified-speculation-")
    cluster.client.wait(
        "no policy holds", lambda: "patched" in edited(namespace, ["$(FLAG)"], really=True)
    )
    guarded()
    assert "patched" in edited(namespace, ["$(FLAG)"], minReplicas=2)
    (container,) = namespace.client.get("isvc", "demo")["spec"]["predictor"]["containers"]
    container["env"] = [{"name": "FLAG", "value": f"--speculative-config={OTHER}"}]
    assert UNREAD in edited(namespace, ["$(FLAG)"], containers=[container])
