"""How an operation ended, for people and for scripts: the measured table, the gate, and the exit code that says it."""

from __future__ import annotations

from typing import Any

from mpctl.app.session.base import Session
from mpctl.cli.printer import columns
from mpctl.cli.terminal import Terminal
from mpctl.errors import GateRejected, MpctlError, RolledBack, Undecided
from mpctl.gate.analysis import Analysis, Comparison
from mpctl.gate.assess import Verdict
from mpctl.report import comparison_rows, gate_rows, operation_record
from mpctl.rollout import runner
from mpctl.rollout.context import Context
from mpctl.rollout.operation import Ending, Operation, operations
from mpctl.rollout.plan import Kind
from mpctl.rollout.steps.measure import measurement

_ERRORS = {Ending.REJECTED: GateRejected, Ending.UNDECIDED: Undecided, Ending.FAILED: RolledBack}


def carry_out(session: Session, terminal: Terminal, world: Context, operation: Operation, output: str) -> None:
    """Run an operation to its end and report it.

    Raises:
        GateRejected, Undecided, RolledBack: the operation was a rollout that did not end promoted.
        MpctlError: it failed before anything was changed, or its automatic way back failed.
    """
    operation = runner.run(world, operation)
    if operation.plan.kind is Kind.ROLLBACK:
        operation = _undone_rollout(session, operation)
    report(session, terminal, world, operation, output)


def _undone_rollout(session: Session, operation: Operation) -> Operation:
    """A resumed automatic way back is reported as the rollout it belongs to; one asked for by hand as itself."""
    if not operation.plan.automatic:
        return operation
    for other in operations(session.store.entries()):
        if other.id == operation.plan.undoes and other.ending in _ERRORS:
            return other
    return operation


def report(session: Session, terminal: Terminal, world: Context, operation: Operation, output: str) -> None:
    """Print what was measured and how it ended; raise if it did not end well."""
    verdict = None
    cells: tuple[Comparison, ...] = ()
    if operation.plan.kind is Kind.ROLLOUT and operation.plan.workload:
        cells = Analysis.of(measurement(world, operation).judged(), operation.plan.policy).cells
        if "judge" in operation.done:
            verdict = Verdict.from_record(dict(operation.done["judge"]))
    if output in ("json", "yaml"):
        terminal.record("Operation", operation_record(operation, verdict, cells), output)
    elif output == "name":
        terminal.result(operation.id)
    else:
        _print(terminal, operation, cells, verdict)
    _conclude(session, operation)


def _print(terminal: Terminal, operation: Operation, cells: tuple[Comparison, ...], verdict: Verdict | None) -> None:
    plan = operation.plan
    print_cells(terminal, cells, baseline=plan.baseline_spec, candidate=plan.spec)
    if verdict is not None:
        terminal.result("")
        terminal.result(columns(gate_rows(verdict)))
        terminal.result("")


def print_cells(terminal: Terminal, cells: tuple[Comparison, ...], *, baseline: str, candidate: str) -> None:
    """One table per traffic condition in which anything was answered by both arms."""
    told = [c for c in cells if c.compared]
    for comparison in told:
        if len(told) > 1:
            terminal.result(f"\n{comparison.cell.label}")
        terminal.result(columns(comparison_rows(comparison, baseline=baseline, candidate=candidate)))


def _conclude(session: Session, operation: Operation) -> None:
    plan, terminal = operation.plan, session.console
    title = session.title
    if operation.ending is Ending.PROMOTED:
        terminal.note(f"promoted: {title} runs {plan.spec}")
        if operation.done.get("keep-baseline", {}).get("kept"):
            terminal.note(f"{plan.baseline_spec} is kept beside it; mpctl retire {session.name} lets it go")
        terminal.next_command(f"rollback {session.name}   # the exact way back")
        return
    if operation.ending in (Ending.ROLLED_BACK, Ending.UNDONE):
        target = f" (revision {plan.target})" if plan.target else ""
        added = operation.done.get("verify", {}).get("added")
        exact = f"as recorded, but for {', '.join(added)}, which admission adds now," if added else "as recorded"
        terminal.note(f"restored: {title} is byte for byte {exact}{target} and runs {plan.spec}")
        terminal.next_command(f"history {session.name}")
        return
    if operation.ending is Ending.RETIRED:
        terminal.note(f"{title} runs {plan.spec}, with nothing kept beside it")
        return
    assert operation.ending is not None
    kind: type[Any] = _ERRORS[operation.ending]
    if operation.ending is Ending.FAILED:
        recorded = "record" in operation.done  # nothing is changed before that
        changed = "was restored" if recorded else "was not changed"
        if not recorded:
            kind = MpctlError
        raise kind(
            f"{operation.id} failed and {title} {changed}: {operation.detail}",
            hint=f"the same command tries again once the cause is gone; mpctl history {session.name} keeps the record",
        )
    word = "said no" if operation.ending is Ending.REJECTED else "could not decide"
    raise kind(
        f"the gate {word}: {operation.detail}",
        hint=f"{title} is as it was; mpctl history {session.name} keeps the reason",
    )
