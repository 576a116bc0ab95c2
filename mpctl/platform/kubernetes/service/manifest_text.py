"""The live service as text and back: a revision records the text, a rollback restores it.

The text is canonical YAML (sorted keys, block style, no folding) of all fields a user can set, without server-written
fields and without kubectl's last-applied annotation. Reading the same object gives the same bytes; a written text reads
back byte for byte. Fields that KServe's webhooks add are part of the live object and therefore of the text.

mpctl never marks the live InferenceService: KServe copies its annotations and labels into the pods, which restarts
them.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from functools import lru_cache

import yaml

from mpctl.doctor.updates import resolved_limits
from mpctl.errors import InputError, Refused
from mpctl.json_fields import list_at, mapping_at, name_of
from mpctl.json_types import Json, JsonView
from mpctl.manifest.text.yaml_tree import dump
from mpctl.platform.kubernetes.api.names import SERVICE_LABEL, candidate_name, copy_name, label_of
from mpctl.platform.kubernetes.service.shapes import SHAPES, shape_of

CANDIDATE_LABEL = "mpctl.dev/candidate-of"
COPY_LABEL = "mpctl.dev/copy-of"
ROUTING_GROUP = "serving.kserve.io/routing-group"  # KServe's label on the members of a group that shares traffic
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
ARM_ANNOTATION = "mpctl.dev/arm"
RETAINED_ANNOTATION = "mpctl.dev/kept-for-route"

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
_SERVER_FIELDS_TO_WRITE = ("uid", "resourceVersion", "finalizers", "ownerReferences")
_SCALE_ANNOTATIONS = ("autoscaling.knative.dev/", "serving.kserve.io/autoscaler")
# Marks of Argo CD, Flux and Helm; they would take a second object with these marks for their own.
_OWNER_TRACES = (
    "argocd.argoproj.io/",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "kustomize.toolkit.fluxcd.io/",
    "helm.toolkit.fluxcd.io/",
    "meta.helm.sh/",
)


def text_of(record: JsonView) -> str:
    """The canonical text of a service's object."""
    fields = {k: v for k, v in record.items() if k != "status"}
    metadata = {k: v for k, v in fields["metadata"].items() if k not in _SERVER_METADATA}
    annotations = {
        k: v for k, v in mapping_at(metadata, "annotations").items() if k != LAST_APPLIED
    }
    metadata["annotations"] = annotations
    recorded = shape_of(record).recorded({**fields, "metadata": metadata})
    if not recorded["metadata"].get("annotations"):
        recorded["metadata"].pop("annotations", None)
    return _dumped(json.dumps(recorded))


@lru_cache(
    maxsize=16
)  # a command asks for the text of one object many times, and writing YAML is slow
def _dumped(record: str) -> str:
    return dump(json.loads(record))


def object_of(text: str) -> Json:
    """Parse a text made by :func:`text_of`.

    Raises:
        InputError: not a kind of service.
    """
    try:
        record = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise InputError(f"the recorded service is not YAML: {error}") from error
    if not isinstance(record, dict) or record.get("kind") not in SHAPES:
        raise InputError(f"the recorded service is not one of {', '.join(SHAPES)}")
    return record


def object_to_write(text: str, live: JsonView) -> Json:
    """Return the object that replaces ``live`` with ``text``, with the resourceVersion and uid that were read."""
    record = object_of(text)
    current = live["metadata"]
    metadata = record["metadata"] | {
        k: copy.deepcopy(current[k]) for k in _SERVER_FIELDS_TO_WRITE if k in current
    }
    applied = mapping_at(current, "annotations").get(LAST_APPLIED)
    if applied is not None:
        metadata["annotations"] = {**mapping_at(metadata, "annotations"), LAST_APPLIED: applied}
    return shape_of(record).to_write({**record, "metadata": metadata}, live)


def candidate_of(
    text: str,
    arm_id: str,
    *,
    namespace: str,
    pods: int = 1,
    retained_for: str | None = None,
    copy: bool = False,
) -> Json:
    """Return the object that runs ``text`` side by side with the live one: fixed replicas, own labels.

    ``retained_for``: name of the HTTPRoute, for a retained baseline. ``copy``: of the baseline, to be measured.

    Raises:
        Refused: the pods use a ResourceClaim by name, which two pods would share, or are a group.
    """
    record = object_of(text)
    shape, service = shape_of(record), name_of(record)
    require_own_claims(shape.pod_of(record), service)
    shape.require_candidate(f"service {namespace}/{service}")
    annotations, labels = (record["metadata"].get(part) or {} for part in ("annotations", "labels"))
    annotations = {
        k: v
        for k, v in annotations.items()
        if not k.startswith((*_SCALE_ANNOTATIONS, *_OWNER_TRACES))
    }
    labels = {} if shape.labels_pods else labels
    labels = {k: v for k, v in labels.items() if not k.startswith((ROUTING_GROUP, *_OWNER_TRACES))}
    marks = {COPY_LABEL if copy else CANDIDATE_LABEL: label_of(service)}
    retained = {} if retained_for is None else {RETAINED_ANNOTATION: retained_for}
    return {
        "apiVersion": record["apiVersion"],
        "kind": record["kind"],
        "metadata": {
            "name": copy_name(service) if copy else candidate_name(service),
            "namespace": namespace,
            "labels": {**labels, SERVICE_LABEL: label_of(service)},
            "annotations": {
                **annotations,
                **shape.candidate_annotations(),
                ARM_ANNOTATION: arm_id,
                **retained,
            },
        },
        "spec": shape.candidate_spec(record, pods, marks),
    }


def require_own_claims(pod: JsonView, service: str) -> None:
    """Refuse pods that take a ResourceClaim by name, which those of a candidate would share. Since KServe 0.21 a
    ServingRuntime may name one, which only the running pods show.

    Raises:
        Refused: with the claim.
    """
    named = [
        claim["resourceClaimName"]
        for claim in list_at(pod, "resourceClaims")
        if claim.get("resourceClaimName")
    ]
    if named:
        raise Refused(
            f"{service} takes ResourceClaim {named[0]} by name: a candidate would share its GPU",
            hint="use resourceClaimTemplateName, or --strategy in-place",
        )


def transition_text(text: str, replicas: int, *, downtime: bool) -> str:
    """Return ``text`` with a deploymentStrategy for the change, unless its own fits or its controller decides.

    Without downtime a new pod must start before an old one stops. With downtime (no GPU is free) an old one must stop
    first: KServe's default waits forever for a second GPU. The strategy is not part of the pod template, so setting and
    restoring it restarts no pod.
    """
    record = object_of(text)
    _, stopped_first = resolved_limits(shape_of(record).strategy_of(record), replicas)
    needed = stopped_first == 0 if downtime else stopped_first >= replicas
    return with_transition_strategy(text, downtime=downtime) if needed else text


def with_transition_strategy(text: str, *, downtime: bool) -> str:
    """Return ``text`` with the strategy of a change: with ``downtime`` an old pod stops first, else a new one
    starts. Where the controller decides it stays as it is."""
    record = object_of(text)
    shape = shape_of(record)
    if not shape.strategy:
        return text
    shape.set_strategy(record, _transition_strategy(downtime=downtime))
    return dump(record)


def without_transition_strategy(text: str, known: Iterable[str]) -> str:
    """Return ``text`` with the strategy of the ``known`` manifests where it has the strategy of a change instead."""
    record = object_of(text)
    shape = shape_of(record)
    recorded = [shape.strategy_of(object_of(manifest)) for manifest in known]
    strategy = shape.strategy_of(record)
    changing = [_transition_strategy(downtime=downtime) for downtime in (False, True)]
    if not recorded or strategy in recorded or strategy not in changing:
        return text
    shape.set_strategy(record, recorded[0])
    return dump(record)


def _transition_strategy(*, downtime: bool) -> Json:
    limits = (
        {"maxSurge": 0, "maxUnavailable": 1} if downtime else {"maxSurge": 1, "maxUnavailable": 0}
    )
    return {"type": "RollingUpdate", "rollingUpdate": limits}
