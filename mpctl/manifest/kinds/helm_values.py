"""Helm values: the list of vLLM's arguments in a values file.

Charts put it in different places. Three layouts are known; for any other chart the user names the key. The chart makes
the objects, Helm rolls them, and the setting is undone by taking it out of the values again: the bytes from before.

========================  ==================================================  ======================
chart                     arguments                                           a service is
========================  ==================================================  ======================
vLLM production-stack     ``servingEngineSpec.modelSpec[].vllmConfig.extraArgs``  an entry of modelSpec
llm-d modelservice        ``decode.containers[].args``                        the decode pool
KubeAI models             ``catalog.NAME.args``                               an entry of catalog
========================  ==================================================  ======================
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from mpctl.errors import InputError
from mpctl.manifest.engine.locate import listed, locate
from mpctl.manifest.service import ManifestSource, Origin, Service, model_of
from mpctl.manifest.text.view import View, text_of

OPTION = "--chart-key"
_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


@dataclass(frozen=True)
class Layout:
    """A list of arguments: under ``key`` of ``home``. ``model``, ``image``: where the values name them."""

    name: str
    home: View
    key: str
    model: str | None = None
    image: str | None = None


def layouts(root: View) -> tuple[Layout, ...]:
    """The engines of a values file whose layout is known."""
    return (*_production_stack(root), *_modelservice(root), *_kubeai(root))


def missing(root: View) -> InputError | None:
    """The error for a known layout without a place for arguments."""
    listed_models = root.at("servingEngineSpec", "modelSpec")
    entries = () if listed_models is None else listed_models.items()
    if not entries:
        return None
    return entries[0].error(
        "this model has no vllmConfig for arguments", hint='add "vllmConfig: {extraArgs: []}" to it; mpctl extends it'
    )


def named(root: View, path: str) -> Layout:
    """The list under a key that the user names, such as ``engine.args`` or ``models[0].extraArgs``.

    Raises:
        InputError: there is no mapping that holds the key.
    """
    steps = [(key, int(index) if index else None) for key, index in _STEP.findall(path)]
    if not steps or steps[-1][1] is not None or "".join(_STEP.sub("", path)).strip("."):
        raise InputError(f"{path!r} is no key of a list", field=OPTION, hint="such as engine.args or models[0].args")
    here = root
    for key, index in steps[:-1]:
        child = here.get(key) if index is None else next(iter(here.items()[index : index + 1]), None)
        if child is None:
            raise here.error(
                f"{path} is not in these values", hint=f"name the key of the engine's arguments with {OPTION}"
            )
        here = child
    return Layout(path, here, steps[-1][0])


def read(root: View, layout: Layout, text: str, origin: Origin) -> Service:
    """The engine whose arguments are under one key.

    Raises:
        InputError: the value is no list.
    """
    home, key = layout.home, layout.key
    value = home.get(key)
    if value is not None:
        _require_list(value)
    # A container of a chart may have a command; elsewhere the values have the arguments alone.
    engine = locate(home) if key == "args" and home.get("command") is not None else listed(home, key)
    return Service(
        kind="Values",
        name=layout.name,
        namespace=None,
        file=root.file,
        text=text,
        image=layout.image,
        env=(),
        container=None,
        command=engine.command,
        model=layout.model or model_of(engine),
        storage=(),
        line=home.node.line,
        source=ManifestSource(origin, engine),
    )


def _require_list(value: View) -> None:
    try:
        value.items()
    except InputError as error:
        raise value.error(
            "the arguments are one text, and how the chart splits it is not known",
            hint="write them as a list, or change them by hand",
        ) from error


def _production_stack(root: View) -> Iterator[Layout]:
    listed = root.at("servingEngineSpec", "modelSpec")
    for index, engine in enumerate(() if listed is None else listed.items()):
        name = text_of(engine.get("name")) or f"modelSpec[{index}]"
        image = ":".join(filter(None, (text_of(engine.get("repository")), text_of(engine.get("tag")))))
        model, config = text_of(engine.get("modelURL")), engine.get("vllmConfig")
        if config is not None:
            yield Layout(name, config, "extraArgs", model, image or None)


def _modelservice(root: View) -> Iterator[Layout]:
    containers = root.at("decode", "containers")
    artifacts = root.get("modelArtifacts")
    model = None if artifacts is None else _of_hub(text_of(artifacts.get("uri")))
    for container in () if containers is None else containers.items():
        command = text_of(container.get("modelCommand"))
        if command == "vllmServe" or "vllm" in (text_of(container.get("image")) or ""):
            yield Layout("decode", container, "args", model, text_of(container.get("image")))


def _kubeai(root: View) -> Iterator[Layout]:
    catalog = root.get("catalog")
    for name, model in () if catalog is None else catalog.pairs():
        features = model.get("features")
        generates = features is None or "TextGeneration" in [item.text() for item in features.items()]
        if text_of(model.get("engine")) == "VLLM" and generates:
            yield Layout(name, model, "args", _of_hub(text_of(model.get("url"))))


def _of_hub(uri: str | None) -> str | None:
    return None if uri is None else uri.removeprefix("hf://").partition("?")[0]
