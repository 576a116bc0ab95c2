"""Carrying a measurement out: where it is kept while it runs, going on after an interruption, the file it ends in."""

from __future__ import annotations

import hashlib
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from mpctl.app.bench.run_file import choose_file, write_run
from mpctl.app.policy import read_policy
from mpctl.app.session.base import who
from mpctl.app.workload import describe_workload, read_workload
from mpctl.cli.bench.result import emit_measurement
from mpctl.cli.bench.targets import Targets
from mpctl.cli.context import CliContext
from mpctl.cli.options.measurement import MeasurementOptions, measurement_request
from mpctl.errors import Conflict
from mpctl.experiment.arm import CANDIDATE
from mpctl.gate.policy import Policy
from mpctl.platform.local.files import state_root, try_lock
from mpctl.platform.local.store import LocalStore
from mpctl.rollout.measurement import Measurement, judge_run


def carry_out(context: CliContext, targets: Targets, options: dict[str, Any]) -> None:
    """Measure, write the file, print the figures.

    Raises:
        Conflict: the same measurement is under way.
        MpctlError: an arm cannot be measured; what was finished is kept.
    """
    terminal = context.terminal
    workload = read_workload(measurement_request(cast("MeasurementOptions", options)), targets.load)
    policy = read_policy(options["policy"])
    if not targets.speculates and options["policy"] is None:
        policy = Policy.from_record({**policy.to_record(), "min_tokens_per_step": 0})
    for kind in workload.traffic:
        if kind.repeated:
            terminal.note(f"{kind.repeated} prompts of {kind.name} stood there twice and are sent once")
    home = state_root() / "bench"
    directory = _directory(home, f"{targets.identity}\n{workload.digest()}")
    run_id = f"bench-{directory.name}"
    file = choose_file(options["file"], run_id)
    store = LocalStore(directory, who())
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = try_lock(home / f"{directory.name}.lock")
    if lock is None:
        raise Conflict(f"{run_id} is under way in another process", hint="wait for it, or measure something else")
    try:
        opened = store.load(run_id, "opened")
        if opened is None:
            opened = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "who": who()}
            store.save(run_id, "opened", opened)
        else:
            terminal.note(f"going on with {run_id}, begun {opened['at']}")
        terminal.note(f"{run_id}: {describe_workload(workload)}" + (" to each arm" if len(targets.arms) > 1 else ""))
        measurement = Measurement(
            id=run_id,
            created=str(opened["at"]),
            who=str(opened["who"]),
            workload=workload,
            policy=policy,
            store=store,
            meter=targets.meter,
            progress=terminal,
            target=targets.target,
        )
        with targets.running():
            ended = measurement.measure(targets.arms)
        run = measurement.run()
        write_run(file, run)
        store.save(run_id, "finished", {"file": str(Path(file).absolute()), **ended})
    finally:
        os.close(lock)
    both = CANDIDATE in targets.arms
    analysis, verdict = judge_run(run, policy, look=ended["rounds"], looks=workload.repeats)
    emit_measurement(context, run, analysis, verdict if both else None, file)
    terminal.note(f"measured {ended['rounds']} rounds ({ended['ended']}); everything is in {file}")
    if both:
        terminal.note(f"the gate would {verdict.outcome.value if verdict.outcome != 'undecided' else 'not decide'}")
    terminal.next_command(f"report {file}")


def _directory(home: Path, identity: str) -> Path:
    """Of the unfinished measurement of this kind, or of a new one."""
    key = hashlib.sha256(identity.encode()).hexdigest()[:8]
    taken = sorted((int(p.name.split("-")[1]) for p in home.glob(f"{key}-*") if p.is_dir()), reverse=True)
    last = taken[0] if taken else 0
    current = home / f"{key}-{last}"
    if last and not (current / "operations" / f"bench-{current.name}" / "finished.json").exists():
        return current
    return home / f"{key}-{last + 1}"
