"""``mpctl plan``: will speculation pay, before anything is started."""

from __future__ import annotations

import time
from collections.abc import Callable

from mpctl.app.option import File, Option
from mpctl.cli.command import FILE, OUTPUT, command, service_argument
from mpctl.cli.context import CliContext, Conclusion
from mpctl.cli.printer import columns, page, page_width
from mpctl.cli.terminal import Terminal
from mpctl.json_types import JsonView
from mpctl.lab.plan_tables import band, page_of, plan_text
from mpctl.lab.requests import PlanRequest

_SILENT_S = 5.0
_WIDTH = 100  # of a plan that goes to a file, and at most
_OPTIONS = (
    FILE,
    Option(
        "--cell",
        type=File,
        metavar="FILE|-",
        help="Answer the questions of a file, without a service (docs/how-to/will-it-pay.md).",
    ),
    Option(
        "--history",
        section="Output",
        type=bool,
        help="Compare earlier predictions with what rollouts measured.",
    ),
)


@command(
    "plan",
    service_argument(),
    *_OPTIONS,
    PlanRequest,
    OUTPUT,
    common="file spec draft gpu traffic concurrency acceptance measure prompts output",
    many=True,
)
def plan(
    context: CliContext,
    /,
    name: str | None,
    file: str | None,
    request: PlanRequest,
    *,
    cell: str | None,
    history: bool,
) -> None:
    """Predict what speculation would bring, before anything is started.

    \b
    Examples:
      mpctl plan qwen --gpu L4 --traffic code         every method
      mpctl plan ORG/MODEL --spec all --gpu H100-SXM  before it is served
      mpctl plan qwen --spec ngram,suffix --measure --transcripts log.jsonl
      mpctl plan qwen --spec eagle3 --measure --prompts traffic.jsonl

    The answer comes first, then the methods with 90 % bands, and the command that would settle it. One method, or -v,
    shows the details. A gain is only called on acceptance measured on your own traffic; the rest is screening.
    """
    if cell is not None:
        from mpctl.lab.plan import cells

        record = cells.run(
            cell, request.speculation.catalogue, _progress(context.terminal)
        ).to_record()
    elif history:
        from mpctl.lab.plan import predicted

        record = predicted.read_record(context.open_session(name)).to_record()
    else:
        from mpctl.lab.plan import service_plan

        progress = _progress(context.terminal)
        record = service_plan.run_request(
            name, file, request, context.open_source, progress
        ).to_record()
    context.conclusion = _conclusion(record)
    context.emit(
        "Plan",
        record=lambda: record,
        names=lambda: [f"method/{method['method']}" for method in record.get("methods", ())],
        table=lambda _wide: _text(
            record, details=bool(context.terminal.verbose) or len(record.get("methods", ())) < 2
        ),
    )


def _conclusion(record: JsonView) -> Conclusion:
    """The best method with its ratio at the lowest concurrency."""
    best = next((method for method in record.get("methods", ()) if method.get("best")), None)
    if best is None:
        return Conclusion("no figure")
    return Conclusion("predicted", f"{best['method']}: {band(best['best'][0]['throughputRatio'])}")


def _progress(terminal: Terminal) -> Callable[[str], None]:
    """Show a line of progress once the work has taken longer than a user waits without a word."""
    began = time.monotonic()

    def show(text: str) -> None:
        if time.monotonic() - began > _SILENT_S:
            terminal.step("plan", f"planning: {text}")

    return show


def _text(record: JsonView, *, details: bool) -> str:
    width = 1000 if "history" in record else _WIDTH
    return plan_text(
        page_of(record),
        lambda rows, indent: _table(rows, indent, width),
        page_width(_WIDTH),
        details=details,
    )


def _table(rows: list[list[str]], indent: str, width: int) -> str:
    """A table indented as a whole and wrapped to the page, at most ``width``; -o json has every figure."""
    with page(page_width(width) - len(indent)):
        return "\n".join(indent + line if line else line for line in columns(rows).split("\n"))
