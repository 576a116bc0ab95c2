"""Result files of other load clients side by side, printed for ``mpctl bench compare``."""

from __future__ import annotations

from dataclasses import asdict

from mpctl import commands
from mpctl.app.bench_requests import CompareRequest
from mpctl.cli.context import CliContext
from mpctl.cli.printer import columns
from mpctl.errors import Undecided
from mpctl.formatting import UNKNOWN, count, milliseconds, number, ratio
from mpctl.json_types import Json
from mpctl.lab.foreign_results import NO_VERDICT, SideBySide, compare_files, ratios


def compare_foreign(context: CliContext, request: CompareRequest) -> bool:
    """Print two results side by side; return False where neither file is another tool's.

    Raises:
        InputError: a file cannot be used, or the two were measured differently.
        Undecided: the results are printed, and no verdict follows from them.
    """
    compared = compare_files(request)
    if compared is None:
        return False
    files = (request.first, str(request.second))
    for difference in compared.differences:
        context.terminal.warn(f"measured differently: {difference}")
    context.emit(
        "SideBySide",
        record=lambda: _record(files, compared),
        names=lambda: files,
        table=lambda _wide: _tables(files, compared),
    )
    measure = commands.line("bench", "SERVICE", "--spec", "METHOD")
    raise Undecided(
        NO_VERDICT,
        hint=f"'{measure}' measures both arms in turns on the same prompts",
    )


def _record(files: tuple[str, str], compared: SideBySide) -> Json:
    loads = [
        {"first": asdict(first), "second": asdict(second), "ratios": ratios(first, second)}
        for first, second in compared.pairs
    ]
    status = {
        "loads": loads,
        "differences": list(compared.differences),
        "verdict": None,
        "reason": NO_VERDICT,
    }
    return {"metadata": {"files": list(files)}, "status": status}


def _tables(files: tuple[str, str], compared: SideBySide) -> str:
    """A table of each load."""
    tables = []
    for pair in compared.pairs:
        rows = [
            [name, *(getattr(measured, name) or UNKNOWN for measured in pair), ""]
            for name in ("tool", "model", "load")
        ]
        rows += [
            [name, *(_text(name, measured.figures[name]) for measured in pair), ratio(quotient)]
            for name, quotient in ratios(*pair).items()
        ]
        tables.append(columns([["FIGURE", *files, "RATIO"], *rows]))
    return "\n\n".join(tables)


def _text(name: str, value: float | None) -> str:
    if name.endswith("/s"):
        return number(value, 1)
    if name.endswith(("mean", "p50", "p99")):
        return milliseconds(value)
    return count(value)
