"""Helm releases in a fixed order, each waiting for the one before it, with a time limit and a clean end
on failure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml
from constructs import Construct

from infra.builder import Element, resource

# Charts that reach for a device plugin or bring one along: a GPU must not be handed out twice (KEP-5004).
FORBIDDEN = ("nvidia-device-plugin", "gpu-operator")


@dataclass(frozen=True)
class Release:
    """One chart at one version."""

    name: str
    namespace: str
    repository: str
    chart: str
    version: str
    values: Mapping[str, Any]
    create_namespace: bool = True
    minutes: int = 10
    postrender: Sequence[str] = ()  # a command that changes what Helm rendered


def install(scope: Construct, release: Release, after: Sequence[Element] = ()) -> Element:
    """Install *release* once everything in *after* is there; a failed one is rolled back, not left half
    made.
    """
    if release.chart in FORBIDDEN:
        raise ValueError(
            f"{release.chart} brings a device plugin, and GPUs here are bound through DRA"
        )
    return resource(
        scope,
        "helm_release",
        release.name.replace("-", "_"),
        name=release.name,
        namespace=release.namespace,
        create_namespace=release.create_namespace,
        repository=release.repository,
        chart=release.chart,
        version=release.version,
        values=[escape(yaml.safe_dump(dict(release.values), sort_keys=True))]
        if release.values
        else None,
        postrender={"binary_path": release.postrender[0], "args": list(release.postrender[1:])}
        if release.postrender
        else None,
        atomic=True,
        cleanup_on_fail=True,
        wait=True,
        timeout=release.minutes * 60,
        max_history=5,
        depends_on=after,
    )


def escape(text: str) -> str:
    """*text* as a Terraform literal: template marks of Grafana, Prometheus and shells are not Terraform's."""
    return text.replace("${", "$${").replace("%{", "%%{")


class Reference(str):
    """A Terraform reference inside a document; everything else in a document is literal text."""


def literal(value: Any) -> Any:
    """A document with every string escaped but references."""
    if isinstance(value, Reference):
        return str(value)
    if isinstance(value, str):
        return escape(value)
    if isinstance(value, Mapping):
        return {key: literal(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [literal(item) for item in value]
    return value
