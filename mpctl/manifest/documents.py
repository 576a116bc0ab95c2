"""Reading the services in a file, and selecting the one that a user names."""

from __future__ import annotations

import json
from collections.abc import Sequence

from mpctl.errors import InputError, nearest
from mpctl.manifest.kinds.adapter import ManifestFile, name_and_namespace, no_service
from mpctl.manifest.kinds.config_texts import CONFIG_TEXTS
from mpctl.manifest.kinds.dynamo_graph import DYNAMO_GRAPH
from mpctl.manifest.kinds.helm_values import OPTION, layouts, named
from mpctl.manifest.kinds.helm_values import read as read_values
from mpctl.manifest.kinds.inference_service import INFERENCE_SERVICE
from mpctl.manifest.kinds.llm_inference_service import LLM_CONFIG, LLM_INFERENCE_SERVICE
from mpctl.manifest.kinds.model_deployment import MODEL_DEPLOYMENT
from mpctl.manifest.kinds.pods import RUNTIMES, WORKLOADS
from mpctl.manifest.kinds.vllm_runtime import VLLM_RUNTIME
from mpctl.manifest.service import Origin, Service
from mpctl.manifest.speculation.setting import JsonValue
from mpctl.manifest.text.view import View, text_of
from mpctl.manifest.text.yaml_tree import Mapping, parse, resolve

ADAPTERS = (
    INFERENCE_SERVICE,
    LLM_INFERENCE_SERVICE,
    MODEL_DEPLOYMENT,
    *WORKLOADS,
    VLLM_RUNTIME,
    DYNAMO_GRAPH,
    *CONFIG_TEXTS,
)
SHARED = (*RUNTIMES, LLM_CONFIG)
_SUPPORTED = f"a vLLM service is needed: {', '.join(adapter.kind for adapter in ADAPTERS)}"


def load_one(
    text: str, name: str | None, *, file: str = "<input>", runtimes: bool = False
) -> Service:
    """The service called ``name``, or the only one. Services beside it that cannot be read do not matter.

    Raises :class:`InputError` as :func:`load` and :func:`select` do.
    """
    return select(load(text, file=file, name=name, runtimes=runtimes), name)


def load(
    text: str, *, file: str = "<input>", name: str | None = None, runtimes: bool = False
) -> tuple[Service, ...]:
    """Read the services in ``text``, in its order.

    With ``name``, a service of another name that cannot be read is skipped. With ``runtimes``, read the runtimes
    and configs that services share instead of the services.

    Raises :class:`InputError` with file, line and field for text that is not YAML, for a file without a service, and
    for services that are not one vLLM engine in one pod.
    """
    documents = parse(text, file)
    whole = ManifestFile(
        text, documents, tuple(View(file, "", document.root) for document in documents)
    )
    adapters = SHARED if runtimes else ADAPTERS
    served, problem = [], None
    for i, (document, root) in enumerate(zip(documents, whole.roots, strict=True)):
        try:
            _check_kind(root)
        except InputError as error:
            if name is None:
                raise
            problem = problem or error
            continue
        if (
            reader := next((adapter for adapter in adapters if adapter.is_read(root)), None)
        ) is not None:
            served.append((i, document, root, reader))
    if not served:
        # The reason why no object of a kind without a fixed structure could be read, if the file mentions vLLM.
        for root in whole.roots if "vllm" in whole.text.lower() else ():
            for adapter in adapters:
                adapter.require_readable(root)
        raise problem or no_service(whole.roots, file, _SUPPORTED)
    services: dict[tuple[str, str | None, str], Service] = {}
    for number, document, root, adapter in served:
        origin = Origin(
            document,
            number,
            len(services),
            lambda edited, path: load(edited, file=path, name=name, runtimes=runtimes),
        )
        try:
            _require_metadata(root)
            service = adapter.read(root, whole, origin)
        except InputError:
            if name is None or name_and_namespace(root)[0] == name:
                raise
            continue
        if _key(service) in services:
            raise root.error(
                f"{service.kind} {service.name} is defined twice in this file",
                hint="remove one of them",
            )
        services[_key(service)] = service
    return tuple(services.values())


def load_values(text: str, key: str | None, *, file: str = "<input>") -> tuple[Service, ...]:
    """The engines of a file of Helm values: under ``key``, or where the layout of the values is known.

    Raises:
        InputError: the layout is not known, or there is no list under the key.
    """
    documents = parse(text, file)
    if len(documents) != 1:
        raise InputError(f"a values file has one document, this one {len(documents)}", file=file)
    root = View(file, "", documents[0].root)
    engines = layouts(root) if key is None else (named(root, key),)
    if not engines:
        raise InputError(
            "the layout of these values is not known",
            file=file,
            hint=f"name the key of the engine's arguments with {OPTION}, such as engine.args (docs/reference/kinds.md)",
        )

    def again(text: str, file: str) -> tuple[Service, ...]:
        return load_values(text, key, file=file)

    return tuple(
        read_values(root, layout, text, Origin(documents[0], 0, i, again), engines)
        for i, layout in enumerate(engines)
    )


def select(services: Sequence[Service], name: str | None) -> Service:
    """The service called ``name``, or the only one when ``name`` is None. Raises :class:`InputError` otherwise."""
    names = [service.name for service in services]
    listed = ", ".join(names) or "none"
    if name is None:
        meant = [service for service in services if not service.only_by_name] or services
        if len(meant) == 1:
            return meant[0]
        raise InputError(f"{len(services)} services found: {listed}", hint="name one of them")
    matches = [service for service in services if service.name == name]
    if len(matches) == 1:
        return matches[0]
    if matches:
        spaces = ", ".join(str(service.namespace) for service in matches)
        raise InputError(
            f'"{name}" exists in several namespaces: {spaces}', hint="put them into separate files"
        )
    close = nearest(name, names)
    hint = f"did you mean {close}?" if close else f"use one of: {listed}"
    raise InputError(f'service "{name}" not found; services: {listed}', hint=hint)


def _key(service: Service) -> tuple[str, str | None, str]:
    return service.kind, service.namespace, service.name


def _check_kind(root: View) -> None:
    if not isinstance(resolve(root.node), Mapping):
        raise root.error("a manifest must be a mapping with apiVersion and kind")
    if text_of(root.get("kind")) == "List":
        raise root.need("kind").error(
            "a List is not read", hint="save each object as a separate document"
        )
    for adapter in (*ADAPTERS, *SHARED):
        adapter.require_version(root)


def _require_metadata(root: View) -> None:
    """Refuse labels and annotations, also of pods, that are no mappings."""
    for owner in (root, root.at("spec", "template")):
        metadata = None if owner is None else owner.get("metadata")
        for key in ("labels", "annotations") if metadata is not None else ():
            if metadata is not None and (entries := metadata.get(key)) is not None:
                entries.pairs()


def speculation_of(argv: Sequence[str]) -> dict[str, JsonValue] | None:
    """Return the speculative setting that an engine was started with; None when there is none.

    ``argv``: of the engine's process, or command and arguments of its container.

    Raises:
        InputError: variables or the shell build it, or it is not valid.
    """
    words = list(argv)
    if "serve" in words:
        words = words[words.index("serve") + 1 :]
    bare = not words or words[0].startswith("-") or "serve" in argv
    model = {"modelFormat": {"name": "vLLM"}, ("args" if bare else "command"): words}
    document = {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": "running"},
        "spec": {"predictor": {"model": model}},
    }
    (service,) = load(json.dumps(document))
    return service.speculation()
