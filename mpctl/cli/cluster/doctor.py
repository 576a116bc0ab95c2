"""``mpctl doctor``: what prevents rollouts in a cluster, each finding with cause, fix and source."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from mpctl.app.option import Option
from mpctl.cli.command import OUTPUT, command
from mpctl.cli.context import CliContext
from mpctl.cli.printer import paragraph
from mpctl.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mpctl.app.cluster.doctor import Diagnosis
    from mpctl.doctor import Symptom


_EVERYWHERE = Option(
    "-A", "--all-namespaces", type=bool, help="Check the services of all namespaces (default: one namespace)."
)


@command("doctor", _EVERYWHERE, OUTPUT)
def doctor(context: CliContext, /, *, all_namespaces: bool) -> int:
    """Check a cluster for what prevents rollouts: KServe, GPUs, autoscaling, permissions, leftovers.

    \b
    Examples:
      mpctl doctor                    services of the context's namespace
      mpctl doctor -A -o wide         services of all namespaces, with passed checks
      mpctl doctor -o json | jq '.items[] | select(.severity == "fail")'

    Only reads; objects that you may not read become notes. Exit code 0: no finding fails (warnings are possible), 9: at
    least one does.
    """
    from mpctl.app.cluster.doctor import diagnose_cluster

    diagnosis = diagnose_cluster(context.place, all_namespaces=all_namespaces)
    context.emit(
        "Diagnosis",
        record=lambda: _record(diagnosis),
        names=lambda: [f.id for f in diagnosis.findings if f.severity != "ok"],
        table=lambda wide: "\n".join(_lines(diagnosis, wide=wide)),
    )
    where = f"namespace {diagnosis.namespace}" if diagnosis.namespace else "all namespaces"
    counts = ", ".join(f"{count} {severity}" for severity, count in diagnosis.counts.items())
    context.terminal.note(f"context {diagnosis.context}, {where}: {counts}")
    return Refused.exit_code if diagnosis.counts["fail"] else 0


def _record(diagnosis: Diagnosis) -> dict[str, Any]:
    return {
        "context": diagnosis.context,
        "namespace": diagnosis.namespace,
        "summary": diagnosis.counts,
        "items": [asdict(finding) for finding in diagnosis.findings],
    }


def _lines(diagnosis: Diagnosis, *, wide: bool) -> Iterator[str]:
    for finding in diagnosis.findings:
        if wide or finding.severity != "ok":
            yield from _finding(finding)


def _finding(finding: Symptom) -> Iterator[str]:
    deeper = " " * 6
    yield paragraph(f"{finding.severity:<5} [{finding.id}] {finding.subject}: {finding.cause}", "", deeper)
    if finding.fix:
        yield paragraph(f"fix: {finding.fix}", deeper, deeper + "  ")
    if finding.source:
        yield paragraph(f"source: {finding.source}", deeper, deeper + "  ")
