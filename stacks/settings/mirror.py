"""Registries of your own in place of the public ones, for charts and images of every layer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from mpctl.yaml_lines import Node

# Where the charts of versions.yaml and the images in them come from; nvcr.io for GPU telemetry.
REGISTRIES = ("docker.io", "ghcr.io", "nvcr.io", "quay.io", "registry.k8s.io")
PREFIX = r"[a-z0-9][a-z0-9.-]*(:\d+)?(/[a-z0-9._-]+)*"
DIGEST = r"sha256:[0-9a-f]{64}"


@dataclass(frozen=True)
class Mirror:
    """``registries``: public registry -> the prefix that replaces it; ``charts``: OCI folder of all charts;
    ``digests``: image with its tag, as it is in public -> digest.
    """

    registries: Mapping[str, str] = field(default_factory=dict)
    charts: str | None = None
    digests: Mapping[str, str] = field(default_factory=dict)
    require_digests: bool = False

    def missing(self) -> tuple[str, ...]:
        """Public registries that are still needed."""
        return tuple(name for name in REGISTRIES if name not in self.registries)

    def image(self, reference: str) -> str:
        """An image as nodes pull it.

        Raises:
            ValueError: digests are required and the image has none.
        """
        name = full(reference)
        if "@" not in name:
            if digest := self.digests.get(name):
                name = f"{name}@{digest}"
            elif self.require_digests and name.partition("/")[0] in self.registries:
                raise ValueError(f"image {name} has no digest")
        host, _, path = name.partition("/")
        changed = name != full(reference) or host in self.registries
        return f"{self.registries.get(host, host)}/{path}" if changed else reference

    def arguments(self) -> list[str]:
        """The mirror as arguments of ``scripts/mirror-images``."""
        given = [f"--registry={public}={own}" for public, own in sorted(self.registries.items())]
        given += [f"--digest={image}={digest}" for image, digest in sorted(self.digests.items())]
        return given + (["--require-digests"] if self.require_digests else [])


def full(reference: str) -> str:
    """An image with its registry: ``kserve/agent:v1`` is ``docker.io/kserve/agent:v1``."""
    host, slash, _ = reference.partition("/")
    if slash and (re.search(r"[.:]", host) or host == "localhost"):
        return reference
    return f"docker.io/{reference}" if slash else f"docker.io/library/{reference}"


def from_arguments(arguments: Iterable[str]) -> Mirror:
    """The mirror that :meth:`Mirror.arguments` wrote."""
    registries: dict[str, str] = {}
    digests: dict[str, str] = {}
    require = False
    for argument in arguments:
        name, _, value = argument.partition("=")
        public, _, own = value.rpartition("=")
        if name == "--registry":
            registries[public] = own
        elif name == "--digest":
            digests[public] = own
        elif name == "--require-digests":
            require = True
        else:
            raise ValueError(f"unknown argument {argument}")
    return Mirror(registries, None, digests, require)


def read_mirror(node: Node) -> Mirror:
    """Read ``mirror`` of an environment.

    Raises:
        InputError: a registry that no chart uses, or a prefix or digest that is none.
    """
    what = "a registry with an optional path, such as 210987654321.dkr.ecr.us-west-2.amazonaws.com/quay"
    inner = node.node("registries")
    registries = {
        name: inner.text(name, pattern=PREFIX, what=what) for name in REGISTRIES if inner.has(name)
    }
    inner.done()
    mirror = Mirror(
        registries=registries,
        charts=node.maybe(
            "charts", pattern=rf"oci://{PREFIX}", what="an OCI folder such as oci://registry/charts"
        ),
        digests={
            full(image): digest
            for image, digest in node.mapping(
                "digests",
                lambda digests, key: digests.text(
                    key, pattern=DIGEST, what="sha256: and 64 hex digits"
                ),
            ).items()
        },
        require_digests=node.value("require_digests", bool, False),
    )
    if mirror.registries and not mirror.charts:
        raise node.error(
            "charts",
            "required with registries: most charts are in no registry of images",
            "set mirror.charts: oci://...",
        )
    node.done()
    return mirror
