"""Modelplane's InferenceClass and InferenceCluster (`modelplane.ai/v1alpha1`) read into values.

Both schema generations are accepted (`gke.project` left the cluster for the provider's own configuration in
July 2026). Clouds other than EKS and GKE, and the fields that need hardware these stacks do not build, are
refused by name. Other kinds in the same file belong to other readers and are passed over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from infra.pools import EFFECTS
from mpctl.yaml_lines import Node, documents
from stacks.fleet.values import Device, Fleet, InferenceClass, InferenceCluster, NodePool, Taint

API = "modelplane.ai/v1alpha1"
PROVIDERS = ("EKS", "GKE")
# Modelplane knows these too; we say so instead of calling them a typing error.
OTHERS = ("AKS", "Nebius", "Vultr", "Existing")
MACHINE = {"EKS": "instanceType", "GKE": "machineType"}
NAME = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
# GKE's rule for clusters and pools (Kubernetes Engine API, Cluster.name), kept on EKS as well: the names of roles,
# service accounts and Terraform addresses are made from them.
BUILT = r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?"
BUILT_WORDS = "a name of at most 40 lower-case letters, digits and dashes that begins with a letter"
# Taken in the cluster's stack: the pool without GPUs, and its outputs.
TAKEN = ("system", "cluster-name", "cluster-endpoint", "cluster-ca", "model-volume", "next-step")
VERSION = r"1\.\d{2}"


def read_fleet(sources: Iterable[tuple[str, str]]) -> Fleet:
    """The fleet in *sources*, pairs of file name and text; classes may stand in another file than their
    clusters.
    """
    nodes = [node for file, text in sources for node in documents(text, file)]
    kinds: dict[str, list[Node]] = {"InferenceClass": [], "InferenceCluster": []}
    for node in nodes:
        kind = node.text("kind")
        if kind in kinds:
            api = node.text("apiVersion")
            if api != API:
                raise node.error("apiVersion", f"{api!r} is not {API}")
            kinds[kind].append(node)
    classes = unique(read_class(node) for node in kinds["InferenceClass"])
    clusters = unique(read_cluster(node, classes) for node in kinds["InferenceCluster"])
    return Fleet(tuple(classes.values()), tuple(clusters.values()))


def unique(items: Iterable[Any]) -> dict[str, Any]:
    """*items* by name; two of the same name are a mistake."""
    by_name: dict[str, Any] = {}
    for item in items:
        if item.name in by_name:
            first = by_name[item.name].place
            raise item.place.error(
                f"{item.name} is already defined in {first.file}:{first.line}", "metadata.name"
            )
        by_name[item.name] = item
    return by_name


def provider_of(node: Node, name: str) -> str:
    provider = node.text(name)
    if provider in OTHERS:
        raise node.error(name, f"{provider} is not supported: these stacks build EKS and GKE")
    return node.choice(name, PROVIDERS)


def metadata(node: Node, *, built: bool = False) -> tuple[str, dict[str, str]]:
    meta = node.node("metadata")
    words = BUILT_WORDS if built else "a lower-case name of at most 63 letters, digits and dashes"
    name = meta.text("name", pattern=BUILT if built else NAME, what=words)
    return name, meta.mapping("labels", lambda inner, key: inner.text(key))


def read_class(node: Node) -> InferenceClass:
    name, _ = metadata(node)
    spec = node.node("spec")
    spec.maybe("description")
    if not spec.has("provisioning"):
        raise spec.error(
            "provisioning", "a class without provisioning describes nodes that exist already"
        )
    how = spec.node("provisioning")
    provider = provider_of(how, "provider")
    shape = how.node(provider.lower())
    accelerator = shape.node("accelerator")
    result = InferenceClass(
        name=name,
        provider=provider,
        machine=shape.text(MACHINE[provider]),
        disk_gb=shape.number("diskSizeGb", 100, low=10, high=65_536),
        accelerator=accelerator.text("type"),
        accelerator_count=accelerator.number("count", low=1, high=16),
        devices=tuple(read_device(device) for device in spec.nodes("devices")),
        place=node.place,
    )
    for inner in (accelerator, shape, how, spec):
        inner.done()
    return result


def read_device(node: Node) -> Device:
    claim = node.choice("claim", ("DRA", "Synthetic"), "DRA")
    if claim == "Synthetic":
        raise node.error(
            "claim", "a Synthetic device is never claimed; these stacks bind GPUs through DRA"
        )
    result = Device(
        name=node.text("name"),
        driver=node.text("driver"),
        device_class=node.text("deviceClassName"),
        count=node.number("count", 1, low=1, high=64),
        attributes=node.mapping("attributes", attribute),
        capacity=node.mapping("capacity", lambda inner, key: inner.node(key).text("value")),
    )
    node.done()
    return result


def attribute(node: Node, key: str) -> str | int | bool:
    """A typed DRA attribute: exactly one of string, version, bool, int."""
    inner = node.node(key)
    types = [name for name in ("string", "version", "bool", "int") if inner.has(name)]
    if len(types) != 1 or len(inner.body) != 1:
        raise node.error(key, "exactly one of string, version, bool, int must be set")
    if types[0] == "bool":
        return inner.value("bool", bool)
    return inner.value("int", int) if types[0] == "int" else inner.text(types[0])


def read_cluster(node: Node, classes: Mapping[str, InferenceClass]) -> InferenceCluster:
    name, labels = metadata(node, built=True)
    spec = node.node("spec")
    cluster = spec.node("cluster")
    provider = provider_of(cluster, "source")
    if not cluster.has(provider.lower()):
        raise cluster.error(provider.lower(), f"required when source is {provider}")
    where = cluster.node(provider.lower())
    where.node("credentials")
    pools = tuple(
        read_pool(pool, provider, where.text("region"), classes) for pool in spec.nodes("nodePools")
    )
    if not pools:
        raise spec.error("nodePools", "a cluster needs at least one GPU pool")
    unique(pools)
    version = where.maybe(
        "kubernetesVersion", pattern=VERSION, what='a minor version such as "1.35"'
    )
    result = InferenceCluster(
        name=name,
        provider=provider,
        region=where.text(
            "region", pattern=r"[a-z]+(-[a-z]+)*-?[a-z]*\d+(-[a-z]+)?\d*", what="a region"
        ),
        labels=labels,
        project=where.maybe("project") if provider == "GKE" else None,
        version=version,
        pools=pools,
        place=node.place,
    )
    for inner in (where, cluster, spec):
        inner.done()
    return result


def read_pool(
    node: Node, provider: str, region: str, classes: Mapping[str, InferenceClass]
) -> NodePool:
    hardware = class_of(node, provider, classes)
    count = node.number("nodeCount", 1)
    minimum = node.number("minNodeCount", count)
    maximum = node.number("maxNodeCount", count if count else 1, low=1)
    if not minimum <= max(count, minimum) <= maximum:
        raise node.error(
            "maxNodeCount",
            f"the pool wants minNodeCount {minimum} and nodeCount {count}, above maxNodeCount {maximum}",
        )
    if node.has("fabric"):
        fabric = node.node("fabric")
        if (kind := fabric.text("type", "None")) != "None":
            raise fabric.error(
                "type", f"fabric {kind} is not supported: one service runs on one node here"
            )
    name = node.text("name", pattern=BUILT, what=BUILT_WORDS)
    if name in TAKEN:
        raise node.error(
            "name",
            f"{name} is taken by the cluster itself",
            f"set another name, such as gpu-{name}",
        )
    result = NodePool(
        name=name,
        hardware=hardware,
        nodes=max(count, minimum),
        minimum=minimum,
        maximum=maximum,
        zones=zones_of(node, region),
        taints=tuple(read_taint(taint) for taint in node.nodes("taints")),
        capacity_block=capacity_block(node, provider),
        place=node.place,
    )
    node.done()
    return result


def class_of(node: Node, provider: str, classes: Mapping[str, InferenceClass]) -> InferenceClass:
    wanted = node.text("className")
    if wanted not in classes:
        known = ", ".join(sorted(classes)) or "none"
        raise node.error(
            "className", f"no InferenceClass named {wanted}; the manifests define {known}"
        )
    inference_class = classes[wanted]
    if inference_class.provider != provider:
        raise node.error(
            "className",
            f"{wanted} is a class for {inference_class.provider}, the cluster is on {provider}",
        )
    return inference_class


def zones_of(node: Node, region: str) -> tuple[str, ...]:
    zones = node.texts("zones")
    if not zones:
        raise node.error(
            "zones", "at least one zone is needed: not every zone of a region has the GPU"
        )
    for index, zone in enumerate(zones):
        if not zone.startswith(region):
            raise node.item_error("zones", index, f"zone {zone} is not in region {region}")
    return zones


def capacity_block(node: Node, provider: str) -> str | None:
    if not node.has("capacityBlock"):
        return None
    if provider != "EKS":
        raise node.error(
            "capacityBlock", f"Capacity Blocks exist on EKS, the cluster is on {provider}"
        )
    block = node.node("capacityBlock")
    reservation = block.text(
        "capacityReservationId", pattern=r"cr-[0-9a-f]+", what="a reservation id such as cr-0a1b2c"
    )
    block.done()
    return reservation


def read_taint(node: Node) -> Taint:
    result = Taint(
        node.text("key"),
        node.text("value", "", pattern=r".*"),
        node.choice("effect", tuple(EFFECTS)),
    )
    node.done()
    return result
