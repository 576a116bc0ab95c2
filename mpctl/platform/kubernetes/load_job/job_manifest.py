"""The load client's Job as documents. Pure: the serving pod in, a Job and its scripts out.

One Job for a whole measurement, which takes one block after the other: loading ``vllm bench serve`` costs ten seconds
of a processor, and a pod a place on a node, which a Job per block would pay every time. It runs the image of the
serving pod, so the client is of the engine's version and the image is on the node already, and takes from that pod what
decides whether a pod may run here: service account, pull secrets, node selector, tolerations, user. It asks for no GPU.

No key, prompt or address is in any object: they go to the pod through the API server's port-forward.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpctl.platform.kubernetes.api import names
from mpctl.platform.kubernetes.service.conditions import Json, assess_waiting_pod, engine_container
from mpctl.platform.load import PACED, WORKER

PORT = 8765
CONTAINER = "load"
IDLE_S = 900  # without a request for so long it ends: whoever asked is gone, and comes back to a new one
TTL_S = 300
_LONGEST_S = 86_400  # one that hangs is ended by the Job controller
# Of vLLM 0.32: importing the client costs 11 s of a processor and 1.1 GiB. The client is one thread; a limit is there
# because quotas may ask for one.
_RESOURCES = {"requests": {"cpu": "1", "memory": "2Gi"}, "limits": {"cpu": "4", "memory": "4Gi"}}
_SCRIPTS, _WORK = "/mpctl/scripts", "/mpctl/work"
_AGENT = Path(__file__).parents[1] / "in_pod" / "agent.py"
_FILES = (_AGENT, WORKER, WORKER.with_name("distribution.py"), PACED)
# The images of vLLM ask for every GPU of the node; this is the container runtime's word for none.
_ENVIRONMENT = {
    "NVIDIA_VISIBLE_DEVICES": "void",
    "HOME": _WORK,
    "TMPDIR": _WORK,
    "USER": "mpctl",  # a user id of the namespace's own has no name in the image, and torch asks for one
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
# A node autoscaler that tidies up would cut a measurement short.
_STAYS = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true"}
_OF_THE_POD = ("serviceAccountName", "imagePullSecrets", "nodeSelector", "runtimeClassName", "schedulerName")
_USER = ("runAsUser", "runAsGroup", "runAsNonRoot", "seccompProfile")
_GROUPS = ("supplementalGroups", "fsGroup")
# Admission gives these to every pod.
_DEFAULT_TOLERATIONS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


@dataclass(frozen=True)
class LoadJob:
    """``job`` and ``scripts`` (a ConfigMap of the same name, without its owner)."""

    job: dict[str, Any]
    scripts: dict[str, Any]

    @property
    def name(self) -> str:
        """Of both."""
        return str(self.job["metadata"]["name"])


def load_job(pod: Json, service: str, namespace: str, scope: str) -> LoadJob:
    """The Job beside ``pod``, a ready pod of the service.

    ``scope``: of whom it is; a bench beside a rollout has a Job of its own. The name carries a digest of the whole
    template, which cannot be changed: the same again is the same Job.
    """
    files = {path.name: path.read_text(encoding="utf-8") for path in _FILES}
    labels = labels_of(service, scope)
    spec = _pod_spec(pod)
    digest = hashlib.sha256(json.dumps([labels, _STAYS, spec, files], sort_keys=True).encode()).hexdigest()[:8]
    name = f"mpctl-{names.label_of(service)[:32].rstrip('-.')}-{scope}-{digest}"
    spec["volumes"] = [
        {"name": "scripts", "configMap": {"name": name}},
        {"name": "work", "emptyDir": {}},
    ]
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "backoffLimit": 0,  # a block that was cut short must not be sent again behind our back
            "ttlSecondsAfterFinished": TTL_S,
            "activeDeadlineSeconds": _LONGEST_S,
            "template": {"metadata": {"labels": labels, "annotations": _STAYS}, "spec": spec},
        },
    }
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return LoadJob(job, {"metadata": metadata, "data": files})


def labels_of(service: str, scope: str) -> dict[str, str]:
    """Labels of the Job, its pod and its scripts."""
    return {**names.labels(service, names.LOAD), names.SCOPE_LABEL: scope}


def _pod_spec(pod: Json) -> dict[str, Any]:
    theirs: Mapping[str, Any] = pod["spec"]
    engine = engine_container(theirs["containers"])
    taken = {key: copy.deepcopy(theirs[key]) for key in _OF_THE_POD if theirs.get(key)}
    tolerations = [t for t in theirs.get("tolerations") or [] if t.get("key") not in _DEFAULT_TOLERATIONS]
    affinity = (theirs.get("affinity") or {}).get("nodeAffinity")
    user = {k: v for k, v in (theirs.get("securityContext") or {}).items() if k in (*_USER, *_GROUPS)}
    own = {k: v for k, v in (engine.get("securityContext") or {}).items() if k in _USER}
    command = str((engine.get("command") or [""])[0])
    python = command if "python" in command.rpartition("/")[2] else "python3"
    return {
        **taken,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 5,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "tolerations": tolerations,
        "affinity": {**({"nodeAffinity": affinity} if affinity else {}), "podAffinity": _prefer_service_nodes(pod)},
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}, **user},
        "containers": [
            {
                "name": CONTAINER,
                **{key: engine[key] for key in ("image", "imagePullPolicy") if key in engine},
                "command": [python, f"{_SCRIPTS}/agent.py", str(PORT), str(IDLE_S)],
                "workingDir": _WORK,
                "env": [{"name": name, "value": value} for name, value in _ENVIRONMENT.items()],
                "resources": copy.deepcopy(_RESOURCES),
                "securityContext": {
                    **own,
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                },
                "volumeMounts": [
                    {"name": "scripts", "mountPath": _SCRIPTS, "readOnly": True},
                    {"name": "work", "mountPath": _WORK},
                ],
            }
        ],
    }


def _prefer_service_nodes(pod: Json) -> dict[str, Any]:
    """Prefer the node of the service's pods, which has the image."""
    label = "serving.kserve.io/inferenceservice"
    value = (pod["metadata"].get("labels") or {}).get(label, "")
    term = {"labelSelector": {"matchLabels": {label: value}}, "topologyKey": "kubernetes.io/hostname"}
    return {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term}]}


def owned_by(document: dict[str, Any], job: Json) -> dict[str, Any]:
    """Return a document that the garbage collector deletes with the Job."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", **{k: job["metadata"][k] for k in ("name", "uid")}}
    return {**document, "metadata": {**document["metadata"], "ownerReferences": [owner]}}


def is_finished(job: Json) -> bool:
    """Whether the Job has ended or is being deleted."""
    conditions = (job.get("status") or {}).get("conditions") or []
    ended = any(c.get("type") in ("Complete", "Failed") and c.get("status") == "True" for c in conditions)
    return ended or "deletionTimestamp" in job["metadata"]


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
            limit = f"; its memory limit is {_RESOURCES['limits']['memory']}" if reason == "OOMKilled" else ""
            return f"pod {name}: {reason} with code {end.get('exitCode')}{limit}"
    if status.get("phase") in ("Failed", "Succeeded"):
        details = " ".join(str(status[key]) for key in ("reason", "message") if status.get(key))
        return f"pod {name} {str(status['phase']).lower()}: {details}".rstrip(": ")
    return ""
