"""KServe's LLMInferenceService (``serving.kserve.io``): KServe's own object for large language models.

The pod template is merged from KServe's presets, the configs in ``baseRefs`` in order, and the service; containers and
variables merge by name, ``args`` and ``command`` replace each other as a whole. The presets (KServe 0.18 and later)
pass ``VLLM_ADDITIONAL_ARGS`` and ``args`` of container ``main`` through ``eval``. So a new setting goes into the
service's own args where it has some, else into its variable, and never into a shared config. Workers
(``spec.worker``) get the leader's setting, and prefill pods (``spec.prefill``) where its draft has KV cache.
KServe rolls a change as its Deployments or LeaderWorkerSets; it is undone by writing the recorded object again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mpctl.errors import InputError
from mpctl.manifest.engine.locate import VARIABLE, Engine, engine_of, environment, locate
from mpctl.manifest.engine.recognition import require_generation
from mpctl.manifest.kinds.adapter import Adapter, ManifestFile, name_and_namespace, service_at
from mpctl.manifest.kinds.pods import is_vllm
from mpctl.manifest.service import ManifestSource, Origin, PrefillPods, Service, Storage, model_of
from mpctl.manifest.speculation.additional import CONTAINER
from mpctl.manifest.text.view import View, text_of

APIS = ("serving.kserve.io/v1alpha2", "serving.kserve.io/v1alpha1")
CONFIG = "LLMInferenceServiceConfig"
MOUNT = "/mnt/models"
PREFILL = "prefill"


@dataclass(frozen=True)
class _Base:
    """Containers ``main`` of the configs below the service, the strongest first, with their configs' names.
    ``missing``: names in baseRefs that the file does not have."""

    containers: tuple[tuple[str, View], ...]
    missing: tuple[str, ...]

    def get(self, key: str) -> tuple[str, View] | None:
        """The strongest config that sets a field of the container, and its value."""
        return next(
            (
                (name, field)
                for name, home in self.containers
                if (field := home.get(key)) is not None
            ),
            None,
        )

    def variable(self) -> str | None:
        """The config that sets the variable for further arguments."""
        return next(
            (name for name, home in self.containers if VARIABLE in dict(environment(home))), None
        )


def read(root: View, file: ManifestFile, origin: Origin) -> Service:
    """The LLMInferenceService at ``root``.

    Raises:
        InputError: it is not one vLLM engine, or its arguments cannot be read.
    """
    name, spec = name_and_namespace(root)[0], root.need("spec")
    speculator = spec.get("speculator")
    if speculator is not None:
        raise speculator.error(
            "spec.speculator sets speculation already",
            hint="remove it; mpctl edits the engine's arguments",
        )
    uri = text_of(spec.at("model", "uri")) or ""
    engine, base, obstacle = _engine(spec, spec, "template", file)
    peers: tuple[Engine, ...] = ()
    if spec.get("worker") is not None:
        worker, _, of_worker = _engine(spec, spec, "worker", file)
        peers, obstacle = (worker,), obstacle or of_worker
    prefill = _prefill(spec, name, file, origin)
    container = _main(spec.get("template"))
    inherited = _inherited(spec, name, engine, base)
    require_generation(spec, engine.command, uri)
    if container is not None and container.get("command") is not None and not is_vllm(container):
        raise container.error(
            "the command of container main does not start vLLM",
            hint="mpctl changes vLLM engines only",
        )
    image = None if container is None else text_of(container.get("image"))
    of_base = base.get("image")
    env = () if container is None else environment(container)
    mounted = spec.get("template") if container is not None else None
    return replace(
        service_at(
            root,
            "LLMInferenceService",
            file.text,
            ManifestSource(origin, engine, mounted, peers, obstacle, prefill),
        ),
        image=image or (None if of_base is None else of_base[1].text()),
        env=tuple(variable for variable in env if variable[0] != VARIABLE),
        container=CONTAINER,
        model=model_of(engine, inherited),
        storage=(Storage(uri, MOUNT),) if uri else (),
        runtime=", ".join(config for config, _ in base.containers) or None,
        runtime_args=inherited,
        prefill_args=tuple((*pods.inherited, *pods.engine.command.argv) for pods in prefill),
    )


def _prefill(spec: View, name: str, file: ManifestFile, origin: Origin) -> tuple[PrefillPods, ...]:
    """The prefill pods of a service, those of its leader first."""
    part = spec.get(PREFILL)
    pods = []
    for key in (
        ("template", "worker")
        if part is not None and part.get("worker") is not None
        else ("template",)
    ):
        if part is not None:
            engine, base, obstacle = _engine(spec, part, key, file)
            inherited = _inherited(spec, name, engine, base)
            mounted = part.get(key) if _main(part.get(key)) is not None else None
            pods.append(
                PrefillPods(engine, origin.document, origin.number, mounted, inherited, obstacle)
            )
    return tuple(pods)


def _engine(
    spec: View, part: View, key: str, file: ManifestFile
) -> tuple[Engine, _Base, InputError | None]:
    """The engine of a pod template, the configs below it, and why it cannot be edited.

    ``part``: the mapping that has, or gets, the template under ``key``: ``spec``, or ``prefill`` in it.
    """
    base = _base(spec, part, key, file)
    container = _main(part.get(key))
    if container is not None and container.get("command") is not None:
        return locate(container), base, None  # its own command: arguments are what vLLM gets
    command = base.get("command")
    if command is not None and not _evaluates(command[1]):
        home = container if container is not None else part
        reason = home.error(
            f"{CONFIG} {command[0]} replaces the presets' command; whether arguments reach vLLM is decided there",
            hint="give container main of the service its own command and args",
        )
        return engine_of(part, key, container), base, reason
    engine = engine_of(part, key, container)
    return engine, base, _obstacle(spec, key, engine, base)


def _evaluates(command: View) -> bool:
    words = " ".join(item.text() for item in command.items())
    return "eval" in words and "$@" in words


def _obstacle(spec: View, key: str, engine: Engine, base: _Base) -> InputError | None:
    """The error when a setting of the service would have no effect, or would replace what a config sets."""
    evaluated = engine.evaluated
    own_args = (
        evaluated is not None
        and evaluated.container is not None
        and evaluated.container.get("args") is not None
    )
    sets_arguments = own_args or (evaluated is not None and evaluated.value is not None)
    if base.missing and not sets_arguments:
        return spec.need("baseRefs").error(
            f"{CONFIG} {', '.join(base.missing)} is not in this file; its args and {VARIABLE} are not known",
            hint="put the config into the same file, or run mpctl on the cluster",
        )
    in_args = base.get("args")
    if (
        not own_args
        and in_args is not None
        and any("speculative" in argument.text() for argument in in_args[1].items())
    ):
        return spec.error(
            f"{CONFIG} {in_args[0]} sets speculation in its args, which count more than {VARIABLE}",
            hint=f"copy its args to {key}.containers of the service; there mpctl edits them",
        )
    config = base.variable()
    if config is not None and not sets_arguments:
        return spec.error(
            f"{CONFIG} {config} sets {VARIABLE}; a value of the service would replace it",
            hint=f"copy the variable to {key}.containers of the service; there mpctl edits it",
        )
    return None


def _preset(spec: View, part: View) -> str:
    """The end of the name of KServe's preset for a part: of one node, or of a group; of decode pods, or prefill."""
    role = "prefill-" if part is not spec else "decode-" if spec.get(PREFILL) is not None else ""
    return (
        f"config-llm-{role}{'template' if part.get('worker') is None else 'worker-data-parallel'}"
    )


def _base(spec: View, part: View, key: str, file: ManifestFile) -> _Base:
    configs = {name_and_namespace(root)[0]: root for root in file.of_kind(CONFIG)}
    names = [reference.need("name").text() for reference in spec.items_at("baseRefs")]
    wanted = _preset(spec, part)
    order = [
        *reversed(names),
        *(name for name in configs if name.endswith(wanted) and name not in names),
    ]
    containers = []
    for name in order:
        root = configs.get(name)
        main = (
            None
            if root is None
            else _main(root.at("spec", *(() if part is spec else (PREFILL,)), key))
        )
        if main is not None:
            containers.append((name, main))
    return _Base(tuple(containers), tuple(name for name in names if name not in configs))


def _main(template: View | None) -> View | None:
    """Container ``main`` of a pod template, which is a PodSpec itself.

    Raises:
        InputError: the template has a ``spec`` of its own, which KServe's schema does not know.
    """
    if template is not None and (inner := template.get("spec")) is not None:
        raise inner.error(
            "a template of an LLMInferenceService has no spec of its own",
            hint="move its keys one up",
        )
    containers = () if template is None else template.items_at("containers")
    return next(
        (container for container in containers if text_of(container.get("name")) == CONTAINER), None
    )


def _inherited(spec: View, name: str, engine: Engine, base: _Base) -> tuple[str, ...]:
    """The arguments from below the service: those of every preset, then those that configs add."""
    if engine.evaluated is None:
        return ()
    served = text_of(spec.at("model", "name")) or name
    arguments = [MOUNT, "--served-model-name", served, "--port", "8000"]
    tensor = text_of(spec.at("parallelism", "tensor"))
    arguments += [] if tensor is None else ["--tensor-parallel-size", tensor]
    evaluated = engine.evaluated
    own_args = evaluated.container is not None and evaluated.container.get("args") is not None
    setters = (
        None if evaluated.value is not None else base.variable(),
        None if own_args else base.get("args"),
    )
    for config, home in base.containers:
        args, below = home.get("args"), engine_of(home, config, home)
        of_args = setters[1] is not None and setters[1][0] == config
        of_value = setters[0] == config
        arguments += [
            token.text for token in below.tokens if (of_args if token.listing == args else of_value)
        ]
    return tuple(arguments)


def _read_config(root: View, file: ManifestFile, origin: Origin) -> Service:
    """The engine of an LLMInferenceServiceConfig, with the services of the file that name it in baseRefs.

    Raises:
        InputError: it has pods of several roles, or its arguments cannot be read.
    """
    spec, name = root.need("spec"), name_and_namespace(root)[0]
    roles = [part for key in (PREFILL, "worker") if (part := spec.get(key)) is not None]
    if roles:
        raise roles[0].error(
            f"{CONFIG} {name} has pods of several roles", hint="change their arguments by hand"
        )
    container = _main(spec.get("template"))
    assert container is not None
    command = container.get("command")
    engine = engine_of(spec, "template", container)
    if command is not None and not _evaluates(command):
        engine = locate(container)
    require_generation(spec, engine.command, text_of(spec.at("model", "uri")))
    users = tuple(
        name_and_namespace(service)[0]
        for service in file.of_kind("LLMInferenceService")
        if name
        in [
            text_of(reference.get("name"))
            for reference in service.need("spec").items_at("baseRefs")
        ]
    )
    return replace(
        service_at(root, CONFIG, file.text, ManifestSource(origin, engine)),
        image=text_of(container.get("image")),
        env=tuple(variable for variable in environment(container) if variable[0] != VARIABLE),
        container=CONTAINER,
        model=model_of(engine),
        endpoints=users,
    )


def _starts(root: View) -> bool:
    """Return whether a config has arguments of the engine, or a place for them."""
    container = _main(root.at("spec", "template"))
    return container is not None and (container.get("command") is None or is_vllm(container))


LLM_INFERENCE_SERVICE = Adapter("LLMInferenceService", APIS, read)
LLM_CONFIG = Adapter(CONFIG, APIS, _read_config, _starts)
