"""Puts weights on an HTTPRoute, waits until the gateway has taken them, and puts the route back as it was found.

What the route was is in the plan, so in the ledger before anything is written. Every write is a replace with the
version and uid that were read; only backendRefs differ. A route that somebody else changed is left as they wrote it.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping
from typing import Any

from mpctl.errors import Conflict, MpctlError, Refused
from mpctl.platform.kubernetes.api.client import MANAGER, Client, Json
from mpctl.platform.kubernetes.api.failure import OutcomeUnknown, Stale
from mpctl.platform.kubernetes.api.fields import changed_fields
from mpctl.platform.kubernetes.api.kinds import HTTP_ROUTE
from mpctl.platform.kubernetes.api.owners import owner_of
from mpctl.platform.kubernetes.httproute.weights import (
    Taken,
    backend_of,
    choose,
    is_ours,
    is_own,
    routes_to,
    shares,
    taken,
    weighted,
)
from mpctl.platform.kubernetes.service.manifest_text import candidate_name, editors_since

_TRIES = 6
_TAKEN_S = 60.0  # a controller answers within seconds; one that restarts (election of a leader: 15 s) within this
_POLL_S = 0.5


class Routes:
    """The HTTPRoutes of one namespace, as they lead to one service and to its candidate."""

    def __init__(
        self, client: Client, namespace: str, service: str, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._service = service
        self._candidate = candidate_name(service)
        self._sleep = sleep

    def record(self, name: str | None, *, force: bool = False) -> Json:
        """The user's route as it is: ``{"name", "spec"}``.

        Raises:
            InputError: there are several, or none of that name.
            Refused: there is none, no gateway takes it, or somebody else writes it (unless ``force``).
        """
        route = choose(self._every(), self._service, name)
        metadata = route["metadata"]
        state = taken(route)
        if not state.good:
            raise Refused(
                f"HTTPRoute {metadata['name']} is in no use: {state.message}",
                hint=f"kubectl describe httproute {metadata['name']} -n {self._namespace} says more",
            )
        candidate = backend_of(self._candidate)
        if any(
            ref.get("name") == candidate for rule in route["spec"]["rules"] for ref in rule.get("backendRefs") or ()
        ):
            raise Refused(
                f"HTTPRoute {metadata['name']} names Service {candidate}, which comes and goes with rollouts",
                hint=f"take that backend out: kubectl edit httproute {metadata['name']} -n {self._namespace}",
            )
        owner = owner_of(route)
        if owner is not None and not force:
            raise Refused(
                f"HTTPRoute {metadata['name']} belongs to {owner.title}, which {owner.returns} ({owner.evidence})",
                hint="use a route that nothing else writes, or --force to change it all the same",
            )
        record = {"name": metadata["name"], "spec": copy.deepcopy(route["spec"])}
        weighted(self._as_found(record), self._service, self._candidate, 1)
        return record

    def shift(self, record: Mapping[str, Any], percent: int) -> None:
        """Give the candidate ``percent`` of what the route gives the service; returns when the gateway has taken it.

        Raises:
            Conflict: somebody else changed the route; it is left as they wrote it.
            MpctlError: the gateway does not take it.
        """
        self._write(record, weighted(self._as_found(record), self._service, self._candidate, percent))
        state = self._await(record, lambda state: state.good)
        if not state.good:
            raise MpctlError(
                f"{self._title(record)} was written, and not taken within {_TAKEN_S:.0f} s: {state.message}",
                hint="look at the gateway's controller",
            )

    def require_shifted(self, record: Mapping[str, Any], percent: int) -> None:
        """Raise unless the route still is as :meth:`shift` wrote it and the gateway still takes it.

        Raises:
            Conflict: somebody else changed the route.
            MpctlError: the gateway does not take it any more.
        """
        route = self._live(record)
        if route is None:
            raise Conflict(f"{self._title(record)} was deleted meanwhile")
        if route["spec"] != weighted(self._as_found(record), self._service, self._candidate, percent):
            raise self._foreign(route, record)
        state = taken(route)
        if not state.good:
            raise MpctlError(f"{self._title(record)} is not taken any more: {state.message}")

    def restore(self, record: Mapping[str, Any]) -> tuple[str, ...]:
        """Put the route back as recorded, and wait until the gateway has seen it; returns what was left because
        somebody else changed it, and what no gateway can confirm.

        Raises:
            Conflict: what they wrote gives the candidate traffic, so it cannot be left.
            MpctlError: a gateway that had the candidate's share has not seen that it is gone.
        """
        try:
            wrote = self._write(record, record["spec"])
        except Conflict as error:
            self.require_idle(f"{error.message}; ")
            return (f"{error.message}; it is left as it is",)
        found = self._live(record)
        if found is None:
            return ()
        # Without a write of ours, now or in an earlier try, no gateway has anything to forget.
        ours = wrote or any(f.get("manager") == MANAGER for f in found["metadata"].get("managedFields") or [])
        state = taken(found)
        if wrote or (ours and state.claimed):
            state = self._await_seen(record)
        return () if state.seen else (f"{self._title(record)} is as it was found; {state.message}",)

    def require_idle(self, why: str = "") -> None:
        """Raise while a route gives the candidate traffic, which would find nobody then; ``why`` comes first. The route
        that KServe writes for the candidate itself goes with it.

        Raises:
            Conflict: the message names the routes, the hint the way out.
        """
        leading = routes_to(self._users(), backend_of(self._candidate))
        if leading:
            names = ", ".join(route["metadata"]["name"] for route in leading)
            raise Conflict(
                f"{why}HTTPRoute {names} gives Service {backend_of(self._candidate)} traffic, so "
                f"{self._candidate} must not be removed",
                hint=f"take that backend out, or the change back (kubectl edit httproute "
                f"{leading[0]['metadata']['name']} -n {self._namespace}); the same command then goes on",
            )

    def shares_in_words(self) -> tuple[str, str]:
        """What the routes give the candidate, and what the service: ``10 %``; both empty when it gets nothing."""
        found = sorted(set(shares(self._users(), self._service, self._candidate)))
        if not found:
            return "", ""
        ends = found if len(found) < 3 else [found[0], found[-1]]
        own, others = ([f"{share:g} %" for share in some] for some in (ends, [100 - share for share in ends]))
        return " to ".join(own), " to ".join(others)

    def _every(self) -> list[Json]:
        return self._client.list(HTTP_ROUTE, self._namespace) or []

    def _users(self) -> list[Json]:
        """All but those that KServe writes for the candidate."""
        return [route for route in self._every() if not is_own(route, self._candidate)]

    def _live(self, record: Mapping[str, Any]) -> Json | None:
        return self._client.get(HTTP_ROUTE, record["name"], self._namespace)

    def _as_found(self, record: Mapping[str, Any]) -> Json:
        return {"metadata": {"name": record["name"], "namespace": self._namespace}, "spec": record["spec"]}

    def _title(self, record: Mapping[str, Any]) -> str:
        return f"HTTPRoute {self._namespace}/{record['name']}"

    def _write(self, record: Mapping[str, Any], spec: Mapping[str, Any]) -> bool:
        """Whether it was written; False where it is live already."""
        written = False  # a write whose outcome is unknown may have been ours
        for _ in range(_TRIES):
            route = self._live(record)
            if route is None:
                raise Conflict(f"{self._title(record)} was deleted meanwhile")
            if route["spec"] == spec:
                return written
            if not is_ours(route, self._as_found(record), self._service, self._candidate):
                raise self._foreign(route, record)
            body = {k: v for k, v in copy.deepcopy(route).items() if k != "status"}
            body["metadata"].pop("managedFields", None)
            try:
                self._client.replace(HTTP_ROUTE, {**body, "spec": copy.deepcopy(dict(spec))})
                return True
            except Stale:
                continue
            except OutcomeUnknown:
                written = True
        raise MpctlError(
            f"{self._title(record)} could not be written in {_TRIES} tries", hint="the same command goes on"
        )

    def _foreign(self, route: Json, record: Mapping[str, Any]) -> Conflict:
        who = editors_since(None, route, MANAGER)
        what = ", ".join(changed_fields(record["spec"], route["spec"])[:5]) or "back to what it was"
        return Conflict(
            f"{self._title(record)} was changed by {who[0] if who else 'somebody else'} meanwhile: {what}",
            hint="nothing was overwritten",
        )

    def _await_seen(self, record: Mapping[str, Any]) -> Taken:
        """A route that is put back need not be accepted, and a gateway that is gone will not see it."""
        state = self._await(record, lambda state: state.seen)
        if not state.seen and state.claimed:
            raise MpctlError(
                f"{self._title(record)} is put back, and not seen within {_TAKEN_S:.0f} s: {state.message}",
                hint="look at the gateway's controller: it may still send the candidate requests; the same command "
                "then goes on",
            )
        return state

    def _await(self, record: Mapping[str, Any], enough: Callable[[Taken], bool]) -> Taken:
        """What gateways say once it is ``enough``, or time is up. A route that is gone is seen by all."""
        end = time.monotonic() + _TAKEN_S
        while True:
            route = self._live(record)
            state = Taken(seen=True, good=True) if route is None else taken(route)
            if enough(state) or time.monotonic() > end:
                return state
            self._sleep(_POLL_S)
