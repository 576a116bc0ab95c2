"""Recorded revisions and operations of a service, and what changed since."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from mpctl import formatting
from mpctl.app.change import prepare
from mpctl.app.change.change import unified
from mpctl.app.inspect_requests import DiffRequest
from mpctl.app.session.base import Session, Source
from mpctl.errors import InputError, MpctlError
from mpctl.json_types import Json
from mpctl.methods import spec_text
from mpctl.rollout.ledger import live_revisions, lost_history
from mpctl.rollout.operation import Operation, operations
from mpctl.rollout.revision import Revision
from mpctl.rollout.steps.measure import verdict_of

RATIOS = ("throughput", "time per token")


@dataclass(frozen=True)
class ServiceHistory:
    """``live``: the number of the revision that is the live manifest; None when none is. ``served``: numbers of those
    that were live; the others are candidates that were not promoted. ``absence``: why the service itself is not
    found."""

    revisions: tuple[Revision, ...]
    operations: tuple[Operation, ...]
    live: int | None
    gaps: tuple[str, ...]
    served: frozenset[int] = frozenset()
    absence: InputError | None = None

    def status(self, revision: Revision) -> str:
        """``live``, ``superseded``, or ``candidate`` for one that was not promoted."""
        if revision.number == self.live:
            return "live"
        return "superseded" if revision.number in self.served else "candidate"

    def why(self, revision: Revision) -> str:
        """The reason for a revision: ``promoted by rollout-1`` also where it was recorded before that was known."""
        if revision.number in self.served and revision.why == f"candidate of {revision.operation}":
            return f"promoted by {revision.operation}"
        return revision.why

    def to_record(self) -> Json:
        """A JSON object, without the manifests."""
        return {
            "revisions": [revision_record(r) for r in self.revisions],
            "operations": [
                {
                    "id": operation.id,
                    "openedAt": operation.opened_at,
                    "closedAt": operation.closed_at,
                    "by": operation.who,
                    "spec": operation.plan.spec_text,
                    "ending": operation.ending.value if operation.ending else None,
                    "detail": operation.detail,
                    "ratios": [asdict(ratio) for ratio in measured_ratios(operation)],
                }
                for operation in self.operations
            ],
        }


def revision_record(revision: Revision) -> Json:
    """A revision as a JSON object, without its manifest."""
    record = {k: v for k, v in revision.to_record().items() if k != "text"}
    return {**record, "spec": spec_text(revision.spec)}


@dataclass(frozen=True)
class MeasuredRatio:
    """A ratio of a verdict, of its cells the lowest and the highest ``value``."""

    rule: str
    value: tuple[float, float]
    cells: int

    @property
    def text(self) -> str:
        """``1.83x``, of several cells ``1.10x to 1.83x``."""
        low, high = (formatting.ratio(value) for value in self.value)
        return low if low == high else f"{low} to {high}"


def measured_ratios(operation: Operation) -> tuple[MeasuredRatio, ...]:
    """The throughput and the time-per-token ratio of an operation's verdict; none without one that can be read."""
    try:
        verdict = verdict_of(operation)
    except MpctlError:
        return ()
    throughput, time = RATIOS
    figures = {
        throughput: [c.throughput_ratio for c in verdict.cells] if verdict else [],
        time: [r.value for r in verdict.rules if r.rule == time] if verdict else [],
    }
    ratios = []
    for name, every in figures.items():
        values = [value for value in every if value is not None]
        if values:
            ratios.append(MeasuredRatio(name, (min(values), max(values)), len(values)))
    return tuple(ratios)


def read_history(session: Session) -> ServiceHistory:
    """All revisions and operations, oldest first, and the gaps in them."""
    revisions, entries = session.store.revisions(), session.store.entries()
    text = session.platform.live_text()
    live = max((r.number for r in revisions if r.text == text), default=None)
    return ServiceHistory(
        revisions,
        operations(entries),
        live,
        lost_history(entries, revisions),
        live_revisions(entries),
        absence=session.absence() if text is None else None,
    )


def read_revision(session: Session, number: int) -> Revision:
    """A revision.

    Raises:
        InputError: there is none of this number.
    """
    revisions = session.store.revisions()
    chosen = next((r for r in revisions if r.number == number), None)
    if chosen is None:
        numbers = ", ".join(str(r.number) for r in revisions) or "none"
        raise InputError(
            f"{session.title} has no revision {number}; known: {numbers}", field="--revision"
        )
    return chosen


def diff(session: Session, request: DiffRequest) -> str:
    """A unified diff; empty when nothing differs.

    Raises:
        InputError: there is no such revision, or the change cannot be prepared.
    """
    if not request.speculation.method:
        return _since(session, request.revision)
    if request.revision is not None:
        raise InputError("cannot be combined with --revision", field="--spec")
    return prepare(session, request.speculation).diff()


def diff_of_manifest(source: Source, request: DiffRequest) -> str:
    """A unified diff of a change to a manifest in a file; empty when it has the spec already.

    Raises:
        InputError: no change is named, or it cannot be prepared.
    """
    if not request.speculation.method:
        raise InputError(
            "a manifest has no revisions", field="-f", hint="name the change with --spec METHOD"
        )
    if request.revision is not None:
        raise InputError("cannot be combined with -f", field="--revision")
    return prepare(source, request.speculation).diff("in the file")


def _since(session: Session, number: int | None) -> str:
    live, revisions = session.platform.read(), session.store.revisions()
    if number is None:
        serving = live_revisions(
            session.store.entries()
        )  # a rejected candidate was never the service
        chosen = next(
            (r for r in reversed(revisions) if r.text != live.text and r.number in serving), None
        )
        if chosen is None:
            session.console.note(f"{session.title} has no other revision than the present one")
            return ""
    else:
        chosen = next((r for r in revisions if r.number == number), None)
        if chosen is None:
            raise InputError(
                f"{session.title} has no revision {number}", hint=session.command("history")
            )
    names = (f"{session.name} (revision {chosen.number})", f"{session.name} (live)")
    return unified(chosen.text, live.text, names)
