"""The current user's rights, what could not be looked at, and what earlier rollouts left behind."""

from __future__ import annotations

from collections.abc import Iterator

from mpctl.plan.doctor.facts import SERVICE_LABEL, ClusterFacts, Thing, at, label, place, since_s, title
from mpctl.plan.doctor.finding import Finding

MANAGED = "app.kubernetes.io/managed-by"
OURS = "mpctl"


def is_held(lease: Thing, facts: ClusterFacts) -> bool:
    """Whether a Lease's holder still renews it."""
    age = since_s(at(lease, "spec", "renewTime"), facts.now)
    return bool(at(lease, "spec", "holderIdentity")) and age is not None and age <= _duration(lease)


def _duration(lease: Thing) -> float:
    return float(at(lease, "spec", "leaseDurationSeconds") or 15)


def leases_of(facts: ClusterFacts) -> Iterator[Thing]:
    """Our Leases, one per service that was rolled out."""
    for lease in facts.known("leases"):
        if label(lease, MANAGED) == OURS:
            yield lease


def holder_of(facts: ClusterFacts, service: Thing) -> str | None:
    """Who works on a service now."""
    namespace, name = place(service)
    for lease in leases_of(facts):
        mine = place(lease)[0] == namespace and service_of(lease) == name
        if mine and is_held(lease, facts):
            return str(at(lease, "spec", "holderIdentity"))
    return None


def service_of(thing: Thing) -> str:
    """The service that an object of ours belongs to."""
    return str(at(thing, "metadata", "annotations", SERVICE) or label(thing, SERVICE) or label(thing, SERVICE_LABEL))


SERVICE = "mpctl.dev/service"


def check_unread(facts: ClusterFacts) -> Iterator[Finding]:
    for resource, reason in sorted(facts.unread.items()):
        yield Finding(
            "could-not-look",
            "note",
            resource,
            f"could not be looked at, so what depends on it was not checked: {reason}",
            "mpctl rbac --role reader --cluster-wide prints the role that can",
            "docs/rbac.md",
        )


def check_rights(facts: ClusterFacts) -> Iterator[Finding]:
    if facts.denied is None:
        return
    where = f"namespace {facts.namespace}" if facts.namespace else "all namespaces"
    if not facts.denied:
        yield Finding("rights", "ok", "current user", f"may make every call that mpctl makes in {where}")
        return
    commands: dict[str, list[str]] = {}
    for denied in facts.denied:
        for command in denied.commands:
            commands.setdefault(command, []).append(denied.call)
    for command, calls in sorted(commands.items()):
        yield Finding(
            "rights",
            "warn",
            f"mpctl {command}",
            f"would be refused in {where}: the current user may not {', '.join(calls)}",
            "mpctl rbac prints the roles; an administrator applies them",
            "docs/rbac.md",
        )


def check_leases(facts: ClusterFacts) -> Iterator[Finding]:
    for lease in leases_of(facts):
        holder = at(lease, "spec", "holderIdentity")
        if not holder:
            continue
        age = since_s(at(lease, "spec", "renewTime"), facts.now)
        name = service_of(lease)
        if is_held(lease, facts):
            yield Finding("lease", "note", title("Lease", lease), f"service {name} is held by {holder}")
        elif age is not None:
            yield Finding(
                "lease-stale",
                "warn",
                title("Lease", lease),
                f"{holder} held service {name} and has not renewed for {age:.0f} s of {_duration(lease):.0f} s",
                f"mpctl status {name} shows what is unfinished; mpctl resume {name} goes on",
                "docs/rollout.md",
            )


def check_leftovers(facts: ClusterFacts) -> Iterator[Finding]:
    """Candidates of ours that no rollout holds."""
    services = {place(s): s for s in facts.known("inferenceservices")}
    for place_, service in services.items():
        baseline = label(service, CANDIDATE_OF)
        if not baseline:
            continue
        original = services.get((place_[0], baseline))
        if original is None:
            yield Finding(
                "candidate-orphan",
                "warn",
                title("InferenceService", service),
                f"is a candidate of service {baseline}, which is gone; it may hold a GPU",
                f"kubectl -n {place_[0]} delete inferenceservice {place_[1]} when nothing uses it",
                "docs/rollout.md",
            )
        elif holder_of(facts, original) is None:
            yield Finding(
                "candidate-left",
                "warn",
                title("InferenceService", service),
                f"is a candidate of service {baseline} that no rollout holds; it may hold a GPU",
                f"mpctl resume {baseline} goes on with the rollout, mpctl rollback {baseline} undoes it",
                "docs/rollout.md",
            )


CANDIDATE_OF = "mpctl.dev/candidate-of"

CHECKS = (check_rights, check_unread, check_leases, check_leftovers)
