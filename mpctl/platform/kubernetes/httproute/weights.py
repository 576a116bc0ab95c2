"""An HTTPRoute of the user's that leads to a service, and the weights that a change gives it. Pure: objects in, objects
and reasons out.

KServe writes an HTTPRoute of its own for every service and puts it back whenever it differs, so weights go on a route
of the user's. In each rule that names the predictor's Service, the Service's share is split between it and the
candidate's; what else the rule splits between keeps its proportion. A weight is never 0 (gateways drop requests for a
moment when a backend's weight gets there): a backend that gets nothing is left out.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any

from mpctl.errors import InputError, Refused

Json = dict[str, Any]

MOST_WEIGHT = 1_000_000  # Gateway API v1, HTTPBackendRef.weight
_NEEDED = ("Accepted", "ResolvedRefs")  # conditions of a route in status.parents


def backend_of(isvc: str) -> str:
    """The Service that KServe makes for an InferenceService's predictor in Standard mode."""
    return f"{isvc}-predictor"


def names_service(ref: Mapping[str, Any], service: str, namespace: str) -> bool:
    """Whether a backendRef of a route in ``namespace`` means the Service (group and kind default to it)."""
    return (
        ref.get("name") == service
        and ref.get("kind", "Service") == "Service"
        and ref.get("group", "") in ("", "core")
        and ref.get("namespace", namespace) == namespace
    )


def weight_of(ref: Mapping[str, Any]) -> int:
    """Gateway API: 1 where nothing is said."""
    return int(ref.get("weight", 1))


def refs_of(route: Mapping[str, Any], service: str) -> list[Mapping[str, Any]]:
    """Every backendRef of a route that means the Service and has a weight."""
    namespace = str(route["metadata"].get("namespace") or "")
    rules = (route.get("spec") or {}).get("rules") or []
    refs = [ref for rule in rules for ref in rule.get("backendRefs") or []]
    return [ref for ref in refs if names_service(ref, service, namespace) and weight_of(ref)]


def routes_to(routes: Iterable[Json], service: str) -> list[Json]:
    """Routes that give the Service traffic."""
    return [route for route in routes if refs_of(route, service)]


def is_controlled(route: Mapping[str, Any]) -> bool:
    """Whether a controller (KServe) owns the route and would put it back."""
    return any(owner.get("controller") for owner in route["metadata"].get("ownerReferences") or [])


def is_own(route: Mapping[str, Any], isvc: str) -> bool:
    """Whether KServe wrote the route for this InferenceService (Gateway API mode). It goes when that goes, and no
    client of the service comes by it unless it is told that InferenceService's own host name."""
    owners = route["metadata"].get("ownerReferences") or []
    return any(o.get("controller") and (o.get("kind"), o.get("name")) == ("InferenceService", isvc) for o in owners)


def choose(routes: Sequence[Json], isvc: str, name: str | None) -> Json:
    """The user's route to a service.

    Raises:
        InputError: there are several, or the named one is none of them.
        Refused: there is none; the hint has one to create.
    """
    service = backend_of(isvc)
    leading = routes_to(routes, service)
    usable = [route for route in leading if not is_controlled(route)]
    names = ", ".join(sorted(route["metadata"]["name"] for route in usable))
    if name is not None:
        found = [route for route in usable if route["metadata"]["name"] == name]
        if not found:
            there = next((r for r in routes if r["metadata"]["name"] == name), None)
            why = "is not there" if there is None else f"has no rule with a backendRef to Service {service}"
            if there is not None and is_controlled(there):
                why = "is written by a controller, which puts it back"
            hint = f"routes that can be used: {names}" if names else _hint(routes, isvc)
            raise InputError(f"HTTPRoute {name} {why}", field="--route", hint=hint)
        return found[0]
    if len(usable) > 1:
        raise InputError(
            f"{len(usable)} HTTPRoutes lead to Service {service}: {names}", field="--route", hint="name one of them"
        )
    if not usable:
        only = "; KServe's own is put back by KServe whenever it is changed" if leading else ""
        raise Refused(
            f"no HTTPRoute of yours leads to Service {service}, so traffic cannot be shared{only}",
            hint=_hint(routes, isvc),
        )
    return usable[0]


def _hint(routes: Sequence[Json], isvc: str) -> str:
    return f"route your clients through an HTTPRoute, for example (docs/how-to/kubernetes.md):\n{example(routes, isvc)}"


def example(routes: Sequence[Json], isvc: str) -> str:
    """A complete HTTPRoute for a service, behind the gateway that KServe's own route names, if there is one."""
    own = next((r for r in routes if is_controlled(r) and refs_of(r, backend_of(isvc))), None)
    parents = ((own or {}).get("spec") or {}).get("parentRefs") or [{"name": "GATEWAY", "namespace": "ITS-NAMESPACE"}]
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
        - {{name: {backend_of(isvc)}, port: 80}}"""


def weighted(route: Mapping[str, Any], isvc: str, candidate: str, percent: int) -> Json:
    """The spec of ``route`` with ``percent`` (1..100) of what it gives ``isvc`` going to ``candidate``.

    A rule whose only backend is the service gets ``100 - percent`` and ``percent``; in another all weights are scaled
    alike, so that the proportions between the others stay.

    Raises:
        Refused: a weight would be larger than Gateway API allows.
    """
    if not 1 <= percent <= 100:
        raise ValueError(f"{percent} % is no share of a route")
    namespace = str(route["metadata"].get("namespace") or "")
    spec: Json = copy.deepcopy(dict(route["spec"]))
    service = backend_of(isvc)
    for rule in spec.get("rules") or []:
        refs = rule.get("backendRefs") or []
        if any(names_service(ref, service, namespace) and weight_of(ref) for ref in refs):
            rule["backendRefs"] = _split(refs, service, namespace, backend_of(candidate), percent)
    heavy = [ref for rule in spec.get("rules") or [] for ref in rule.get("backendRefs") or []]
    if any(weight_of(ref) > MOST_WEIGHT for ref in heavy):
        raise Refused(
            f"HTTPRoute {route['metadata']['name']}: its weights leave no room for {percent} %: "
            f"they would be larger than {MOST_WEIGHT:,}",
            hint="use smaller weights of the same proportion",
        )
    return spec


def _split(refs: Sequence[Json], service: str, namespace: str, candidate: str, percent: int) -> list[Json]:
    """The refs of a rule with the service's weight shared with the candidate."""
    weights = [weight_of(ref) for ref in refs]
    alone = len(refs) == 1
    found: list[tuple[Json, int]] = []
    for ref, weight in zip(refs, weights, strict=True):
        if weight and names_service(ref, service, namespace):
            own = 1 if alone else weight
            found += [(ref, own * (100 - percent)), ({**ref, "name": candidate}, own * percent)]
        else:
            found.append((ref, weight * 100))
    # What had no weight keeps none; what lost all of it is left out.
    kept = [(ref, weight) for ref, weight in found if weight or not weight_of(ref)]
    common = 1 if alone else gcd(*(weight for _, weight in kept))
    return [{**copy.deepcopy(ref), "weight": weight // common} for ref, weight in kept]


def is_ours(found: Mapping[str, Any], recorded: Mapping[str, Any], isvc: str, candidate: str) -> bool:
    """Whether the spec of a route is the recorded one, or one of those that :func:`weighted` makes of it."""
    spec = found["spec"]
    return spec == recorded["spec"] or any(spec == weighted(recorded, isvc, candidate, p) for p in range(1, 101))


def highest_share(pods: int) -> int:
    """The largest percentage at which one candidate pod gets no more than each of ``pods`` others beside it."""
    return 100 // (pods + 1)


def require_possible(steps: Sequence[int], pods: int, title: str) -> None:
    """Refuse shares that one pod cannot carry.

    Raises:
        Refused: the message names the steps and the highest possible one.
    """
    most = highest_share(pods)
    too_much = [step for step in steps if step > most]
    if too_much:
        raise Refused(
            f"{title}: {', '.join(f'{step} %' for step in too_much)} of the traffic would make the candidate's one pod "
            f"busier than each of the {pods} that serve: at most {most} % is possible"
            if most
            else f"{title}: beside {pods} pods one candidate pod cannot get as little as 1 % without being the busiest",
            hint=f"--traffic-steps {','.join(str(s) for s in steps if s <= most) or max(most, 1)}",
        )


def shares(routes: Iterable[Json], isvc: str, candidate: str) -> tuple[float, ...]:
    """The candidate's percentage of what each rule gives the service and it, where a rule gives it anything."""
    found = []
    for route in routes:
        namespace = str(route["metadata"].get("namespace") or "")
        for rule in (route.get("spec") or {}).get("rules") or []:
            refs = rule.get("backendRefs") or []
            given = [
                sum(weight_of(ref) for ref in refs if names_service(ref, backend_of(one), namespace))
                for one in (isvc, candidate)
            ]
            if given[1]:
                found.append(100 * given[1] / sum(given))
    return tuple(found)


@dataclass(frozen=True)
class Taken:
    """What gateways say of a route as it is written now. ``seen``: all have looked at this generation; ``good``: and
    all take it; ``message``: who has not, or why not; ``claimed``: whether there is any."""

    seen: bool
    good: bool
    message: str = ""
    claimed: bool = True


def taken(route: Mapping[str, Any]) -> Taken:
    """Read ``status.parents``: the conditions Accepted and ResolvedRefs of each gateway, and their generations."""
    generation = int(route["metadata"].get("generation") or 0)
    parents = (route.get("status") or {}).get("parents") or []
    if not parents:
        return Taken(seen=False, good=False, message="no gateway has taken it up", claimed=False)
    late, bad = [], []
    for parent in parents:
        gateway = (parent.get("parentRef") or {}).get("name") or parent.get("controllerName") or "?"
        there = {c.get("type"): c for c in parent.get("conditions") or []}
        for kind in _NEEDED:
            condition = there.get(kind)
            if condition is None or int(condition.get("observedGeneration") or 0) < generation:
                late.append(f"gateway {gateway} has not looked at it yet ({kind})")
            elif condition.get("status") != "True":
                why = ": ".join(str(condition[k]) for k in ("reason", "message") if condition.get(k))
                bad.append(f"gateway {gateway}: {kind} is {condition.get('status')} ({why})")
    return Taken(seen=not late, good=not late and not bad, message="; ".join(bad or late))
