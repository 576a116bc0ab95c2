"""Requests about clusters, the watch and this machine, as ``requests`` has those about changes and measurements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from mpctl.app.option import Duration, File, option
from mpctl.errors import InputError

WATCH_HOME = "mpctl-system"


def _secrets() -> Any:
    text = "Allow reading this Secret: one with an API key, or mpctl-sentinels, which is also written; repeatable."
    return option("--secret", multiple=True, metavar="NAME", help=text)


def _prometheus() -> Any:
    return option(
        "--prometheus",
        metavar="URL",
        help="Read counters from Prometheus (default: from the engines).",
    )


def _watch_policy() -> Any:
    return option(
        "--watch-policy",
        type=File,
        help="Limits and what may be done (default: report only).",
    )


@dataclass(frozen=True)
class ConnectRequest:
    """A managed cluster, for a kubeconfig or a token."""

    cluster: str
    profile: str | None = option(
        "--profile",
        metavar="NAME",
        help="EKS: profile of the AWS configuration (default: AWS's own).",
    )
    context: str | None = None
    namespace: str | None = None


@dataclass(frozen=True)
class RbacRequest:
    """The rights that a role is to grant, and to whom."""

    role: Literal["reader", "operator"] = "operator"
    namespace: str | None = None
    everywhere: bool = option(
        "-A",
        "--all-namespaces",
        type=bool,
        envvar=None,
        help="Cover the services of all namespaces.",
    )
    bind_to: tuple[str, ...] = option(
        "--to",
        multiple=True,
        metavar="KIND:NAME",
        help="Also bind user:NAME, group:NAME or serviceaccount:NAMESPACE/NAME; repeatable.",
    )
    secrets: tuple[str, ...] = _secrets()
    allowed: tuple[str, ...] = option(
        "--allow",
        multiple=True,
        envvar=None,
        metavar="RIGHT",
        help="Also grant deployments or purge; or KIND:NAME in load Jobs (docs/how-to/rbac.md).",
    )
    without: tuple[str, ...] = option(
        "--without",
        type=("load-jobs", "all-pods"),
        multiple=True,
        envvar=None,
        help="Leave out load Jobs (set MPCTL_LOAD=local) or listing all pods (free GPUs are unknown).",
    )
    admission_policy: bool = option(
        "--admission-policy",
        type=bool,
        help="Also limit --to to mpctl-* objects, harmless Jobs, and routes to candidates (Kubernetes 1.30).",
    )


@dataclass(frozen=True)
class WatchInstallRequest:
    """The watch of a namespace's services, None for all, and the namespace that it runs in."""

    namespace: str | None = None
    image: str = option(
        "--image",
        required=True,
        unused="",
        metavar="IMAGE",
        help="Image with mpctl, best by digest (deploy/Containerfile).",
    )
    everywhere: bool = option(
        "-A",
        "--all-namespaces",
        type=bool,
        help="Watch the services of all namespaces, whatever -n says.",
    )
    home: str = option(
        "--home",
        default=WATCH_HOME,
        metavar="NAME",
        help="Namespace that runs the watch and has no other users.",
    )
    shared_home: bool = option(
        "--shared-home",
        type=bool,
        help="Allow a home with other users, who can then act as the watch.",
    )
    prometheus: str | None = _prometheus()
    policy_file: str | None = _watch_policy()
    webhook_secret: str | None = option(
        "--webhook-secret",
        metavar="NAME",
        help="Secret with the webhook's address in url.",
    )
    secrets: tuple[str, ...] = _secrets()
    allow_from: tuple[str, ...] = option(
        "--allow-from",
        multiple=True,
        metavar="NAMESPACE",
        help="Let pods of this namespace read metrics and verdicts (default: no pod may); repeatable.",
    )
    without: tuple[str, ...] = option(
        "--without",
        type=("podmonitor",),
        multiple=True,
        help="Leave out an object: podmonitor where the Prometheus operator is not installed.",
    )


@dataclass(frozen=True)
class WatchRequest:
    """The services to watch, and who hears of their findings."""

    name: str | None = None
    everywhere: bool = option(
        "-A", "--all-namespaces", type=bool, help="Services of all namespaces, whatever -n says."
    )
    selector: str = ""
    once: bool = option(
        "--once", type=bool, help="Judge one window and exit: 0 no finding, 9 a finding, 6 blind."
    )
    interval_s: float | None = option(
        "--interval",
        type=Duration(),
        help="Time between two readings (default: the policy's, 15s).",
    )
    policy_file: str | None = _watch_policy()
    prometheus: str | None = _prometheus()
    listen: str | None = option(
        "--listen",
        metavar="HOST:PORT",
        help="Answer /metrics and /healthz here (default: not at all).",
    )
    webhook: str | None = option("--webhook", metavar="URL", help="POST every event to this URL.")
    publish: bool = option(
        "--publish",
        type=bool,
        help="Write a SpeculationStatus and Events per service (cluster only).",
    )
    lease_namespace: str | None = option(
        "--lease",
        metavar="NAMESPACE",
        help="Wait for a Lease in this namespace, and exit with 3 when it is lost (default: none).",
    )

    def __post_init__(self) -> None:
        lasting = {"--listen": self.listen, "--lease": self.lease_namespace}
        for name, value in lasting.items():
            if self.once and value:
                raise InputError(
                    "cannot be combined with --once, which ends after one judgement", field=name
                )
