"""NVIDIA Dynamo's DynamoGraphDeployment (``nvidia.com``), both generations of the schema.

A graph has a frontend and workers, each a component: in ``v1alpha1`` under ``spec.services`` with the engine's
container in ``extraPodSpec.mainContainer``, in ``v1beta1`` in ``spec.components`` with a pod template whose container
``main`` it is. A vLLM worker is ``python -m dynamo.vllm``, which takes vLLM's own arguments. Dynamo rolls a change.
Sources: https://github.com/ai-dynamo/dynamo, examples/backends/vllm/deploy, components/src/dynamo/vllm/args.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mpctl.manifest.engine.engine_command import EngineCommand
from mpctl.manifest.engine.locate import locate
from mpctl.manifest.engine.recognition import is_vllm_start
from mpctl.manifest.kinds.adapter import Adapter, ManifestFile
from mpctl.manifest.kinds.disaggregated import End, paired
from mpctl.manifest.kinds.pods import no_engine, service_of_pod, words
from mpctl.manifest.service import Origin, PrefillPods, Service, model_of
from mpctl.manifest.text.view import View, text_of

_MAIN = "main"
_WHERE = "components of the graph"


@dataclass(frozen=True)
class Component:
    """A component of a graph with a container of its own. ``kinds``: what its fields say of its part."""

    name: str
    pod: View
    container: View
    kinds: tuple[str | None, ...]

    def fills_prompts(self, command: EngineCommand) -> bool:
        """Return whether it fills prompts for other workers."""
        flags = command.has("is-prefill-worker"), command.get("disaggregation-mode") == "prefill"
        return "prefill" in self.kinds or any(flags)


def _components(spec: View) -> Iterator[Component]:
    services = spec.get("services")
    for name, service in () if services is None else services.pairs():
        container = service.at("extraPodSpec", "mainContainer")
        if container is not None:
            kinds = text_of(service.get("componentType")), text_of(service.get("subComponentType"))
            yield Component(name, service.need("extraPodSpec"), container, kinds)
    for component in spec.items_at("components"):
        pod = component.at("podTemplate", "spec")
        for container in () if pod is None else pod.items_at("containers"):
            if pod is not None and text_of(container.get("name")) == _MAIN:
                yield Component(
                    component.need("name").text(), pod, container, (text_of(component.get("type")),)
                )


def _read(root: View, file: ManifestFile, origin: Origin) -> Service:
    """The one vLLM worker of the graph at ``root`` that decodes, with those that fill prompts for it.

    Raises:
        InputError: it has none, or several, or they serve different models.
    """
    spec = root.need("spec")
    components = tuple(_components(spec))
    # The image tells nothing: a frontend has the workers' own.
    workers = [
        component
        for component in components
        if is_vllm_start("", words(component.container)[1:], ())
    ]
    if not workers:
        raise no_engine(spec, [component.container for component in components], _WHERE)
    engines = {worker.name: locate(worker.container) for worker in workers}
    decoding = [
        worker for worker in workers if not worker.fills_prompts(engines[worker.name].command)
    ]
    if len(decoding) != 1:
        raise workers[-1].container.error(
            f"{len(decoding)} vLLM workers of the graph decode",
            hint="change the arguments of each worker by hand",
        )
    (worker,) = decoding
    service = service_of_pod(
        "DynamoGraphDeployment", root, file.text, origin, worker.pod, worker.container
    )
    ends = []
    for other in workers:
        engine, image = engines[other.name], text_of(other.container.get("image"))
        if other is not worker:
            pods = PrefillPods(engine, origin.document, origin.number, other.pod)
            ends.append(
                End(other.name, service.namespace, "prefill", model_of(engine), image, (pods,))
            )
    strange = next((end for end in ends if end.model != service.model), None)
    if strange is not None:
        raise strange.pods[0].engine.home.error(
            f"component {strange.name} fills prompts for {service.model} with {strange.model}",
            hint="name the same model in both workers",
        )
    return paired(service, "decode", ends) if ends else service


DYNAMO_GRAPH = Adapter(
    "DynamoGraphDeployment", ("nvidia.com/v1beta1", "nvidia.com/v1alpha1"), _read
)
