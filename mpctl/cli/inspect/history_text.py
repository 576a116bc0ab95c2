"""The history of a service as text: its revisions and operations, or one revision as it was."""

from __future__ import annotations

from datetime import UTC, datetime

from mpctl.app.inspect.history import (
    RATIOS,
    ServiceHistory,
    measured_ratios,
    read_history,
    read_revision,
)
from mpctl.app.operate.outcome import deciding_rules
from mpctl.app.session.base import Session
from mpctl.cli.command import presentable
from mpctl.cli.context import CliContext
from mpctl.cli.printer import columns
from mpctl.methods import spec_text
from mpctl.rollout.operation import Ending, Operation
from mpctl.rollout.revision import Revision


def print_history(context: CliContext, session: Session) -> None:
    """Print the recorded revisions and operations of a service."""
    recorded = read_history(session)
    for gap in recorded.gaps:
        context.terminal.warn(gap)
    context.emit(
        "History",
        record=recorded.to_record,
        names=lambda: [f"revision/{r.number}" for r in recorded.revisions],
        table=lambda wide: history_table(recorded, datetime.now(UTC), wide=wide),
    )
    if recorded.absence is not None:
        context.terminal.note(f"{recorded.absence.message}; {recorded.absence.hint}")
        context.terminal.note(f"'{session.command('prune', '--all')}' removes these records")
    if context.output in ("table", "wide") and not recorded.operations and not recorded.revisions:
        context.terminal.note(f"{session.title} has no recorded revision")


def print_revision(
    context: CliContext, session: Session, number: int, *, show_secrets: bool
) -> None:
    """Print the manifest as it was, whatever ``-o`` says but json and name."""
    revision = read_revision(session, number)
    text = (
        presentable(context.terminal, revision.text, show_secrets=show_secrets)
        if context.output != "name"
        else ""
    )
    if context.output in ("json", "name"):
        context.emit(
            "Revision",
            record=lambda: {**revision.to_record(), "text": text},
            names=lambda: [f"revision/{revision.number}"],
            table=lambda _wide: "",
        )
    else:
        context.terminal.exact(text)


def history_table(history: ServiceHistory, now: datetime, *, wide: bool) -> str:
    """Revisions, then operations; empty when there is neither."""
    if not history.operations and not history.revisions:
        return ""
    header = [
        "REVISION",
        "AGE",
        "STATUS",
        "SPEC",
        "WHY",
        *(["RECORDED", "BY", "DIGEST"] if wide else []),
    ]
    revisions = [
        [*_row(r, history, now), *([r.created, r.who, r.digest[:12]] if wide else [])]
        for r in history.revisions
    ]
    endings = [
        [*_ended(op, now, wide=wide), *([op.opened_at, op.who] if wide else [])]
        for op in history.operations
    ]
    titles = ["OPERATION", "AGE", "SPEC", "ENDED", "THROUGHPUT", "TIME PER TOKEN", "REASON"]
    operations = columns([[*titles, *(["OPENED", "BY"] if wide else [])], *endings])
    return f"{columns([header, *revisions])}\n\n{operations}"


def _ended(operation: Operation, now: datetime, *, wide: bool) -> list[str]:
    spec = operation.plan.spec_text
    ratios = {ratio.rule: ratio.text for ratio in measured_ratios(operation)}
    return [
        *(operation.id, age(operation.opened_at, now), spec),
        operation.ending.value if operation.ending else f"at {operation.begun or 'rest'}",
        *(ratios.get(rule, "-") for rule in RATIOS),
        _reason(operation, wide=wide) or "-",
    ]


def _reason(operation: Operation, *, wide: bool) -> str:
    """Why an operation ended so: ``wide`` as it is recorded, else by the names of the gate's rules, or of the operation
    that a rollback undid."""
    if operation.ending is Ending.PROMOTED and operation.detail == operation.plan.spec_text:
        return ""
    rules = deciding_rules(operation)
    if wide or not (rules or operation.plan.rollback.automatic):
        return operation.detail
    return rules or operation.detail.partition(":")[0]


def _row(revision: Revision, history: ServiceHistory, now: datetime) -> list[str]:
    shown = (
        age(revision.created, now),
        history.status(revision),
        spec_text(revision.spec),
        history.why(revision),
    )
    return [str(revision.number), *shown]


def age(time: str, now: datetime) -> str:
    """Return how long ago a recorded time is, as kubectl writes it: ``45s``, ``12m``, ``5h``, ``3d``."""
    try:
        then = datetime.fromisoformat(time)
    except ValueError:
        return "?"
    seconds = max((now - (then if then.tzinfo else then.replace(tzinfo=UTC))).total_seconds(), 0.0)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.0f}s"
