"""The GPU driver of the nodes, as the DRA driver publishes it, against what the DRA driver and engines need."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from mpctl.doctor.facts import ClusterFacts, at, each
from mpctl.doctor.finding import Finding, Severity
from mpctl.estimate.capacity import DRIVER

# Prerequisites of the DRA driver's chart 0.4 (docs/prerequisites.md), and of CUDA 13.0, on which vLLM's images are
# (vllm docker/versions.json; CUDA release notes, "CUDA Toolkit and minimum required driver versions").
DRA_FLOOR, CUDA_13 = (565,), (580,)


def versions(facts: ClusterFacts) -> Mapping[str, set[str]]:
    """Driver versions and the nodes that have them."""
    nodes_by_version: dict[str, set[str]] = {}
    for resource_slice in facts.known("resourceslices"):
        if at(resource_slice, "spec", "driver") != DRIVER:
            continue
        node = at(resource_slice, "spec", "nodeName") or ""
        for device in each(resource_slice, "spec", "devices"):
            version = version_of(device)
            if version:
                nodes_by_version.setdefault(version, set()).add(str(node))
    return nodes_by_version


def version_of(device: Mapping[str, Any]) -> str | None:
    """The driver's version of one device; None where none is published."""
    value = at(dict(device), "attributes", "driverVersion")
    text = (value.get("version") or value.get("string")) if isinstance(value, dict) else None
    return str(text) if text and re.match(r"\d+(\.|$)", str(text)) else None


def check_version(facts: ClusterFacts) -> Iterator[Finding]:
    """One finding for each driver version that runs."""
    for version, nodes in sorted(versions(facts).items()):
        major = (int(version.partition(".")[0]),)
        subject = f"GPU driver {version}"
        where = f"on {', '.join(sorted(nodes))}"
        if major >= CUDA_13:
            yield Finding("gpu-driver", "ok", subject, f"{where}: {CUDA_13[0]} or newer")
            continue
        severity: Severity = "fail" if major < DRA_FLOOR else "warn"
        need = (
            f"the DRA driver needs {DRA_FLOOR[0]} or newer"
            if major < DRA_FLOOR
            else f"images with CUDA 13, such as vLLM's, need {CUDA_13[0]} or newer and end at their start"
        )
        yield Finding(
            "gpu-driver",
            severity,
            subject,
            f"{where}: {need}",
            "EKS: deploy a newer node image; GKE: set gpu.gke_driver, deploy the platform layer and replace the nodes",
            "docs/how-to/stacks.md",
        )


CHECKS = (check_version,)
