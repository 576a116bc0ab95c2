"""What differs where Knative runs a service's pods and shares out its traffic. Pure.

Every change of the service makes a revision, which has a Deployment of its own beside the one before it. Once the new
revision is ready Knative gives it the traffic, and later takes the old one's pods away. So no pod ever goes first, a
change needs room for all pods of the new revision, and an arm runs alone only when no other revision has pods.

Knative's autoscaler counts requests at its own proxies. What is measured goes to the engines directly, so it scales
nothing up; but it does not keep a service from being scaled to zero either.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

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
    """Whether Knative runs the service's pods and shares out its traffic."""
    annotations = isvc["metadata"].get("annotations") or {}
    mode = annotations.get(_MODE) or (isvc.get("status") or {}).get("deploymentMode")
    return mode in _MODES


def newest_revision(isvc: Json) -> str:
    """The predictor's newest revision; the name of its first one while KServe has not said."""
    return str(_predictor(isvc).get("latestCreatedRevision") or f"{isvc['metadata']['name']}-predictor-00001")


def deployment_of(revision: str) -> str:
    """The name of a revision's Deployment: as Knative shortens a name that gets too long (its kmeta.ChildName)."""
    suffix = "-deployment"
    if len(revision) <= _LONGEST_NAME - len(suffix):
        return revision + suffix
    digest = hashlib.md5(revision.encode(), usedforsecurity=False).hexdigest()
    return f"{revision[: _LONGEST_NAME - _DIGEST - len(suffix)]}{digest}{suffix}"


def of_newest(isvc: Json, pods: Sequence[Json]) -> list[Json]:
    """The pods of the newest revision."""
    return [p for p in pods if _revision_of(p) == newest_revision(isvc)]


def not_alone(isvc: Json, ready: Sequence[Json]) -> str:
    """Why the newest revision does not serve alone, although its pods are ready; empty when it does.

    ``ready``: the service's ready pods. Those of a revision that failed are not: Knative keeps them for its progress
    deadline (600 s as it is installed), and they serve nobody.
    """
    predictor, newest = _predictor(isvc), newest_revision(isvc)
    if predictor.get("latestReadyRevision") != newest:
        return f"Knative does not call revision {newest} ready yet"
    share = sum(int(t.get("percent") or 0) for t in predictor.get("traffic") or [] if t.get("revisionName") == newest)
    if share != 100:
        return f"revision {newest} gets {share} % of the traffic"
    older = sorted({_revision_of(p) for p in ready} - {newest})
    return f"Knative has not ended the pods of {', '.join(older)} yet" if older else ""


def same_image(asked: str, found: str) -> bool:
    """Whether a revision's container has the image that was asked for. Knative writes the digest that a tag had when
    the revision was made; then only the repository can be compared."""
    if asked == found:
        return True
    return "@sha256:" in found and _repository(asked) == _repository(found)


def starting_pods(isvc: Json) -> int:
    """With how many pods a new revision starts, before it gets traffic."""
    least = isvc["spec"]["predictor"].get("minReplicas")
    return max(1 if least is None else int(least), _number(isvc, "initial-scale"), 1)


def require_changeable(isvc: Json, title: str, pods: int, *, downtime: bool) -> None:
    """Refuse what cannot go well in Knative mode. ``pods``: how many there are now.

    Raises:
        Refused: with the reason and the way out.
    """
    predictor = isvc["spec"]["predictor"]
    canary = predictor.get("canaryTrafficPercent")
    if canary is not None and int(canary) < 100:
        raise Refused(
            f"{title} has canaryTrafficPercent {canary}: a new revision would get no more of the traffic than that",
            hint="finish that canary first: set canaryTrafficPercent to 100, or take it out",
        )
    if predictor.get("minReplicas") == 0:
        raise Refused(
            f"{title} has minReplicas 0: Knative may end its pods while they are measured, which it does not see",
            hint="set minReplicas to 1 until the rollout is done; that makes a revision, and so does setting it back",
        )
    if (isvc["metadata"].get("annotations") or {}).get(f"{_SCALING}class") == _HPA_CLASS:
        raise Refused(
            f"{title} is scaled by an HPA that Knative makes for each revision: it cannot be held while a load is sent",
            hint=f"take annotation {_SCALING}class out until the rollout is done: Knative's own autoscaler counts "
            "requests that come through its proxies, and that load does not",
        )
    if downtime:
        raise Refused(
            f"{title} runs in Knative mode: a new revision starts beside the old one, no pod can go first",
            hint="make room first: mpctl capacity adds a node",
        )
    least = starting_pods(isvc)
    if pods > least:
        raise Refused(
            f"{title} was scaled to {pods} pods, but a new revision gets all its traffic with {least} ready",
            hint=f'annotate it with {_SCALING}initial-scale: "{pods}" (that makes a revision), or wait until it has '
            f"{least} again",
        )


def _predictor(isvc: Json) -> Json:
    found: Json = ((isvc.get("status") or {}).get("components") or {}).get("predictor") or {}
    return found


def _revision_of(pod: Json) -> str:
    return str((pod["metadata"].get("labels") or {}).get(_REVISION, ""))


def _number(isvc: Json, name: str) -> int:
    text = str((isvc["metadata"].get("annotations") or {}).get(_SCALING + name, ""))
    return int(text) if text.isdecimal() else 0  # KServe takes out what is no number


def _repository(image: str) -> str:
    """An image without tag and digest, on Docker Hub without its address."""
    name = image.partition("@")[0]
    head, slash, last = name.rpartition("/")
    name = head + slash + last.partition(":")[0]
    for host in _DOCKER_HUB:
        name = name.removeprefix(host)
    return name.removeprefix("library/")
