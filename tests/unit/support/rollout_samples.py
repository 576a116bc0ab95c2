"""What rollouts of a service of this machine leave behind."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from run_samples import make_run

from mpctl.experiment.workload import Traffic, Workload
from mpctl.methods import Spec
from mpctl.platform.file_store import FileStore
from mpctl.rollout.ledger import Entry, Event
from mpctl.rollout.plan import Kind, Plan, Strategy
from mpctl.rollout.revision import Manifest


def keep_rollouts(state: Path) -> FileStore:
    """Write a service with two rollouts that measured and a third that did not."""
    directory = state / "local" / "default" / "demo"
    directory.mkdir(parents=True)
    (directory / "desired.json").write_text("{}")
    store = FileStore(directory, "ada@host")
    for number, measured in ((1, True), (2, True), (3, False)):
        _record(store, f"rollout-{number}", make_run(rounds=4), measured=measured)
    return store


def _record(store, name, run, *, measured):
    prompts = tuple(f"prompt {i}" for i in range(40))
    store.save(
        name, "workload", Workload((Traffic("edits", prompts),), repeats=4, requests=8).to_record()
    )
    plan = Plan(
        Kind.ROLLOUT,
        Strategy.SIDE_BY_SIDE,
        Manifest.of("a"),
        Manifest.of("b"),
        Spec("ngram"),
        workload=name,
    )
    entries = store.entries()
    opened = {"plan": plan.to_record()}
    now = datetime(2026, 11, 21, 5, 0, 12, tzinfo=UTC)
    last = entries[-1] if entries else None
    store.append(
        Entry.after(last, at=now, operation=name, event=Event.OPENED, who="ada@host", data=opened)
    )
    if not measured:
        return
    for arm, facts in run.arms.items():
        store.save(name, f"conditions-{arm}", facts.to_record())
        store.save(name, f"burst-{arm}", {"edits": [["", 0.0]] * 60})
    for block in run.blocks:
        store.save(name, f"block-{block.cell.key}-{block.arm}-{block.repeat}", block.to_record())
