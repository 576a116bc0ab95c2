"""Owners told from objects as the tools leave them."""

import pytest

from mpctl.errors import Refused
from mpctl.platform.kubernetes.api.objects import owner_of, require_unowned

SPEC = {"f:spec": {"f:predictor": {"f:minReplicas": {}}}}


def service(*, labels=None, annotations=None, managers=(), owners=()):
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {
            "name": "qwen",
            "namespace": "chat",
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": list(owners),
            "managedFields": [
                {"manager": name, "operation": "Apply", "fieldsV1": fields, **more}
                for name, fields, more in managers
            ],
        },
    }


ARGO = service(
    annotations={
        "argocd.argoproj.io/tracking-id": "models:serving.kserve.io/InferenceService:chat/qwen"
    },
    managers=[("argocd-controller", SPEC, {})],
)
OWNED = {
    "argo annotation": (ARGO, "Argo CD", "models"),
    "argo in another namespace": (
        service(
            annotations={
                "argocd.argoproj.io/tracking-id": "team_models:serving.kserve.io/InferenceService:chat/qwen"
            }
        ),
        "Argo CD",
        "team_models",
    ),
    "argo label": (service(labels={"argocd.argoproj.io/instance": "models"}), "Argo CD", "models"),
    "argo by its field manager": (
        service(managers=[("argocd-controller", SPEC, {})]),
        "Argo CD",
        None,
    ),
    "flux kustomization": (
        service(
            labels={
                "kustomize.toolkit.fluxcd.io/name": "models",
                "kustomize.toolkit.fluxcd.io/namespace": "flux-system",
            },
            managers=[("kustomize-controller", SPEC, {})],
        ),
        "Flux",
        "Kustomization flux-system/models",
    ),
    "flux helm release wins over helm": (
        service(
            labels={
                "helm.toolkit.fluxcd.io/name": "qwen",
                "helm.toolkit.fluxcd.io/namespace": "chat",
                "app.kubernetes.io/managed-by": "Helm",
            },
            annotations={
                "meta.helm.sh/release-name": "qwen",
                "meta.helm.sh/release-namespace": "chat",
            },
        ),
        "Flux",
        "HelmRelease chat/qwen",
    ),
    "helm": (
        service(
            labels={"app.kubernetes.io/managed-by": "Helm"},
            annotations={
                "meta.helm.sh/release-name": "qwen",
                "meta.helm.sh/release-namespace": "chat",
            },
        ),
        "Helm",
        "chat/qwen",
    ),
    "terraform": (service(managers=[("Terraform", SPEC, {})]), "Terraform", None),
    "a controller": (
        service(owners=[{"kind": "ModelDeployment", "name": "qwen", "controller": True}]),
        "ModelDeployment",
        "ModelDeployment qwen",
    ),
}


@pytest.mark.parametrize("case", OWNED)
def test_owners(case):
    thing, tool, name = OWNED[case]
    owner = owner_of(thing)
    assert owner is not None
    assert (owner.tool, owner.name) == (tool, name)
    with pytest.raises(Refused) as refused:
        require_unowned(thing, force=False)
    assert "InferenceService chat/qwen belongs to " + tool in refused.value.message
    assert owner.evidence in refused.value.message
    assert "--force" in refused.value.hint
    warning = require_unowned(thing, force=True)
    assert warning is not None and owner.reverts in warning


@pytest.mark.parametrize(
    "thing",
    [
        service(),
        service(labels={"app.kubernetes.io/instance": "models"}),
        service(managers=[("kubectl-client-side-apply", SPEC, {}), ("kserve-manager", SPEC, {})]),
        service(managers=[("argocd-controller", {"f:status": {}}, {"subresource": "status"})]),
        service(managers=[("argocd-controller", {"f:metadata": {"f:labels": {}}}, {})]),
        service(owners=[{"kind": "Team", "name": "chat", "controller": False}]),
        {"kind": "InferenceService", "metadata": {"name": "bare"}},
        {},
    ],
    ids=[
        "bare",
        "chart label",
        "people and kserve",
        "status only",
        "labels only",
        "no controller",
        "minimal",
        "empty",
    ],
)
def test_nobody_owns_these(thing):
    assert owner_of(thing) is None
    assert require_unowned(thing, force=False) is None


@pytest.mark.parametrize(
    "tracking",
    [
        "models:serving.kserve.io/InferenceService:chat/other",
        "models:apps/Deployment:chat/qwen",
        "models",
    ],
)
def test_an_argo_id_copied_from_another_object_proves_nothing(tracking):
    assert owner_of(service(annotations={"argocd.argoproj.io/tracking-id": tracking})) is None


def test_the_hint_says_where_to_make_the_change():
    with pytest.raises(Refused) as refused:
        require_unowned(ARGO, force=False)
    assert "commit it to the source of models and sync" in refused.value.hint
