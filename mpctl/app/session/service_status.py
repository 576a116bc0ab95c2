"""The state of one service as a value; each platform's session reads it."""

from __future__ import annotations

from dataclasses import dataclass

from mpctl import commands
from mpctl.json_types import Json
from mpctl.manifest import redacted
from mpctl.rollout.operation import Operation
from mpctl.rollout.ports import ArmState, Phase


@dataclass(frozen=True)
class Leftover:
    """The remains of a service that is not found: an unfinished operation, or pods that hold a GPU."""

    namespace: str
    service: str
    operation: str | None
    candidates: tuple[str, ...]

    @property
    def remedy(self) -> str:
        """The command that ends it."""
        if self.operation is not None:
            return commands.line("abandon", self.service, namespace=self.namespace)
        return commands.kubectl("delete", *self.candidates, namespace=self.namespace)

    @property
    def text(self) -> str:
        """A line for people."""
        parts = [f"{self.operation} is unfinished"] if self.operation is not None else []
        parts += [f"{candidate} holds its GPU" for candidate in self.candidates]
        return f"service {self.namespace}/{self.service} is gone; {', '.join(parts)}; '{self.remedy}' removes it"

    def to_record(self) -> Json:
        """A JSON object."""
        return {
            "namespace": self.namespace,
            "service": self.service,
            "operation": self.operation,
            "candidates": list(self.candidates),
            "command": self.remedy,
        }


@dataclass(frozen=True)
class Status:
    """``spec`` is that of the manifest, ``arms`` are the engines that run. ``supervised``: whether a supervisor
    restarts them; ``readable``: whether the state could be read, otherwise the problems say why not."""

    namespace: str
    name: str
    spec: str
    revision: int | None
    url: str
    routed: str | None
    arms: tuple[ArmState, ...]
    operation: Operation | None
    holder: str | None
    supervised: bool
    problems: tuple[str, ...]
    readable: bool = True

    @property
    def state(self) -> str:
        """A word: the phase of the routed arm, unless an operation on the service is open or the engines are
        unsupervised."""
        if not self.readable:
            return "Unknown"
        if self.operation is not None:
            return "Progressing" if self.holder else "Interrupted"
        if not self.supervised:
            return "Unsupervised"
        serving = next((a for a in self.arms if a.id == self.routed), None)
        return serving.phase.value if serving else Phase.ABSENT.value

    def to_record(self) -> Json:
        """A JSON object."""
        return {
            "metadata": {"name": self.name, "namespace": self.namespace},
            "status": {
                "state": self.state,
                "speculation": self.spec,
                "revision": self.revision,
                "url": self.url,
                "routed": self.routed,
                "supervised": self.supervised,
                "arms": [
                    {
                        "id": arm.id,
                        "phase": arm.phase.value,
                        "endpoint": arm.endpoint.base_url if arm.endpoint else None,
                        "argumentsMatch": arm.matches,
                        "restarts": arm.restarts,
                        "keptSince": arm.retained_since or None,
                        "traffic": arm.traffic or None,
                        "message": arm.message,
                        "command": list(redacted(arm.argv or ())),
                    }
                    for arm in self.arms
                ],
                "operation": self.operation.id if self.operation else None,
                "step": self.operation.begun if self.operation else None,
                "heldBy": self.holder,
                "problems": list(self.problems),
            },
        }


def arm_problems(arms: tuple[ArmState, ...]) -> list[str]:
    """Failed arms, unreadable parts of ready ones, and arms whose arguments differ from their manifest."""
    reported = (
        a for a in arms if a.phase is Phase.FAILED or (a.phase is Phase.READY and a.message)
    )
    problems = [f"{a.id}: {a.message}" for a in reported]
    return problems + [
        f"{a.id} runs with other arguments than its manifest"
        for a in arms
        if a.argv and not a.matches
    ]
