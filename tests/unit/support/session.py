"""A service in memory as a use case sees it: :class:`mpctl.app.session.base.Session` over ``tests/unit/support/world``,
and a console that keeps what it is told and always agrees."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from world import Behaviour, Disk, Engine, MemoryPlatform, MemoryWorld, Silent

from mpctl.app.session.base import EngineCounters, Session
from mpctl.app.session.service_status import Status
from mpctl.manifest import Service, load
from mpctl.rollout.context import Context
from mpctl.rollout.operation import unfinished_operation
from mpctl.rollout.ports import Arm, Phase

MANIFEST = """\
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: svc, namespace: chat}
spec:
  predictor:
    containers:
    - name: kserve-container
      image: vllm/vllm-openai:v0.32.0
      command: [vllm, serve, org/model]
      args:
      - --max-model-len=8192
"""


class Keeping(Silent):
    """A console that agrees to everything and keeps warnings and questions apart."""

    verbose = 0

    def __init__(self) -> None:
        super().__init__()
        self.warnings: list[str] = []
        self.questions: list[str] = []

    def warn(self, text: str) -> None:
        self.warnings.append(text)

    def next_command(self, arguments: str) -> None:
        self.lines.append(f"next: {arguments}")

    def confirm(self, question: str, *, typed: str = "") -> None:
        self.questions.append(question)

    def stoppable(self) -> AbstractContextManager[None]:
        return nullcontext()


class Behaviours(dict[str, Behaviour]):
    """The engine of the recorded manifest, and one behaviour for every other."""

    def __init__(self, candidate: Behaviour) -> None:
        super().__init__({MANIFEST: Behaviour()})
        self._candidate = candidate

    def __missing__(self, manifest: str) -> Behaviour:
        return self._candidate


class MemorySession(Session):
    """``seconds``: how long a request to the candidate takes; one to the baseline takes 0.1."""

    stages = False
    asks_hub = False
    paths = "no path is read"

    def __init__(self, *, seconds: float = 0.05, disk: Disk | None = None) -> None:
        self.name, self.namespace = "svc", "chat"
        self.console = Keeping()
        start = disk or Disk(
            MANIFEST, Arm(MANIFEST).id, {Arm(MANIFEST).id: Engine(MANIFEST, Phase.READY)}
        )
        self.memory = MemoryWorld(Behaviours(Behaviour(seconds=seconds, speculates=True)), start)
        self.memory.progress = self.console
        self.store = self.memory.context.store

    @property
    def platform(self) -> MemoryPlatform:
        return self.memory.context.platform

    def again(self) -> MemorySession:
        """Another command on the same service."""
        return MemorySession(disk=self.memory.disk)

    def service(self) -> Service:
        return load(self.platform.read().text)[0]

    def with_speculation(
        self, config: dict[str, Any] | None, edit: Callable[[Service], Service] | None = None
    ) -> str:
        return self.service().with_speculation(config).to_yaml()

    def engine_version(self, service: Service) -> str | None:
        return service.image

    def target_of(self, service: Service) -> str | None:
        return service.model

    def model_facts(self, name: str | None) -> None:
        return None

    def holder(self) -> str | None:
        return None

    @property
    def clock(self):
        return self.memory.context.clock

    def counters(self) -> EngineCounters:
        disk = self.memory.disk
        return EngineCounters({disk.routed: disk.engines[disk.routed].counters}, {}, 1)

    def status(self) -> Status:
        disk = self.memory.disk
        arms = tuple(self.platform.state(Arm(engine.manifest)) for engine in disk.engines.values())
        return Status(
            *(
                "chat",
                "svc",
                "ngram",
                None,
                "http://svc",
                disk.routed,
                arms,
                unfinished_operation(disk.ledger),
            ),
            holder=None,
            supervised=True,
            problems=(),
        )

    def _open(self) -> tuple[MemoryPlatform, Any]:
        return self.platform, self.memory.context.meter

    @contextmanager
    def context(self, *, interrupted: Any = None) -> Iterator[Context]:
        memory = self.memory.context
        yield Context(
            memory.platform, memory.store, memory.meter, memory.clock, self.console, "somebody@here"
        )
