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

    role: Literal["reader", "operator"] = option(
        "--role",
        type=("reader", "operator"),
        default="operator",
        help="reader: changes nothing. operator: everything, including rollouts.",
    )
    namespace: str | None = None
    cluster_wide: bool = option(
        "--cluster-wide", type=bool, help="Cover the services of all namespaces."
    )
    bind_to: tuple[str, ...] = option(
        "--to",
        multiple=True,
        metavar="KIND:NAME",
        help="Also bind user:NAME, group:NAME or serviceaccount:NAMESPACE/NAME; repeatable.",
    )
    secrets: tuple[str, ...] = _secrets()
    load: Literal["job", "local"] = option(
        "--load",
        type=("job", "local"),
        default="job",
        help="local: leave out the rights on Jobs; run mpctl with MPCTL_LOAD=local.",
    )
    all_pods: bool = option(
        "--without-all-pods",
        flag_value=False,
        default=True,
        show_default=False,
        help="Leave out listing the pods of all namespaces; free GPUs are then unknown.",
    )
    purge: bool = option(
        "--purge",
        type=bool,
        envvar=None,
        help="Also allow deleting what was recorded: mpctl prune.",
    )
    deployments: bool = option(
        "--deployments",
        type=bool,
        help="Also allow changing plain Deployments, LeaderWorkerSets and VLLMRuntimes.",
    )
    drafts: bool = option(
        "--drafts",
        type=bool,
        help="Also allow training heads: mpctl drafts train. Its Job runs any command.",
    )
    admission_policy: bool = option(
        "--admission-policy",
        type=bool,
        help="Also limit --to to mpctl-* objects, harmless Jobs, and routes to candidates (Kubernetes 1.30).",
    )
    allow_in_job: tuple[str, ...] = option(
        "--allow-in-job",
        multiple=True,
        metavar="KIND:NAME",
        help="With --admission-policy: pull-secret, toleration, runtime-class or scheduler of load Jobs; repeatable.",
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
    selector: str = option(
        "-l",
        "--selector",
        metavar="SELECTOR",
        default="",
        help="Services with these labels, as kubectl takes them.",
    )
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
    leader_elect: bool = option(
        "--leader-elect", type=bool, help="Wait for a Lease; exit with 3 when it is lost."
    )
    lease_namespace: str | None = option(
        "--lease-namespace", metavar="NAME", help="Namespace of the Lease (default: that of -n)."
    )

    def __post_init__(self) -> None:
        if self.name is not None and self.selector:
            raise InputError("cannot be combined with a name", field="--selector")
        lasting = {"--listen": self.listen, "--leader-elect": self.leader_elect}
        for name, value in lasting.items():
            if self.once and value:
                raise InputError(
                    "cannot be combined with --once, which ends after one judgement", field=name
                )
