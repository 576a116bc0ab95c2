"""Helm values: the list of vLLM's arguments in a values file.

Charts put it in different places. Three layouts are known; for any other chart the user names the key. The chart makes
the objects, Helm rolls them, and the setting is undone by taking it out of the values again: the bytes from before.

========================  ==================================================  ======================
chart                     arguments                                           a service is
========================  ==================================================  ======================
vLLM production-stack     ``servingEngineSpec.modelSpec[].vllmConfig.extraArgs``  an entry of modelSpec
llm-d modelservice        ``decode.containers[].args``                        the decode pool, with ``prefill``
KubeAI models             ``catalog.NAME.args``                               an entry of catalog
========================  ==================================================  ======================
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mpctl.errors import InputError
from mpctl.manifest.engine.locate import Engine, listed, locate
from mpctl.manifest.kinds.disaggregated import End, Role, named_role, paired
from mpctl.manifest.service import ManifestSource, Origin, PrefillPods, Service, model_of
from mpctl.manifest.text.view import View, text_of

OPTION = "--chart-key"
_CONFIG = "vllmConfig"  # of production-stack, which holds extraArgs
_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


@dataclass(frozen=True)
class Layout:
    """A list of arguments: under ``key`` of ``home``. ``model``, ``image``: where the values name them."""

    name: str
    home: View
    key: str
    model: str | None = None
    image: str | None = None
    role: Role | None = None  # among engines that exchange KV cache

    @property
    def engine(self) -> Engine:
        """The engine. A container of a chart may have a command; elsewhere the values have the arguments alone."""
        whole = self.key == "args" and self.home.get("command") is not None
        return locate(self.home) if whole else listed(self.home, self.key)


def layouts(root: View) -> tuple[Layout, ...]:
    """The engines of a values file whose layout is known."""
    return (*_production_stack(root), *_modelservice(root), *_kubeai(root))


def named(root: View, path: str) -> Layout:
    """The list under a key that the user names, such as ``engine.args`` or ``models[0].extraArgs``.

    Raises:
        InputError: there is no mapping that holds the key.
    """
    steps = [(key, int(index) if index else None) for key, index in _STEP.findall(path)]
    if not steps or steps[-1][1] is not None or "".join(_STEP.sub("", path)).strip("."):
        raise InputError(
            f"{path!r} is no key of a list",
            field=OPTION,
            hint="such as engine.args or models[0].args",
        )
    here = root
    for key, index in steps[:-1]:
        child = (
            here.get(key) if index is None else next(iter(here.items()[index : index + 1]), None)
        )
        if child is None:
            raise here.error(
                f"{path} is not in these values",
                hint=f"name the key of the engine's arguments with {OPTION}",
            )
        here = child
    return Layout(path, here, steps[-1][0])


def read(
    root: View, layout: Layout, text: str, origin: Origin, others: Iterable[Layout] = ()
) -> Service:
    """The engine whose arguments are under one key. ``others``: further engines of the values.

    Raises:
        InputError: the value is no list.
    """
    home, key = layout.home, layout.key
    value = home.get(key)
    if value is not None:
        try:
            value.items()
        except InputError as error:
            raise value.error(
                "the arguments are one text, and how the chart splits it is not known",
                hint="write them as a list, or change them by hand",
            ) from error
    engine, obstacle = layout.engine, _without_place(layout)
    service = Service(
        kind="Values",
        name=layout.name,
        namespace=None,
        file=root.file,
        text=text,
        image=layout.image,
        command=engine.command,
        model=layout.model or model_of(engine),
        line=home.node.line,
        source=ManifestSource(origin, engine, obstacle=obstacle),
        only_by_name=obstacle is not None,
    )
    if layout.role is None:
        return service
    ends = (
        End(
            end.name,
            None,
            end.role,
            end.model or model_of(end.engine),
            end.image,
            (
                PrefillPods(
                    end.engine, origin.document, origin.number, obstacle=_without_place(end)
                ),
            ),
        )
        for end in others
        if end.role is not None
    )
    return paired(service, layout.role, ends)


def _without_place(layout: Layout) -> InputError | None:
    """The error for an entry of a known layout that has no place for arguments."""
    if layout.key != _CONFIG:
        return None
    hint = 'add "vllmConfig: {extraArgs: []}" to it; mpctl extends it'
    return layout.home.error("this model has no vllmConfig for arguments", hint=hint)


def _production_stack(root: View) -> Iterator[Layout]:
    for index, engine in enumerate(root.items_at("servingEngineSpec", "modelSpec")):
        name = text_of(engine.get("name")) or f"modelSpec[{index}]"
        image = ":".join(
            filter(None, (text_of(engine.get("repository")), text_of(engine.get("tag"))))
        )
        model, config = text_of(engine.get("modelURL")), engine.get("vllmConfig")
        role = named_role(text_of(engine.at("lmcacheConfig", "kvRole")))
        home, key = (engine, _CONFIG) if config is None else (config, "extraArgs")
        yield Layout(name, home, key, model, image or None, role)


def _modelservice(root: View) -> Iterator[Layout]:
    artifacts = root.get("modelArtifacts")
    model = None if artifacts is None else _of_hub(text_of(artifacts.get("uri")))
    roles: tuple[Role, ...] = ("decode", "prefill")
    for role in roles:
        off = text_of(root.at(role, "create")) == "false"
        for container in () if off and role == "prefill" else root.items_at(role, "containers"):
            command, image = text_of(container.get("modelCommand")), text_of(container.get("image"))
            if command == "vllmServe" or "vllm" in (image or ""):
                yield Layout(role, container, "args", model, image, role)


def _kubeai(root: View) -> Iterator[Layout]:
    catalog = root.get("catalog")
    for name, model in () if catalog is None else catalog.pairs():
        features = model.get("features")
        generates = features is None or "TextGeneration" in [
            item.text() for item in features.items()
        ]
        if text_of(model.get("engine")) == "VLLM" and generates:
            yield Layout(name, model, "args", _of_hub(text_of(model.get("url"))))


def _of_hub(uri: str | None) -> str | None:
    return None if uri is None else uri.removeprefix("hf://").partition("?")[0]
