"""The kubelets' other half: pods that were bound to our nodes become processes, and their status says so.

How a pod behaves is decided by rules from the test's code (:meth:`Pods.rule`), by the annotation
``rig.mpctl.dev/behave`` with the same fields as JSON, or is the default.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from .api import Api
from .behave import ANNOTATION, Behave
from .nodes import Nodes
from .pod import Pod
from .processes import Processes, Slot

Rule = Callable[[dict], dict[str, Any] | None]


class Pods:
    """All pods that run on the cluster's nodes."""

    def __init__(
        self, api: Api, slot: Slot, nodes: Nodes, processes: Processes, folder: Path
    ) -> None:
        self.api, self.slot, self.nodes, self.processes = api, slot, nodes, processes
        self.folder = folder / "pods"
        self.claims: dict[str, Path] = {}  # PersistentVolumeClaim name: folder that it is
        self.proxy_url = ""
        self.api_server = ""  # as containers find it
        self.running: dict[str, Pod] = {}  # by uid
        self._rules: list[Rule] = []
        self._task: asyncio.Task[None] | None = None
        self._used: dict[int, set[int]] = {}

    def rule(self, decide: Rule) -> Callable[[], None]:
        """Let ``decide(pod)`` return fields of :class:`Behave` for pods that start from now on, or None; later rules
        win. Returns what takes the rule back."""
        self._rules.append(decide)
        return lambda: decide in self._rules and self._rules.remove(decide)

    def clear(self) -> None:
        """No rules."""
        self._rules.clear()

    def behave(self, pod: dict) -> Behave:
        """What a pod is to do."""
        script: dict[str, Any] = json.loads(
            pod["metadata"].get("annotations", {}).get(ANNOTATION, "{}")
        )
        for decide in self._rules:
            script |= decide(pod) or {}
        return replace(Behave(), **script)

    def named(self, namespace: str, name: str) -> Pod | None:
        """A pod that runs here."""
        pods = [p for p in self.running.values() if (p.namespace, p.name) == (namespace, name)]
        return pods[-1] if pods else None

    async def start(self) -> None:
        """Begin to look after pods."""
        self._task = asyncio.create_task(self._watch())

    async def stop(self) -> None:
        """Leave all pods; their processes end with the cluster's."""
        tasks = [t for t in [self._task, *(p.task for p in self.running.values())] if t]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for pod in self.running.values():
            for unit in pod.units:
                pod.signal(unit, signal.SIGKILL)
                if unit.process:
                    await unit.process.wait()
        await asyncio.sleep(0)

    def take_address(self, node: int) -> tuple[str, int]:
        """A free address on a node."""
        used = self._used.setdefault(node, {0, 1, 255})
        index = next(i for i in [*range(2, 255)] if i not in used)
        used.add(index)
        return self.slot.pod(node, index), index

    def give_back(self, node: int, index: int) -> None:
        """The address may be used again."""
        self._used[node].discard(index)

    async def _watch(self) -> None:
        async for event, record in self.api.watch("pods", fields="spec.nodeName!="):
            uid = record["metadata"]["uid"]
            pod = self.running.get(uid)
            if event == "DELETED":
                if pod:
                    pod.gone()
                continue
            if pod is None:
                if record["spec"]["nodeName"] not in self.nodes.numbers:
                    continue
                pod = self.running[uid] = Pod(self, record)
                pod.task = asyncio.create_task(pod.run())
            pod.update(record)
