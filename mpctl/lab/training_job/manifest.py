"""The objects that train a head in a cluster: a claim, a ConfigMap and a Job. Pure.

The pod is like a serving pod: its node, its image, its GPUs, and the target's files where the engine has them. Its
containers run one after the other, so that the target and the trainer share the GPU: ``collect``, ``train``, ``card``.
It has no service account token. Prompts are in no object: they go to ``collect`` through the API server's port-forward.

The programs and the order's digest are in the Job's own command, which no one can change. The ConfigMap is immutable
and holds the order alone, without the text of a prompt: each stage compares it with the digest. A head has one: of two
commands that submit different orders under one name, the first creates it.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mpctl.errors import InputError
from mpctl.json_types import Json, JsonView
from mpctl.lab.drafts.order import TrainingOrder
from mpctl.platform.kubernetes.api import names
from mpctl.platform.kubernetes.load_job.job_manifest import (
    COPIED,
    NOT_EVICTED,
    placement_of,
    pod_security,
    script_command,
    security_of,
)
from mpctl.platform.kubernetes.service.container import engine_container

PORT = 8766  # of ``collect`` while it waits for prompts
COLLECT, TRAIN, CARD = "collect", "train", "card"
STAGES = (COLLECT, TRAIN, CARD)
DRAFTS, CONFIG, WORK = "/mpctl/drafts", "/mpctl/order", "/mpctl/work"
ORDER = "order.json"
TTL_S = 7 * 86_400  # the card is read from the log of a finished pod
_QUEUE = "kueue.x-k8s.io/queue-name"
_MOST_BYTES = 1_000_000  # of a ConfigMap; the API server allows 1 MiB with everything around it


@dataclass(frozen=True)
class Volume:
    """The claim: ``storage_class`` None for the cluster's default. Several nodes can mount a ``shared`` one."""

    gib: float
    storage_class: str | None = None
    shared: bool = False


@dataclass(frozen=True)
class JobForm:
    """A training Job's own settings. ``queue``: a LocalQueue of Kueue, which then starts the suspended Job;
    ``commands``: of each stage."""

    volume: Volume
    commands: Mapping[str, Sequence[str]]
    queue: str | None = None


def training_objects(
    order: TrainingOrder, form: JobForm, pod: JsonView, namespace: str
) -> tuple[Json, ...]:
    """Return claim, ConfigMap and Job in the order in which they are created. ``pod``: a serving pod of the service.

    Raises:
        InputError: the order has too many prompts for an object.
    """
    config = _config_map(order, namespace)
    return (_claim(order, form.volume, namespace), config, _job(order, form, pod, config))


def serving_image(pod: JsonView) -> str:
    """The engine's image of a serving pod, by the digest that its node reports where it has one."""
    engine = engine_container(pod["spec"]["containers"])
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    reported = next(
        (
            str(status.get("imageID"))
            for status in statuses
            if status.get("name") == engine.get("name")
        ),
        "",
    )
    reported = reported.rpartition("://")[2]
    return reported if "@sha256:" in reported else str(engine.get("image") or "")


_STAGE = Path(__file__).parent / "in_pod" / "stage.py"
_HEADS = Path(__file__).parents[1] / "in_engine" / "heads.py"
_PROGRAMS = {COLLECT: _HEADS, CARD: _HEADS}  # of the stages that the engine's image runs
_CONNECTOR = _HEADS.with_name(
    "cpu_hidden_states.py"
)  # which the engine loads on a node without a GPU
_WAIT_S = 1800  # for the prompts, while a GPU is held


def stage_commands(order: TrainingOrder) -> dict[str, list[str]]:
    """The commands of the stages, with their programs and the digest of the order."""
    folder = f"{DRAFTS}/drafts/{order.name}"
    paths = {
        "transcripts": f"{folder}/transcripts",
        "target": order.target.model,
        "start": order.start.head if order.start else "",
        "out": f"{folder}/head",
        "steps": str(order.limits.steps),
    }
    digest = hashlib.sha256(order_text(order).encode()).hexdigest()
    options = [folder, f"{CONFIG}/{ORDER}", digest, str(PORT), str(_WAIT_S)]

    def command(stage: str) -> list[str]:
        program = _PROGRAMS.get(stage)
        if program is None:
            return [
                *script_command("python3", (_STAGE,)),
                stage,
                *options,
                *order.trainer_command(paths),
            ]
        start = script_command("python3", (_STAGE, program, _CONNECTOR))
        return [*start, stage, *options, "python3", f"{WORK}/scripts/{program.name}", folder, stage]

    return {stage: command(stage) for stage in STAGES}


def order_text(order: TrainingOrder) -> str:
    """Return the text of an order in its ConfigMap."""
    return json.dumps(order.to_record(), sort_keys=True)


def object_name(head: str) -> str:
    """The name of a head's claim and Job."""
    return f"mpctl-draft-{head}" if len(head) <= 40 else f"mpctl-draft-{head[:29]}-{_short(head)}"


def labels_of(service: str, head: str) -> dict[str, str]:
    """Labels of every object of a head."""
    return {**names.labels(service, names.DRAFT), names.HEAD_LABEL: names.label_of(head)}


def _labels(order: TrainingOrder) -> dict[str, str]:
    return labels_of(order.service, order.name)


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def _queue_label(queue: str | None) -> dict[str, str]:
    return {_QUEUE: queue} if queue else {}


def _claim(order: TrainingOrder, volume: Volume, namespace: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": object_name(order.name),
            "namespace": namespace,
            "labels": _labels(order),
        },
        "spec": {
            "accessModes": ["ReadWriteMany" if volume.shared else "ReadWriteOnce"],
            **(
                {"storageClassName": volume.storage_class}
                if volume.storage_class is not None
                else {}
            ),
            "resources": {"requests": {"storage": f"{max(round(volume.gib), 1)}Gi"}},
        },
    }


def _config_map(order: TrainingOrder, namespace: str) -> Json:
    text = order_text(order)
    size = len(text.encode())
    if size > _MOST_BYTES:
        count = len(order.training) + len(order.holdout)
        raise InputError(
            f"{count} prompts are too many for one order: their digests take {size} bytes, at most {_MOST_BYTES}",
            field="--prompts",
            hint="train on the newest ones",
        )
    name = f"{object_name(order.name)}-order"
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": _labels(order)},
        "immutable": True,
        "data": {ORDER: text},
    }


_BACKOFF = 2  # of failures that are the pod's own; a disrupted pod does not count


def _job(order: TrainingOrder, form: JobForm, pod: JsonView, config: JsonView) -> Json:
    metadata = {**config["metadata"], "name": object_name(order.name)}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {**metadata, "labels": {**_labels(order), **_queue_label(form.queue)}},
        "spec": {
            "backoffLimit": _BACKOFF,
            "activeDeadlineSeconds": int(order.limits.deadline_s),
            "ttlSecondsAfterFinished": TTL_S,
            **({"suspend": True} if form.queue else {}),  # Kueue resumes it; nobody else would
            # A lost spot node costs no retry: every stage continues from its files.
            "podFailurePolicy": {
                "rules": [
                    {
                        "action": "Ignore",
                        "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
                    }
                ]
            },
            "template": {
                "metadata": {"labels": _labels(order), "annotations": dict(NOT_EVICTED)},
                "spec": _pod_spec(order, form, pod, config["metadata"]["name"]),
            },
        },
    }


def _pod_spec(order: TrainingOrder, form: JobForm, pod: JsonView, config_map: str) -> Json:
    serving: JsonView = pod["spec"]
    engine = engine_container(serving["containers"])
    prepared = _target_files(serving, engine)
    stages = [_stage(stage, order, form, serving, engine, prepared.mounts) for stage in STAGES]
    volumes: dict[str, Json] = {
        "drafts": {"persistentVolumeClaim": {"claimName": object_name(order.name)}},
        "order": {"configMap": {"name": config_map}},
        "work": {"emptyDir": {}},
        "tmp": {"emptyDir": {}},
        "shm": {"emptyDir": {"medium": "Memory"}},
    }
    claims = [
        claim
        for claim in serving.get("resourceClaims") or ()
        if claim.get("resourceClaimTemplateName")
    ]
    return {
        **{key: copy.deepcopy(serving[key]) for key in COPIED if serving.get(key)},
        **placement_of(serving),
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": pod_security(serving),
        **({"resourceClaims": copy.deepcopy(claims)} if claims else {}),
        "initContainers": [*prepared.containers, *stages[:-1]],
        "containers": stages[-1:],
        "volumes": [
            *prepared.volumes,
            *({"name": f"mpctl-{name}", **source} for name, source in volumes.items()),
        ],
    }


_MOUNTS = {"drafts": DRAFTS, "order": CONFIG, "work": WORK, "tmp": "/tmp", "shm": "/dev/shm"}


def _stage(
    stage: str,
    order: TrainingOrder,
    form: JobForm,
    serving: JsonView,
    engine: JsonView,
    mounts: Sequence[JsonView],
) -> Json:
    variables = {
        "HOME": WORK,
        "TMPDIR": WORK,
        "USER": "mpctl",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        # Files of the pod are read, and no code of a repository is run.
        **({"HF_HUB_OFFLINE": "1"} if order.target.model.startswith("/") else {}),
    }
    hub = [
        copy.deepcopy(item)
        for item in engine.get("env") or ()
        if str(item.get("name")).startswith("HF_")
    ]
    return {
        "name": stage,
        "image": order.images.trainer if stage == TRAIN else order.images.engine,
        "command": list(form.commands[stage]),
        "workingDir": WORK,
        "env": [*({"name": name, "value": value} for name, value in variables.items()), *hub],
        "resources": copy.deepcopy(engine.get("resources") or {}),
        "securityContext": security_of(engine, pod_security(serving)),
        "volumeMounts": [
            *copy.deepcopy(list(mounts)),
            *(
                {
                    "name": f"mpctl-{name}",
                    "mountPath": path,
                    **({"readOnly": True} if name == "order" else {}),
                }
                for name, path in _MOUNTS.items()
            ),
        ],
    }


@dataclass(frozen=True)
class _TargetFiles:
    containers: tuple[Json, ...]
    volumes: tuple[Json, ...]
    mounts: tuple[Json, ...]


def _target_files(serving: JsonView, engine: JsonView) -> _TargetFiles:
    """Return the engine's volumes and mounts, read-only, and the init containers that fill them, as KServe's
    downloader; without tokens of service accounts."""
    volumes = {
        volume["name"]: copy.deepcopy(volume)
        for volume in serving.get("volumes") or ()
        if not ({"projected", "secret"} & volume.keys())
        and (volume.get("emptyDir") or {}).get("medium") != "Memory"
    }
    taken = (*_MOUNTS.values(), "/dev/shm")
    mounts = [
        {**copy.deepcopy(mount), "readOnly": True}
        for mount in engine.get("volumeMounts") or ()
        if mount["name"] in volumes and mount["mountPath"] not in taken
    ]
    mounted = {mount["name"] for mount in mounts}
    containers = tuple(_without_tokens(serving.get("initContainers") or (), mounted, volumes))
    needed = mounted | {
        mount["name"] for container in containers for mount in container["volumeMounts"]
    }
    return _TargetFiles(
        containers, tuple(v for name, v in volumes.items() if name in needed), tuple(mounts)
    )


def _without_tokens(
    containers: Sequence[JsonView], mounted: set[str], volumes: JsonView
) -> Iterator[Json]:
    for container in containers:
        mounts = [
            mount for mount in container.get("volumeMounts") or () if mount["name"] in volumes
        ]
        if (
            mounted & {mount["name"] for mount in mounts}
            and container.get("restartPolicy") != "Always"
        ):
            yield {**copy.deepcopy(dict(container)), "volumeMounts": copy.deepcopy(mounts)}
