"""All calls that mpctl makes to an API server with the commands that make them: the source of ``mpctl rbac``.

Tests record the requests of whole journeys and compare them with the table both ways: an unlisted request fails, and so
does a row that no journey uses.

Which of them the current user may make is asked of the API server's authorizers. One SelfSubjectRulesReview covers most
calls. It may be incomplete (EKS and GKE also authorize with webhooks) and does not cover other namespaces, so each call
that it does not grant gets a SelfSubjectAccessReview.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal, TypedDict

from mpctl.doctor import Denied
from mpctl.json_types import Json
from mpctl.platform.kubernetes.api import kinds
from mpctl.platform.kubernetes.api.api_client import Client
from mpctl.platform.kubernetes.api.kinds import ObjectKind

Role = Literal["reader", "operator"]
Load = Literal["job", "local"]
# Where a right has to hold: in the service's namespace, in the whole cluster, in KServe's own namespace.
Scope = Literal["service", "cluster", "kserve"]

DEVICE_CLASS = ObjectKind("resource.k8s.io", "v1", "DeviceClass", "deviceclasses", namespaced=False)
DAEMON_SET = ObjectKind("apps", "v1", "DaemonSet", "daemonsets")
ENDPOINT_SLICE = ObjectKind("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices")
_ADMISSION = "admissionregistration.k8s.io"
MUTATING = ObjectKind(
    _ADMISSION,
    "v1",
    "MutatingWebhookConfiguration",
    "mutatingwebhookconfigurations",
    namespaced=False,
)
VALIDATING = ObjectKind(
    _ADMISSION,
    "v1",
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
    namespaced=False,
)
_REVIEWS = "authorization.k8s.io"
ACCESS_REVIEW = ObjectKind(
    _REVIEWS, "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", namespaced=False
)
RULES_REVIEW = ObjectKind(
    _REVIEWS, "v1", "SelfSubjectRulesReview", "selfsubjectrulesreviews", namespaced=False
)

CLUSTER_NAMESPACE = (
    "kube-system"  # its uid names the cluster: it is made with the cluster, and cannot be deleted
)

_READ_COMMANDS = ("status", "history", "diff", "plan", "preflight", "render", "doctor")
_CHANGE_COMMANDS = ("rollout", "resume", "rollback", "abandon", "retire")
_ALL_COMMANDS = (*_READ_COMMANDS, *_CHANGE_COMMANDS)
_RECORD_COMMANDS = ("status", "history", "diff", *_CHANGE_COMMANDS)


@dataclass(frozen=True)
class CallRow:
    """``verb`` is RBAC's. ``commands`` make the call, ``why`` says for what. ``role``: the least role that has it.
    ``name``: of the only object that is read; empty: of any."""

    verb: str
    kind: ObjectKind
    commands: tuple[str, ...]
    why: str
    role: Role = "reader"
    scope: Scope = "service"
    subresource: str = ""
    name: str = ""

    @property
    def resource(self) -> str:
        """Return the name that a Role uses: ``pods/log``."""
        return f"{self.kind.plural}/{self.subresource}" if self.subresource else self.kind.plural

    @property
    def call(self) -> str:
        """Return the name that messages use: ``get pods/log``, ``list leases.coordination.k8s.io``."""
        group = f".{self.kind.group}" if self.kind.group else ""
        return f"{self.verb} {self.resource}{group} {self.name}".rstrip()

    @property
    def key(self) -> tuple[str, str, str]:
        """Verb, group and resource: what RBAC decides on."""
        return self.verb, self.kind.group, self.resource


def _rows(
    verbs: str,
    kind: ObjectKind,
    commands: tuple[str, ...],
    why: str,
    role: Role = "reader",
    **attributes: str,
) -> list[CallRow]:
    return [CallRow(verb, kind, commands, why, role, **attributes) for verb in verbs.split()]  # type: ignore[arg-type]


_PREFLIGHT_COMMANDS = ("plan", "preflight", "render", "diff")
_POD_COMMANDS = ("status", "doctor", *_PREFLIGHT_COMMANDS, *_CHANGE_COMMANDS)
_PATH_COMMANDS = ("doctor", *_PREFLIGHT_COMMANDS, *_CHANGE_COMMANDS)
_GPU_COMMANDS = ("doctor", *_PREFLIGHT_COMMANDS, *_CHANGE_COMMANDS)

TABLE: tuple[CallRow, ...] = (
    # Services and their pods
    *_rows("get list", kinds.INFERENCE_SERVICE, _ALL_COMMANDS, "the service, and which there are"),
    *_rows(
        "get", kinds.SERVING_RUNTIME, _ALL_COMMANDS, "arguments that a runtime adds to the engine's"
    ),
    *_rows(
        "get", kinds.DEPLOYMENT, ("status", *_CHANGE_COMMANDS), "what KServe made of the service"
    ),
    *_rows("watch", kinds.DEPLOYMENT, _CHANGE_COMMANDS, "when a start is over", "operator"),
    *_rows(
        "list",
        kinds.DEPLOYMENT,
        _ALL_COMMANDS,
        "what KServe made of the services, and plain Deployments",
    ),
    *_rows("list", kinds.POD, _POD_COMMANDS, "what runs, and why something does not"),
    *_rows("list", kinds.EVENT, ("status", *_CHANGE_COMMANDS), "why a pod waits"),
    *_rows(
        "get", kinds.POD, _CHANGE_COMMANDS, "an engine's last words", "operator", subresource="log"
    ),
    *_rows("list", kinds.HPA, ("doctor", *_CHANGE_COMMANDS), "autoscalers of the service"),
    *_rows(
        "list",
        kinds.SCALED_OBJECT,
        ("doctor", *_CHANGE_COMMANDS),
        "KEDA's autoscalers of the service",
    ),
    *_rows(
        "list",
        kinds.HTTP_ROUTE,
        ("status", *_PATH_COMMANDS),
        "who gets the users' traffic, and how long an answer may take",
    ),
    *_rows("list", kinds.SERVICE, _PATH_COMMANDS, "routes that lead to the service"),
    *_rows(
        "list", kinds.DISRUPTION_BUDGET, _PATH_COMMANDS, "whether its pods may be evicted together"
    ),
    # mpctl's own records
    *_rows(
        "get",
        kinds.LEASE,
        ("plan", "preflight", "render", "unlock", *_RECORD_COMMANDS),
        "who holds the service; the newest entry of its ledger",
    ),
    *_rows("list", kinds.LEASE, ("status", "doctor"), "who is at work"),
    *_rows(
        "get",
        kinds.CONFIG_MAP,
        ("plan", "preflight", "render", *_RECORD_COMMANDS),
        "records of rollouts",
    ),
    *_rows(
        "get",
        kinds.CONTROLLER_REVISION,
        _RECORD_COMMANDS,
        "recorded revisions, ledger, seals of records",
    ),
    *_rows(
        "list",
        kinds.CONTROLLER_REVISION,
        ("doctor", "plan", "preflight", "render", *_RECORD_COMMANDS),
        "revisions, ledger",
    ),
    # The engine's own arguments and counters. A port-forward is a GET that the API server since 1.35 lets pass only
    # with the right to create, too (KEP-4006).
    *_rows(
        "get create",
        kinds.POD,
        ("status", *_CHANGE_COMMANDS),
        "the engine's counters, load",
        subresource="portforward",
    ),
    # Changes
    *_rows("create update", kinds.LEASE, _CHANGE_COMMANDS, "one operator at a time", "operator"),
    *_rows("patch", kinds.LEASE, ("unlock", *_CHANGE_COMMANDS), "give the lease back", "operator"),
    *_rows(
        "create patch", kinds.CONFIG_MAP, _CHANGE_COMMANDS, "keep what was measured", "operator"
    ),
    *_rows(
        "create",
        kinds.CONTROLLER_REVISION,
        _CHANGE_COMMANDS,
        "record what is about to happen",
        "operator",
    ),
    *_rows("create delete", kinds.INFERENCE_SERVICE, _CHANGE_COMMANDS, "the candidate", "operator"),
    *_rows("list create delete", kinds.JOB, _CHANGE_COMMANDS, "the load client", "operator"),
    *_rows(
        "update",
        kinds.INFERENCE_SERVICE,
        ("diff", "plan", "preflight", "render", *_CHANGE_COMMANDS),
        "promotion and restore; a dry run of them for a preview",
        "operator",
    ),
    *_rows(
        "get update", kinds.HPA, _CHANGE_COMMANDS, "pin the autoscaler and put it back", "operator"
    ),
    *_rows(
        "get update",
        kinds.SCALED_OBJECT,
        _CHANGE_COMMANDS,
        "pin KEDA's autoscaler and put it back",
        "operator",
    ),
    *_rows(
        "get update",
        kinds.HTTP_ROUTE,
        _CHANGE_COMMANDS,
        "give a candidate traffic and put the route back",
        "operator",
    ),
    *_rows(
        "get",
        kinds.GATEWAY,
        ("rollout", "resume"),
        "the route's gateway, for --mirror",
        "operator",
        scope="cluster",
    ),
    *_rows(
        "get",
        kinds.GATEWAY_CLASS,
        ("rollout", "resume"),
        "whether it can mirror requests",
        "operator",
        scope="cluster",
    ),
    # Capacity for a candidate: GPUs and the pods that use them, in all namespaces
    *_rows("list", kinds.NODE, _GPU_COMMANDS, "GPUs, labels and taints", scope="cluster"),
    *_rows(
        "list",
        kinds.RESOURCE_SLICE,
        _GPU_COMMANDS,
        "GPUs that the driver publishes",
        scope="cluster",
    ),
    *_rows(
        "list", kinds.RESOURCE_CLAIM, ("doctor", *_CHANGE_COMMANDS), "GPUs in use", scope="cluster"
    ),
    *_rows(
        "list",
        kinds.POD,
        ("doctor", *_CHANGE_COMMANDS),
        "GPUs in use, and pods that wait for one",
        "operator",
        scope="cluster",
    ),
    *_rows("list", kinds.RESOURCE_QUOTA, ("doctor", *_CHANGE_COMMANDS), "whether a candidate fits"),
    *_rows("list", kinds.LIMIT_RANGE, ("doctor", *_CHANGE_COMMANDS), "whether a candidate fits"),
    *_rows(
        "get",
        kinds.CLUSTER_SERVING_RUNTIME,
        _ALL_COMMANDS,
        "arguments that a runtime adds",
        scope="cluster",
    ),
    # Optional: without it a signed verdict names no cluster.
    *_rows(
        "get",
        kinds.NAMESPACE,
        ("rollout", "resume", "report"),
        "the cluster that a signed verdict is about",
        scope="cluster",
        name=CLUSTER_NAMESPACE,
    ),
    # Read by the doctor alone; it reports what it may not read
    *_rows("list", kinds.RESOURCE_CLAIM_TEMPLATE, ("doctor",), "a claim whose template is gone"),
    *_rows("list", DEVICE_CLASS, ("doctor",), "whether the GPU driver is set up", scope="cluster"),
    *_rows("list", MUTATING, ("doctor",), "whether KServe's webhooks can answer", scope="cluster"),
    *_rows(
        "list", VALIDATING, ("doctor",), "whether KServe's webhooks can answer", scope="cluster"
    ),
    *_rows("list", DAEMON_SET, ("doctor",), "where the GPU driver runs", scope="cluster"),
    *_rows("list", kinds.DEPLOYMENT, ("doctor",), "KServe's controller", scope="kserve"),
    *_rows(
        "list", ENDPOINT_SLICE, ("doctor",), "whether KServe's webhooks can answer", scope="kserve"
    ),
    *_rows("get", kinds.CONFIG_MAP, ("doctor",), "KServe's configuration", scope="kserve"),
)
# Services of KServe's other kind. Apart from the table, because a cluster may be without them.
LLM: tuple[CallRow, ...] = (
    *_rows(
        "get list", kinds.LLM_INFERENCE_SERVICE, _ALL_COMMANDS, "the service, and which there are"
    ),
    *_rows("get", kinds.LLM_CONFIG, _ALL_COMMANDS, "arguments that a config adds to the engine's"),
    *_rows("get", kinds.LLM_CONFIG, _ALL_COMMANDS, "arguments of KServe's presets", scope="kserve"),
    *_rows(
        "create update delete",
        kinds.LLM_INFERENCE_SERVICE,
        ("diff", "plan", "preflight", "render", *_CHANGE_COMMANDS),
        "candidate, promotion and restore; a dry run of them for a preview",
        "operator",
    ),
)
# Services of several pods each. Apart from the table, because a cluster may be without them.
GROUPS: tuple[CallRow, ...] = (
    *_rows("get list", kinds.LEADER_WORKER_SET, _ALL_COMMANDS, "the service, and which there are"),
    *_rows("get", kinds.STATEFUL_SET, ("status", *_CHANGE_COMMANDS), "the leaders of its groups"),
    *_rows("watch", kinds.STATEFUL_SET, _CHANGE_COMMANDS, "when a start is over", "operator"),
)
# Services of the production-stack's operator. Apart from the table, because a cluster may be without them.
RUNTIMES = _rows("get list", kinds.VLLM_RUNTIME, _ALL_COMMANDS, "the service, and which there are")
_DELETING = ("history --purge", "history --prune")
# `mpctl rbac --purge`: no role has these by itself, since who may delete the ledger can make mpctl forget an operation.
PURGE = (
    *_rows("list delete", kinds.CONFIG_MAP, _DELETING, "delete what was recorded", "operator"),
    *_rows("delete", kinds.CONTROLLER_REVISION, _DELETING, "delete what was recorded", "operator"),
    *_rows("delete", kinds.LEASE, ("history --purge",), "delete the lock", "operator"),
)
# `mpctl rbac --deployments`: a role for InferenceServices changes no service of another kind.
DEPLOYMENTS = (
    *_rows(
        "create update delete",
        kinds.DEPLOYMENT,
        _CHANGE_COMMANDS,
        "the service and its candidate",
        "operator",
    ),
    *_rows(
        "update", kinds.LEADER_WORKER_SET, _CHANGE_COMMANDS, "promotion and restore", "operator"
    ),
    *_rows(
        "create update delete",
        kinds.VLLM_RUNTIME,
        _CHANGE_COMMANDS,
        "the service and its candidate",
        "operator",
    ),
)
# `mpctl watch install`: what the watch reports of each service.
WATCH = (
    *_rows("create patch", kinds.SPECULATION_STATUS, ("watch",), "one per service that is watched"),
    *_rows("patch", kinds.SPECULATION_STATUS, ("watch",), "its conditions", subresource="status"),
    *_rows("create", kinds.EVENT, ("watch",), "what was found and done"),
)
# `mpctl rbac --drafts`: a training Job runs what the user names as its trainer, so no role has these by itself.
_TRAIN = ("drafts train",)
TRAINING = (
    *_rows("list", kinds.JOB, ("status",), "heads that are being trained"),
    *_rows(
        "list",
        kinds.CONFIG_MAP,
        ("drafts list", "drafts purge", *_TRAIN),
        "orders and cards of heads",
    ),
    *_rows(
        "list",
        kinds.CONTROLLER_REVISION,
        ("drafts list", "drafts purge", *_TRAIN),
        "seals of orders and cards",
    ),
    *_rows(
        "create",
        kinds.CONTROLLER_REVISION,
        ("drafts purge", *_TRAIN),
        "seal the order, the card",
        "operator",
    ),
    *_rows("create", kinds.CONFIG_MAP, _TRAIN, "the order, the card", "operator"),
    *_rows(
        "list create delete",
        kinds.CLAIM,
        ("drafts purge", *_TRAIN),
        "the volume of a head",
        "operator",
    ),
    *_rows("list create delete", kinds.JOB, ("drafts purge", *_TRAIN), "the training", "operator"),
)
# Needed only by --load job.
JOB_ROWS = tuple(row for row in TABLE if row.kind is kinds.JOB)
# Optional: without it the free GPUs are unknown, and a rollout waits for one instead of refusing at once.
ALL_PODS = tuple(row for row in TABLE if row.kind is kinds.POD and row.scope == "cluster")
# Read only where an engine's API key is in a Secret, and then that one: `mpctl rbac --secret NAME`.
API_KEY = CallRow("get", kinds.SECRET, ("status", *_CHANGE_COMMANDS), "the engine's API key")
# Read and written only where the administrator made the Secret: `mpctl rbac --secret mpctl-sentinels`.
SEALING = _rows(
    "get patch", kinds.SECRET, ("watch", *_CHANGE_COMMANDS), "the beginning of users' prompts"
)

# Every authenticated user may make these (ClusterRole system:basic-user), so no role of ours has to grant them.
FREE = (ACCESS_REVIEW, RULES_REVIEW)


class Options(TypedDict, total=False):
    """The options of :func:`needs`."""

    load: Load
    all_pods: bool
    purge: bool
    deployments: bool
    drafts: bool


def needs(
    role: Role,
    *,
    load: Load = "job",
    all_pods: bool = True,
    purge: bool = False,
    deployments: bool = False,
    drafts: bool = False,
) -> tuple[CallRow, ...]:
    """Return the rows of a role; an operator may do all that a reader may.

    ``load`` local: without the rights on Jobs. ``all_pods`` False: without listing the pods of all namespaces.
    ``purge``: with deleting what was recorded. ``deployments``: with services that are plain Deployments,
    LeaderWorkerSets and VLLMRuntimes. ``drafts``: with training heads, or listing them.
    """
    rows = tuple(
        row
        for row in (*TABLE, *LLM, *GROUPS, *RUNTIMES)
        if role == "operator" or row.role == "reader"
    )
    left_out = {*(JOB_ROWS if load == "local" else ()), *(() if all_pods else ALL_PODS)}
    optional = (*(DEPLOYMENTS if deployments else ()), *(TRAINING if drafts else ()))
    chosen = [row for row in optional if role == "operator" or row.role == "reader"]
    return (*(row for row in rows if row not in left_out), *chosen, *(PURGE if purge else ()))


_AT_ONCE = 6


def denied_calls(client: Client, namespace: str | None) -> tuple[Denied, ...]:
    """Return the calls of the table that are refused in ``namespace`` (None: all), without those of the doctor alone,
    which reports them itself."""
    wanted = [row for row in TABLE if row.commands != ("doctor",)]
    granted = _granted(client, namespace) if namespace else ()
    ungranted = [
        row
        for row in wanted
        if row.scope != "service" or not any(covers(rule, row) for rule in granted)
    ]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = list(pool.map(lambda row: _may(client, row, namespace), ungranted))
    return tuple(
        Denied(row.call, tuple(c for c in row.commands if c != "doctor"), row.role == "reader")
        for row, allowed in zip(ungranted, answers, strict=True)
        if not allowed
    )


def _granted(client: Client, namespace: str) -> Iterable[Json]:
    answer = client.create(RULES_REVIEW, {"metadata": {}, "spec": {"namespace": namespace}})
    return (answer.get("status") or {}).get("resourceRules") or ()


def covers(rule: Json, row: CallRow) -> bool:
    """Return whether an RBAC rule grants a row for its one object, or for every object: one with resourceNames does not
    grant the latter."""
    verbs, groups, resources = (
        rule.get("verbs") or (),
        rule.get("apiGroups") or (),
        rule.get("resources") or (),
    )
    star = f"*/{row.subresource}" if row.subresource else "*"
    return (
        row.name in (rule.get("resourceNames") or (row.name,))
        and bool({row.verb, "*"} & set(verbs))
        and bool({row.kind.group, "*"} & set(groups))
        and bool({row.resource, star, "*"} & set(resources))
    )


def _may(client: Client, row: CallRow, namespace: str | None) -> bool:
    attributes: Json = {
        "verb": row.verb,
        "group": row.kind.group,
        "resource": row.kind.plural,
        "version": row.kind.version,
    }
    attributes |= {
        key: value for key, value in (("subresource", row.subresource), ("name", row.name)) if value
    }
    if namespace and row.scope == "service":
        attributes["namespace"] = namespace
    answer = client.create(
        ACCESS_REVIEW, {"metadata": {}, "spec": {"resourceAttributes": attributes}}
    )
    return bool((answer.get("status") or {}).get("allowed"))
