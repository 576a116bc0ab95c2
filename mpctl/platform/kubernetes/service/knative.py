"""Knative mode: revisions, traffic and limits. Pure.

Every change of the service makes a revision with its own Deployment, side by side with the previous one. Once the new
revision is ready Knative gives it the traffic and later deletes the old pods. So no pod stops first, a change needs
capacity for all pods of the new revision, and an arm runs alone only when no other revision has pods.

Knative's autoscaler counts requests at its own proxies. Measurements go to the engines directly, so they scale nothing
up, and do not keep a service from scaling to zero either.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from mpctl import commands
from mpctl.errors import Refused

Json = Mapping[str, Any]

_MODES = ("Knative", "Serverless")  # the second is the name until KServe 0.15
_MODE = "serving.kserve.io/deploymentMode"
_REVISION = "serving.knative.dev/revision"
_SCALING = "autoscaling.knative.dev/"
_HPA_CLASS = "hpa.autoscaling.knative.dev"
_LONGEST_NAME, _DIGEST = 63, 32  # of a label's value; of an MD5 in hex
_DOCKER_HUB = ("index.docker.io/", "docker.io/")


def is_knative(isvc: Json) -> bool:
    """Return whether Knative runs the service's pods and splits its traffic."""
    annotations = isvc["metadata"].get("annotations") or {}
    mode = annotations.get(_MODE) or (isvc.get("status") or {}).get("deploymentMode")
    return mode in _MODES


def newest_revision(isvc: Json) -> str:
    """Name of the predictor's newest revision; of its first one until KServe reports one."""
    return str(_predictor(isvc).get("latestCreatedRevision") or f"{isvc['metadata']['name']}-predictor-00001")


def child_name(parent: str, suffix: str) -> str:
    """Name of an object that a controller makes for another one, shortened like Knative's kmeta.ChildName."""
    if len(parent) <= _LONGEST_NAME - len(suffix):
        return parent + suffix
    digest = hashlib.md5(parent.encode(), usedforsecurity=False).hexdigest()
    return f"{parent[: _LONGEST_NAME - _DIGEST - len(suffix)]}{digest}{suffix}"


def deployment_of(revision: str) -> str:
    """Name of a revision's Deployment."""
    return child_name(revision, "-deployment")


def of_newest(isvc: Json, pods: Sequence[Json]) -> list[Json]:
    """Return the pods of the newest revision."""
    return [p for p in pods if _revision_of(p) == newest_revision(isvc)]


def not_alone(isvc: Json, ready: Sequence[Json]) -> str:
    """Reason why the newest revision does not serve alone although its pods are ready; empty when it does.

    ``ready``: the service's ready pods, without those of a failed revision, which Knative keeps for its progress
    deadline
    (default 600 s) without traffic.
    """
    predictor, newest = _predictor(isvc), newest_revision(isvc)
    if predictor.get("latestReadyRevision") != newest:
        return f"Knative does not report revision {newest} as ready yet"
    share = sum(int(t.get("percent") or 0) for t in predictor.get("traffic") or [] if t.get("revisionName") == newest)
    if share != 100:
        return f"revision {newest} gets {share} % of the traffic"
    older = sorted({_revision_of(p) for p in ready} - {newest})
    return f"Knative has not deleted the pods of {', '.join(older)} yet" if older else ""


def same_image(asked: str, actual: str) -> bool:
    """Return whether a revision's container has the requested image. Knative replaces a tag by its digest; then only
    the repository can be compared."""
    if asked == actual:
        return True
    return "@sha256:" in actual and _repository(asked) == _repository(actual)


def starting_pods(isvc: Json) -> int:
    """Number of pods with which a new revision starts before it gets traffic."""
    minimum = isvc["spec"]["predictor"].get("minReplicas")
    return max(1 if minimum is None else int(minimum), _number(isvc, "initial-scale"), 1)


def require_changeable(isvc: Json, title: str, pods: int, *, downtime: bool) -> None:
    """Refuse changes that fail in Knative mode. ``pods``: their current number.

    Raises:
        Refused: with the reason and the remedy.
    """
    predictor = isvc["spec"]["predictor"]
    canary = predictor.get("canaryTrafficPercent")
    if canary is not None and int(canary) < 100:
        raise Refused(
            f"{title} has canaryTrafficPercent {canary}: a new revision would get no more traffic than that",
            hint="finish that canary first: set canaryTrafficPercent to 100, or remove it",
        )
    if predictor.get("minReplicas") == 0:
        raise Refused(
            f"{title} has minReplicas 0: Knative may delete its pods during the measurement, whose requests it does "
            f"not count",
            hint="set minReplicas to 1 until the rollout ends; each of the two edits makes a revision",
        )
    if (isvc["metadata"].get("annotations") or {}).get(f"{_SCALING}class") == _HPA_CLASS:
        raise Refused(
            f"{title} is scaled by an HPA that Knative makes for each revision: it cannot be pinned during a "
            f"measurement",
            hint=f"remove annotation {_SCALING}class until the rollout ends: Knative's own autoscaler counts only "
            f"requests "
            "through its proxies",
        )
    if downtime:
        raise Refused(
            f"{title} runs in Knative mode: a new revision starts side by side with the old one, no pod can stop first",
            hint=f"add capacity first with '{commands.line('capacity', 'CLUSTER')}'",
        )
    initial = starting_pods(isvc)
    if pods > initial:
        raise Refused(
            f"{title} was scaled to {pods} pods, but a new revision gets all its traffic with {initial} ready",
            hint=f'annotate it with {_SCALING}initial-scale: "{pods}" (that makes a revision), or wait until it has '
            f"{initial} again",
        )


def _predictor(isvc: Json) -> Json:
    predictor: Json = ((isvc.get("status") or {}).get("components") or {}).get("predictor") or {}
    return predictor


def _revision_of(pod: Json) -> str:
    return str((pod["metadata"].get("labels") or {}).get(_REVISION, ""))


def _number(isvc: Json, name: str) -> int:
    text = str((isvc["metadata"].get("annotations") or {}).get(_SCALING + name, ""))
    return int(text) if text.isdecimal() else 0  # KServe removes other values


def _repository(image: str) -> str:
    """Return an image name without tag and digest, and without the address of Docker Hub."""
    name = image.partition("@")[0]
    head, slash, last = name.rpartition("/")
    name = head + slash + last.partition(":")[0]
    for host in _DOCKER_HUB:
        name = name.removeprefix(host)
    return name.removeprefix("library/")
