"""Services that a GitOps tool owns, and manifests rendered for it, on the real API server and KServe."""

import json

import pytest
import yaml

from mpctl.platform.kubernetes.service.manifest_text import text_of

from .objects import CLAIM, CONTAINERS

TRACKING = "argocd.argoproj.io/tracking-id"


def owned_by(owner, namespace):
    """A service as the tool applies it, and its field manager."""
    record = yaml.safe_load(CONTAINERS)
    metadata = record["metadata"]
    if owner == "Argo CD":
        metadata["annotations"][TRACKING] = (
            f"models:serving.kserve.io/InferenceService:{namespace}/demo"
        )
        return record, "argocd-controller"
    if owner == "Flux":
        prefix = "kustomize.toolkit.fluxcd.io"
        metadata["labels"] = {f"{prefix}/name": "models", f"{prefix}/namespace": "flux-system"}
        return record, "kustomize-controller"
    metadata["labels"] = {"app.kubernetes.io/managed-by": "Helm"}
    metadata["annotations"] |= {
        "meta.helm.sh/release-name": "demo",
        "meta.helm.sh/release-namespace": namespace,
    }
    return record, "helm"


@pytest.mark.parametrize("owner", ["Argo CD", "Flux", "Helm"])
def test_a_rollout_on_an_owned_service_is_refused_before_anything_is_changed(
    cluster, namespace, mpctl, owner
):
    record, manager = owned_by(owner, namespace.name)
    namespace.client.apply(CLAIM)
    namespace.client.apply(record, manager=manager)
    namespace.ready()
    before = namespace.client.get("isvc", "demo")["metadata"]["generation"]
    cluster.proxy.clear()
    done = mpctl("rollout", "--spec", "ngram", code=9)
    assert f"InferenceService {namespace.name}/demo belongs to {owner}" in done.stderr
    assert "mpctl render" in done.stderr and "--force" in done.stderr
    written = [c for c in cluster.proxy.calls if c.write]
    assert {(c.verb, c.resource) for c in written} <= {
        ("update", "inferenceservices")
    }  # the dry run of the preview
    assert namespace.client.get("isvc", "demo")["metadata"]["generation"] == before
    forced = mpctl("rollout", "--spec", "ngram", "--force", "--dry-run=client")
    assert "changed because of --force" in forced.stderr
    owned = [i for i in mpctl.json("doctor")["items"] if i["id"] == "owned"]
    assert [owner in i["cause"] for i in owned] == [True]


def test_kubectl_applies_a_rendered_file(cluster, namespace, mpctl, tmp_path):
    manifest = tmp_path / "service.yaml"
    manifest.write_text(f"# ours\n{CLAIM}---\n{CONTAINERS}")
    namespace.kubectl("apply", "--server-side", "-f", str(manifest))
    namespace.ready()
    before = text_of(namespace.client.get("isvc", "demo"))
    cluster.proxy.clear()
    done = mpctl("render", "-f", str(manifest), "--spec", "ngram")
    assert cluster.proxy.calls == []
    assert done.stdout.startswith("# ours\n")
    changed = tmp_path / "changed.yaml"
    changed.write_text(done.stdout)
    namespace.kubectl("apply", "--server-side", "-f", str(changed))

    def speculates():
        return namespace.settled("demo-predictor") and any(
            "ngram" in word for argv in namespace.argv() for word in argv
        )

    namespace.client.wait("the engine speculates", speculates)
    namespace.kubectl("apply", "--server-side", "-f", str(manifest))
    assert text_of(namespace.client.get("isvc", "demo")) == before


def test_a_rendered_candidate_runs_side_by_side_and_is_not_managed_by_mpctl(
    namespace, mpctl, tmp_path
):
    manifest = tmp_path / "service.yaml"
    manifest.write_text(f"{CLAIM}---\n{CONTAINERS}")
    namespace.kubectl("apply", "--server-side", "-f", str(manifest))
    namespace.ready()
    candidate = mpctl("render", "-f", str(manifest), "--spec", "ngram", "--candidate")
    namespace.kubectl("apply", "--server-side", "-f", "-", stdin=candidate.stdout)
    namespace.ready("demo-candidate")
    (argv,) = namespace.argv("demo-candidate")
    assert any("ngram" in word for word in argv)
    (plain,) = namespace.argv("demo")
    assert not any("ngram" in word for word in plain)
    refused = mpctl("rollout", "demo", "--spec", "ngram", "--strategy", "side-by-side", code=9)
    assert "was not created by mpctl" in refused.stderr
    assert namespace.client.get("isvc", "demo-candidate")


def test_a_live_service_is_rendered_as_the_server_would_store_it(namespace, mpctl):
    namespace.deploy(CONTAINERS)
    rendered = yaml.safe_load(mpctl("render", "demo", "--spec", "ngram").stdout)
    live = namespace.client.get("isvc", "demo")
    assert rendered["metadata"]["name"] == "demo"
    assert "status" not in rendered
    before, after = (
        live["spec"]["predictor"]["containers"][0],
        rendered["spec"]["predictor"]["containers"][0],
    )
    assert after["args"][: len(before["args"])] == before["args"]
    assert json.loads(after["args"][-1].partition("=")[2] or after["args"][-1])["method"] == "ngram"
