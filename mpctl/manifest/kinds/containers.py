"""The engine's container among the containers of a pod, and the part of a service that every pod template has."""

from __future__ import annotations

from collections.abc import Sequence

from mpctl.errors import InputError
from mpctl.manifest.engine import starts
from mpctl.manifest.engine.generating import HINT as OTHER_USE_HINT
from mpctl.manifest.engine.generating import other_use
from mpctl.manifest.engine.locate import Engine, environment, locate, mentions_vllm
from mpctl.manifest.engine.other_engines import not_measurable, other_engine
from mpctl.manifest.kinds.adapter import name_and_namespace
from mpctl.manifest.service import Kind, Place, Service, Source, Storage, model_of
from mpctl.manifest.text.view import View, text_of

HINT = "mpctl edits services whose engine is vLLM: a vLLM image, runtime, command or flag must be recognisable"


def words(container: View) -> list[str]:
    """The image and the words of command and args."""
    listed = [item.text() for key in ("command", "args") if (part := container.get(key)) for item in part.items()]
    return [text_of(container.get("image")) or "", *listed]


def is_vllm(container: View) -> bool:
    """Return whether anything about a container says vLLM. SGLang and TensorRT-LLM share some of vLLM's flags, so
    their own names count first."""
    texts = words(container)
    return mentions_vllm(*texts) and other_engine(texts) is None


def starts_vllm(container: View) -> bool:
    """Return whether a container of any pod starts vLLM: by its command, or by the entrypoint of its image."""
    image, *arguments = words(container)
    command = container.get("command")
    count = 0 if command is None else len(command.items())
    return starts.starts_vllm(image, None if command is None else arguments[:count], arguments[count:])


def no_engine(containers: View, candidates: Sequence[View], where: str) -> InputError:
    """The error for containers without vLLM: another engine by name, or none that is known."""
    other = other_engine(text for container in candidates for text in words(container))
    if other is None:
        return containers.error(f"no vLLM engine container found in the {where}", hint=HINT)
    message, hint = not_measurable(other)
    return containers.error(message, hint=hint)


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
            f"more than one container of the {where} runs vLLM", hint="change the arguments of each by hand"
        )
    return engines[0]


def service_of_pod(
    kind: Kind,
    root: View,
    text: str,
    place: Place,
    pod: View,
    container: View,
    *,
    peers: tuple[Engine, ...] = (),
    users: tuple[str, ...] = (),
) -> Service:
    """The service of an engine in a pod template. ``peers``: engines of the same service in its other pods, which are
    started with the same setting; ``users``: services that share the template."""
    engine = locate(container)
    model = model_of(engine)
    use = other_use(engine.command)
    if use is not None:
        raise container.error(f"this service generates no text with vLLM: {use}", hint=OTHER_USE_HINT)
    name, namespace = name_and_namespace(root)
    return Service(
        kind=kind,
        name=name,
        namespace=namespace,
        file=root.file,
        text=text,
        image=text_of(container.get("image")),
        env=environment(container),
        container=text_of(container.get("name")),
        command=engine.command,
        model=model,
        storage=claims(pod, container, model),
        line=root.node.line,
        endpoints=users,
        source=Source(place, engine, pod, peers),
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
        claim, path = named.get(text_of(mount.get("name"))), (text_of(mount.get("mountPath")) or "").rstrip("/")
        folder = text_of(mount.get("subPath")) or ""
        if claim and path and (model == path or model.startswith(f"{path}/")):
            storage.append(Storage(f"pvc://{claim}/{folder}".rstrip("/"), path))
    return tuple(storage[:1])
