"""A user's HTTPRoute to a service during a change: its weights, and mirrors of its requests. Pure.

KServe writes its own HTTPRoute for every service and reverts any change to it, so weights go on a route of the user. In
each rule that names the predictor's Service, the Service's share is split between it and the candidate's Service; other
backends of the rule keep their proportion. A backend without a share is left out instead of getting weight 0, at which
gateways drop requests for a moment.

With a RequestMirror filter the gateway sends the candidate's Service a copy of a share of the requests and ignores its
answers, so users wait for nothing (Gateway API v1, HTTPRequestMirrorFilter; GEP-3171 for the share). Which of it a
gateway can do it says in its class: ``GatewayClass.status.supportedFeatures``.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import gcd

from mpctl.errors import InputError, Refused
from mpctl.gate.users_traffic import equal_share, next_share
from mpctl.json_fields import list_at, mapping_at, name_of, owners_of, value_at
from mpctl.json_types import Json, JsonView
from mpctl.methods.preflight.drain import ANSWER_S

MOST_WEIGHT = 1_000_000  # Gateway API v1, HTTPBackendRef.weight
_NEEDED = ("Accepted", "ResolvedRefs")  # conditions of a route in status.parents


def backend_of(isvc: str) -> str:
    """The Service that KServe makes for an InferenceService's predictor in Standard mode."""
    return f"{isvc}-predictor"


def refers_to(ref: JsonView, service: str, namespace: str) -> bool:
    """Return whether a backendRef of a route in ``namespace`` refers to the Service (default group and kind)."""
    return (
        ref.get("name") == service
        and ref.get("kind", "Service") == "Service"
        and ref.get("group", "") in ("", "core")
        and ref.get("namespace", namespace) == namespace
    )


def weight_of(ref: JsonView) -> int:
    """Weight of a backendRef; the default of Gateway API is 1."""
    return int(ref.get("weight", 1))


def refs_of(route: JsonView, service: str) -> list[JsonView]:
    """Return the backendRefs of a route that refer to the Service and have a weight."""
    namespace = _namespace(route)
    rules = list_at(route, "spec", "rules")
    return [ref for rule in rules for ref in _refs_of_rule(rule, service, namespace)]


def _refs_of_rule(rule: JsonView, service: str, namespace: str) -> list[JsonView]:
    refs = list_at(rule, "backendRefs")
    return [ref for ref in refs if refers_to(ref, service, namespace) and weight_of(ref)]


def routes_to(routes: Iterable[Json], service: str) -> list[Json]:
    """Return the routes that give the Service traffic."""
    return [route for route in routes if refs_of(route, service)]


def is_controlled(route: JsonView) -> bool:
    """Return whether a controller such as KServe owns the route and reverts changes."""
    return any(owner.get("controller") for owner in owners_of(route))


def select_route(routes: Sequence[Json], isvc: str, name: str | None) -> Json:
    """Select the user's route to a service.

    Raises:
        InputError: several routes, or the named one does not qualify.
        Refused: no route; the hint has one to create.
    """
    service = backend_of(isvc)
    leading = routes_to(routes, service)
    usable = [route for route in leading if not is_controlled(route)]
    names = ", ".join(sorted(name_of(route) for route in usable))
    if name is not None:
        named = [route for route in usable if name_of(route) == name]
        if not named:
            present = next((r for r in routes if name_of(r) == name), None)
            why = (
                "not found"
                if present is None
                else f"has no rule with a backendRef to Service {service}"
            )
            if present is not None and is_controlled(present):
                why = "is owned by a controller, which reverts changes"
            hint = f"available routes: {names}" if names else _hint(routes, isvc)
            raise InputError(f"HTTPRoute {name} {why}", field="MPCTL_ROUTE", hint=hint)
        return named[0]
    if len(usable) > 1:
        raise InputError(
            f"{len(usable)} HTTPRoutes lead to Service {service}: {names}",
            field="MPCTL_ROUTE",
            hint="name one in MPCTL_ROUTE, or as route in a settings file",
        )
    if not usable:
        only = "; KServe reverts changes to its own HTTPRoute" if leading else ""
        raise Refused(
            f"service {isvc}: no HTTPRoute of a user leads to Service {service}, so traffic cannot be split{only}",
            hint=_hint(routes, isvc),
        )
    return usable[0]


def _hint(routes: Sequence[Json], isvc: str) -> str:
    return f"route your clients through an HTTPRoute (docs/how-to/users-traffic.md):\n{example(routes, isvc)}"


def example(routes: Sequence[Json], isvc: str) -> str:
    """A complete HTTPRoute for a service, behind the gateway that KServe's own route names, if there is one."""
    controlled = next(
        (r for r in routes if is_controlled(r) and refs_of(r, backend_of(isvc))), None
    )
    parents = value_at(controlled, "spec", "parentRefs") or [
        {"name": "GATEWAY", "namespace": "ITS-NAMESPACE"}
    ]
    parent = parents[0]
    where = f", namespace: {parent['namespace']}" if parent.get("namespace") else ""
    return f"""\
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata:
  name: {isvc}
spec:
  parentRefs:
    - {{name: {parent["name"]}{where}}}
  hostnames: [{isvc}.example.com]
  rules:
    - backendRefs:
        - {{name: {backend_of(isvc)}, port: 80}}
      timeouts: {{request: {ANSWER_S}s}}  # without it a gateway's default cuts long answers"""


def weighted(route: JsonView, isvc: str, candidate: str, percent: int) -> Json:
    """Return the spec of ``route`` with ``percent`` (1..100) of the share of ``isvc`` moved to ``candidate``.

    A rule with the service as its only backend gets ``100 - percent`` and ``percent``; in other rules all weights are
    scaled alike, so the other backends keep their proportions.

    Raises:
        Refused: a weight exceeds the limit of Gateway API.
    """
    if not 1 <= percent <= 100:
        raise ValueError(f"{percent} % is not a share of a route")
    namespace = _namespace(route)
    spec: Json = copy.deepcopy(dict(route["spec"]))
    service = backend_of(isvc)
    for rule in list_at(spec, "rules"):
        refs = list_at(rule, "backendRefs")
        if _refs_of_rule(rule, service, namespace):
            rule["backendRefs"] = _split(refs, service, namespace, backend_of(candidate), percent)
    heavy = [ref for rule in list_at(spec, "rules") for ref in list_at(rule, "backendRefs")]
    if any(weight_of(ref) > MOST_WEIGHT for ref in heavy):
        raise Refused(
            f"HTTPRoute {name_of(route)}: weights for {percent} % would exceed {MOST_WEIGHT:,}",
            hint="use smaller weights in the same proportion",
        )
    return spec


def _split(
    refs: Sequence[Json], service: str, namespace: str, candidate: str, percent: int
) -> list[Json]:
    """Return the refs of a rule with the service's weight split with the candidate."""
    weights = [weight_of(ref) for ref in refs]
    alone = len(refs) == 1
    split: list[tuple[Json, int]] = []
    for ref, weight in zip(refs, weights, strict=True):
        if weight and refers_to(ref, service, namespace):
            own_weight = 1 if alone else weight
            split += [
                (ref, own_weight * (100 - percent)),
                ({**ref, "name": candidate}, own_weight * percent),
            ]
        else:
            split.append((ref, weight * 100))
    # A backend without weight keeps none; one that lost all its weight is left out.
    weighted_refs = [(ref, weight) for ref, weight in split if weight or not weight_of(ref)]
    divisor = 1 if alone else gcd(*(weight for _, weight in weighted_refs))
    return [{**copy.deepcopy(ref), "weight": weight // divisor} for ref, weight in weighted_refs]


def require_possible(steps: Sequence[int], pods: int, title: str) -> None:
    """Refuse shares that one candidate pod cannot carry, and steps that more than double the one before: a candidate
    that is faster under a small load may be slower under a large one, and users meet it there.

    Raises:
        Refused: the message names the steps and the highest possible one.
    """
    highest = equal_share(pods)
    too_high = [step for step in steps if step > highest]
    if too_high:
        raise Refused(
            f"{title}: {', '.join(f'{step} %' for step in too_high)} of the traffic would load the one candidate pod "
            f"more than each of the {pods} serving pods: at most {highest} % is possible"
            if highest
            else f"{title}: with {pods} serving pods even 1 % would load the one candidate pod most",
            hint=f"--traffic-steps {','.join(map(str, _smaller_steps(steps[0], highest, pods)))}",
        )
    for before, after in itertools.pairwise(steps):
        if after > next_share(before, pods):
            raise Refused(
                f"{title}: {after} % of the traffic after {before} % is too large a step: at most "
                f"{next_share(before, pods)} % is possible, so that a candidate that is slower under load is noticed "
                "before many users meet it",
                hint=f"--traffic-steps {','.join(map(str, _smaller_steps(steps[0], steps[-1], pods)))}",
            )


def _smaller_steps(first: int, last: int, pods: int) -> list[int]:
    """Return steps from the first share to the last, none too large."""
    steps = [max(min(first, last), 1)]
    while steps[-1] < last:
        steps.append(min(next_share(steps[-1], pods), last))
    return steps


def shares(routes: Iterable[Json], isvc: str, candidate: str) -> tuple[float, ...]:
    """Return the candidate's percentage in each rule that gives it traffic."""
    percentages = []
    for route in routes:
        namespace = _namespace(route)
        for rule in list_at(route, "spec", "rules"):
            service_share, candidate_share = (
                sum(map(weight_of, _refs_of_rule(rule, backend_of(name), namespace)))
                for name in (isvc, candidate)
            )
            if candidate_share:
                percentages.append(100 * candidate_share / (service_share + candidate_share))
    return tuple(percentages)


@dataclass(frozen=True)
class RouteStatus:
    """Status that the gateways report for the current generation of a route."""

    observed: bool  # all have processed it
    accepted: bool  # and all accept it
    message: str = ""  # which did not, and why
    has_gateway: bool = True  # any gateway reports a status


def route_status(route: JsonView) -> RouteStatus:
    """Read the conditions Accepted and ResolvedRefs of each gateway and their generations from ``status.parents``."""
    generation = int(route["metadata"].get("generation") or 0)
    parents = list_at(route, "status", "parents")
    if not parents:
        return RouteStatus(
            observed=False, accepted=False, message="no gateway has accepted it", has_gateway=False
        )
    pending, rejected = [], []
    for parent in parents:
        gateway = value_at(parent, "parentRef", "name") or parent.get("controllerName") or "?"
        conditions = {c.get("type"): c for c in list_at(parent, "conditions")}
        for kind in _NEEDED:
            condition = conditions.get(kind)
            if condition is None or int(condition.get("observedGeneration") or 0) < generation:
                pending.append(f"gateway {gateway} has not processed it yet ({kind})")
            elif condition.get("status") != "True":
                reason = ": ".join(
                    str(condition[k]) for k in ("reason", "message") if condition.get(k)
                )
                rejected.append(
                    f"gateway {gateway}: {kind} is {condition.get('status')} ({reason})"
                )
    return RouteStatus(
        observed=not pending,
        accepted=not pending and not rejected,
        message="; ".join(rejected or pending),
    )


MIRROR = "HTTPRouteRequestMirror"
SHARE = "HTTPRouteRequestPercentageMirror"
SEVERAL = "HTTPRouteRequestMultipleMirrors"


def mirrored(route: JsonView, isvc: str, candidate: str, percent: int) -> Json:
    """Return the spec of ``route`` with ``percent`` (1..100) of the requests to ``isvc`` copied to ``candidate``.

    Every rule that gives the service traffic gets one filter more; nothing else changes.
    """
    if not 1 <= percent <= 100:
        raise ValueError(f"{percent} % is not a share of a route")
    spec: Json = copy.deepcopy(dict(route["spec"]))
    for rule in list_at(spec, "rules"):
        refs = _refs_of_rule(rule, backend_of(isvc), _namespace(route))
        if refs:
            ref = {
                key: refs[0][key]
                for key in ("group", "kind", "namespace", "port")
                if key in refs[0]
            }
            share = {} if percent == 100 else {"percent": percent}
            mirror = {"backendRef": {**ref, "name": backend_of(candidate)}, **share}
            rule["filters"] = [
                *list_at(rule, "filters"),
                {"type": "RequestMirror", "requestMirror": mirror},
            ]
    return spec


def mirrors_of(route: JsonView, service: str) -> tuple[float, ...]:
    """Return the shares in percent of the route's requests of which ``service`` gets copies, one for each filter."""
    namespace = _namespace(route)
    mirrors = (
        mapping_at(route_filter, "requestMirror")
        for rule in list_at(route, "spec", "rules")
        for route_filter in list_at(rule, "filters")
        if route_filter.get("type") == "RequestMirror"
    )
    return tuple(
        _percent(m) for m in mirrors if refers_to(mapping_at(m, "backendRef"), service, namespace)
    )


def _percent(mirror: JsonView) -> float:
    if "fraction" in mirror:
        return (
            100
            * float(mirror["fraction"]["numerator"])
            / float(mirror["fraction"].get("denominator", 100))
        )
    return float(mirror.get("percent", 100))


def is_known_spec(route: JsonView, recorded: JsonView, isvc: str, candidate: str) -> bool:
    """Return whether a route's spec is the recorded one or one that mpctl makes of it."""
    spec = route["spec"]
    shares = {int(share) for share in mirrors_of(route, backend_of(candidate))} & set(range(1, 101))
    return (
        spec == recorded["spec"]
        or any(spec == mirrored(recorded, isvc, candidate, percent) for percent in shares)
        or any(spec == weighted(recorded, isvc, candidate, percent) for percent in range(1, 101))
    )


def needed_features(route: JsonView, isvc: str, percent: int) -> tuple[str, ...]:
    """Return the features that a gateway needs to copy ``percent`` of the requests to ``isvc``."""
    namespace = _namespace(route)
    rules = [
        rule
        for rule in list_at(route, "spec", "rules")
        if _refs_of_rule(rule, backend_of(isvc), namespace)
    ]
    several = any(
        route_filter.get("type") == "RequestMirror"
        for rule in rules
        for route_filter in list_at(rule, "filters")
    )
    return (MIRROR, *((SHARE,) if percent < 100 else ()), *((SEVERAL,) if several else ()))


def require_own_rules(route: JsonView, isvc: str, title: str) -> None:
    """Refuse to mirror a rule with other backends: a filter copies the requests of all of them.

    Raises:
        Refused: the hint says what to do instead.
    """
    for rule in list_at(route, "spec", "rules"):
        refs = _refs_of_rule(rule, backend_of(isvc), _namespace(route))
        if refs and any(weight_of(ref) and ref not in refs for ref in rule["backendRefs"]):
            raise Refused(
                f"{title}: a rule of it has other backends, whose requests a mirror would copy, too",
                hint="use --traffic-steps, or give the service a rule without other backends",
            )


def require_supported(needed: Sequence[str], classes: Iterable[JsonView], title: str) -> None:
    """Refuse to mirror on a gateway that does not list what is needed.

    Raises:
        Refused: the message names the class and the missing features.
    """
    for gateway_class in classes:
        features = list_at(gateway_class, "status", "supportedFeatures")
        # Before Gateway API 1.3 they were plain strings.
        listed = {str(f.get("name")) if isinstance(f, Mapping) else str(f) for f in features}
        missing = [name for name in needed if name not in listed]
        if missing:
            what = (
                f"lists no {', '.join(missing)}"
                if listed
                else "does not list which features it supports"
            )
            raise Refused(
                f"{title}: requests cannot be mirrored: GatewayClass {name_of(gateway_class)} {what}",
                hint="use --traffic-steps, which every gateway supports, or a gateway that mirrors",
            )


def require_equal_load(percent: int, pods: int, title: str) -> None:
    """Refuse a share that would load the one candidate pod more than each of ``pods`` serving pods.

    Raises:
        Refused: the message names the highest possible share.
    """
    highest = 100 // max(pods, 1)  # that none serves is refused where room is asked for
    if percent > highest:
        raise Refused(
            f"{title}: copies of {percent} % of the requests would load the one candidate pod more than each of the "
            f"{pods} serving pods",
            hint=f"--mirror {highest}",
        )


def _namespace(route: JsonView) -> str:
    return str(route["metadata"].get("namespace") or "")
