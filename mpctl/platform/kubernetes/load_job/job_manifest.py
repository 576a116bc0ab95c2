"""The load client's Job as a document. Pure: the serving pod in, a Job out.

One Job serves a whole measurement, block after block: loading ``vllm bench serve`` takes ten seconds of a processor,
and a pod takes a place on a node. Its pods have an index each. It runs the image of the serving pod, so the client has
the engine's version and the image is on the node already, and copies what decides whether a pod may run: pull secrets,
node selector, tolerations, user. It requests no GPU and has no service account but the namespace's default, whose token
is not mounted.

The scripts are in the Job's own command, which nobody can change: no other object decides what runs in the pod. Keys,
prompts and addresses are in no object; they go to the pod through the API server's port-forward.
"""

from __future__ import annotations

import base64
import copy
import json
import secrets
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpctl.platform.kubernetes.api import names
from mpctl.platform.kubernetes.capacity.quotas import LOAD_RESOURCES
from mpctl.platform.kubernetes.service.conditions import Json, assess_waiting_pod
from mpctl.platform.kubernetes.service.container import engine_container
from mpctl.platform.load import PACED, WORKER

PORT = 8765
CONTAINER = "load"
INDEX_LABEL = "batch.kubernetes.io/job-completion-index"
IDLE_S = 900  # without a request for this long the client ends; the next command starts a new Job
TTL_S = 300
LONGEST_S = 86_400  # the Job controller ends a client that hangs
_WORK = "/mpctl/work"
# The only writable directories, with limits: prompts and results; caches of the client's libraries.
_DIRECTORIES = {"work": (_WORK, "2Gi"), "tmp": ("/tmp", "1Gi")}
_AGENT = Path(__file__).parents[1] / "in_pod" / "agent.py"
_FILES = (_AGENT, WORKER, WORKER.with_name("distribution.py"), PACED)
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
    "USER": "mpctl",  # a user id of the namespace's own has no name in the image, and torch asks for one
    "NO_PROXY": "*",  # the client would send prompts and the key to a proxy that the image names
    "no_proxy": "*",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
# A node autoscaler that consolidates nodes would cut a measurement short.
NOT_EVICTED = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true"}
_COPIED = ("imagePullSecrets", "nodeSelector", "runtimeClassName", "schedulerName")
_USER = ("runAsUser", "runAsGroup", "runAsNonRoot", "seccompProfile")
_GROUPS = ("supplementalGroups", "fsGroup")
# The API server writes the Job's uid and name into these.
_OWN_LABELS = (
    *("batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"),
    *("controller-uid", "job-name"),
)
# Admission gives these to every pod.
_DEFAULT_TOLERATIONS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def load_job(pod: Json, service: str, namespace: str, scope: str, pods: int = 1) -> dict[str, Any]:
    """Return a new Job of ``pods`` pods like ``pod``, a ready pod of the service.

    ``scope``: the work it is for; a bench next to a rollout has its own Job. The name ends at random, so nobody can
    prepare an object of that name; :func:`is_same` finds the Job again.
    """
    labels = labels_of(service, scope)
    # With a pod's index behind it, the name must fit the 63 characters of a host name.
    name = f"mpctl-{names.label_of(service)[:28].rstrip('-.')}-{scope}-{secrets.token_hex(5)}"
    template = {
        "metadata": {"labels": labels, "annotations": NOT_EVICTED},
        "spec": _pod_spec(pod, labels, pods),
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "completionMode": "Indexed",  # a pod's index names its part of every block
            "completions": pods,
            "parallelism": pods,
            "backoffLimit": 0,  # a lost pod ends the Job: an interrupted block must not be sent again unnoticed
            "ttlSecondsAfterFinished": TTL_S,
            "activeDeadlineSeconds": LONGEST_S,
            "template": template,
        },
    }


def is_same(live: Json, stored: Json) -> bool:
    """Return whether a Job is in every field of its spec what the API server would store for a new one: ``stored``, the
    answer to a dry-run create. So a field that mpctl does not know cannot add anything to what its pods run."""
    return _comparable_spec(live) == _comparable_spec(stored)


def _comparable_spec(job: Json) -> dict[str, Any]:
    """The spec without the uid and the name of the Job, which the API server writes into its selector and labels."""
    spec: dict[str, Any] = copy.deepcopy(job["spec"])
    own = {job["metadata"]["uid"]: ("uid",), job["metadata"]["name"]: ("name",)}  # equal to no label's value
    selector, template = spec.get("selector") or {}, spec["template"].get("metadata") or {}
    for labels in (selector.get("matchLabels") or {}, template.get("labels") or {}):
        labels.update({key: own.get(labels[key], labels[key]) for key in _OWN_LABELS if key in labels})
    return spec


def is_pod_of(pod: Json, uid: str) -> bool:
    """Return whether the Job of this uid controls a pod. The label alone may be on a pod of another Job."""
    owners = pod["metadata"].get("ownerReferences") or []
    return any(owner.get("controller") and owner.get("uid") == uid for owner in owners)


def labels_of(service: str, scope: str) -> dict[str, str]:
    """Labels of the Job and its pod."""
    return {**names.labels(service, names.LOAD), names.SCOPE_LABEL: scope}


def _command(engine: Json) -> list[str]:
    """The agent's start, with its scripts: the engine's own python, else the one of the image's path."""
    command = str((engine.get("command") or [""])[0])
    python = command if "python" in command.rpartition("/")[2] else "python3"
    files = json.dumps({path.name: path.read_text(encoding="utf-8") for path in _FILES})
    packed = base64.b64encode(zlib.compress(files.encode(), level=9)).decode()
    return [python, "-c", _LOADER, packed, str(PORT), str(IDLE_S)]


def _security(engine: Json, pod_context: Json) -> dict[str, Any]:
    """The container's security context. ``runAsNonRoot`` where the serving pod's user is known not to be root: the
    image's own user is not known."""
    own = {k: v for k, v in (engine.get("securityContext") or {}).items() if k in _USER}
    user = own.get("runAsUser", pod_context.get("runAsUser"))
    return {
        **({"runAsNonRoot": True} if user else {}),
        **own,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def _pod_spec(pod: Json, labels: Mapping[str, str], pods: int) -> dict[str, Any]:
    serving: Mapping[str, Any] = pod["spec"]
    engine = engine_container(serving["containers"])
    copied = {key: copy.deepcopy(serving[key]) for key in _COPIED if serving.get(key)}
    tolerations = [t for t in serving.get("tolerations") or [] if t.get("key") not in _DEFAULT_TOLERATIONS]
    affinity = (serving.get("affinity") or {}).get("nodeAffinity")
    context = {k: v for k, v in (serving.get("securityContext") or {}).items() if k in (*_USER, *_GROUPS)}
    return {
        **copied,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 5,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "tolerations": tolerations,
        "affinity": {**({"nodeAffinity": affinity} if affinity else {}), "podAffinity": _prefer_service_nodes(pod)},
        **({"topologySpreadConstraints": [_spread(labels)]} if pods > 1 else {}),
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}, **context},
        "containers": [
            {
                "name": CONTAINER,
                **{key: engine[key] for key in ("image", "imagePullPolicy") if key in engine},
                "command": _command(engine),
                "workingDir": _WORK,
                "env": [{"name": name, "value": value} for name, value in ENVIRONMENT.items()],
                "resources": copy.deepcopy(LOAD_RESOURCES),
                "securityContext": _security(engine, context),
                "volumeMounts": [{"name": name, "mountPath": path} for name, (path, _) in _DIRECTORIES.items()],
            }
        ],
        "volumes": [{"name": name, "emptyDir": {"sizeLimit": limit}} for name, (_, limit) in _DIRECTORIES.items()],
    }


def _prefer_service_nodes(pod: Json) -> dict[str, Any]:
    """Prefer the node of the service's pods, which has the image."""
    label = "serving.kserve.io/inferenceservice"
    value = (pod["metadata"].get("labels") or {}).get(label, "")
    term = {"labelSelector": {"matchLabels": {label: value}}, "topologyKey": "kubernetes.io/hostname"}
    return {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term}]}


def _spread(labels: Mapping[str, str]) -> dict[str, Any]:
    """Prefer a node of its own for every pod."""
    return {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": dict(labels)},
    }


def is_finished(job: Json) -> bool:
    """Return whether the Job or one of its pods has ended, or the Job is being deleted."""
    status = job.get("status") or {}
    ended = any(
        c.get("type") in ("Complete", "Failed") and c.get("status") == "True" for c in status.get("conditions") or []
    )
    return bool(ended or status.get("failed") or status.get("succeeded") or "deletionTimestamp" in job["metadata"])


@dataclass(frozen=True)
class PodProblem:
    """Reason why the load client does not run; ``final``: waiting does not help."""

    message: str
    final: bool = False


def pod_problem(pod: Json | None, events: Sequence[Json]) -> PodProblem | None:
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
        return PodProblem(f"pod {pod['metadata']['name']} waits: {mounts[-1].get('message')}") if mounts else None
    return PodProblem(waiting.message, final=not waiting.stuck and waiting.phase.value == "Failed")


def _ended(pod: Json) -> str:
    """Return how the load container ended; empty while it runs."""
    name, status = pod["metadata"]["name"], pod.get("status") or {}
    for container in status.get("containerStatuses") or []:
        end = (container.get("state") or {}).get("terminated")
        if container.get("name") == CONTAINER and end is not None:
            reason = end.get("reason") or "ended"
            limit = f"; its memory limit is {LOAD_RESOURCES['limits']['memory']}" if reason == "OOMKilled" else ""
            return f"pod {name}: {reason} with code {end.get('exitCode')}{limit}"
    if status.get("phase") in ("Failed", "Succeeded"):
        details = " ".join(str(status[key]) for key in ("reason", "message") if status.get(key))
        return f"pod {name} {str(status['phase']).lower()}: {details}".rstrip(": ")
    return ""
