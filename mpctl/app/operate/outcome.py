"""Outcome of an operation: a dry run, or its measurement, the verdict, and the error of its exit code."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from mpctl import annex, commands
from mpctl.app.bench.recorded import FinishedRun, finished_of
from mpctl.app.change.change import unified
from mpctl.app.files import report_file
from mpctl.app.session.base import Session, who
from mpctl.errors import GateRejected, MpctlError, RolledBack, Undecided
from mpctl.gate.advice import MoreData, more_to_decide
from mpctl.gate.analysis import Analysis, Comparison
from mpctl.gate.rule import Outcome as GateOutcome
from mpctl.gate.verdict import Verdict
from mpctl.platform.state_files import write_text
from mpctl.report import result_in_words
from mpctl.report.build import build_report
from mpctl.report.markdown import markdown_report
from mpctl.rollout import runner
from mpctl.rollout.context import Context
from mpctl.rollout.measurement import figures_of
from mpctl.rollout.operation import Ending, Operation, operations
from mpctl.rollout.phases import phase_seconds
from mpctl.rollout.plan import Kind, Plan
from mpctl.rollout.restore import RestoredService, require_restored
from mpctl.rollout.steps.measure import records_of, verdict_of


@dataclass(frozen=True)
class Preview:
    """What a plan would do: the plan, the manifest that serves, and the explanation for people."""

    name: str  # of the service
    plan: Plan
    live_text: str
    explanation: str = ""

    @property
    def diff(self) -> str:
        """The change to the manifest that serves; empty without one."""
        names = (f"{self.name} (live)", f"{self.name} ({self.plan.spec_text})")
        return unified(self.live_text, self.plan.goal.text, names)


@dataclass(frozen=True)
class OperationOutcome(commands.OnService):
    """The result of a use case that changes a service."""

    name: str
    namespace: str
    title: str
    operation: Operation | None = None
    cells: tuple[Comparison, ...] = ()
    figures: tuple[tuple[str, str, str], ...] = ()  # name, estimate and confidence interval
    verdict: Verdict | None = None
    note: str = ""  # why nothing was to be done
    preview: Preview | None = None  # of a dry run
    restored: RestoredService | None = (
        None  # what runs after a rollback, read from the live service
    )
    finished: FinishedRun | None = None  # what was measured
    needed: MoreData | None = None  # what would probably decide an undecided verdict

    @classmethod
    def nothing_to_do(cls, session: Session, note: str) -> OperationOutcome:
        """The service already is as asked."""
        return cls(session.name, session.namespace, session.title, note=note)

    @property
    def plan(self) -> Plan:
        """The plan of the operation that ended."""
        assert self.operation is not None
        return self.operation.plan

    @property
    def in_words(self) -> str:
        """The result of a rollout that was judged, in a few sentences; empty for any other operation."""
        operation = self.operation
        if operation is None or operation.ending is None or self.verdict is None:
            return ""
        seconds = phase_seconds(operation)
        return result_in_words(self.verdict, self.cells, operation.ending, seconds)

    @property
    def error(self) -> MpctlError | None:
        """The error of an operation that did not end as it was meant to; None for one that did."""
        operation = self.operation
        if operation is None or operation.ending not in _FAILED:
            return None
        if operation.ending is Ending.FAILED:
            return self._failure(operation)
        kind, words = _FAILED[operation.ending]
        return kind(
            f"{words}: {_rules(self.verdict, operation.ending) or operation.detail}",
            hint=f"{self.title} is unchanged; {self.command('history', '-o', 'wide')} shows the reasons later",
        )

    @property
    def exit_code(self) -> int:
        """0, or that of the error."""
        return 0 if self.error is None else self.error.exit_code

    def _failure(self, operation: Operation) -> MpctlError:
        recorded = "record" in operation.done  # nothing is changed before that
        kind = RolledBack if recorded else MpctlError
        changed = "was restored" if recorded else "was not changed"
        return kind(
            f"{operation.id} failed and {self.title} {changed}: {operation.detail}",
            hint=f"fix the cause and run the same command again; {self.command('history')} keeps the record",
        )


def deciding_rules(operation: Operation) -> str:
    """The rules that kept a candidate out, by name; empty for another ending, and where the verdict cannot be read."""
    if operation.ending not in (Ending.REJECTED, Ending.UNDECIDED):
        return ""
    try:
        return _rules(verdict_of(operation), operation.ending)
    except MpctlError:
        return ""


def _rules(verdict: Verdict | None, ending: Ending) -> str:
    """The rules that decided, by name: their messages are in the outcome's table. Empty without a verdict."""
    if verdict is None:
        return ""
    deciding = (
        (GateOutcome.FAIL,)
        if ending is Ending.REJECTED
        else (GateOutcome.MISSING, GateOutcome.UNDECIDED)
    )
    names = tuple(dict.fromkeys(r.rule for r in verdict.rules if r.outcome in deciding))
    verb = "failed" if ending is Ending.REJECTED else "could not decide"
    return f"{', '.join(names)} {verb}" if names else ""


_FAILED: dict[Ending, tuple[type[MpctlError], str]] = {
    Ending.REJECTED: (GateRejected, "gate rejected the candidate"),
    Ending.UNDECIDED: (Undecided, "gate is undecided"),
    Ending.FAILED: (RolledBack, ""),
}


def carry_out(session: Session, context: Context, operation: Operation) -> OperationOutcome:
    """Run an operation to its end.

    Raises:
        MpctlError: its automatic rollback failed, or the live service is not what a rollback restored.
    """
    operation = runner.run(context, operation)
    if operation.plan.kind is Kind.ROLLBACK:
        operation = _undone_rollout(session, operation)
    outcome = OperationOutcome(session.name, session.namespace, session.title, operation)
    if operation.plan.kind is Kind.ROLLOUT and operation.plan.workload:
        records = records_of(context, operation)
        run = records.judged()
        analysis = Analysis.of(run, operation.plan.policy)
        verdict = verdict_of(operation)
        outcome = replace(
            outcome,
            finished=finished_of(session, records, run),
            cells=analysis.cells,
            figures=figures_of(analysis),
            verdict=verdict,
            needed=more_to_decide(analysis, verdict) if verdict else None,
        )
    if export := annex.find("export"):
        export(session, operation, outcome.verdict, outcome.cells)
    if operation.ending is Ending.ROLLED_BACK:
        return replace(outcome, restored=require_restored(context, operation))
    return outcome


def write_report(outcome: OperationOutcome) -> Path | None:
    """Write the report on a rollout that was judged to a file of this machine; None for any other operation.

    Raises:
        MpctlError, OSError: it cannot be written.
    """
    finished = outcome.finished
    if finished is None or outcome.verdict is None:
        return None
    # Judged again, as mpctl report does: a verdict on answers alone has no cell of the baseline's rounds.
    analysis, verdict = finished.judge()
    report = build_report(finished.run, analysis, verdict, service=finished.service)
    path = report_file(finished.service, finished.run, ".md")
    write_text(path, markdown_report(report))
    return path


def _undone_rollout(session: Session, operation: Operation) -> Operation:
    """A resumed automatic rollback is reported as the rollout it belongs to; one asked for by hand as itself."""
    if not operation.plan.rollback.automatic:
        return operation
    by_id = {other.id: other for other in operations(session.store.entries())}
    undone = by_id.get(operation.plan.rollback.undoes or "")
    while (
        undone is not None and undone.plan.kind is Kind.ROLLBACK
    ):  # a rollback that a foreign change stopped
        undone = by_id.get(undone.plan.rollback.undoes or "")
    return undone if undone is not None and undone.ending in _FAILED else operation


def confirm_resume(session: Session, operation: Operation) -> None:
    """Note that ``operation`` is resumed. Unless the caller opened it, show what it changes and ask.

    Raises:
        Cancelled: the user declined.
        InputError: there is no terminal to ask on and no ``--yes``.
        Tampered: a manifest is not the one that the ledger names.
    """
    plan = operation.read(session.store.revisions()).plan
    session.console.note(
        f"resuming {operation.id}, opened {operation.opened_at} by {operation.who}"
    )
    if operation.who == who() or session.platform.live_text() is None:
        return
    diff = Preview(session.name, plan, session.platform.read().text).diff
    session.console.note(diff or "the live manifest is already as planned")
    session.console.confirm(
        f"{operation.who} opened {operation.id} ({plan.spec_text}; {plan.why})\nContinue ({session.place})?"
    )
