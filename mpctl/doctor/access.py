"""The current user's rights, resources that could not be read, and leftovers of earlier rollouts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mpctl import commands
from mpctl.doctor.state import (
    ClusterFacts,
    KubeObject,
    Symptom,
    annotation,
    full_name,
    label,
    since_s,
    title,
)
from mpctl.json_fields import value_at

MANAGED = "app.kubernetes.io/managed-by"
OURS = "mpctl"
FORBIDDEN = "the current user may not read them"
_SHOWN = 5  # calls of one command; mpctl rbac -o table lists all


# mpctl.platform.kubernetes.api.names and .text write these; a test compares them.
SERVICE, ARM, WHO = "mpctl.dev/service", "mpctl.dev/arm", "mpctl.dev/who"


_CANDIDATES = {  # kinds that are measured side by side
    "inferenceservices": "InferenceService",
    "llminferenceservices": "LLMInferenceService",
    "deployments": "Deployment",
    "vllmruntimes": "VLLMRuntime",
}


def is_held(lease: KubeObject, facts: ClusterFacts) -> bool:
    """Return whether a Lease's holder still renews it."""
    age = since_s(value_at(lease, "spec", "renewTime"), facts.now)
    return (
        bool(value_at(lease, "spec", "holderIdentity"))
        and age is not None
        and age <= _duration(lease)
    )


def _duration(lease: KubeObject) -> float:
    return float(value_at(lease, "spec", "leaseDurationSeconds") or 15)


def leases_of(facts: ClusterFacts) -> Iterator[KubeObject]:
    """Our Leases, one per service that was rolled out."""
    for lease in facts.listed("leases"):
        if label(lease, MANAGED) == OURS:
            yield lease


def holder_of(facts: ClusterFacts, names: tuple[str, str]) -> str | None:
    """Return the holder of the lock of a service by namespace and name."""
    namespace, name = names
    for lease in leases_of(facts):
        mine = full_name(lease)[0] == namespace and service_of(lease) == name
        if mine and is_held(lease, facts):
            return str(value_at(lease, "spec", "holderIdentity"))
    return None


def service_of(item: KubeObject) -> str:
    """The service that an object of ours belongs to."""
    return str(label(item, SERVICE))


def check_unread(facts: ClusterFacts) -> Iterator[Symptom]:
    """A finding per reason: a user with few rights would otherwise get twenty."""
    reasons: dict[str, list[str]] = {}
    for resource, reason in sorted(facts.unread.items()):
        reasons.setdefault(reason, []).append(resource)
    for reason, resources in reasons.items():
        yield Symptom(
            "unread",
            "note",
            ", ".join(resources),
            f"could not be read, so the checks that depend on them were skipped: {reason}",
            f"{commands.line('rbac', 'reader')} prints the role that may"
            if reason == FORBIDDEN
            else "",
            "docs/how-to/rbac.md" if reason == FORBIDDEN else "",
        )


def check_rights(facts: ClusterFacts) -> Iterator[Symptom]:
    if facts.denied is None:
        return
    where = f"namespace {facts.namespace}" if facts.namespace else "all namespaces"
    if not facts.denied:
        yield Symptom(
            "rights", "ok", "current user", f"may make every call that mpctl makes in {where}"
        )
        return
    by_command: dict[str, list[str]] = {}
    for denied in facts.denied:
        for command in denied.commands:
            by_command.setdefault(command, []).append(denied.call)
    for command, calls in sorted(by_command.items()):
        yield Symptom(
            "rights",
            "warn",
            f"mpctl {command}",
            f"would be refused in {where}: the current user may not {', '.join(calls[:_SHOWN])}"
            + (f" and make {len(calls) - _SHOWN} more calls" if len(calls) > _SHOWN else ""),
            f"{commands.line('rbac', namespace=facts.namespace)} prints the roles; an administrator applies them",
            "docs/how-to/rbac.md",
        )


def check_leases(facts: ClusterFacts) -> Iterator[Symptom]:
    for lease in leases_of(facts):
        if not value_at(lease, "spec", "holderIdentity"):
            continue
        holder = annotation(lease, WHO) or value_at(lease, "spec", "holderIdentity")
        age = since_s(value_at(lease, "spec", "renewTime"), facts.now)
        name = service_of(lease)
        if is_held(lease, facts):
            yield Symptom(
                "lease", "note", title("Lease", lease), f"service {name} is locked by {holder}"
            )
        elif age is not None:
            yield Symptom(
                "lease-stale",
                "warn",
                title("Lease", lease),
                f"{holder} locked service {name} and did not renew the {_duration(lease):.0f} s lease for {age:.0f} s",
                f"{commands.line('status', name, namespace=full_name(lease)[0])} shows the unfinished operation; "
                f"{commands.line('resume', name, namespace=full_name(lease)[0])} continues it",
                "docs/how-to/rollout.md",
            )


def check_leftovers(facts: ClusterFacts) -> Iterator[Symptom]:
    """Interrupted operations, leftover candidates, and objects that look like a ledger's."""
    for described in facts.look_alikes:
        subject, _, text = described.partition(" of ")
        yield Symptom(
            "ledger-look-alike",
            "warn",
            subject,
            f"of {text}",
            "delete what owns it",
            "docs/explanation/kubernetes.md",
        )
    for (namespace, name), operation in sorted(facts.unfinished.items()):
        leases = [
            x for x in leases_of(facts) if (full_name(x)[0], service_of(x)) == (namespace, name)
        ]
        if not any(is_held(lease, facts) for lease in leases):
            yield Symptom(
                "unfinished",
                "warn",
                f"service {namespace}/{name}",
                f"{operation} was interrupted",
                f"{commands.line('resume', name, namespace=namespace)} continues it, "
                f"{commands.line('rollback', name, namespace=namespace)} undoes it",
                "docs/how-to/rollout.md",
            )
    for resource, kind in _CANDIDATES.items():
        yield from _candidates(
            facts, kind, {full_name(item): item for item in facts.listed(resource)}
        )


def _candidates(
    facts: ClusterFacts, kind: str, services: Mapping[tuple[str, str], KubeObject]
) -> Iterator[Symptom]:
    """Candidates that no operation uses."""
    for (namespace, name), candidate in services.items():
        if annotation(candidate, ARM) is None or value_at(candidate, "metadata", "ownerReferences"):
            continue
        baseline = service_of(candidate)
        subject = title(kind, candidate)
        retire = commands.line("retire", baseline, namespace=namespace)
        delete = f"{commands.kubectl('delete', kind.lower(), name, namespace=namespace)} when nothing uses it"
        if (namespace, baseline) not in services:
            yield Symptom(
                "candidate-orphan",
                "warn",
                subject,
                f"is a candidate of service {baseline}, which no longer exists; it holds its GPU",
                delete,
                "docs/how-to/rollout.md",
            )
        elif (namespace, baseline) not in facts.unfinished:
            yield Symptom(
                "candidate-left",
                "note",
                subject,
                f"runs side by side with service {baseline} although no rollout is in progress; it holds its GPU",
                f"a retained baseline makes rollback fast: {retire} deletes it; else {delete}",
                "docs/how-to/rollout.md",
            )


CHECKS = (check_rights, check_unread, check_leases, check_leftovers)
