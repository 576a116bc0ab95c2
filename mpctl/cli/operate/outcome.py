"""The outcome of an operation, for people and for scripts."""

from __future__ import annotations

from collections.abc import Iterator

from mpctl.app.operate.outcome import OperationOutcome, write_report
from mpctl.cli.context import CliContext, Conclusion
from mpctl.cli.figures import comparison_tables, ratios_text, rules_table
from mpctl.cli.printer import columns, paragraph
from mpctl.report import deciding, operation_record, plan_record
from mpctl.report.values import Deciding
from mpctl.rollout.operation import Ending
from mpctl.rollout.plan import Kind
from mpctl.rollout.steps.confirm import Confirmation
from mpctl.rollout.steps.promote import RetentionResult


def conclude(context: CliContext, outcome: OperationOutcome) -> None:
    """Print an outcome.

    Raises:
        GateRejected, Undecided, RolledBack: a rollout did not end promoted.
        MpctlError: it failed before anything was changed.
    """
    if (preview := outcome.preview) is not None:
        context.emit(
            "Preview",
            record=lambda: {
                "metadata": {"name": outcome.name, "namespace": outcome.namespace},
                "spec": plan_record(preview.plan),
                "diff": preview.diff,
            },
            names=lambda: [f"{outcome.namespace}/{outcome.name}"],
            table=lambda _wide: preview.diff,
        )
        context.conclusion = Conclusion("dry run")
        context.terminal.note(f"dry run: {preview.explanation.rstrip('.')}; nothing was done")
        return
    if outcome.operation is None:
        context.conclusion = Conclusion("already runs it")
        context.terminal.note(outcome.note)
        return
    ending = outcome.operation.ending
    context.conclusion = Conclusion(
        ending.value if ending else "", ratios_text(outcome.figures[:1])
    )
    # The rollout that would probably decide an undecided one.
    decision_hint = None
    finished = outcome.finished
    if finished is not None and outcome.needed is not None:
        decision_hint = deciding(
            finished.run, outcome.needed, context.again(outcome.needed.repeats)
        )
    context.emit(
        "Operation",
        record=lambda: (
            operation_record(outcome.operation, outcome.verdict, outcome.cells, decision_hint)
            if outcome.operation
            else {}
        ),
        names=lambda: [outcome.operation.id] if outcome.operation else [],
        table=lambda wide: outcome_text(
            outcome, decision_hint, every_rule=wide or context.terminal.verbose > 0
        ),
    )
    _note_report(context, outcome)
    if outcome.error is not None:
        raise outcome.error
    _conclude(context, outcome)


def _note_report(context: CliContext, outcome: OperationOutcome) -> None:
    """Write the report, and say where it is. The operation is done, so a report that cannot be written is a warning."""
    try:
        path = write_report(outcome)
    except Exception as error:  # noqa: BLE001  a defect in a report is no failure of what was done, either
        context.terminal.warn(f"no report was written: {type(error).__name__}: {error}")
        return
    if path is not None:
        page = outcome.command("report", "--open")
        context.terminal.note(f"report: {path}; '{page}' shows it as a page")


def outcome_text(
    outcome: OperationOutcome, decision_hint: Deciding | None = None, *, every_rule: bool
) -> str:
    """Return the result in words, the measured figures, the gate rules that did not pass (or every rule) and a summary;
    empty for an operation that measures nothing."""
    if outcome.plan.kind is not Kind.ROLLOUT or not outcome.plan.workload:
        return ""
    tables = comparison_tables(
        outcome.cells, baseline=outcome.plan.baseline_text, candidate=outcome.plan.spec_text
    )
    parts = ["\n".join(tables).lstrip("\n")]
    if outcome.verdict is not None:
        parts.insert(0, paragraph(outcome.in_words))
        parts.append(rules_table(outcome.verdict, every_rule=every_rule))
        rows = list(summary_rows(outcome))
        parts.append(
            columns(
                [*rows, ["to decide", decision_hint.text]] if decision_hint is not None else rows
            )
        )
    return "\n\n".join(part for part in parts if part)


def summary_rows(outcome: OperationOutcome) -> Iterator[list[str]]:
    """Rows: what to do with a class of traffic, both ratios with their confidence intervals, what serves now and how it
    compares with what was measured where it is another start, how to roll back."""
    assert outcome.verdict is not None
    plan, promoted = (
        outcome.plan,
        outcome.operation is not None and outcome.operation.ending is Ending.PROMOTED,
    )
    yield ["candidate", ratios_text(outcome.figures) or "not measured"]
    yield [
        "serves now",
        plan.spec_text if promoted else f"{plan.baseline_text}, as before the rollout",
    ]
    if outcome.operation and (start := outcome.operation.result("confirm", Confirmation)):
        yield ["second start", start.text]
    yield [
        "roll back",
        outcome.command("rollback") if promoted else "not needed: the service is unchanged",
    ]


def _conclude(context: CliContext, outcome: OperationOutcome) -> None:
    operation, plan, terminal = outcome.operation, outcome.plan, context.terminal
    assert operation is not None
    if operation.ending is Ending.PROMOTED:
        terminal.note(f"promoted: {outcome.title} runs {plan.spec_text}", color="green")
        if (
            plan.keep_baseline
            and (retained := operation.result("keep-baseline", RetentionResult))
            and retained.arm
        ):
            terminal.note(f"{plan.baseline_text} is retained; {outcome.command('retire')} stops it")
        terminal.next_command(outcome.command("rollback"), "restores the service exactly")
    elif operation.ending in (Ending.ROLLED_BACK, Ending.UNDONE):
        restored = outcome.restored
        if restored is not None and restored.preserved:
            terminal.note(
                f"restored: {outcome.title} runs {restored.spec.describe()}, as recorded in revision "
                f"{restored.revision}; not touched, as others changed it: {', '.join(restored.preserved)}"
            )
            terminal.next_command(outcome.command("history"))
            return
        target = f" (revision {plan.goal.number})"
        added = ", ".join(restored.added) if restored is not None else ""
        exact = (
            f"as recorded, but for {added}, which admission adds now," if added else "as recorded"
        )
        runs = restored.spec.describe() if restored is not None else plan.spec_text
        terminal.note(f"restored: {outcome.title} is byte for byte {exact}{target} and runs {runs}")
        terminal.next_command(outcome.command("history"))
    elif operation.ending is Ending.RESTARTED:
        terminal.note(f"restarted: {outcome.title} runs {plan.spec_text} on fresh engines")
        terminal.next_command(outcome.command("watch", "--once"))
    elif operation.ending is Ending.RETIRED:
        terminal.note(f"{outcome.title} runs {plan.spec_text}; no baseline is retained")
