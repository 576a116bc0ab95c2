"""The staging of a draft as ``mpctl preflight -v`` explains it: the mode, the steps, and what to apply or build."""

from __future__ import annotations

from collections.abc import Iterator

import yaml

from mpctl.app.change import Change
from mpctl.cli.printer import columns
from mpctl.staging.modes import StagingPlan


def staging_lines(change: Change, plan: StagingPlan) -> Iterator[str]:
    """How the draft gets into the pod, why so, and what is to be prepared first."""
    selection = change.selection
    if selection.draft:
        yield f"draft: {selection.draft}" + (f" ({selection.reason})" if selection.reason else "")
    yield f"staging mode: {plan.mode}: {plan.reason}"
    yield f"path in the pod: {plan.path}\n"
    modes = [[check.mode, check.unavailable or "available"] for check in plan.checks]
    yield columns([["MODE", "UNAVAILABLE BECAUSE"], *modes]) + "\n"
    for title, entries in (
        ("steps", plan.steps),
        ("a rollback removes", plan.removes),
        ("and leaves", plan.leaves),
        ("not certain", plan.warnings),
    ):
        if entries:
            yield "\n".join([f"{title}:", *(f"  - {entry}" for entry in entries)])
    if not plan.prepares:
        yield "nothing has to be prepared"
    if plan.recipe:
        yield f"\nContainerfile of {plan.image}:\n\n{plan.recipe.rstrip()}"
    if plan.documents:
        yield f"\nto apply:\n\n{yaml.safe_dump_all(plan.documents, sort_keys=False).rstrip()}"
    if diff := change.diff():
        yield f"\nthe change to the service:\n\n{diff}"
