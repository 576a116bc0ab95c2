"""The live InferenceService as text, and back: what a revision keeps and a rollback restores.

The text is canonical YAML (sorted keys, block style, no folding) of everything a user can set; what only the server
writes is left out, and so is kubectl's record of its last client-side apply, which belongs to kubectl. Reading the same
object gives the same bytes, and a text that is written gives the same bytes when it is read again. Fields that KServe's
webhooks add are part of the live object and therefore of the text.

Nothing of ours is ever put on the live InferenceService: KServe copies its annotations and labels into the pods, which
restarts them.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from mpctl.errors import InputError, Refused
from mpctl.platform.kubernetes.api.names import SERVICE_LABEL, label_of

Json = dict[str, Any]

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
ARM_ANNOTATION = "mpctl.dev/arm"
KEPT_ANNOTATION = "mpctl.dev/kept-for-route"
CANDIDATE_SUFFIX = "-candidate"

# Written by the server, or by owners and finalizers, which a restored spec must not take away.
_SERVER_METADATA = (
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "managedFields",
    "selfLink",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "finalizers",
    "ownerReferences",
)
_KEPT_ON_WRITE = ("uid", "resourceVersion", "finalizers", "ownerReferences")
# What scales or routes the live service has no meaning for a candidate of so many pods.
_NOT_FOR_CANDIDATE = ("minReplicas", "maxReplicas", "scaleTarget", "scaleMetric", "scaleMetricType", "autoScaling")
_AUTOSCALER_CLASS = "serving.kserve.io/autoscalerClass"
_SCALE_ANNOTATIONS = ("autoscaling.knative.dev/", "serving.kserve.io/autoscaler")
# Traces of who deployed the service: Argo CD, Flux and Helm would take a second object with them for theirs.
_OWNER_TRACES = (
    "argocd.argoproj.io/",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "kustomize.toolkit.fluxcd.io/",
    "helm.toolkit.fluxcd.io/",
    "meta.helm.sh/",
)


def text_of(record: Mapping[str, Any]) -> str:
    """The canonical text of an InferenceService."""
    kept = {k: copy.deepcopy(v) for k, v in record.items() if k != "status"}
    metadata = {k: v for k, v in kept["metadata"].items() if k not in _SERVER_METADATA}
    annotations = {k: v for k, v in (metadata.get("annotations") or {}).items() if k != LAST_APPLIED}
    if annotations:
        metadata["annotations"] = annotations
    else:
        metadata.pop("annotations", None)
    return dump({**kept, "metadata": metadata})


def dump(record: Mapping[str, Any]) -> str:
    """Canonical YAML: pure ASCII, since readers and writers of YAML disagree on what may stand unescaped."""
    import yaml

    text: str = yaml.safe_dump(dict(record), sort_keys=True, default_flow_style=False, width=2**31, allow_unicode=False)
    return text


def object_of(text: str) -> Json:
    """The object that a text made by :func:`text_of` says.

    Raises:
        InputError: it is no InferenceService.
    """
    import yaml

    try:
        record = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise InputError(f"the recorded service is not YAML: {error}") from error
    if not isinstance(record, dict) or record.get("kind") != "InferenceService":
        raise InputError("the recorded service is no InferenceService")
    return record


def to_write(text: str, live: Mapping[str, Any]) -> Json:
    """The object that makes ``live`` say ``text``: exact, for a replace with the version and uid that were read."""
    record = object_of(text)
    seen = live["metadata"]
    metadata = record["metadata"] | {k: copy.deepcopy(seen[k]) for k in _KEPT_ON_WRITE if k in seen}
    applied = (seen.get("annotations") or {}).get(LAST_APPLIED)
    if applied is not None:
        metadata["annotations"] = {**(metadata.get("annotations") or {}), LAST_APPLIED: applied}
    return {**record, "metadata": metadata}


def candidate_name(service: str) -> str:
    """The second InferenceService's name; monitors, rules and network policies of the stacks expect it."""
    return service + CANDIDATE_SUFFIX


def candidate_of(text: str, arm_id: str, *, namespace: str, pods: int = 1, kept: str | None = None) -> Json:
    """The InferenceService that runs ``text`` beside the live one: so many pods, not scaled, labelled apart.

    ``kept``: the route by which it gets the traffic back, where it is an old arm that is kept.

    Raises:
        Refused: the pods take a claim by its name, which two pods would share.
    """
    record = object_of(text)
    service = record["metadata"]["name"]
    predictor = {k: v for k, v in record["spec"]["predictor"].items() if k not in _NOT_FOR_CANDIDATE}
    for claim in predictor.get("resourceClaims") or []:
        if claim.get("resourceClaimName"):
            raise Refused(
                f"{service} takes ResourceClaim {claim['resourceClaimName']} by name: a candidate would share its GPU",
                hint="use resourceClaimTemplateName, or --strategy in-place",
            )
    annotations, labels = (record["metadata"].get(part) or {} for part in ("annotations", "labels"))
    annotations = {k: v for k, v in annotations.items() if not k.startswith((*_SCALE_ANNOTATIONS, *_OWNER_TRACES))}
    labels = {k: v for k, v in labels.items() if not k.startswith(_OWNER_TRACES)}
    return {
        "apiVersion": record["apiVersion"],
        "kind": record["kind"],
        "metadata": {
            "name": candidate_name(service),
            "namespace": namespace,
            "labels": {**labels, SERVICE_LABEL: label_of(service)},
            "annotations": {**annotations, _AUTOSCALER_CLASS: "none", ARM_ANNOTATION: arm_id}
            | ({} if kept is None else {KEPT_ANNOTATION: kept}),
        },
        "spec": {**record["spec"], "predictor": {**predictor, "minReplicas": pods, "maxReplicas": pods}},
    }


def bridge(text: str, replicas: int, *, downtime: bool) -> str | None:
    """``text`` with another deploymentStrategy for the time of a change, None when its own will do.

    Without downtime a new pod must be there before an old one goes. With it (no GPU is free) an old one must go
    first: KServe's default waits for ever for a second GPU. The strategy is no part of the pod template, so setting it
    and taking it back restarts nothing.
    """
    predictor = object_of(text)["spec"]["predictor"]
    takes_first = _takes_first(predictor.get("deploymentStrategy") or {}, replicas)
    needed = takes_first == 0 if downtime else takes_first >= replicas
    return bridged(text, downtime=downtime) if needed else None


def bridged(text: str, *, downtime: bool) -> str:
    """``text`` with the strategy of a change: an old pod goes first with ``downtime``, else a new one comes first."""
    record = object_of(text)
    limits = {"maxSurge": 0, "maxUnavailable": 1} if downtime else {"maxSurge": 1, "maxUnavailable": 0}
    record["spec"]["predictor"]["deploymentStrategy"] = {"type": "RollingUpdate", "rollingUpdate": limits}
    return dump(record)


def _takes_first(strategy: Mapping[str, Any], replicas: int) -> int:
    """How many pods a Deployment of this strategy takes away before new ones are ready.

    Kubernetes: percentages of maxUnavailable round down; when both limits come to 0, one pod may be taken.
    """
    if strategy.get("type") == "Recreate":
        return replicas
    rolling = strategy.get("rollingUpdate") or {}
    unavailable = _share(rolling.get("maxUnavailable", "25%"), replicas, up=False)
    surge = _share(rolling.get("maxSurge", "25%"), replicas, up=True)
    return 1 if unavailable == 0 and surge == 0 else unavailable


def _share(value: int | str, replicas: int, *, up: bool) -> int:
    if isinstance(value, str) and value.endswith("%"):
        percent = int(value[:-1])
        return -(-percent * replicas // 100) if up else percent * replicas // 100
    return int(value)


def editors_since(before: Mapping[str, Any] | None, now: Mapping[str, Any], ours: str) -> tuple[str, ...]:
    """Who changed the object since ``before`` was read, from managedFields: ``manager at time``, without ``ours``."""

    def entries(record: Mapping[str, Any]) -> dict[tuple[str, ...], str]:
        fields = record["metadata"].get("managedFields") or []
        return {
            (f.get("manager", "?"), f.get("operation", ""), f.get("subresource", "")): str(f.get("time", ""))
            for f in fields
        }

    old = {} if before is None else entries(before)
    found = [
        (time, key[0])
        for key, time in entries(now).items()
        if not key[2] and key[0] != ours and old.get(key, "") != time
    ]
    return tuple(f"{manager} at {time}" for time, manager in sorted(found, reverse=True))
