"""A trainer in memory, whose runs and heads outlive a command, and the trainings of one stale draft."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from mpctl.app.planned_workload import read_traffic
from mpctl.lab.drafts.card import AcceptedCounts, Card, Holdout, Target, TrainingRun, prompt_digest
from mpctl.lab.drafts.order import Limits, Split, TrainingOrder, TrainingPhase, TrainingStatus

OLD, NEW = AcceptedCounts(100, (50, 20, 5)), AcceptedCounts(100, (90, 80, 70))


@dataclass
class MemoryTrainer:
    """``trainings``: how often something was trained; ``sent``: how often prompts came; ``phase``: of every run;
    ``worse``: its heads are; ``served``, ``trained_for``: digests of targets."""

    runs: dict[str, TrainingOrder] = field(default_factory=dict)
    trainings: int = 0
    sent: int = 0
    phase: TrainingPhase = TrainingPhase.DONE
    worse: bool = False
    served: str = "d1"
    trained_for: str = "d1"

    purged: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    boundary: Callable[[str], None] = lambda _where: None  # where a command may die

    def submit(self, order: TrainingOrder, prompts: Split) -> str:
        self.sent += 1
        self.boundary("trainer")
        if order.name not in self.runs:
            self.trainings += 1
            self.runs[order.name] = order
        self.boundary("trainer")
        return f"uid-{order.name}"

    def orders(self) -> tuple[TrainingOrder, ...]:
        return tuple(self.runs.values())

    def uid_of(self, head: str) -> str | None:
        return f"uid-{head}" if head in self.runs else None

    def cards(self) -> tuple[Card, ...]:
        done = self.phase is TrainingPhase.DONE
        return tuple(self.card(f"uid-{order.name}") for order in self.orders()) if done else ()

    def status(self, uid: str) -> TrainingStatus | None:
        return (
            TrainingStatus(self.phase, "state", uid)
            if uid.removeprefix("uid-") in self.runs
            else None
        )

    def card(self, uid: str) -> Card:
        self.boundary("trainer")
        order = self.runs[uid.removeprefix("uid-")]
        new, old = (OLD, NEW) if self.worse else (NEW, OLD)
        return Card(
            order.name,
            order.method,
            Target("org/model", digest=self.trained_for),
            "head-digest",
            salt=order.salt,
            training_digests=order.training,
            holdout=Holdout.of(3, [new] * 20, [old] * 20),
            trained=TrainingRun(gpu_hours=0.5),
        )

    def cancel(self, uid: str) -> None:
        self.boundary("trainer")
        self.cancelled.append(uid)

    def purge(self, name: str) -> None:
        self.boundary("trainer")
        self.purged.append(name)


class MemoryTraining:
    """What trains the draft of a plan on the prompts of a policy."""

    gpu_hours = 2.0

    def __init__(self, trainer, policy):
        self.trainer, self._policy = trainer, policy

    def order(self, name: str, salt: str) -> tuple[TrainingOrder, Split]:
        prompts = [
            p
            for kind, file in self._policy.prompts.items()
            for p in read_traffic(f"{kind}={file}").prompts
        ]
        split = Split.of(prompts, salt)
        digests = [
            tuple(prompt_digest(p, salt) for p in side) for side in (split.training, split.holdout)
        ]
        order = TrainingOrder(
            name, "svc", "eagle3", self.target(), salt, *digests, ("train",), limits=Limits()
        )
        return order, split

    def draft(self, name: str) -> str:
        return f"pvc://claim/drafts/{name}/head"

    def close(self) -> None:
        pass

    def target(self) -> Target:
        return Target("org/model", digest=self.trainer.served)
