"""One service as it is: read without changing anything, as a value, a record and a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mpctl.cli.session import LocalSession
from mpctl.cli.terminal import columns
from mpctl.manifest import redacted
from mpctl.methods import from_config
from mpctl.platform.local.engine import read_service
from mpctl.rollout.ledger import Entry, lost_history
from mpctl.rollout.operation import Operation, open_operation
from mpctl.rollout.ports import Arm, ArmState, Phase
from mpctl.rollout.revision import Revision

if TYPE_CHECKING:
    from mpctl.cli.cluster_session import ClusterSession


@dataclass(frozen=True)
class Status:
    """``spec`` is what the manifest says, ``arms`` what really runs. ``supervised``: whether somebody looks after the
    engines."""

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

    @property
    def state(self) -> str:
        """One word: of the arm that gets the traffic, unless an operation is open or nobody looks after it."""
        if self.operation is not None:
            return "Progressing" if self.holder else "Interrupted"
        if not self.supervised:
            return "Unsupervised"
        serving = next((a for a in self.arms if a.id == self.routed), None)
        return serving.phase.value if serving else Phase.ABSENT.value

    def to_record(self) -> dict[str, Any]:
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
                "arms": [_arm_record(a) for a in self.arms],
                "operation": self.operation.id if self.operation else None,
                "step": self.operation.begun if self.operation else None,
                "heldBy": self.holder,
                "problems": list(self.problems),
            },
        }


def _arm_record(arm: ArmState) -> dict[str, Any]:
    return {
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


def read_local(session: LocalSession) -> Status:
    """Everything known of one service of this machine."""
    desired = session.platform.desired()
    supervised = session.platform.supervised()
    arms = tuple(session.platform.state(Arm(a.manifest)) for a in desired.arms.values())
    revisions, entries = session.store.revisions(), session.store.entries()
    operation = open_operation(entries)
    holder = session.store.holder()
    present: dict[str, Any] | None = read_service(desired.text, session.name).speculation()
    problems = _arm_problems(arms)
    if not supervised and holder is None:
        problems.append(
            f"the supervisor is gone, port {desired.port} does not answer: mpctl local up {session.name} "
            "brings both back"
        )
    elif session.platform.router_error():
        problems.append(session.platform.router_error())
    return Status(
        namespace=session.namespace,
        name=session.name,
        spec=from_config(present).describe(),
        revision=_revision(revisions, desired.text),
        url=f"http://127.0.0.1:{desired.port}/v1",
        routed=desired.route,
        arms=arms,
        operation=operation,
        holder=holder,
        supervised=supervised,
        problems=(*problems, *_interrupted(operation, holder), *_lost(entries, revisions, holder)),
    )


def read_cluster(session: ClusterSession) -> Status:
    """Everything known of one service of a cluster."""
    from mpctl.errors import InputError

    platform = session.platform
    live = platform.read()
    arms = platform.arms()
    revisions, entries = session.store.revisions(), session.store.entries()
    operation = open_operation(entries)
    holder = session.holder()
    try:
        present: dict[str, Any] | None = session.service().speculation()
        spec, unread = from_config(present).describe(), []
    except InputError as error:  # a model that vLLM does not serve is listed too
        spec, unread = "-", [error.message]
    return Status(
        namespace=session.namespace,
        name=session.name,
        spec=spec,
        revision=_revision(revisions, live.text),
        url=platform.url(),
        routed=live.routed,
        arms=arms,
        operation=operation,
        holder=holder,
        supervised=True,
        problems=(
            *_arm_problems(arms),
            *platform.problems(),
            *unread,
            *_interrupted(operation, holder),
            *_lost(entries, revisions, holder),
        ),
    )


def _arm_problems(arms: tuple[ArmState, ...]) -> list[str]:
    # What is said of an arm that is ready is what could not be looked at.
    told = (a for a in arms if a.phase is Phase.FAILED or (a.phase is Phase.READY and a.message))
    problems = [f"{a.id}: {a.message}" for a in told]
    return problems + [f"{a.id} runs with other arguments than its manifest" for a in arms if a.argv and not a.matches]


def _revision(revisions: tuple[Revision, ...], text: str) -> int | None:
    return next((r.number for r in reversed(revisions) if r.text == text), None)


def _lost(entries: tuple[Entry, ...], revisions: tuple[Revision, ...], holder: str | None) -> tuple[str, ...]:
    """Nothing while somebody writes: the two were not read at one moment."""
    return lost_history(entries, revisions) if holder is None else ()


def _interrupted(operation: Operation | None, holder: str | None) -> list[str]:
    if operation is None or holder is not None:
        return []
    return [f"{operation.id} was interrupted: mpctl resume goes on, mpctl rollback undoes"]


def table(found: list[Status], *, wide: bool) -> str:
    """Services, then the engines and problems of those that have something to say."""
    header = ["NAMESPACE", "NAME", "STATE", "SPEC", "REVISION", "URL"]
    rows = [[s.namespace, s.name, s.state, s.spec, str(s.revision or "-"), s.url] for s in found]
    lines = [columns([header, *rows])]
    for status in found:
        if status.operation is not None:
            step = status.operation.begun or "between steps"
            lines.append(f"\n{status.name}: {status.operation.id} ({status.operation.plan.spec}) at {step}")
            if status.holder:
                lines.append(f"  held by {status.holder}")
        if status.arms and (wide or len(status.arms) > 1):
            lines.append("")
            lines.append(columns([["ARM", "PHASE", "TRAFFIC", "ENDPOINT", "RESTARTS", "MESSAGE"], *_arm_rows(status)]))
        lines += [f"problem: {problem}" for problem in status.problems]
    return "\n".join(lines)


def _arm_rows(status: Status) -> list[list[str]]:
    return [
        [
            arm.id,
            arm.phase.value,
            arm.traffic or ("all" if arm.id == status.routed else "none"),
            arm.endpoint.base_url if arm.endpoint else "-",
            str(arm.restarts),
            arm.message or (f"kept since {arm.retained_since}; mpctl retire lets it go" if arm.retained_since else "-"),
        ]
        for arm in status.arms
    ]
