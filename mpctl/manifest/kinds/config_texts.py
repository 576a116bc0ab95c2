"""Kinds whose engine takes its arguments from YAML inside of a text.

KAITO's Workspace and InferenceSet (``kaito.sh``): a preset starts vLLM with the flags that ``inference_config.yaml`` of
a ConfigMap has under ``vllm``. KAITO restarts no pod when the ConfigMap changes. Sources: https://github.com/
kaito-project/kaito, presets/workspace/inference/vllm/inference_api.py, pkg/workspace/controllers.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from mpctl.manifest.engine.recognition import require_generation
from mpctl.manifest.kinds.adapter import Adapter, ManifestFile, name_and_namespace, service_at
from mpctl.manifest.service import ManifestSource, Origin, Service
from mpctl.manifest.speculation.keyed import keyed
from mpctl.manifest.text.embedded import embedded
from mpctl.manifest.text.view import View, text_of

_FILE = "inference_config.yaml"  # of KAITO, in the ConfigMap
_RUNTIME = "kaito.sh/runtime"


def _inference(root: View) -> View | None:
    """Return the inference of a Workspace, or of the Workspaces of an InferenceSet."""
    return root.get("inference") or root.at("spec", "template", "inference")


def _has_preset(root: View) -> bool:
    inference = _inference(root)
    return inference is not None and inference.get("preset") is not None


def _read_kaito(root: View, file: ManifestFile, origin: Origin, *, kind: str) -> Service:
    """The Workspace or InferenceSet at ``root``.

    Raises:
        InputError: its ConfigMap is not in the file or is another's too, or its arguments cannot be read.
    """
    inference = _inference(root)
    assert inference is not None
    if text_of(root.at("metadata", "annotations", _RUNTIME)) == "transformers":
        raise root.error(
            f"annotation {_RUNTIME} says transformers", hint="mpctl changes vLLM engines only"
        )
    _, space = name_and_namespace(root)
    config = text_of(inference.get("config"))
    maps = [
        m
        for m in file.of_kind("ConfigMap")
        if name_and_namespace(m) in ((config, space), (config, None))
    ]
    if not maps:
        raise inference.error(
            "vLLM's arguments are in a ConfigMap, which is not in this file"
            if config
            else "no ConfigMap is named",
            hint=f"name it in inference.config, with {_FILE}, and put it into the same file",
        )
    users = [other for other in file.of_kind("Workspace", "InferenceSet") if _names(other, config)]
    if len(users) > 1:
        raise users[1].error(f"ConfigMap {config} is used more than once", hint="give each its own")
    number = file.number(maps[0])
    document = file.documents[number]
    text = embedded(maps[0].need("data").need(_FILE), document.repeated)
    engine = keyed(text, text.root.need("vllm"), text.data["vllm"])
    preset = inference.need("preset").need("name").text()
    require_generation(engine.home, engine.command, preset)
    source = ManifestSource(replace(origin, document=document, number=number), engine)
    # The image is a preset's, whose tag is no version of vLLM.
    return replace(service_at(root, kind, file.text, source), model=preset)


def _names(root: View, config: str | None) -> bool:
    inference = _inference(root)
    return inference is not None and text_of(inference.get("config")) == config


def _kaito(kind: str) -> Adapter:
    apis = ("kaito.sh/v1beta1", "kaito.sh/v1alpha1")
    return Adapter(kind, apis, partial(_read_kaito, kind=kind), _has_preset, own=False)


CONFIG_TEXTS = (_kaito("Workspace"), _kaito("InferenceSet"))
