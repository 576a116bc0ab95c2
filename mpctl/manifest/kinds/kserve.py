"""KServe's InferenceService: which container is the engine, and what is staged beside it.

``predictor.containers`` carries the whole command; ``predictor.model`` carries args that KServe adds to those of a
ServingRuntime. Multi-node predictors are refused: two pods with one command line are not one engine to edit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mpctl.errors import InputError
from mpctl.manifest.engine.command import EngineCommand
from mpctl.manifest.engine.generating import HINT as OTHER_USE_HINT
from mpctl.manifest.engine.generating import other_use
from mpctl.manifest.engine.locate import environment, locate, mentions_vllm
from mpctl.manifest.engine.other_engines import not_measurable, other_engine
from mpctl.manifest.service import Place, Service, Source, Storage, model_of
from mpctl.manifest.text.view import View, text_of

API = "serving.kserve.io/v1beta1"
CONTAINER = "kserve-container"
MOUNT = "/mnt/models"
# Model formats of KServe's own runtimes that serve large language models with vLLM.
_FORMATS = frozenset(("huggingface", "transformers"))
_HINT = "mpctl edits services whose engine is vLLM: a vLLM image, runtime, command or flag must be recognisable"


def read(root: View, text: str, runtimes: Mapping[str, View], place: Place) -> Service:
    """The InferenceService at ``root``. Raises :class:`InputError` for what is no single vLLM engine."""
    metadata = root.need("metadata")
    predictor = root.need("spec").need("predictor")
    workers = predictor.get("workerSpec")
    if workers is not None:
        raise workers.error(
            "a predictor with workerSpec runs on several nodes", hint="only engines in one pod can be changed"
        )
    container, runtime = _engine_container(predictor, runtimes)
    engine = locate(container)
    base = _runtime_args(runtime)
    storage = _storage(predictor)
    use = other_use(EngineCommand((*base, *engine.command.argv)), *(one.uri for one in storage))
    if use is not None:
        raise container.error(f"this service generates no text with vLLM: {use}", hint=OTHER_USE_HINT)
    return Service(
        kind="InferenceService",
        name=metadata.need("name").text(),
        namespace=text_of(metadata.get("namespace")),
        file=root.file,
        text=text,
        image=text_of(container.get("image")) or (None if runtime is None else text_of(runtime.get("image"))),
        env=environment(container),
        container=text_of(container.get("name")) or CONTAINER,
        command=engine.command,
        model=model_of(engine, base),
        storage=storage,
        line=root.node.line,
        runtime=text_of(predictor.at("model", "runtime")),
        runtime_args=base,
        source=Source(place, engine),
    )


def _engine_container(predictor: View, runtimes: Mapping[str, View]) -> tuple[View, View | None]:
    """The mapping that holds the engine's args, and the runtime's container when it is in the file."""
    model, containers = predictor.get("model"), predictor.get("containers")
    if model is not None:
        return model, _runtime_of(model, runtimes)
    if containers is None:
        raise predictor.error("no vLLM engine container found in the predictor", hint=_HINT)
    candidates = containers.items()
    named = [one for one in candidates if text_of(one.get("name")) == CONTAINER]
    engines = [one for one in named or candidates if _is_vllm(one)]
    if not engines:
        raise _no_engine(containers, named or candidates)
    if len(engines) > 1:
        raise engines[1].error(
            "more than one container of the predictor runs vLLM", hint=f'name the engine "{CONTAINER}"'
        )
    return engines[0], None


def _runtime_of(model: View, runtimes: Mapping[str, View]) -> View | None:
    name = text_of(model.get("runtime"))
    model_format = text_of(model.at("modelFormat", "name"))
    runtime = runtimes.get(name or "")
    inside = runtime is not None and _is_vllm(runtime)
    if not (inside or mentions_vllm(name, model_format) or (model_format or "").lower() in _FORMATS or _is_vllm(model)):
        other = other_engine([name, model_format, *_words(model), *(_words(runtime) if runtime is not None else ())])
        if other is not None:
            message, hint = not_measurable(other)
            raise model.error(message, hint=hint)
        missing = f"; or put the runtime {name} into the same file" if name and runtime is None else ""
        raise model.error(
            "no vLLM engine found: neither runtime, model format nor arguments name it", hint=_HINT + missing
        )
    return runtime


def _no_engine(containers: View, candidates: Sequence[View]) -> InputError:
    """The error for containers without vLLM: another engine by name, or none that is known."""
    other = other_engine(text for one in candidates for text in _words(one))
    if other is None:
        return containers.error("no vLLM engine container found in the predictor", hint=_HINT)
    message, hint = not_measurable(other)
    return containers.error(message, hint=hint)


def _is_vllm(container: View) -> bool:
    words = _words(container)
    # SGLang and TensorRT-LLM share some of vLLM's flags, so their own names count first.
    return mentions_vllm(*words) and other_engine(words) is None


def _words(container: View) -> list[str]:
    words = [item.text() for key in ("command", "args") if (part := container.get(key)) for item in part.items()]
    return [text_of(container.get("image")) or "", *words]


def _runtime_args(runtime: View | None) -> tuple[str, ...]:
    if runtime is None:
        return ()
    return locate(runtime).command.argv


def runtime_container(root: View) -> View | None:
    """The engine's container of a ServingRuntime or ClusterServingRuntime."""
    containers = root.at("spec", "containers")
    items = () if containers is None else containers.items()
    return next((one for one in items if text_of(one.get("name")) == CONTAINER), items[0] if items else None)


def _storage(predictor: View) -> tuple[Storage, ...]:
    found: list[Storage] = []
    for holder in filter(None, (predictor, predictor.get("model"))):
        one, several = holder.get("storageUri"), holder.get("storageUris")
        if one is not None:
            found.append(Storage(one.text(), MOUNT))
        entries = () if several is None else several.items()
        found += [Storage(one.need("uri").text(), text_of(one.get("mountPath")) or MOUNT) for one in entries]
    return tuple(found)
