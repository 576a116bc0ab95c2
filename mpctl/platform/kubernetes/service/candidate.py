"""The second InferenceService: a candidate without traffic of its own, or an old arm that is kept for an instant way
back. It is ours alone, told by its annotation, and never removed while a route gives it traffic.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from mpctl.errors import Conflict, MpctlError
from mpctl.platform.kubernetes.api.client import Client, Json
from mpctl.platform.kubernetes.api.failure import AlreadyExists, OutcomeUnknown
from mpctl.platform.kubernetes.api.kinds import INFERENCE_SERVICE, POD
from mpctl.platform.kubernetes.httproute.router import Routes
from mpctl.platform.kubernetes.service.manifest_text import (
    ARM_ANNOTATION,
    KEPT_ANNOTATION,
    candidate_name,
    candidate_of,
)
from mpctl.platform.kubernetes.service.reader import ISVC_LABEL, Looker
from mpctl.rollout.ports import Arm, Phase

_TRIES = 6
_GONE_TIMEOUT_S = 180.0  # pods drain: vLLM's own shutdown, for at most their grace period
_AFTER_GRACE_S = 60.0  # until a pod that was killed is gone from the API
_DRAIN_TIMEOUT_S = 120.0  # an answer of some thousand tokens
_POLL_S = 1.0


def arm_of(isvc: Json) -> str | None:
    """The arm that an InferenceService of ours runs; None when it is not ours."""
    found = (isvc["metadata"].get("annotations") or {}).get(ARM_ANNOTATION)
    return None if found is None else str(found)


def kept_route(isvc: Json) -> str | None:
    """The route by which a kept arm gets the traffic back; None for a candidate."""
    found = (isvc["metadata"].get("annotations") or {}).get(KEPT_ANNOTATION)
    return None if found is None else str(found)


def _grace_s(pod: Json) -> float:
    """How long a pod may take to end; Kubernetes gives 30 s where nothing is said."""
    return float((pod.get("spec") or {}).get("terminationGracePeriodSeconds") or 30)


class Candidate:
    """The second InferenceService of one service."""

    def __init__(
        self,
        client: Client,
        looker: Looker,
        routes: Routes,
        service: str,
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client, self._looker, self._routes = client, looker, routes
        self._namespace = looker.namespace
        self.name = candidate_name(service)
        self._sleep = sleep

    def found(self) -> Json | None:
        """The object, also when it is not ours."""
        return self._looker.isvc(self.name)

    def ours(self) -> Json | None:
        """The object, if it is there and ours."""
        found = self.found()
        return found if found is not None and arm_of(found) is not None else None

    def start(self, arm: Arm, *, pods: int = 1, kept: str | None = None) -> None:
        """Run ``arm``; nothing to do when it runs like this. One that failed is made anew, another arm is removed.

        ``kept``: the route's name when the arm is kept for a way back.

        Raises:
            Conflict: an InferenceService of that name is not ours, or a route gives it traffic.
        """
        body = candidate_of(arm.manifest, arm.id, namespace=self._namespace, pods=pods, kept=kept)
        for _ in range(_TRIES):
            there = self.found()
            if there is not None:
                same = arm_of(there) == arm.id and kept_route(there) == kept
                if same and not self._failed(there):
                    return
                if arm_of(there) is None:
                    raise Conflict(f"InferenceService {self.name} is not ours to remove")
                self.remove(there)
            try:
                self._client.create(INFERENCE_SERVICE, body)
                return
            except (AlreadyExists, OutcomeUnknown):
                continue
        raise MpctlError(f"InferenceService {self.name} could not be created in {_TRIES} tries", hint="try again")

    def _failed(self, isvc: Json) -> bool:
        _, seen = self._looker.seen(lambda: self._looker.find(isvc))
        return seen.phase is Phase.FAILED

    def require_removable(self) -> None:
        """Raise while it could not be removed again, before anything is started or changed.

        Raises:
            Conflict: a route gives it traffic.
            NotPermitted: nobody can tell, because routes may not be listed.
        """
        self._routes.require_idle()

    def remove_ours(self) -> None:
        """Remove it, if it is there and ours."""
        found = self.ours()
        if found is not None:
            self.remove(found)

    def remove(self, isvc: Json) -> None:
        """Delete an InferenceService of ours and wait until its pods have left their GPUs: 180 s, or their own grace
        period and a minute where that is longer.

        Raises:
            Conflict: a route gives it traffic.
        """
        self._routes.require_idle()
        name = isvc["metadata"]["name"]
        self._client.delete(INFERENCE_SERVICE, name, self._namespace, uid=isvc["metadata"]["uid"], foreground=True)
        began, patience = time.monotonic(), _GONE_TIMEOUT_S
        while True:
            pods = self._client.list(POD, self._namespace, labels=f"{ISVC_LABEL}={name}") or []
            if not pods and self._looker.isvc(name) is None:
                return
            patience = max([patience, *(_grace_s(pod) + _AFTER_GRACE_S for pod in pods)])
            if time.monotonic() - began > patience:
                break
            self._sleep(_POLL_S)
        raise MpctlError(
            f"pods of InferenceService {name} did not end within {patience:.0f} s",
            hint=f"kubectl get pods -n {self._namespace} -l {ISVC_LABEL}={name} shows them",
        )

    def drain(self) -> tuple[str, ...]:
        """Wait until its engines have answered what the route sent them; returns what was left unanswered, or could
        not be asked.

        Two looks in a row must find nothing: a gateway's proxies learn of a route one after the other.
        """
        isvc = self.ours()
        end = time.monotonic() + _DRAIN_TIMEOUT_S
        quiet = 0
        while isvc is not None:
            found = self._looker.find(isvc)
            if not found.ready:
                break  # nothing gets requests, so there is nothing to wait for
            busy, unheard = self._looker.requests(found)
            quiet = 0 if busy or unheard else quiet + 1
            if quiet == 2:
                break
            if time.monotonic() > end:
                left = [f"{busy:.0f} requests are still unanswered by {self.name}"] if busy else []
                left += [f"pod {name} could not be asked whether it has answered all" for name in unheard]
                return tuple(f"{line} after {_DRAIN_TIMEOUT_S:.0f} s" for line in left)
            self._sleep(_POLL_S)
        return ()
