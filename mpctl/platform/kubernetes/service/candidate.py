"""The second InferenceService: a candidate, or the retained baseline that makes a rollback instant.

mpctl owns it, as its annotation says, and never removes it while an HTTPRoute gives it traffic.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from mpctl import commands
from mpctl.errors import Conflict, MpctlError
from mpctl.platform.kubernetes.api.answers import AlreadyExists, Json, OutcomeUnknown
from mpctl.platform.kubernetes.api.client import Client
from mpctl.platform.kubernetes.api.kinds import POD
from mpctl.platform.kubernetes.api.names import candidate_name, copy_name
from mpctl.platform.kubernetes.httproute.router import Routes
from mpctl.platform.kubernetes.service.manifest_text import ARM_ANNOTATION, RETAINED_ANNOTATION, candidate_of
from mpctl.platform.kubernetes.service.reader import ServiceReader
from mpctl.platform.kubernetes.service.shapes import shape_of
from mpctl.rollout.ports import Arm, Phase

_TRIES = 6
_GONE_TIMEOUT_S = 180.0  # pods drain: vLLM's own shutdown, for at most their grace period
_AFTER_GRACE_S = 60.0  # until a pod that was killed is gone from the API
_DRAIN_TIMEOUT_S = 600.0  # answers of minutes; the pods' grace period where that is longer
_POLL_S = 1.0


def arm_of(isvc: Json) -> str | None:
    """Arm of an InferenceService that mpctl made; None for any other."""
    arm = (isvc["metadata"].get("annotations") or {}).get(ARM_ANNOTATION)
    return None if arm is None else str(arm)


def retained_route(isvc: Json) -> str | None:
    """HTTPRoute that can return the traffic to a retained baseline; None for a candidate."""
    route = (isvc["metadata"].get("annotations") or {}).get(RETAINED_ANNOTATION)
    return None if route is None else str(route)


def _grace_s(pod: Json) -> float:
    """Termination grace period of a pod; the default of Kubernetes is 30 s."""
    return float((pod.get("spec") or {}).get("terminationGracePeriodSeconds") or 30)


class Candidate:
    """The second InferenceService of one service. ``copy``: in its place the copy of the baseline, which no HTTPRoute
    names."""

    def __init__(
        self,
        client: Client,
        reader: ServiceReader,
        routes: Routes,
        service: str,
        *,
        copy: bool = False,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client, self._reader, self._routes = client, reader, routes
        self._namespace = reader.namespace
        self.name = copy_name(service) if copy else candidate_name(service)
        self._copy = copy
        self._sleep = sleep

    def read(self) -> Json | None:
        """Return the InferenceService, whoever owns it; None when not found."""
        return self._reader.isvc(self.name)

    def read_owned(self) -> Json | None:
        """Return the InferenceService when mpctl made it."""
        isvc = self.read()
        return isvc if isvc is not None and arm_of(isvc) is not None else None

    def start(self, arm: Arm, *, service: Json, pods: int = 1, retained_for: str | None = None) -> None:
        """Run ``arm`` unless it runs already. A failed one is created again, another arm is removed.

        ``service``: the live one, which owns it, so that the garbage collector frees its GPUs when somebody deletes the
        service; every write of mpctl keeps the service's uid. ``retained_for``: name of the HTTPRoute, for a retained
        baseline.

        Raises:
            Conflict: another owner has an InferenceService of that name, or an HTTPRoute gives it traffic.
        """
        body = candidate_of(
            arm.manifest,
            arm.id,
            namespace=self._namespace,
            pods=pods,
            retained_for=retained_for,
            copy=self._copy,
        )
        body["metadata"]["ownerReferences"] = [
            {key: service[key] for key in ("apiVersion", "kind")}
            | {key: service["metadata"][key] for key in ("name", "uid")}
        ]
        for _ in range(_TRIES):
            present = self.read()
            if present is not None:
                same = arm_of(present) == arm.id and retained_route(present) == retained_for
                if same and not self._failed(present):
                    return
                if arm_of(present) is None:
                    raise Conflict(
                        f"{self._reader.resource.name} {self.name} was not created by mpctl and is not removed"
                    )
                self.remove(present)
            try:
                self._client.create(self._reader.resource, body)
                return
            except (AlreadyExists, OutcomeUnknown):
                continue
        raise MpctlError(
            f"{self._reader.resource.name} {self.name} could not be created in {_TRIES} tries",
            hint="run the command again",
        )

    def _failed(self, isvc: Json) -> bool:
        _, health = self._reader.health(lambda: self._reader.workload(isvc))
        return health.phase is Phase.FAILED

    def require_removable(self) -> None:
        """Raise unless it could be removed again; called before anything is started or changed.

        Raises:
            Conflict: an HTTPRoute gives it traffic.
            NotPermitted: HTTPRoutes may not be listed.
        """
        if not self._copy:
            self._routes.require_idle()

    def remove_owned(self) -> None:
        """Remove it when mpctl made it."""
        isvc = self.read_owned()
        if isvc is not None:
            self.remove(isvc)

    def remove(self, isvc: Json) -> None:
        """Delete an InferenceService that mpctl made and wait until its pods have released their GPUs.

        The timeout is 180 s, or the pods' grace period plus a minute when that is longer.

        Raises:
            Conflict: an HTTPRoute gives it traffic.
        """
        self.require_removable()
        name, selector = isvc["metadata"]["name"], shape_of(isvc).pod_selector(isvc)
        self._client.delete(self._reader.resource, name, self._namespace, uid=isvc["metadata"]["uid"], foreground=True)
        began, patience = time.monotonic(), _GONE_TIMEOUT_S
        while True:
            pods = self._client.list(POD, self._namespace, labels=selector) or []
            if not pods and self._reader.isvc(name) is None:
                return
            patience = max([patience, *(_grace_s(pod) + _AFTER_GRACE_S for pod in pods)])
            if time.monotonic() - began > patience:
                break
            self._sleep(_POLL_S)
        raise MpctlError(
            f"pods of {self._reader.resource.name} {name} did not terminate within {patience:.0f} s",
            hint=f"run '{commands.kubectl('get', 'pods', '-l', selector, namespace=self._namespace)}' to see them",
        )

    def drain(self) -> tuple[str, ...]:
        """Wait until its engines have answered all requests; return notes on what stayed unanswered or unknown. At most
        10 minutes, or the grace period of its pods where that is longer.

        Two reads in a row must find no request: a gateway's proxies learn of a route one after the other.
        """
        isvc = self.read_owned()
        began, patience = time.monotonic(), _DRAIN_TIMEOUT_S
        quiet = 0
        while isvc is not None:
            workload = self._reader.workload(isvc)
            if not workload.ready:
                break  # no pod receives requests
            patience = max([patience, *(_grace_s(pod) for pod in workload.ready)])
            busy, unanswered = self._reader.requests(workload)
            quiet = 0 if busy or unanswered else quiet + 1
            if quiet == 2:
                break
            if time.monotonic() - began > patience:
                notes = [f"{self.name} has {busy:.0f} unanswered requests"] if busy else []
                notes += [f"pod {name} did not report its open requests" for name in unanswered]
                return tuple(f"{note} after {patience:.0f} s" for note in notes)
            self._sleep(_POLL_S)
        return ()
