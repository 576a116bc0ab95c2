"""KServe's InferenceService (``serving.kserve.io/v1beta1``): one predictor.

``predictor.containers`` carries the whole command; ``predictor.model`` carries args that KServe adds to those of a
ServingRuntime. Multi-node predictors are refused: two pods with one command line are not one engine to edit.
KServe rolls a change as its Deployment; it is undone by writing the recorded object again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mpctl.errors import InputError
from mpctl.manifest.engine.engine_command import EngineCommand
from mpctl.manifest.engine.locate import environment, is_all_positional, locate, mentions_vllm
from mpctl.manifest.engine.recognition import (
    MODEL_TYPE,
    not_measurable,
    other_engine,
    require_generation,
)
from mpctl.manifest.kinds.adapter import Adapter, ManifestFile, service_at
from mpctl.manifest.kinds.pods import (
    HINT,
    RUNTIME_CONTAINER,
    is_vllm,
    no_engine,
    runtime_container,
    words,
)
from mpctl.manifest.service import ManifestSource, Origin, Service, Storage, model_of
from mpctl.manifest.text.view import View, text_of

API = "serving.kserve.io/v1beta1"
MOUNT = "/mnt/models"
# Model formats of KServe's own runtimes that serve large language models with vLLM.
_FORMATS = frozenset(("huggingface", "transformers"))


def read(root: View, file: ManifestFile, origin: Origin) -> Service:
    """The InferenceService at ``root``. Raises :class:`InputError` for what is no single vLLM engine."""
    metadata = root.need("metadata")
    predictor = root.need("spec").need("predictor")
    workers = predictor.get("workerSpec")
    if workers is not None:
        raise workers.error(
            "a predictor with workerSpec runs on several nodes",
            hint="only engines in one pod can be changed",
        )
    container, runtime = _engine_container(predictor, _runtimes(file))
    engine = locate(container)
    of_runtime = () if runtime is None else locate(runtime).command.argv
    storage = _storage(predictor)
    command = EngineCommand((*of_runtime, *engine.command.argv))
    annotated = text_of(metadata.at("annotations", MODEL_TYPE))
    require_generation(container, command, annotated, *(artifact.uri for artifact in storage))
    source = ManifestSource(origin, engine, predictor, obstacle=_unreached(container, runtime))
    return replace(
        service_at(root, "InferenceService", file.text, source),
        image=text_of(container.get("image"))
        or (None if runtime is None else text_of(runtime.get("image"))),
        env=environment(container),
        container=text_of(container.get("name")) or RUNTIME_CONTAINER,
        model=model_of(engine, of_runtime),
        storage=storage,
        runtime=text_of(predictor.at("model", "runtime")),
        runtime_args=of_runtime,
    )


def _engine_container(predictor: View, runtimes: Mapping[str, View]) -> tuple[View, View | None]:
    """The mapping that holds the engine's args, and that of the runtime when it is in the file."""
    model, containers = predictor.get("model"), predictor.get("containers")
    if model is not None:
        return model, _runtime_of(model, runtimes)
    if containers is None:
        raise predictor.error("no vLLM engine container found in the predictor", hint=HINT)
    candidates = containers.items()
    named = [
        container for container in candidates if text_of(container.get("name")) == RUNTIME_CONTAINER
    ]
    engines = [container for container in named or candidates if is_vllm(container)]
    if not engines:
        raise no_engine(containers, named or candidates, "predictor")
    if len(engines) > 1:
        raise engines[1].error(
            "more than one container of the predictor runs vLLM",
            hint=f'name the engine "{RUNTIME_CONTAINER}"',
        )
    return engines[0], None


def _runtime_of(model: View, runtimes: Mapping[str, View]) -> View | None:
    name = text_of(model.get("runtime"))
    model_format = text_of(model.at("modelFormat", "name"))
    runtime = runtimes.get(name or "")
    inside = runtime is not None and is_vllm(runtime)
    if not (
        inside
        or mentions_vllm(name, model_format)
        or (model_format or "").lower() in _FORMATS
        or is_vllm(model)
    ):
        other = other_engine(
            [name, model_format, *words(model), *(words(runtime) if runtime else ())]
        )
        if other is not None:
            raise not_measurable(model, other)
        missing = (
            f"; or put the runtime {name} into the same file" if name and runtime is None else ""
        )
        raise model.error(
            "no vLLM engine found: neither runtime, model format nor arguments name it",
            hint=HINT + missing,
        )
    return runtime


def _unreached(home: View, runtime: View | None) -> InputError | None:
    """The error when the service's arguments do not reach the engine: the runtime starts it in a shell without them."""
    if runtime is None or home.get("command") is not None:
        return None
    script = locate(runtime).script
    if script is None or any(is_all_positional(word) for word in script.words):
        return None
    return home.error(
        "the runtime starts vLLM in a shell script that passes no arguments on, so those of the service have no effect",
        hint='add "$@" to the script\'s command, or change the runtime with --shared-runtime; a copy of it '
        "under another name changes this service alone",
    )


def _runtimes(file: ManifestFile) -> dict[str, View]:
    """The engines' containers of the file's runtimes by name; a namespace's own goes before a cluster-wide one."""
    runtimes: dict[str, View] = {}
    for kind in ("ClusterServingRuntime", "ServingRuntime"):
        for root in file.of_kind(kind):
            if (container := runtime_container(root)) is not None:
                runtimes[root.need("metadata").need("name").text()] = container
    return runtimes


def _storage(predictor: View) -> tuple[Storage, ...]:
    storage: list[Storage] = []
    for holder in filter(None, (predictor, predictor.get("model"))):
        if (uri := holder.get("storageUri")) is not None:
            storage.append(Storage(uri.text(), MOUNT))
        entries = holder.items_at("storageUris")
        storage += [
            Storage(entry.need("uri").text(), text_of(entry.get("mountPath")) or MOUNT)
            for entry in entries
        ]
    return tuple(storage)


INFERENCE_SERVICE = Adapter("InferenceService", (API,), read)
