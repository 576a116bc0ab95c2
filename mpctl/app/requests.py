"""What a user asked of a command: frozen values with units in their names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class CloudClusterRef:
    """A managed cluster: a full name, or a bare name with its place; ``profile`` of the AWS configuration."""

    name: str
    region: str | None = None
    project: str | None = None
    location: str | None = None
    profile: str | None = None


@dataclass(frozen=True, slots=True)
class ConnectRequest:
    """What a user asked of `mpctl connect`."""

    cluster: CloudClusterRef
    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None
    use: bool = False


@dataclass(frozen=True, slots=True)
class CapacityRequest:
    """What a user asked of `mpctl capacity`; ``objects`` is a listing of kubectl, ``objects_file`` its name."""

    cluster: CloudClusterRef
    replicas: int = 1
    gpus: int = 1
    pool: str | None = None
    objects: str | None = None
    objects_file: str = "-"
    change: Literal["grow", "restore"] | None = None
    accept_unchecked: bool = False


@dataclass(frozen=True, slots=True)
class RbacRequest:
    """What a user asked of `mpctl rbac`; ``bind_to`` as typed, such as ``group:ml``."""

    role: Literal["reader", "operator"] = "operator"
    namespace: str | None = None
    cluster_wide: bool = False
    bind_to: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MethodRequest:
    """What a user asked of `mpctl methods METHOD`."""

    method: str
    engine: str = "vllm"
    draft: str | None = None
    settings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DraftsRequest:
    """What a user asked of `mpctl drafts`; ``catalogue_file`` is merged over the shipped catalogue."""

    target: str | None = None
    method: str | None = None
    catalogue_file: str | None = None


@dataclass(frozen=True, slots=True)
class CompareRequest:
    """What a user asked of `mpctl bench compare`; each side as typed, ``FILE`` or ``FILE:ARM``."""

    first: str
    second: str | None = None
    policy_file: str | None = None
    force: bool = False


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """What a user asked of `mpctl report`; ``run`` is a file or the name of a rollout, None for the last rollout."""

    run: str | None = None
    service: str | None = None
    prices_file: str | None = None
    policy_file: str | None = None


@dataclass(frozen=True, slots=True)
class ExplainRequest:
    """What a user asked of `mpctl gate explain`; without ``run`` the policy alone is explained."""

    run: str | None = None
    service: str | None = None
    policy_file: str | None = None
    weights_gb: float | None = None
    bandwidth_gb_s: float | None = None


@dataclass(frozen=True, slots=True)
class LocalUpRequest:
    """What a user asked of `mpctl local up`; without ``file`` the manifest of the service that is up."""

    name: str | None = None
    file: str | None = None
    port: int | None = None
    vllm: str | None = None
    lifeline_pid: int | None = None
    wait: bool = True
    ready_timeout_s: float = 600.0


@dataclass(frozen=True, slots=True)
class LocalDownRequest:
    """What a user asked of `mpctl local down`."""

    name: str | None = None
    every: bool = False
    orphans: bool = False
    force: bool = False


@dataclass(frozen=True, slots=True)
class LocalLogsRequest:
    """What a user asked of `mpctl local logs`; ``tail`` is a number of lines."""

    name: str | None = None
    arm: str | None = None
    tail: int | None = None
