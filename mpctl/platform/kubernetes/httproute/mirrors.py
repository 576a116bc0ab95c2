"""Copies of users' requests for a candidate: RequestMirror filters on the users' HTTPRoute. Pure.

The gateway sends the candidate's Service a copy of a share of the requests and ignores its answers, so users wait for
nothing (Gateway API v1, HTTPRequestMirrorFilter; GEP-3171 for the share). Which of it a gateway can do it says in its
class: ``GatewayClass.status.supportedFeatures``.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mpctl.errors import Refused
from mpctl.platform.kubernetes.httproute.weights import backend_of, refers_to, weight_of, weighted

Json = dict[str, Any]

MIRROR = "HTTPRouteRequestMirror"
SHARE = "HTTPRouteRequestPercentageMirror"
SEVERAL = "HTTPRouteRequestMultipleMirrors"


def mirrored(route: Mapping[str, Any], isvc: str, candidate: str, percent: int) -> Json:
    """Return the spec of ``route`` with ``percent`` (1..100) of the requests to ``isvc`` copied to ``candidate``.

    Every rule that gives the service traffic gets one filter more; nothing else changes.
    """
    if not 1 <= percent <= 100:
        raise ValueError(f"{percent} % is not a share of a route")
    spec: Json = copy.deepcopy(dict(route["spec"]))
    for rule in spec.get("rules") or []:
        refs = _refs(rule, isvc, str(route["metadata"].get("namespace") or ""))
        if refs:
            ref = {key: refs[0][key] for key in ("group", "kind", "namespace", "port") if key in refs[0]}
            share = {} if percent == 100 else {"percent": percent}
            mirror = {"backendRef": {**ref, "name": backend_of(candidate)}, **share}
            rule["filters"] = [*(rule.get("filters") or []), {"type": "RequestMirror", "requestMirror": mirror}]
    return spec


def _refs(rule: Mapping[str, Any], isvc: str, namespace: str) -> list[Mapping[str, Any]]:
    refs = rule.get("backendRefs") or []
    return [ref for ref in refs if refers_to(ref, backend_of(isvc), namespace) and weight_of(ref)]


def mirrors_of(route: Mapping[str, Any], service: str) -> tuple[float, ...]:
    """Return the shares in percent of the route's requests of which ``service`` gets copies, one for each filter."""
    namespace = str(route["metadata"].get("namespace") or "")
    mirrors = (
        _mirror(route_filter)
        for rule in (route.get("spec") or {}).get("rules") or []
        for route_filter in rule.get("filters") or []
    )
    return tuple(
        _percent(m) for m in mirrors if m is not None and refers_to(m.get("backendRef") or {}, service, namespace)
    )


def _mirror(route_filter: Mapping[str, Any]) -> Mapping[str, Any] | None:
    return route_filter.get("requestMirror") or {} if route_filter.get("type") == "RequestMirror" else None


def _percent(mirror: Mapping[str, Any]) -> float:
    if "fraction" in mirror:
        return 100 * float(mirror["fraction"]["numerator"]) / float(mirror["fraction"].get("denominator", 100))
    return float(mirror.get("percent", 100))


def is_known_spec(route: Mapping[str, Any], recorded: Mapping[str, Any], isvc: str, candidate: str) -> bool:
    """Return whether a route's spec is the recorded one or one that mpctl makes of it."""
    spec = route["spec"]
    shares = {int(share) for share in mirrors_of(route, backend_of(candidate))} & set(range(1, 101))
    return (
        spec == recorded["spec"]
        or any(spec == mirrored(recorded, isvc, candidate, percent) for percent in shares)
        or any(spec == weighted(recorded, isvc, candidate, percent) for percent in range(1, 101))
    )


def needed_features(route: Mapping[str, Any], isvc: str, percent: int) -> tuple[str, ...]:
    """Return the features that a gateway needs to copy ``percent`` of the requests to ``isvc``."""
    namespace = str(route["metadata"].get("namespace") or "")
    rules = [rule for rule in route["spec"].get("rules") or [] if _refs(rule, isvc, namespace)]
    several = any(
        route_filter.get("type") == "RequestMirror" for rule in rules for route_filter in rule.get("filters") or []
    )
    return (MIRROR, *((SHARE,) if percent < 100 else ()), *((SEVERAL,) if several else ()))


def supported_features(gateway_class: Mapping[str, Any]) -> frozenset[str]:
    """Return the features that a GatewayClass lists; before Gateway API 1.3 they were plain strings."""
    listed = (gateway_class.get("status") or {}).get("supportedFeatures") or []
    return frozenset(str(feature.get("name")) if isinstance(feature, Mapping) else str(feature) for feature in listed)


def require_supported(needed: Sequence[str], classes: Iterable[Mapping[str, Any]], title: str) -> None:
    """Refuse to mirror on a gateway that does not list what is needed.

    Raises:
        Refused: the message names the class and the missing features.
    """
    for gateway_class in classes:
        listed = supported_features(gateway_class)
        missing = [name for name in needed if name not in listed]
        if missing:
            what = f"lists no {', '.join(missing)}" if listed else "does not list which features it supports"
            raise Refused(
                f"{title}: requests cannot be mirrored: GatewayClass {gateway_class['metadata']['name']} {what}",
                hint="use --traffic-steps, which every gateway supports, or a gateway that mirrors",
            )


def require_equal_load(percent: int, pods: int, title: str) -> None:
    """Refuse a share that would load the one candidate pod more than each of ``pods`` serving pods.

    Raises:
        Refused: the message names the highest possible share.
    """
    highest = 100 // pods
    if percent > highest:
        raise Refused(
            f"{title}: copies of {percent} % of the requests would load the one candidate pod more than each of the "
            f"{pods} serving pods",
            hint=f"--mirror {highest}",
        )
