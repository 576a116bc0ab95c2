"""The autoscaler that KServe makes itself, held through the InferenceService.

With autoscalerClass ``hpa`` (KServe's default) or ``keda`` KServe owns the HPA or ScaledObject ``<service>-predictor``
and writes its limits back from the predictor's ``minReplicas`` and ``maxReplicas`` whenever the service or its
Deployment changes, so during every rollout (KServe 0.20). These two fields are pinned instead. They are no part of the
pod template: nothing restarts.

While they are pinned, the live object is read with the limits it will have again, so that a plan, a revision and a
comparison never see the pin; whatever is written meanwhile carries it. Other limits than the pinned ones are somebody
else's and are seen as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mpctl.platform.kubernetes.api.kinds import INFERENCE_SERVICE, SERVING

Json = dict[str, Any]

LIMITS = ("minReplicas", "maxReplicas")


def made_by_kserve(scaler: Mapping[str, Any], isvc: Mapping[str, Any]) -> bool:
    """Whether an autoscaler is KServe's own one of a service."""
    owners = scaler["metadata"].get("ownerReferences") or []
    return any(
        str(o.get("apiVersion", "")).startswith(f"{SERVING}/") and o.get("uid") == isvc["metadata"]["uid"]
        for o in owners
    )


class Hold:
    """The pin of one service. ``scaling`` gives the record of an unfinished operation, None without one; it is asked
    once, and only when the live limits could be pinned ones."""

    def __init__(self, scaling: Callable[[], Mapping[str, Any] | None]) -> None:
        self._scaling: Callable[[], Mapping[str, Any] | None] | None = scaling
        self._item: Mapping[str, Any] | None = None
        self._replicas = 0

    def set(self, scaling: Mapping[str, Any] | None) -> None:
        """The record that holds from now on; None: nothing is pinned."""
        self._scaling = None
        items = scaling["items"] if scaling is not None else ()
        self._item = next((i for i in items if i["kind"] == INFERENCE_SERVICE.name), None)
        self._replicas = int(scaling["replicas"]) if scaling is not None else 0

    def released(self, isvc: Json) -> Json:
        """The live object as it reads without the pin."""
        predictor = isvc["spec"]["predictor"]
        least, most = (predictor.get(name) for name in LIMITS)
        if least is None or least != most:
            return isvc
        item = self._known()
        if item is None or least != self._replicas:
            return isvc
        rest = {k: v for k, v in predictor.items() if k not in LIMITS}
        return {**isvc, "spec": {**isvc["spec"], "predictor": {**rest, **item["limits"]}}}

    def kept(self, isvc: Json) -> Json:
        """The object to write, with the pin."""
        if self._known() is None:
            return isvc
        pin = dict.fromkeys(LIMITS, self._replicas)
        return {**isvc, "spec": {**isvc["spec"], "predictor": {**isvc["spec"]["predictor"], **pin}}}

    def _known(self) -> Mapping[str, Any] | None:
        if self._scaling is not None:
            self.set(self._scaling())
        return self._item
