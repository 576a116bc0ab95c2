"""The load client's Job as a document, with its bounds for the rules of admission that take no other. Pure.

One Job serves a whole measurement, block after block. It runs the image of the serving pod, which has a Python and is
on the node already, and copies what decides whether a pod may run: pull secrets, node selector, tolerations, user. It
requests no GPU and has no service account but the namespace's default, whose token is not mounted.

The scripts are in the Job's own command, which nobody can change: no other object decides what runs in the pod. Keys,
prompts and addresses are in no object; they go to the pod through the API server's port-forward. The pod takes them
from whoever knows the secret of a digest in its command.
"""

from __future__ import annotations

import base64
import copy
import json
import secrets
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mpctl.json_fields import condition, labels_of, list_at, mapping_at, name_of, value_at
from mpctl.json_types import Json, JsonView
from mpctl.platform.kubernetes.api import names
from mpctl.platform.kubernetes.gpu_capacity import LOAD_RESOURCES
from mpctl.platform.kubernetes.service.conditions import assess_waiting_pod
from mpctl.platform.kubernetes.service.container import engine_container
from mpctl.platform.load import PACED, STREAM

PORT = 8765
CONTAINER = "load"
IDLE_S = 900  # without a request for this long the client ends; the next command starts a new Job
TTL_S = 300
LONGEST_S = 86_400  # the Job controller ends a client that hangs
_WORK = "/mpctl/work"
_DIRECTORIES = {
    "work": (_WORK, "16Mi")
}  # the only one that is writable, with its limit: the scripts
_AGENT = Path(__file__).parents[1] / "in_pod" / "agent.py"
_FILES = (_AGENT, STREAM, PACED)
# Writes the scripts of its first argument beside it and becomes the first of them.
_LOADER = """\
import base64, json, os, sys, zlib
os.makedirs("scripts", exist_ok=True)
files = json.loads(zlib.decompress(base64.b64decode(sys.argv[1])))
for name, text in files.items():
    with open(os.path.join("scripts", name), "w", encoding="utf-8") as file:
        file.write(text)
agent = os.path.join(os.getcwd(), "scripts", next(iter(files)))
os.execv(sys.executable, [sys.executable, agent, *sys.argv[2:]])
"""
# The images of vLLM request every GPU of the node; "void" is the container runtime's word for none.
ENVIRONMENT = {
    "NVIDIA_VISIBLE_DEVICES": "void",
    "HOME": _WORK,
    "TMPDIR": _WORK,
}
_ENV = [{"name": name, "value": value} for name, value in ENVIRONMENT.items()]
# A node autoscaler that consolidates nodes would cut a measurement short.
NOT_EVICTED = {
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
}
COPIED = ("imagePullSecrets", "nodeSelector", "runtimeClassName", "schedulerName")
_USER = ("runAsUser", "runAsGroup", "runAsNonRoot", "seccompProfile")
_GROUPS = ("supplementalGroups", "fsGroup")
# The API server writes the Job's uid and name into these.
_OWN_LABELS = (
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-name",
    "controller-uid",
    "job-name",
)
# Admission gives these to every pod.
_DEFAULT_TOLERATIONS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def load_job(pod: JsonView, service: str, namespace: str, scope: str, owner: str) -> Json:
    """Return a new Job with a pod like ``pod``, a ready pod of the service.

    ``scope``: the work it is for; a bench next to a rollout has its own Job. ``owner``: digest of the authorization
    that its pods ask for. The name ends at random, so nobody can
    prepare an object of that name; :func:`is_same` finds the Job again.
    """
    labels = job_labels(service, scope)
    # With the end of a pod's name behind it, the name must fit the 63 characters of a host name.
    name = f"mpctl-{names.label_of(service)[:28].rstrip('-.')}-{scope}-{secrets.token_hex(5)}"
    template = {
        "metadata": {"labels": labels, "annotations": NOT_EVICTED},
        "spec": _pod_spec(pod, owner),
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "completions": 1,
            "parallelism": 1,
            "backoffLimit": 0,  # a lost pod ends the Job: an interrupted block must not be sent again unnoticed
            "ttlSecondsAfterFinished": TTL_S,
            "activeDeadlineSeconds": LONGEST_S,
            "template": template,
        },
    }


def is_same(live: JsonView, stored: JsonView) -> bool:
    """Return whether a Job is in every field of its spec what the API server would store for a new one: ``stored``, the
    answer to a dry-run create. So a field that mpctl does not know cannot add anything to what its pods run."""
    return _comparable_spec(live) == _comparable_spec(stored)


def _comparable_spec(job: JsonView) -> Json:
    """The spec without the uid and the name of the Job, which the API server writes into its selector and labels."""
    spec: Json = copy.deepcopy(job["spec"])
    generic = {
        job["metadata"]["uid"]: ("uid",),
        name_of(job): ("name",),
    }  # equal to no label's value
    selector, template = mapping_at(spec, "selector"), mapping_at(spec, "template", "metadata")
    for labels in (mapping_at(selector, "matchLabels"), mapping_at(template, "labels")):
        labels.update(
            {key: generic.get(labels[key], labels[key]) for key in _OWN_LABELS if key in labels}
        )
    return spec


def job_labels(service: str, scope: str) -> dict[str, str]:
    """Labels of the Job and its pod."""
    return {**names.labels(service, names.LOAD), names.SCOPE_LABEL: scope}


def _command(engine: JsonView, owner: str) -> list[str]:
    """The agent's start: the engine's own python, else the one of the image's path."""
    command = str((engine.get("command") or [""])[0])
    python = command if "python" in command.rpartition("/")[2] else "python3"
    return [*script_command(python, _FILES), str(PORT), str(IDLE_S), owner]


def script_command(python: str, files: Sequence[Path]) -> list[str]:
    """Return the command that writes these scripts to the folder ``scripts`` and runs the first. It holds their text,
    so no other object decides what runs."""
    texts = json.dumps({path.name: path.read_text(encoding="utf-8") for path in files})
    packed = base64.b64encode(zlib.compress(texts.encode(), level=9)).decode()
    return [python, "-c", _LOADER, packed]


def security_of(engine: JsonView, pod_context: JsonView) -> Json:
    """The container's security context. ``runAsNonRoot`` where the serving pod's user is known not to be root: the
    image's own user is not known."""
    engine_context = {k: v for k, v in mapping_at(engine, "securityContext").items() if k in _USER}
    user = engine_context.get("runAsUser", pod_context.get("runAsUser"))
    return {
        **({"runAsNonRoot": True} if user else {}),
        **engine_context,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def _pod_spec(pod: JsonView, owner: str) -> Json:
    serving: JsonView = pod["spec"]
    engine = engine_container(serving["containers"])
    placed = placement_of(serving)
    context = pod_security(serving)
    return {
        **{key: copy.deepcopy(serving[key]) for key in COPIED if serving.get(key)},
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 5,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "tolerations": placed["tolerations"],
        "affinity": {**placed["affinity"], "podAffinity": _prefer_service_nodes(pod)},
        "securityContext": context,
        "containers": [
            {
                "name": CONTAINER,
                **{key: engine[key] for key in ("image", "imagePullPolicy") if key in engine},
                "command": _command(engine, owner),
                "workingDir": _WORK,
                "env": copy.deepcopy(_ENV),
                "resources": copy.deepcopy(LOAD_RESOURCES),
                "securityContext": security_of(engine, context),
                "volumeMounts": [
                    {"name": name, "mountPath": path} for name, (path, _) in _DIRECTORIES.items()
                ],
            }
        ],
        "volumes": [
            {"name": name, "emptyDir": {"sizeLimit": limit}}
            for name, (_, limit) in _DIRECTORIES.items()
        ],
    }


def placement_of(serving: JsonView) -> Json:
    """Tolerations and node affinity of a serving pod's spec, for a pod that may run where it does."""
    tolerations = [
        t for t in list_at(serving, "tolerations") if t.get("key") not in _DEFAULT_TOLERATIONS
    ]
    affinity = value_at(serving, "affinity", "nodeAffinity")
    return copy.deepcopy(
        {"tolerations": tolerations, "affinity": {"nodeAffinity": affinity} if affinity else {}}
    )


def pod_security(serving: JsonView) -> Json:
    """A pod's security context with the user and the groups of a serving pod."""
    context = {
        k: v for k, v in mapping_at(serving, "securityContext").items() if k in (*_USER, *_GROUPS)
    }
    return {"seccompProfile": {"type": "RuntimeDefault"}, **context}


def _prefer_service_nodes(pod: JsonView) -> Json:
    """Prefer the node of the service's pods, which has the image."""
    label = "serving.kserve.io/inferenceservice"
    value = labels_of(pod).get(label, "")
    term = {
        "labelSelector": {"matchLabels": {label: value}},
        "topologyKey": "kubernetes.io/hostname",
    }
    return {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 100, "podAffinityTerm": term}
        ]
    }


def is_finished(job: JsonView) -> bool:
    """Return whether the Job or one of its pods has ended, or the Job is being deleted."""
    status = mapping_at(job, "status")
    ended = any(condition(job, end).get("status") == "True" for end in ("Complete", "Failed"))
    return bool(
        ended
        or status.get("failed")
        or status.get("succeeded")
        or "deletionTimestamp" in job["metadata"]
    )


@dataclass(frozen=True)
class PodProblem:
    """Reason why the load client does not run; ``final``: waiting does not help."""

    message: str
    final: bool = False


def pod_problem(pod: JsonView | None, events: Sequence[JsonView]) -> PodProblem | None:
    """Return what keeps the load client from running, as the cluster reports it; None without a known problem.

    ``events``: of the Job and its pod.
    """
    if pod is None:
        refused = [e for e in events if e.get("reason") == "FailedCreate"]
        return PodProblem(f"its pod is refused: {refused[-1].get('message')}") if refused else None
    ended = _ended(pod)
    if ended:
        return PodProblem(ended, final=True)
    waiting = assess_waiting_pod(pod, events)
    if waiting is None:
        mounts = [e for e in events if e.get("reason") == "FailedMount"]
        return (
            PodProblem(f"pod {name_of(pod)} waits: {mounts[-1].get('message')}") if mounts else None
        )
    return PodProblem(waiting.message, final=not waiting.stuck and waiting.phase.value == "Failed")


def _ended(pod: JsonView) -> str:
    """Return how the load container ended; empty while it runs."""
    name, status = name_of(pod), mapping_at(pod, "status")
    for container in list_at(status, "containerStatuses"):
        end = value_at(container, "state", "terminated")
        if container.get("name") == CONTAINER and end is not None:
            reason = end.get("reason") or "ended"
            limit = (
                f"; its memory limit is {LOAD_RESOURCES['limits']['memory']}"
                if reason == "OOMKilled"
                else ""
            )
            return f"pod {name}: {reason} with code {end.get('exitCode')}{limit}"
    if status.get("phase") in ("Failed", "Succeeded"):
        details = " ".join(str(status[key]) for key in ("reason", "message") if status.get(key))
        return f"pod {name} {str(status['phase']).lower()}: {details}".rstrip(": ")
    return ""


# What the serving pod may add that is not in every cluster: `mpctl rbac --allow KIND:NAME`.
KINDS: dict[str, tuple[str, ...]] = {
    "toleration": ("nvidia.com/gpu",),
    "pull-secret": (),
    "runtime-class": (),
    "scheduler": ("default-scheduler",),
}


def admission_texts(allowed: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the bounds of a load Job for the rules of admission. ``allowed``: pairs of a kind of ``KINDS`` and a
    name."""
    pairs = tuple(allowed)
    named = {
        kind.replace("-", "_"): [*defaults, *(name for key, name in pairs if key == kind)]
        for kind, defaults in KINDS.items()
    }
    texts = {
        "ttl_s": TTL_S,
        "longest_s": LONGEST_S,
        "labels": [*names.labels("", names.LOAD), names.SCOPE_LABEL, *_OWN_LABELS],
        "annotations": list(NOT_EVICTED),
        "environment": _ENV,
        **named,
    }
    return {name: json.dumps(value) for name, value in texts.items()} | LOAD_RESOURCES["limits"]
