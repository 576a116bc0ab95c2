"""Workloads that exchange KV cache: pods that fill prompts for pods that decode.

Each is a workload of its own, so that a pair is recognised by what its parts say: llm-d labels the pods
(``llm-d.ai/role``), other connectors have roles (``kv_role``), and elsewhere the name tells.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from mpctl.manifest.engine.engine_command import EngineCommand
from mpctl.manifest.service import PrefillPods, Service
from mpctl.manifest.text.view import View, text_of

Role = Literal["prefill", "decode"]
CONNECTOR = "--kv-transfer-config"
_LABEL = "llm-d.ai/role"
_ROLES: dict[str, Role] = {
    "prefill": "prefill", "decode": "decode", "kv_producer": "prefill", "kv_consumer": "decode",
}  # fmt: skip
_NAME = re.compile(r"(?:^|[-_.])(prefill|decode)(?:e?r)?(?:[-_.]|$)")


@dataclass(frozen=True)
class End:
    """A workload of a role. ``pods``: those that start vLLM, the leader's first."""

    name: str
    namespace: str | None
    role: Role
    model: str | None
    image: str | None
    pods: tuple[PrefillPods, ...]


def role_of(name: str, command: EngineCommand, labels: View | None) -> Role | None:
    """The role of an engine that exchanges KV cache; None for one that does not, and where nothing tells."""
    flags = {
        flag: value or ""
        for flag, value in command.flags().items()
        if flag.partition(".")[0] == CONNECTOR
    }
    if not flags:
        return None
    label = None if labels is None else text_of(labels.get(_LABEL))
    of_connector = re.findall("kv_producer|kv_consumer", " ".join(flags.values()))
    words = (label or "", *of_connector, *reversed(_NAME.findall(name.lower())))
    return next((role for word in words if (role := named_role(word))), None)


def named_role(word: str | None) -> Role | None:
    """The role that a label or a ``kv_role`` stands for; None where it may be either."""
    return _ROLES.get(word or "")


def paired(service: Service, role: Role, ends: Iterable[End]) -> Service:
    """This service with the workloads that fill its prompts, when it decodes; one that fills prompts is not edited
    alone. ``ends``: of the same file."""
    assert service.source is not None
    others = [
        end
        for end in ends
        if (end.name, end.namespace) != (service.name, service.namespace)
        and end.namespace == service.namespace
        and end.model == service.model
    ]
    decoding = [end.name for end in others if end.role == "decode"]
    prefill = [end for end in others if end.role == "prefill"]
    home = service.source.engine.home
    title = f"{service.kind} {service.name}"
    if role == "prefill":
        named = (
            f"name {decoding[0]}"
            if decoding
            else "put it and the decode workload into one file, and name that"
        )
        obstacle = home.error(
            f"{title} fills prompts for decode pods, which take its KV cache with the same draft alone",
            hint=f"{named}: both are edited together",
        )
        return replace(
            service, only_by_name=True, source=replace(service.source, obstacle=obstacle)
        )
    if prefill and decoding:
        obstacle = home.error(
            f"{title} and {', '.join(decoding)} take KV cache from {prefill[0].name}, which would change for all",
            hint="write each pair into a file of its own, or the setting into all of them by hand",
        )
        return replace(service, source=replace(service.source, obstacle=obstacle))
    pods = tuple(pod for end in prefill for pod in end.pods)
    return replace(
        service,
        prefill_args=tuple(pod.engine.command.argv for pod in pods),
        prefill_image=next((end.image for end in prefill if end.image != service.image), None),
        source=replace(service.source, prefill=pods),
    )
