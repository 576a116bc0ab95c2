"""Modelplane's ModelDeployment and ModelService (``modelplane.ai/v1alpha1``), both generations of the schema.

Until release 0.1 engines stood in ``spec.engines``; since then in ``spec.template.spec.engines`` (Modelplane #257).
One Standalone engine is one service; everything that spreads an engine over pods is refused with its reason. Modelplane
rolls a change; it is undone by writing the recorded object again.
"""

from __future__ import annotations

from mpctl.manifest.engine.locate import mentions_vllm
from mpctl.manifest.engine.recognition import not_measurable, other_engine
from mpctl.manifest.kinds.adapter import Adapter, ManifestFile, name_and_namespace
from mpctl.manifest.kinds.pods import service_of_pod, words
from mpctl.manifest.service import Origin, Service
from mpctl.manifest.text.view import View, text_of

API = "modelplane.ai/v1alpha1"
SELECTOR = "modelplane.ai/deployment"
CONTAINER = "engine"
_ONE = "only one Standalone engine in one pod can be changed"


def read(root: View, file: ManifestFile, origin: Origin) -> Service:
    """The ModelDeployment at ``root``. Raises :class:`InputError` for what is no single Standalone vLLM engine."""
    users = _routes(file).get(name_and_namespace(root), ())
    container = _container(_engine(root.need("spec")))
    return service_of_pod("ModelDeployment", root, file.text, origin, None, container, users=users)


def _engine(spec: View) -> View:
    newer, older = spec.at("template", "spec"), spec.get("engines")
    newer = None if newer is None or newer.get("engines") is None else newer
    if newer is not None and older is not None:
        raise older.error(
            "engines are defined in both schema generations", hint="keep spec.template.spec.engines"
        )
    holder = spec if newer is None else newer
    mode = holder.at("serving", "mode")
    if mode is not None and mode.text() != "Unified":
        raise mode.error(f"serving mode {mode.text()} runs several engines per service", hint=_ONE)
    engines = holder.need("engines").items()
    if len(engines) != 1:
        raise holder.need("engines").error(f"the deployment has {len(engines)} engines", hint=_ONE)
    return engines[0]


def _container(engine: View) -> View:
    members = engine.need("members").items()
    for member in members:
        role = member.get("role")
        if role is not None and role.text() != "Standalone":
            raise role.error(
                f"a {role.text()} member is part of an engine that spans pods", hint=_ONE
            )
    if len(members) != 1:
        raise engine.need("members").error(f"the engine has {len(members)} members", hint=_ONE)
    containers = members[0].need("template").need("spec").need("containers")
    engines = [
        container for container in containers.items() if text_of(container.get("name")) == CONTAINER
    ]
    if not engines:
        raise containers.error(
            f'no container is called "{CONTAINER}"', hint="Modelplane requires that name"
        )
    texts = words(engines[0])
    other = other_engine(texts)
    if other is not None:
        raise not_measurable(engines[0], other)
    if not mentions_vllm(*texts):
        raise engines[0].error(
            "the engine container does not run vLLM", hint="mpctl changes vLLM engines only"
        )
    return engines[0]


def targets(service: View) -> tuple[tuple[View, str], ...]:
    """The deployments that a ModelService routes to, each with the place that says so."""
    deployments: list[tuple[View, str]] = []
    for endpoint in service.need("spec").need("endpoints").items():
        label = endpoint.need("selector").need("matchLabels").get(SELECTOR)
        if label is None:
            raise endpoint.error(
                f"this endpoint does not select a deployment by {SELECTOR}",
                hint="only ModelServices that route to ModelDeployments by that label can be read",
            )
        deployments.append((label, label.text()))
    return tuple(deployments)


def _routes(file: ManifestFile) -> dict[tuple[str, str | None], tuple[str, ...]]:
    """ModelService names by the deployment they route to; each must be in the file."""
    present = {
        name_and_namespace(root)
        for root in file.of_kind("ModelDeployment")
        if text_of(root.get("apiVersion")) == API
    }
    services: dict[tuple[str, str | None], tuple[str, ...]] = {}
    for root in file.of_kind("ModelService"):
        if text_of(root.get("apiVersion")) != API:
            continue
        name, space = name_and_namespace(root)
        for view, target in targets(root):
            if (target, space) not in present:
                raise view.error(
                    f'ModelService {name} routes to deployment "{target}", which is not in this file',
                    hint="put the ModelDeployment into the same file, or give only the deployment",
                )
            services[target, space] = (*services.get((target, space), ()), name)
    return services


MODEL_DEPLOYMENT = Adapter("ModelDeployment", (API,), read)
