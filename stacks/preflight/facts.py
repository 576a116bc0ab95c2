"""Facts about an account, as they were read; None for one that could not be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Quota:
    """A limit of the account: ``limit`` and ``used`` in ``unit``, None where it could not be read.

    ``console``: where it is raised, for the hint.
    """

    name: str
    unit: str
    limit: float | None
    used: float | None
    console: str


@dataclass(frozen=True)
class AccountFacts:
    """One account or project, in one region.

    ``identity``: who deploys; ``offered``: machine type -> zones that offer it; ``quotas``: by the purpose they serve
    (gpu, gpu-total, network, address); ``taken``: names that the deploy would make and that exist already;
    ``apis_off``: services of Google Cloud that are not enabled; ``denied``: rights that a deploy needs and the identity
    lacks, None where they could not be asked; ``image_moves``: node groups of EKS that a deploy gives other images,
    each with the release it has and the one it gets; ``owner`` and ``former_owner``: the cluster that the state names
    which this deploy would use, and the one under the key of earlier versions: "" without one, None where they could
    not be read; ``pools``: the node pools in that state, by their names in it.
    """

    identity: str
    zones: tuple[str, ...] | None = None
    offered: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    quotas: Mapping[str, Quota] = field(default_factory=dict)
    taken: tuple[str, ...] = ()
    apis_off: tuple[str, ...] | None = ()
    denied: tuple[str, ...] | None = ()
    image_moves: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    owner: str | None = ""
    former_owner: str = ""
    pools: tuple[str, ...] = ()
