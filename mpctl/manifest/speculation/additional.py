"""KServe's variable for further arguments, VLLM_ADDITIONAL_ARGS, in the pod template of an LLMInferenceService.

A service may have no template of its own: then it is made for the variable, and goes with it. A template that mpctl
made is recognised by its form: the container has nothing but ``env``, written first, and its name.
"""

from __future__ import annotations

from mpctl.manifest.engine.locate import VARIABLE, Engine, EvaluatedArguments
from mpctl.manifest.text.entries import add_entry, add_item, block_lines, cut_entry, cut_item
from mpctl.manifest.text.list_items import Cut, has_key
from mpctl.manifest.text.view import View, text_of

CONTAINER = "main"


def add_variable(text: str, place: EvaluatedArguments, value: str) -> Cut:
    """The variable with ``value``, in a container and a template of its own where there are none.

    Raises:
        InputError: the manifest is not written in block form there.
    """
    entry = {"name": VARIABLE, "value": value}
    container = place.container
    if container is not None:
        env = container.get("env")
        if env is not None:
            return add_item(text, env, block_lines(entry))
        _require_absent(container, "env")
        return add_entry(text, container, "env", [entry])
    main = {"env": [entry], "name": CONTAINER}
    template = place.pod.get(place.key)
    if template is None:
        _require_absent(place.pod, place.key)
        return add_entry(text, place.pod, place.key, {"containers": [main]})
    containers = template.get("containers")
    if containers is not None:
        return add_item(text, containers, block_lines(main))
    _require_absent(template, "containers")
    return add_entry(text, template, "containers", [main])


def _require_absent(home: View, key: str) -> None:
    if has_key(home, key):
        raise home.error(f'"{key}" is empty', hint="remove the line; nothing can be added to null")


def remove_variable(text: str, engine: Engine) -> Cut:
    """Cut the variable, with the container and the template that hold nothing else of a user."""
    evaluated = engine.evaluated
    assert evaluated is not None
    assert evaluated.container is not None
    env = evaluated.container.need("env")
    index = next(
        i for i, variable in enumerate(env.items()) if text_of(variable.get("name")) == VARIABLE
    )
    if len(env.items()) > 1:
        return cut_item(text, env, index)
    if [key for key, _ in evaluated.container.pairs()] != ["env", "name"]:
        return cut_entry(text, evaluated.container, "env")
    template = evaluated.pod.need(evaluated.key)
    containers = template.need("containers")
    if len(containers.items()) > 1:
        container_index = next(
            i
            for i, container in enumerate(containers.items())
            if text_of(container.get("name")) == CONTAINER
        )
        return cut_item(text, containers, container_index)
    if [key for key, _ in template.pairs()] != ["containers"]:
        return cut_entry(text, template, "containers")
    return cut_entry(text, evaluated.pod, evaluated.key)


def without_variable(pod: dict[str, object], key: str) -> None:
    """The data of a template without the variable and what was made for it, to compare it before and after."""
    template = pod.get(key)
    containers = template.get("containers") if isinstance(template, dict) else None
    if not isinstance(template, dict) or not isinstance(containers, list):
        return
    for container in containers:
        if isinstance(container, dict) and container.get("name") == CONTAINER:
            container.pop("args", None)
            env = [
                variable
                for variable in container.get("env") or []
                if variable.get("name") != VARIABLE
            ]
            container.pop("env", None)
            container.update({"env": env} if env else {})
    template["containers"] = [
        container for container in containers if container != {"name": CONTAINER}
    ]
    if not template["containers"]:
        del template["containers"]
    if not template:
        del pod[key]
