"""Pins an autoscaler that KServe makes, through the InferenceService.

With autoscalerClass ``hpa`` (the default) or ``keda`` KServe owns the HPA or ScaledObject ``<service>-predictor`` and
restores its limits from the predictor's ``minReplicas`` and ``maxReplicas`` whenever the service or its Deployment
changes, so during every rollout (KServe 0.20). These two fields are pinned instead; of an LLMInferenceService those
of ``spec.scaling``. They are not part of the pod template: no pod restarts.

While they are pinned, the live object reads with its recorded limits, so that plans, revisions and comparisons never
see the pin; every write carries it. Limits other than the pinned ones are foreign changes and read as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mpctl.platform.kubernetes.api.kinds import INFERENCE_SERVICE, LLM_INFERENCE_SERVICE, SERVING

Json = dict[str, Any]

LIMITS = ("minReplicas", "maxReplicas")
# Where the objects that KServe makes an autoscaler for have their limits, below ``spec``.
HOMES = {INFERENCE_SERVICE.name: "predictor", LLM_INFERENCE_SERVICE.name: "scaling"}


def made_by_kserve(scaler: Mapping[str, Any], isvc: Mapping[str, Any]) -> bool:
    """Return whether KServe made an autoscaler for a service."""
    owners = scaler["metadata"].get("ownerReferences") or []
    return any(
        str(o.get("apiVersion", "")).startswith(f"{SERVING}/") and o.get("uid") == isvc["metadata"]["uid"]
        for o in owners
    )


class KServePin:
    """The pin of one service.

    ``recorded`` returns the record of an unfinished operation, None without one. It is called once, and only when the
    live limits could be pinned ones.
    """

    def __init__(self, recorded: Callable[[], Mapping[str, Any] | None]) -> None:
        self._recorded: Callable[[], Mapping[str, Any] | None] | None = recorded
        self._item: Mapping[str, Any] | None = None
        self._replicas = 0

    def set(self, scaling: Mapping[str, Any] | None) -> None:
        """Use this record from now on; None: nothing is pinned."""
        self._recorded = None
        items = scaling["items"] if scaling is not None else ()
        self._item = next((i for i in items if i["kind"] in HOMES), None)
        self._replicas = int(scaling["replicas"]) if scaling is not None else 0

    def without_pin(self, isvc: Json) -> Json:
        """Return the live object without the pin."""
        key = _home(isvc)
        home = isvc["spec"].get(key) or {}  # a plain Deployment has none, and its HPA is pinned itself
        minimum, maximum = (home.get(name) for name in LIMITS)
        if minimum is None or minimum != maximum:
            return isvc
        item = self._pinned_item()
        if item is None or minimum != self._replicas:
            return isvc
        unpinned = {k: v for k, v in home.items() if k not in LIMITS}
        return {**isvc, "spec": {**isvc["spec"], key: {**unpinned, **item["limits"]}}}

    def with_pin(self, isvc: Json) -> Json:
        """Return the object to write, with the pin."""
        if self._pinned_item() is None:
            return isvc
        pin, key = dict.fromkeys(LIMITS, self._replicas), _home(isvc)
        return {**isvc, "spec": {**isvc["spec"], key: {**isvc["spec"][key], **pin}}}

    def _pinned_item(self) -> Mapping[str, Any] | None:
        if self._recorded is not None:
            self.set(self._recorded())
        return self._item


def _home(isvc: Mapping[str, Any]) -> str:
    return HOMES.get(str(isvc.get("kind")), HOMES[INFERENCE_SERVICE.name])
