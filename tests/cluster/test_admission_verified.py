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


@pytest.fixture
def guarded(cluster, namespace):
    """The namespace with the policy of the example, once that is called."""
    home = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "mpctl-system"}}
    cluster.client.apply(home)

    def guard():
        cluster.kubectl("apply", "-f", "-", stdin=POLICY)
        cluster.kubectl("label", "namespace", namespace.name, "mpctl.dev/verified-speculation=required")
        words = [f"--speculative-config={OTHER}"]
        cluster.client.wait("the policy holds", lambda: "no verified measurement" in edited(namespace, words))

    yield guard
    cluster.kubectl("delete", "--ignore-not-found", "--wait=false", "-f", "-", stdin=POLICY)
    cluster.client.delete("namespaces", "mpctl-system")


def edited(namespace, words, *, user=None, really=False, **fields):
    """What kubectl prints when the service's arguments get ``words``; it is only tried unless ``really``."""
    record = yaml.safe_load(CONTAINERS)
    record["spec"]["predictor"]["containers"][0]["args"] += words
    record["spec"]["predictor"].update(fields)
    patch = json.dumps({"spec": record["spec"]})
    options = ["--type=merge", "-p", patch, *([] if really else ["--dry-run=server"])]
    return namespace.kubectl("patch", "isvc", "demo", *options, code=None, kubeconfig=user)


def test_a_setting_changes_only_to_what_a_verdict_verified(cluster, namespace, mpctl, guarded, tmp_path):
    write_keys(tmp_path)
    (tmp_path / "policy.yaml").write_text(ANY_SPEED)
    cluster.pods.rule(lambda pod: {"script": {"token_s": 0.05}})
    namespace.deploy(CONTAINERS)
    sign = ("--sign-with", "key.pem", "--bundle", "verdict.intoto.jsonl")
    mpctl("rollout", "--spec", "ngram", "--policy", "policy.yaml", *QUICK, *sign)
    (container,) = namespace.client.get("isvc", "demo")["spec"]["predictor"]["containers"]
    (promoted,) = [word for word in container["args"] if "spec" in word]
    mpctl("rollback")
    guarded()

    value = promoted.partition("=")[2]
    assert "no verified measurement" in edited(namespace, [promoted])
    verified = mpctl.json("verify", "verdict.intoto.jsonl", "--key", "key.pub", "--max-age", "1d", "--offline")
    uid = cluster.kubectl("get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}")
    assert verified["clusterId"] == uid
    record = json.dumps({"data": {f"{namespace.name}.demo": verified["setting"]}})
    cluster.kubectl("patch", "configmap", "mpctl-verified", "-n", "mpctl-system", "--type=merge", "-p", record)
    cluster.client.wait("the record is read", lambda: "no verified" not in edited(namespace, [promoted]))

    refused = (
        [f"--speculative-config={OTHER}"],
        ["--speculative-config", OTHER],
        ["-sc", value],
        [promoted, "--speculative-config.num_speculative_tokens", "9"],
        ["--spec-method=ngram"],
    )
    for words in refused:
        shown = edited(namespace, words)
        assert f"no verified measurement of the speculative setting {words[0][:6]}" in shown, (words, shown)
        assert f"of {namespace.name}.demo" in shown
    for words in (["--speculative-config", value], [f"--speculative-config={value.replace(' ', '')}"]):
        assert "patched" in edited(namespace, words)
    assert "patched" in edited(namespace, [promoted], really=True)
    assert "patched" in edited(namespace, [promoted, "--max-num-seqs=64"], minReplicas=2)
    assert "patched" in edited(namespace, [])
    operator = tmp_path / "operator.kubeconfig"
    cluster.kubeconfig_for(cluster.user("ann", groups=["system:masters", "mpctl-operators"]), operator)
    assert "patched" in edited(namespace, refused[0], user=operator)
    another = CONTAINERS.replace("name: demo\n", "name: another\n")
    new = another.replace("- --port=8080", f"- --port=8080\n          - '{promoted}'")
    assert "no verified measurement" in namespace.kubectl("create", "--dry-run=server", "-f", "-", stdin=new, code=None)
    assert "created" in namespace.kubectl("create", "--dry-run=server", "-f", "-", stdin=another)
