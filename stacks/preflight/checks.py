"""Judge what was read of an account against what a cluster needs. Pure: facts in, findings out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from stacks.base import Plan
from stacks.cluster import zones
from stacks.fleet import NodePool
from stacks.machines import gpus_of, limited_services, machines
from stacks.preflight.facts import AccountFacts


class Outcome(StrEnum):
    """fail: the deploy would stop half-way. warn: it may, later or at full size. unknown: could not be read."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"


OK, WARN, FAIL, UNKNOWN = Outcome


@dataclass(frozen=True)
class Finding:
    """One check: its object, what was found, and what to do where that is not fine."""

    check: str
    outcome: Outcome
    message: str
    hint: str = ""


def assess(plan: Plan, facts: AccountFacts) -> tuple[Finding, ...]:
    """Every finding on one cluster, worst first within its check's order."""
    first = (Finding("credentials", OK, facts.identity), *_state(plan, facts))
    if plan.existing and plan.existing.cluster:
        exists = plan.name in " ".join(facts.taken).split()
        made = Finding(
            "names", OK, f"the existing cluster {plan.name} is used, with the nodes it has"
        )
        gone = Finding(
            "names",
            FAIL,
            f"no cluster {plan.name} found",
            "check existing in the environment",
        )
        return (*first, made if exists else gone)
    return (
        *first,
        *_renamed(plan, facts),
        *_services(plan),
        *_zones(plan, facts),
        *_offerings(plan, facts),
        *_gpu_quota(plan, facts),
        *_upgrades(plan, facts),
        *_image_moves(facts),
        *_interruptions(plan),
        *_room(facts),
        *_names(facts),
        *_apis(facts),
        *_rights(facts),
    )


def _state(plan: Plan, facts: AccountFacts) -> Iterator[Finding]:
    """The state is this cluster's, and not left behind under the key of earlier versions."""
    key = plan.key(plan.first_layer)
    if facts.owner is None:
        yield Finding(
            "state",
            UNKNOWN,
            f"{key} could not be read",
            "check backend, and your right to read it; terraform reads it",
        )
    elif facts.owner not in ("", plan.name):
        yield Finding(
            "state",
            FAIL,
            f"{key} belongs to {facts.owner}, not to {plan.name}",
            "set backend.prefix or backend.path, or the environment's name, to one of its own",
        )
    elif not facts.owner and facts.former_owner == plan.name:
        yield Finding(
            "state",
            FAIL,
            f"{plan.name} has its state under the former key {plan.former_key(plan.first_layer)}",
            "scripts/deploy --move-state moves it; without that a second cluster would be made",
        )
    else:
        yield Finding("state", OK, key)


def _renamed(plan: Plan, facts: AccountFacts) -> Iterator[Finding]:
    """One pool must not go in the deploy in which another comes: Terraform knows no order between the two."""
    wanted = {pool.name.replace("-", "_") for pool in plan.cluster.pools}
    gone, new = sorted({*facts.pools} - wanted - {"system"}), sorted(wanted - {*facts.pools})
    if gone and new:
        yield Finding(
            "pools",
            FAIL,
            f"{', '.join(gone)} would be deleted while {', '.join(new)} is made, with no GPU between them",
            "keep the old pool beside the new one and deploy; drain its nodes; then remove it and deploy again",
        )


def _services(plan: Plan) -> Iterator[Finding]:
    """All services at full size, and a rollout's candidate beside them."""
    services = limited_services(plan.settings, plan.cluster)
    most = sum((service.autoscaling.maximum or 0) * service.gpus for service in services)
    candidate = max((service.gpus for service in services), default=0)
    if most + candidate > (gpus := gpus_of(plan.cluster)):
        yield Finding(
            "services",
            WARN,
            f"at their max the services use {most} GPUs and a rollout's candidate {candidate}; the pools have {gpus}",
            "lower autoscaling.max, or raise maxNodeCount; a rollout under full load finds no GPU",
        )


def cluster_zones(plan: Plan) -> tuple[str, ...]:
    """Zones that the cluster's subnets or pools will name."""
    if plan.existing and plan.existing.aws:
        return tuple(plan.existing.aws.subnets)
    if plan.cluster.provider == "EKS":
        return tuple(zones(plan.cluster, plan.settings.network))
    return tuple(
        sorted(
            {zone for pool in plan.cluster.pools for zone in pool.zones}
            | set(plan.settings.network.zones)
        )
    )


def _zones(plan: Plan, facts: AccountFacts) -> Iterator[Finding]:
    if facts.zones is None:
        yield Finding("zones", UNKNOWN, f"zones of {plan.cluster.region} could not be read")
        return
    missing = [zone for zone in cluster_zones(plan) if zone not in facts.zones]
    if missing:
        yield Finding(
            "zones",
            FAIL,
            f"this account has no {', '.join(missing)}; it has {', '.join(facts.zones)}",
            "set zones of the pools in the fleet manifest, and network.zones in the environment",
        )
    else:
        yield Finding("zones", OK, ", ".join(cluster_zones(plan)))


def _offerings(plan: Plan, facts: AccountFacts) -> Iterator[Finding]:
    for pool in plan.cluster.pools:
        machine = pool.hardware.machine
        if machine not in facts.offered:
            yield Finding("machines", UNKNOWN, f"zones that offer {machine} could not be read")
            continue
        without = [zone for zone in pool.zones if zone not in facts.offered[machine]]
        if without:
            offered = ", ".join(facts.offered[machine]) or "no zone of the region"
            yield Finding(
                "machines",
                FAIL,
                f"pool {pool.name}: {', '.join(without)} does not offer {machine}; {offered} does",
                "set zones of the pool in the fleet manifest",
            )
        else:
            yield Finding("machines", OK, f"pool {pool.name}: {machine} in {', '.join(pool.zones)}")


def of_a_node(plan: Plan, pool: NodePool) -> int:
    """Amount of the quota that one node of a GPU pool uses: vCPUs on AWS, GPUs on Google Cloud."""
    machine = machines()[plan.cluster.provider][pool.hardware.machine]
    return machine.vcpus if plan.cluster.provider == "EKS" else machine.gpus


def needed(plan: Plan, *, at_most: bool) -> int:
    """Amount of the quota that GPU pools use, at the start or at full size."""
    return sum(
        (pool.maximum if at_most else pool.nodes) * of_a_node(plan, pool)
        for pool in plan.cluster.pools
    )


def _gpu_quota(plan: Plan, facts: AccountFacts) -> Iterator[Finding]:
    first, full = needed(plan, at_most=False), needed(plan, at_most=True)
    for purpose, quota in facts.quotas.items():
        if not purpose.startswith("gpu"):
            continue
        if quota.limit is None:
            yield Finding(
                "quota", UNKNOWN, f"{quota.name} could not be read", f"see {quota.console}"
            )
            continue
        free = quota.limit - (quota.used or 0)
        text = f"{quota.name}: {quota.limit:g} {quota.unit}, {quota.used or 0:g} in use"
        if free < first:
            yield Finding(
                "quota",
                FAIL,
                f"{text}; the pools start with {first} {quota.unit}",
                f"ask for at least {quota.limit + first - free:g} at {quota.console}, which can take days",
            )
        elif free < full:
            yield Finding(
                "quota",
                WARN,
                f"{text}; the pools grow to {full} {quota.unit}",
                f"lower maxNodeCount in the fleet manifest, or raise it at {quota.console}",
            )
        else:
            yield Finding("quota", OK, f"{text}; the pools grow to {full} {quota.unit}")


def _upgrades(plan: Plan, facts: AccountFacts) -> Iterator[Finding]:
    """Check that services survive a node's upgrade: a spare node comes first where the quota has room for it."""
    spare = max(of_a_node(plan, pool) for pool in plan.cluster.pools)
    down = (
        "a service with one replica is down while its node is replaced: "
        "drain, new node, image and model, 5 to 20 min"
    )
    if not plan.settings.surge:
        yield Finding("upgrades", WARN, f"gpu.surge is off, the old node goes first; {down}")
        return
    for purpose, quota in facts.quotas.items():
        if purpose.startswith("gpu") and quota.limit is not None:
            remaining = quota.limit - (quota.used or 0) - needed(plan, at_most=False)
            if 0 <= remaining < spare:
                yield Finding(
                    "upgrades",
                    WARN,
                    f"{quota.name} has no room for a spare node of {spare} {quota.unit}, which an upgrade starts first",
                    f"raise it at {quota.console}, or set gpu.surge: false; then {down}",
                )


def _image_moves(facts: AccountFacts) -> Iterator[Finding]:
    """Name the node groups whose nodes a deploy replaces for another image."""
    for group, (old, new) in facts.image_moves.items():
        yield Finding(
            "image",
            WARN,
            f"node group {group} moves from image {old} to {new}: its nodes, and the services on them, are replaced "
            "one after the other",
            f"gpu.eks_image: {old} keeps the image",
        )


# Sold as spot or flex-start only (Compute Engine, "GPU machine types", A3 High with fewer than 8 GPUs).
SHORT_LIVED_ONLY = frozenset({"a3-highgpu-1g", "a3-highgpu-2g", "a3-highgpu-4g"})


def _interruptions(plan: Plan) -> Iterator[Finding]:
    """Nodes that the cloud may take back, and what that means to a rollout."""
    settings = plan.settings
    notice = "two minutes" if plan.cluster.provider == "EKS" else "30 seconds"
    for pool in plan.cluster.pools:
        spot, flex = settings.capacity_type == "SPOT", pool.name in settings.flex_start
        machine = pool.hardware.machine
        if machine in SHORT_LIVED_ONLY and not (spot or flex):
            yield Finding(
                "capacity",
                WARN,
                f"pool {pool.name}: {machine} is sold as spot or flex-start only",
                "set gpu.capacity_type: SPOT, or gpu.flex_start",
            )
        if spot or flex:
            how = (
                f"spot: nodes end with {notice}' notice"
                if spot
                else "flex-start: nodes end after seven days at most"
            )
            yield Finding(
                "capacity",
                WARN,
                f"pool {pool.name} is {how}. A service with one replica is then down; a rollout that loses an arm is "
                "undecided or rolls back, and one replica more than needed rides it out",
                "use on-demand nodes or a reservation for services that must answer",
            )


def _room(facts: AccountFacts) -> Iterator[Finding]:
    """One network and one address more must fit."""
    for purpose, quota in facts.quotas.items():
        if purpose.startswith("gpu"):
            continue
        if quota.limit is None or quota.used is None:
            yield Finding(
                "quota", UNKNOWN, f"{quota.name} could not be read", f"see {quota.console}"
            )
        elif quota.used + 1 > quota.limit:
            yield Finding(
                "quota",
                FAIL,
                f"{quota.name}: {quota.used:g} of {quota.limit:g} in use, one more is needed",
                f"raise it at {quota.console}, or delete one",
            )
        else:
            yield Finding("quota", OK, f"{quota.name}: {quota.used:g} of {quota.limit:g} in use")


def _names(facts: AccountFacts) -> Iterator[Finding]:
    if facts.taken:
        yield Finding(
            "names",
            WARN,
            f"exists already: {', '.join(facts.taken)}",
            "fine when this environment's state holds it; else choose another name for cluster or environment",
        )
    else:
        yield Finding("names", OK, "no cluster of this name")


def _rights(facts: AccountFacts) -> Iterator[Finding]:
    if facts.denied is None:
        yield Finding(
            "rights",
            UNKNOWN,
            "the deployer's rights could not be read (iam:GetRole, iam:SimulatePrincipalPolicy)",
            "python -m stacks.preflight --policy prints what a deploy needs",
        )
    elif facts.denied:
        yield Finding(
            "rights",
            FAIL,
            f"not allowed: {', '.join(facts.denied)}",
            "python -m stacks.preflight --policy prints what a deploy needs",
        )


def _apis(facts: AccountFacts) -> Iterator[Finding]:
    if facts.apis_off is None:
        yield Finding("apis", UNKNOWN, "enabled services of the project could not be read")
    elif facts.apis_off:
        off = " ".join(facts.apis_off)
        yield Finding(
            "apis",
            FAIL,
            f"not enabled: {', '.join(facts.apis_off)}",
            f"gcloud services enable {off}",
        )
