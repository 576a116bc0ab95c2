"""Kinds whose engine is a container of a pod template.

Deployment and StatefulSet (``apps/v1``): Kubernetes rolls a changed template, a Deployment by its strategy, a
StatefulSet one pod after the other.

LeaderWorkerSet (``leaderworkerset.x-k8s.io/v1``), one engine over the pods of a group: the leader's arguments are in
``leaderWorkerTemplate.leaderTemplate``; without one every pod of a group is made from ``workerTemplate``. Workers that
only join a Ray cluster have no arguments of vLLM. Where the workers start vLLM themselves, they need the same setting
as the leader, so both are edited together. A change is rolled group by group, by ``rolloutStrategy``.

KServe's ServingRuntime and ClusterServingRuntime (``serving.kserve.io/v1alpha1``): KServe adds the arguments of an
InferenceService behind those of its runtime. A runtime is shared, so a setting belongs into the InferenceService, and a
runtime is read only where a user asks for it. KServe updates every service that uses a changed runtime.

A change is undone by writing the recorded template again. A document without a vLLM container is no service.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from mpctl.errors import InputError
from mpctl.manifest.engine.locate import Engine, environment, locate, mentions_vllm
from mpctl.manifest.engine.recognition import (
    image_name,
    is_vllm_start,
    not_measurable,
    other_engine,
    require_generation,
)
from mpctl.manifest.kinds.adapter import Adapter, ManifestFile, name_and_namespace, service_at
from mpctl.manifest.kinds.disaggregated import End, paired, role_of
from mpctl.manifest.service import ManifestSource, Origin, PrefillPods, Service, Storage, model_of
from mpctl.manifest.text.view import View, text_of

RUNTIME_CONTAINER = "kserve-container"
HINT = "mpctl edits services whose engine is vLLM: a vLLM image, runtime, command or flag must be recognisable"


def words(container: View) -> list[str]:
    """The image and the words of command and args."""
    listed = [
        item.text()
        for key in ("command", "args")
        if (part := container.get(key))
        for item in part.items()
    ]
    return [text_of(container.get("image")) or "", *listed]


def is_vllm(container: View) -> bool:
    """Return whether anything about a container says vLLM. SGLang and TensorRT-LLM share some of vLLM's flags, so
    their own names count first."""
    image, *arguments = words(container)
    return (
        mentions_vllm(image_name(image), *arguments) and other_engine([image, *arguments]) is None
    )


def starts_vllm(container: View) -> bool:
    """Return whether a container of any pod starts vLLM: by its command, or by the entrypoint of its image."""
    image, *arguments = words(container)
    command = container.get("command")
    count = 0 if command is None else len(command.items())
    return is_vllm_start(image, None if command is None else arguments[:count], arguments[count:])


def no_engine(containers: View, candidates: Sequence[View], where: str) -> InputError:
    """The error for containers without vLLM: another engine by name, or none that is known."""
    other = other_engine(text for container in candidates for text in words(container))
    if other is None:
        return containers.error(f"no vLLM engine container found in the {where}", hint=HINT)
    return not_measurable(containers, other)


def only_engine(pod: View, where: str) -> View:
    """The one container of a pod that starts vLLM.

    Raises:
        InputError: none does, or several do.
    """
    containers = pod.need("containers")
    engines = [container for container in containers.items() if starts_vllm(container)]
    if not engines:
        raise no_engine(containers, containers.items(), where)
    if len(engines) > 1:
        raise engines[1].error(
            f"more than one container of the {where} runs vLLM",
            hint="change the arguments of each by hand",
        )
    return engines[0]


def service_of_pod(
    kind: str,
    root: View,
    text: str,
    origin: Origin,
    pod: View | None,
    container: View,
    *,
    peers: tuple[Engine, ...] = (),
    users: tuple[str, ...] = (),
) -> Service:
    """The service of an engine in a pod template. ``peers``: engines of the same service in its other pods, which are
    started with the same setting; ``users``: services that share the template. Without a ``pod`` nothing is mounted."""
    engine = locate(container)
    model = model_of(engine)
    require_generation(container, engine.command)
    return replace(
        service_at(root, kind, text, ManifestSource(origin, engine, pod, peers)),
        image=text_of(container.get("image")),
        env=environment(container),
        container=text_of(container.get("name")),
        model=model,
        storage=() if pod is None else claims(pod, container, model),
        endpoints=users,
    )


def claims(pod: View, container: View, model: str | None) -> tuple[Storage, ...]:
    """The volume claim that holds the model, where a path of the container names it."""
    volumes, mounts = pod.get("volumes"), container.get("volumeMounts")
    if volumes is None or mounts is None or model is None or not model.startswith("/"):
        return ()
    named = {
        text_of(volume.get("name")): text_of(volume.at("persistentVolumeClaim", "claimName"))
        for volume in volumes.items()
    }
    storage = []
    for mount in mounts.items():
        claim, path = (
            named.get(text_of(mount.get("name"))),
            (text_of(mount.get("mountPath")) or "").rstrip("/"),
        )
        folder = text_of(mount.get("subPath")) or ""
        if claim and path and (model == path or model.startswith(f"{path}/")):
            storage.append(Storage(f"pvc://{claim}/{folder}".rstrip("/"), path))
    return tuple(storage[:1])


def _pod(root: View) -> View | None:
    """The pod template of a Deployment or StatefulSet."""
    return root.at("spec", "template", "spec")


def _leader(root: View) -> View | None:
    """The pod of a group's leader, or without one the worker's."""
    template = root.at("spec", "leaderWorkerTemplate")
    return (
        None
        if template is None
        else template.at("leaderTemplate", "spec") or template.at("workerTemplate", "spec")
    )


def _starts(pod_of: Callable[[View], View | None], root: View) -> bool:
    """Return whether a container of the pod starts vLLM."""
    pod = pod_of(root)
    return pod is not None and any(map(starts_vllm, pod.items_at("containers")))


def _read_workload(root: View, file: ManifestFile, origin: Origin, *, kind: str) -> Service:
    """The service of a Deployment or StatefulSet.

    Raises:
        InputError: several containers start vLLM, or the command cannot be read.
    """
    pod = root.need("spec").need("template").need("spec")
    service = service_of_pod(kind, root, file.text, origin, pod, only_engine(pod, "pod template"))
    return _with_other_end(service, root, file)


def _read_group(root: View, file: ManifestFile, origin: Origin) -> Service:
    """The service of a LeaderWorkerSet.

    Raises:
        InputError: several containers of a pod start vLLM, or a command cannot be read.
    """
    template = root.need("spec").need("leaderWorkerTemplate")
    workers = template.need("workerTemplate").need("spec")
    pod, where = template.at("leaderTemplate", "spec"), "leaderTemplate"
    peers: tuple[Engine, ...] = ()
    if pod is None:
        pod, where = workers, "workerTemplate"
    elif _starts(lambda workers: workers, workers):
        peers = (locate(only_engine(workers, "workerTemplate")),)
    service = service_of_pod(
        "LeaderWorkerSet", root, file.text, origin, pod, only_engine(pod, where), peers=peers
    )
    return _with_other_end(service, root, file)


_TEMPLATES = {
    "Deployment": (("template",),),
    "StatefulSet": (("template",),),
    "LeaderWorkerSet": (
        ("leaderWorkerTemplate", "leaderTemplate"),
        ("leaderWorkerTemplate", "workerTemplate"),
    ),
}


def _with_other_end(service: Service, root: View, file: ManifestFile) -> Service:
    """The service with the pods of the file that fill prompts for it."""
    first_end = next(_ends(root, file), None)
    if first_end is None:
        return service
    return paired(
        service,
        first_end.role,
        (end for other in file.of_kind(*_TEMPLATES) for end in _ends(other, file)),
    )


def _ends(root: View, file: ManifestFile) -> Iterator[End]:
    """A workload whose engine has a role among those that exchange KV cache."""
    try:
        name, namespace = name_and_namespace(root)
        templates = [root.at("spec", *path) for path in _TEMPLATES[text_of(root.get("kind")) or ""]]
        engines = []
        for template in filter(None, templates):
            pod = template.get("spec")
            if pod is not None and any(map(starts_vllm, pod.items_at("containers"))):
                container = only_engine(pod, "pod template")
                engines.append((template, pod, container, locate(container)))
        if not engines:
            return
        template, _, container, engine = engines[0]
        role = role_of(name, engine.command, template.at("metadata", "labels"))
    except InputError:
        return  # its own reader names the place
    if role is not None:
        number = file.number(root)
        pods = tuple(
            PrefillPods(engine, file.documents[number], number, pod)
            for _, pod, _, engine in engines
        )
        yield End(name, namespace, role, model_of(engine), text_of(container.get("image")), pods)


def runtime_container(root: View) -> View | None:
    """The engine's container of a ServingRuntime or ClusterServingRuntime."""
    containers = root.items_at("spec", "containers")
    engines = (
        container for container in containers if text_of(container.get("name")) == RUNTIME_CONTAINER
    )
    return next(engines, containers[0] if containers else None)


def _read_runtime(root: View, file: ManifestFile, origin: Origin, *, kind: str) -> Service:
    """The engine of a runtime, with the InferenceServices of the file that use it as ``endpoints``.

    Raises:
        InputError: it runs on several nodes, or its command cannot be read.
    """
    spec = root.need("spec")
    workers = spec.get("workerSpec")
    if workers is not None:
        raise workers.error(
            "a runtime with workerSpec runs on several nodes", hint="change its arguments by hand"
        )
    container = runtime_container(root)
    assert container is not None
    name, _ = name_and_namespace(root)
    users = tuple(
        name_and_namespace(service)[0]
        for service in file.of_kind("InferenceService")
        if text_of(service.at("spec", "predictor", "model", "runtime")) == name
    )
    return service_of_pod(kind, root, file.text, origin, spec, container, users=users)


def _runs_vllm(root: View) -> bool:
    container = runtime_container(root)
    return container is not None and starts_vllm(container)


def _workload(kind: str) -> Adapter:
    return Adapter(
        kind, ("apps/v1",), partial(_read_workload, kind=kind), partial(_starts, _pod), own=False
    )


def _runtime(kind: str) -> Adapter:
    return Adapter(
        kind, ("serving.kserve.io/v1alpha1",), partial(_read_runtime, kind=kind), _runs_vllm
    )


WORKLOADS = (
    _workload("Deployment"),
    _workload("StatefulSet"),
    Adapter(
        "LeaderWorkerSet", ("leaderworkerset.x-k8s.io/v1",), _read_group, partial(_starts, _leader)
    ),
)
RUNTIMES = (_runtime("ServingRuntime"), _runtime("ClusterServingRuntime"))
