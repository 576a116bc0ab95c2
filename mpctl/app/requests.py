"""Requests of users, one frozen value per command; built by the command line, read by the use cases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal


class DryRun(StrEnum):
    """none: act. client: all checks and the change, nothing is done. server: the same on a cluster."""

    NONE = "none"
    CLIENT = "client"
    SERVER = "server"


@dataclass(frozen=True, slots=True)
class StagingRequest:
    """The staging mode of the draft, and the facts about the cluster that decide it. None: unknown."""

    mode: str | None = None
    claim: str | None = None
    claim_is_shared: bool | None = None
    registry: str | None = None
    air_gapped: bool = False
    kserve_version: str | None = None
    node_disk_gib: float | None = None
    draft_size_gib: float | None = None
    token_secret: str | None = None
    staging_image: str | None = None


@dataclass(frozen=True, slots=True)
class SpeculationRequest:
    """A method with its settings and its draft. ``settings``: KEY=VALUE; ``config``: JSON, or ``@FILE`` with it;
    ``catalogue`` and the listings: files; ``ignored``: preflight checks to override, ``refused``: warnings that stop
    the change."""

    method: str
    settings: tuple[str, ...] = ()
    config: str | None = None
    draft: str | None = None
    catalogue: str | None = None
    draft_listing: str | None = None
    target_listing: str | None = None
    gpu: str | None = None
    staging: StagingRequest = field(default_factory=StagingRequest)
    ignored: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MeasurementRequest:
    """The traffic of a measurement, its rate and its duration. ``workloads``: files that are split into classes;
    ``concurrency``: () means 1, or none with ``requests_per_s``; ``load``: where the load client runs, auto, job or
    local; ``load_pods``: of the Job; None: as an unfinished rollout has it, else one; ``policy``: a file with the
    gate's limits, ``limits``: a record of them in its place; ``rounds``: None chooses as many as the prompts allow, 24
    at most, or those that find ``detect``, a gain as a share of the time per token."""

    prompts: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    requests: int = 4
    rounds: int | None = None
    detect: float | None = None
    time_limit_s: float = 0.0
    concurrency: tuple[int, ...] = ()
    requests_per_s: tuple[float, ...] = ()
    temperatures: tuple[float, ...] = (0.0,)
    max_tokens: int = 384
    reuse_prompts: bool = False
    load: str = "auto"
    load_pods: int | None = None
    calibrate: bool = True
    policy: str | None = None
    limits: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class TrafficRequest:
    """The movement of production traffic to the candidate. ``mirror_percent``: of the requests it gets copies of first;
    0 for none. ``route``: the HTTPRoute, needed where there are several. ``bake_s``: None follows from the platform.

    ``measure_on``: auto, or the placement of the measurement; ``users_share_percent``: the user's consent that so many
    of the users' requests meet the candidate while it is measured; ``users_window_s``: between the readings that tell
    users; ``measure_limit_s``: the longest predicted measurement."""

    steps_percent: tuple[int, ...] = ()
    mirror_percent: int = 0
    step_duration_s: float = 120.0
    route: str | None = None
    keep_baseline: bool = False
    bake_s: float | None = None
    measure_on: str = "auto"
    users_share_percent: int | None = None
    users_window_s: float = 10.0
    measure_limit_s: float = 3 * 3600.0


@dataclass(frozen=True, slots=True)
class RolloutRequest:
    """``strategy``: auto, side-by-side or in-place. ``ready_timeout_s``: None follows from the service. ``by``: the
    program that decided it, empty for a person."""

    speculation: SpeculationRequest
    measurement: MeasurementRequest = field(default_factory=MeasurementRequest)
    traffic: TrafficRequest = field(default_factory=TrafficRequest)
    strategy: str = "auto"
    accept_downtime: bool = False
    force: bool = False
    ready_timeout_s: float | None = None
    dry_run: DryRun = DryRun.NONE
    by: str = ""


@dataclass(frozen=True, slots=True)
class RollbackRequest:
    """``to_revision``: None is the one before. ``strategy``: None is that of the rollout that is undone. ``exact``:
    every byte is restored, also what another writer changed."""

    to_revision: int | None = None
    strategy: str | None = None
    exact: bool = False
    accept_downtime: bool = False
    ready_timeout_s: float | None = None
    dry_run: DryRun = DryRun.NONE
    why: str = ""
    by: str = ""


@dataclass(frozen=True, slots=True)
class PreflightRequest:
    """A change to check. ``ask_engine``: also by the installed vLLM's own configuration class."""

    speculation: SpeculationRequest
    ask_engine: bool = False


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """A plan of one or several methods. ``speculation``: the change, with the method of each in turn.

    ``rates``: of acceptance per position, measured; ``traffic``: a class, where nothing is measured; ``transcripts``: a
    file of prompts and answers, ``tokenizer``: a directory for it; ``url``: of a running engine; ``measure``: start a
    candidate of each method; ``runs``: files of mpctl bench; ``prices``: a price list; ``temperature`` of the traffic.
    """

    methods: tuple[str, ...]
    speculation: SpeculationRequest
    concurrency: tuple[int, ...] = (1, 8, 32, 64)
    ks: tuple[int, ...] = ()
    prompt_tokens: float | None = None
    output_tokens: float | None = None
    prompts: tuple[str, ...] = ()
    rates: tuple[float, ...] = ()
    coverage: float | None = None
    traffic: str | None = None
    transcripts: str | None = None
    tokenizer: str | None = None
    url: str | None = None
    measure: bool = False
    temperature: float = 0.0
    runs: tuple[str, ...] = ()
    prices: str | None = None


@dataclass(frozen=True, slots=True)
class RenderRequest:
    """A change to print. ``candidate``: only the InferenceService that runs it next to the first."""

    speculation: SpeculationRequest
    candidate: bool = False


@dataclass(frozen=True, slots=True)
class DiffRequest:
    """Compare the service with a revision, None for the one before, or with a change."""

    revision: int | None = None
    speculation: SpeculationRequest | None = None


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
    """Arguments of `mpctl connect`."""

    cluster: CloudClusterRef
    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None
    use: bool = False


@dataclass(frozen=True, slots=True)
class CapacityRequest:
    """Arguments of `mpctl capacity`; ``objects`` is a listing of kubectl, ``objects_file`` its name."""

    cluster: CloudClusterRef
    replicas: int = 1
    gpus: int = 1
    pool: str | None = None
    objects: str | None = None
    objects_file: str = "-"
    accept_unchecked: bool = False


@dataclass(frozen=True, slots=True)
class RbacRequest:
    """Arguments of `mpctl rbac`; ``bind_to`` as typed, such as ``group:ml``. ``all_pods``: whether the role
    lists the pods of all namespaces; ``purge``: whether it deletes what was recorded; ``deployments``: whether it
    changes plain Deployments; ``allow_in_job``: as typed, such as ``toleration:dedicated``."""

    role: Literal["reader", "operator"] = "operator"
    namespace: str | None = None
    cluster_wide: bool = False
    bind_to: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    load: Literal["job", "local"] = "job"
    all_pods: bool = True
    purge: bool = False
    deployments: bool = False
    admission_policy: bool = False
    allow_in_job: tuple[str, ...] = ()


WATCH_HOME = "mpctl-system"


@dataclass(frozen=True, slots=True)
class WatchInstallRequest:
    """Arguments of `mpctl watch install`. ``namespace``: whose services are watched, None for all; ``home``: where the
    watch runs; ``shared_home``: other users of that namespace are trusted; ``policy_file``: the policy's name in
    messages; ``webhook_secret``: a Secret with the webhook's address; ``without``: objects that are left out."""

    namespace: str | None
    image: str
    home: str = WATCH_HOME
    shared_home: bool = False
    prometheus: str | None = None
    policy_file: str = "--watch-policy"
    webhook_secret: str | None = None
    webhook_format: str = "json"
    without: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MethodRequest:
    """Arguments of `mpctl methods METHOD`."""

    method: str
    draft: str | None = None
    settings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DraftsRequest:
    """Arguments of `mpctl drafts`; ``catalogue_file`` is merged over the shipped catalogue."""

    target: str | None = None
    method: str | None = None
    catalogue_file: str | None = None


@dataclass(frozen=True, slots=True)
class CompareRequest:
    """Arguments of `mpctl bench compare`; each side as typed, ``FILE`` or ``FILE:ARM``."""

    first: str
    second: str | None = None
    policy_file: str | None = None
    force: bool = False


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """Arguments of `mpctl report`; ``run`` is a file or the name of a rollout, None for the last rollout."""

    run: str | None = None
    service: str | None = None
    prices_file: str | None = None
    policy_file: str | None = None


@dataclass(frozen=True, slots=True)
class ExplainRequest:
    """Arguments of `mpctl gate explain`; without ``run`` the policy alone is explained."""

    run: str | None = None
    service: str | None = None
    policy_file: str | None = None
    weights_gb: float | None = None
    bandwidth_gb_s: float | None = None


@dataclass(frozen=True, slots=True)
class LocalUpRequest:
    """Arguments of `mpctl local up`; without ``file`` the manifest of the service that is up."""

    name: str | None = None
    file: str | None = None
    port: int | None = None
    vllm: str | None = None
    lifeline_pid: int | None = None
    wait: bool = True
    ready_timeout_s: float = 600.0


@dataclass(frozen=True, slots=True)
class LocalDownRequest:
    """Arguments of `mpctl local down`."""

    name: str | None = None
    every: bool = False
    orphans: bool = False
    force: bool = False


@dataclass(frozen=True, slots=True)
class LocalLogsRequest:
    """Arguments of `mpctl local logs`; ``tail`` is a number of lines."""

    name: str | None = None
    arm: str | None = None
    tail: int | None = None


@dataclass(frozen=True, slots=True)
class ServersRequest:
    """vLLM servers at a URL; ``model``: None is the first that a server lists, ``vllm``: command of the load client."""

    url: str
    candidate_url: str | None = None
    model: str | None = None
    vllm: str | None = None


@dataclass(frozen=True, slots=True)
class BenchRequest:
    """Arguments of `mpctl bench`: a service, two of them, a service and a speculation, or servers."""

    service: str | None = None
    candidate: str | None = None
    speculation: SpeculationRequest | None = None
    servers: ServersRequest | None = None
    measurement: MeasurementRequest = field(default_factory=MeasurementRequest)
    run_file: str | None = None
    ready_timeout_s: float = 600.0


@dataclass(frozen=True, slots=True)
class TuneRequest:
    """Arguments of `mpctl bench --tune`. ``methods``: to search among, or ``("all",)``; ``speculation``: what
    every configuration has; ``bench``: how each is measured, its time limit that of the search; ``write_spec``: file
    for the winner."""

    methods: tuple[str, ...]
    speculation: SpeculationRequest
    bench: BenchRequest
    write_spec: str | None = None
