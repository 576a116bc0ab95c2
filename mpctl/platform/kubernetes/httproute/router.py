"""Puts weights or a mirror on an HTTPRoute, waits until the gateways accept it, and restores the recorded route.

The plan records the route in the ledger before anything is written. Every write is a replace with the resourceVersion
and uid that were read; only backendRefs or filters differ. A foreign change of the route is never overwritten.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable

from mpctl import commands
from mpctl.errors import Conflict, MpctlError, Refused
from mpctl.json_fields import list_at, name_of, owners_of, value_at
from mpctl.json_types import Json, JsonView
from mpctl.platform.kubernetes.api.api_client import MANAGER, Client
from mpctl.platform.kubernetes.api.kinds import GATEWAY, GATEWAY_CLASS, HTTP_ROUTE
from mpctl.platform.kubernetes.api.names import candidate_name
from mpctl.platform.kubernetes.api.objects import changed_fields, last_editor, owner_of
from mpctl.platform.kubernetes.api.replies import OutcomeUnknown, Stale
from mpctl.platform.kubernetes.httproute.specs import (
    RouteStatus,
    backend_of,
    is_known_spec,
    mirrored,
    mirrors_of,
    needed_features,
    require_own_rules,
    require_supported,
    route_status,
    routes_to,
    select_route,
    shares,
    weighted,
)

_TRIES = 6
# A controller answers within seconds; one that restarts (election of a leader: 15 s) within this.
_ACCEPTED_TIMEOUT_S = 60.0
_POLL_S = 0.5


class Routes:
    """The HTTPRoutes of one namespace that lead to a service and its candidate."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        service: str,
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._service = service
        self._candidate = candidate_name(service)
        self._sleep = sleep

    def record(self, name: str | None, *, force: bool = False) -> Json:
        """Return the user's route as ``{"name", "spec"}``.

        Raises:
            InputError: several routes, or none of that name.
            Refused: no route, no gateway accepts it, or it has another owner (unless ``force``).
        """
        route = select_route(self.all(), self._service, name)
        metadata = route["metadata"]
        state = route_status(route)
        if not state.accepted:
            raise Refused(
                f"HTTPRoute {metadata['name']} is not accepted: {state.message}",
                hint=f"run '{self._kubectl('describe', metadata['name'])}' for details",
            )
        candidate = backend_of(self._candidate)
        refs = [ref for rule in route["spec"]["rules"] for ref in list_at(rule, "backendRefs")]
        if any(ref.get("name") == candidate for ref in refs) or mirrors_of(route, candidate):
            raise Refused(
                f"HTTPRoute {metadata['name']} names Service {candidate}, which exists only during rollouts",
                hint=f"remove that backend: {self._kubectl('edit', metadata['name'])}",
            )
        owner = owner_of(route)
        if owner is not None and not force:
            raise Refused(
                f"HTTPRoute {metadata['name']} belongs to {owner.title}, which {owner.reverts} ({owner.evidence})",
                hint="use a route without another owner, or --force to change this one",
            )
        record = {"name": metadata["name"], "spec": copy.deepcopy(route["spec"])}
        weighted(self._recorded(record), self._service, self._candidate, 1)
        return record

    def shift(self, record: JsonView, percent: int) -> None:
        """Move ``percent`` of the service's traffic to the candidate; return when the gateways accept it.

        Raises:
            Conflict: a foreign change of the route, which is kept.
            MpctlError: a gateway does not accept it.
        """
        self._put(record, weighted(self._recorded(record), self._service, self._candidate, percent))

    def require_mirroring(self, record: JsonView, percent: int) -> None:
        """Refuse unless every gateway of the route can copy ``percent`` of its requests; only reads.

        Raises:
            Refused: a class does not list it, or the route's gateways cannot be found.
            NotPermitted: gateways or their classes may not be read.
        """
        route = self._recorded(record)
        title = self._title(record)
        require_own_rules(route, self._service, title)
        classes = []
        for parent in list_at(record, "spec", "parentRefs"):
            namespace = parent.get("namespace") or self._namespace
            gateway = self._client.get(GATEWAY, parent["name"], namespace)
            named = value_at(gateway, "spec", "gatewayClassName")
            gateway_class = (
                None if named is None else self._client.get(GATEWAY_CLASS, str(named), None)
            )
            if gateway_class is None:
                raise Refused(
                    f"{title}: Gateway {namespace}/{parent['name']} or its class does not exist"
                )
            classes.append(gateway_class)
        require_supported(needed_features(route, self._service, percent), classes, title)

    def mirror(self, record: JsonView, percent: int) -> None:
        """Copy ``percent`` of the service's requests to the candidate; return when the gateways accept it.

        Raises:
            Conflict: a foreign change of the route, which is kept.
            MpctlError: a gateway does not accept it.
        """
        self._put(record, mirrored(self._recorded(record), self._service, self._candidate, percent))

    def require_mirrored(self, record: JsonView, percent: int) -> None:
        """Refuse as :meth:`require_shifted` does, for :meth:`mirror`."""
        self._require(
            record, mirrored(self._recorded(record), self._service, self._candidate, percent)
        )

    def _put(self, record: JsonView, spec: Json) -> None:
        self._write(record, spec)
        state = self._await(record, lambda state: state.accepted)
        if not state.accepted:
            raise MpctlError(
                f"{self._title(record)} was written, and not accepted within {_ACCEPTED_TIMEOUT_S:.0f} s: "
                f"{state.message}",
                hint="check the gateway's controller",
            )

    def require_shifted(self, record: JsonView, percent: int) -> None:
        """Raise unless the route is as :meth:`shift` wrote it and the gateways still accept it.

        Raises:
            Conflict: a foreign change of the route.
            MpctlError: a gateway does not accept it any more.
        """
        self._require(
            record, weighted(self._recorded(record), self._service, self._candidate, percent)
        )

    def _require(self, record: JsonView, spec: Json) -> None:
        route = self._read(record)
        if route is None:
            raise Conflict(f"{self._title(record)} was deleted meanwhile")
        if route["spec"] != spec:
            raise self._foreign_change(route, record)
        state = route_status(route)
        if not state.accepted:
            raise MpctlError(f"{self._title(record)} is not accepted any more: {state.message}")

    def restore(self, record: JsonView) -> tuple[str, ...]:
        """Restore the recorded route and wait until the gateways have processed it.

        Returns notes on foreign changes that were kept, and on a route that no gateway confirms.

        Raises:
            Conflict: a foreign change gives the candidate traffic, so it cannot be kept.
            MpctlError: a gateway that sent the candidate traffic has not processed the restored route.
        """
        try:
            wrote = self._write(record, record["spec"])
        except Conflict as error:
            self.require_idle(f"{error.message}; ")
            return (f"{error.message}; the change is kept",)
        route = self._read(record)
        if route is None:
            return ()
        # Unless mpctl wrote it, now or in an earlier try, no gateway has anything to process.
        written = wrote or any(
            f.get("manager") == MANAGER for f in list_at(route, "metadata", "managedFields")
        )
        state = route_status(route)
        if wrote or (written and state.has_gateway):
            state = self._await_observed(record)
        return () if state.observed else (f"{self._title(record)} is restored; {state.message}",)

    def require_idle(self, why: str = "") -> None:
        """Raise while a user's route gives the candidate traffic. ``why`` is put before the message.

        Raises:
            Conflict: the message names the routes, the hint the remedy.
        """
        routes, service = self._user_routes(), backend_of(self._candidate)
        leading = routes_to(routes, service) or [
            route for route in routes if mirrors_of(route, service)
        ]
        if leading:
            names = ", ".join(name_of(route) for route in leading)
            raise Conflict(
                f"{why}HTTPRoute {names} gives Service {backend_of(self._candidate)} traffic, so "
                f"{self._candidate} cannot be removed",
                hint=f"remove that backend ({self._kubectl('edit', name_of(leading[0]))}), "
                "then run the same command again to resume",
            )

    def share_texts(self) -> tuple[str, str]:
        """Return the shares of candidate and service as text, such as ``10 %`` or ``copies of 100 %``; both empty when
        the candidate gets nothing."""
        routes = self._user_routes()
        percentages = sorted(set(shares(routes, self._service, self._candidate)))
        if not percentages:
            copies = [
                share
                for route in routes
                for share in mirrors_of(route, backend_of(self._candidate))
            ]
            return (f"copies of {max(copies):g} %", "100 %") if copies else ("", "")
        ends = percentages if len(percentages) < 3 else [percentages[0], percentages[-1]]
        candidate_shares, others = (
            [f"{share:g} %" for share in some] for some in (ends, [100 - share for share in ends])
        )
        return " to ".join(candidate_shares), " to ".join(others)

    def all(self) -> list[Json]:
        """Return the HTTPRoutes of the namespace."""
        return self._client.list(HTTP_ROUTE, self._namespace) or []

    def _kubectl(self, verb: str, route: str) -> str:
        return commands.kubectl(verb, "httproute", route, namespace=self._namespace)

    def _user_routes(self) -> list[Json]:
        """Return all routes but those that KServe writes for the candidate (Gateway API mode): it deletes both
        together, and only clients that use the candidate's own host name reach it."""
        owner = ("InferenceService", self._candidate)
        return [
            route
            for route in self.all()
            if not any(
                o.get("controller") and (o.get("kind"), o.get("name")) == owner
                for o in owners_of(route)
            )
        ]

    def _read(self, record: JsonView) -> Json | None:
        return self._client.get(HTTP_ROUTE, record["name"], self._namespace)

    def _recorded(self, record: JsonView) -> Json:
        return {
            "metadata": {"name": record["name"], "namespace": self._namespace},
            "spec": record["spec"],
        }

    def _title(self, record: JsonView) -> str:
        return f"HTTPRoute {self._namespace}/{record['name']}"

    def _write(self, record: JsonView, spec: JsonView) -> bool:
        """Return whether the spec was written; False when it is live already."""
        written = False  # a write of unknown outcome may have happened
        for _ in range(_TRIES):
            route = self._read(record)
            if route is None:
                raise Conflict(f"{self._title(record)} was deleted meanwhile")
            if route["spec"] == spec:
                return written
            if not is_known_spec(route, self._recorded(record), self._service, self._candidate):
                raise self._foreign_change(route, record)
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
            f"{self._title(record)} could not be written in {_TRIES} tries",
            hint="run the same command again to resume",
        )

    def _foreign_change(self, route: Json, record: JsonView) -> Conflict:
        fields = (
            ", ".join(changed_fields(record["spec"], route["spec"])[:5])
            or "reverted to the recorded spec"
        )
        return Conflict(
            f"{self._title(record)} was changed by {last_editor(route, MANAGER)} meanwhile: {fields}",
            hint="nothing was overwritten",
        )

    def _await_observed(self, record: JsonView) -> RouteStatus:
        """Wait until the gateways have processed the restored route; none need accept it, and a deleted one cannot."""
        state = self._await(record, lambda state: state.observed)
        if not state.observed and state.has_gateway:
            raise MpctlError(
                f"{self._title(record)} is restored, and not processed within {_ACCEPTED_TIMEOUT_S:.0f} s: "
                f"{state.message}",
                hint="check the gateway's controller, which may still send the candidate requests; then run the same "
                "command again to resume",
            )
        return state

    def _await(self, record: JsonView, enough: Callable[[RouteStatus], bool]) -> RouteStatus:
        """Return the status once it is ``enough``, or at the timeout. A deleted route counts as observed."""
        end = time.monotonic() + _ACCEPTED_TIMEOUT_S
        while True:
            route = self._read(record)
            state = (
                RouteStatus(observed=True, accepted=True) if route is None else route_status(route)
            )
            if enough(state) or time.monotonic() > end:
                return state
            self._sleep(_POLL_S)
