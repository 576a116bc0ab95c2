"""One command for several services, one after another: ``-l SELECTOR`` and ``--all``.

Each service gets the command as if it had been typed for it alone. What ended is recorded, so that the same command
continues after an interruption. Plans and dry runs change nothing and are not recorded.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from copy import copy
from datetime import UTC, datetime
from typing import Any

import click

from mpctl import commands, formatting
from mpctl.app.requests import DryRun
from mpctl.app.sequence import SequenceFile, ServiceEnding, ServiceSequence, service_name
from mpctl.app.session.base import Session
from mpctl.app.session.open import open_sessions, statuses_of
from mpctl.cli import root
from mpctl.cli.command import Choice, require_no_name
from mpctl.cli.context import CliContext, without_options
from mpctl.cli.group import path_of
from mpctl.cli.printer import columns
from mpctl.errors import Cancelled, InputError, MpctlError
from mpctl.json_types import Json

# Options that name one service, one server or one file.
_FOR_ONE = ("file", "cell", "url", "candidate", "run_file", "bundle")
# Options that are changed to get over a failure: the command stays the same one.
_REPAIRS = ("ready_timeout_s", "accept_downtime", "force")
_WORDS = {
    0: "done",
    3: "conflict",
    4: "not permitted",
    5: "rejected",
    6: "undecided",
    7: "failed, restored",
    9: "refused",
}


def run_each(
    ctx: click.Context, values: dict[str, Any], choice: Choice, run_single: Callable[..., Any]
) -> int:
    """Run a command for the chosen services, one after another, and print a table of what became of each. Returns the
    exit code of the first service that failed. ``run_single``: the command for one service.

    Raises:
        InputError: an option is for one service, or no service is chosen.
        Cancelled: the user declined.
        Conflict: the same command runs in another process.
    """
    services = _Services(ctx, values, choice, run_single)
    with services.file.locked() if services.file else nullcontext():
        return services.run()


class _Services:
    """The services of one call, and what is done with each. ``file``: None where nothing is recorded."""

    def __init__(
        self,
        ctx: click.Context,
        values: dict[str, Any],
        choice: Choice,
        run_single: Callable[..., Any],
    ) -> None:
        options = {str(option.name): option for option in ctx.command.params}
        self._context: CliContext = ctx.obj
        self._verb, self._values, self._choice, self._run_single = (
            path_of(ctx)[0],
            values,
            choice,
            run_single,
        )
        self._argument = "service" if "service" in options else "name"
        require_no_name(values[self._argument], selector=choice.selector, every=choice.every)
        for name in _FOR_ONE:
            if values.get(name):
                flag = options[name].opts[-1]
                raise InputError("is for one service, not for several", field=flag)
        self._sessions = {service_name(session): session for session in self._open()}
        if not self._sessions:
            every = commands.line("status", "-A")
            raise InputError("no service is selected", hint=f"run '{every}' to list services")
        acts = self._verb != "plan" and values.get("dry_run", DryRun.NONE) is DryRun.NONE
        self._asks = acts and "yes" in options
        self.file = SequenceFile(self._identity()) if acts else None

    def run(self) -> int:
        """Continue, or begin; returns the exit code."""
        sequence = self._read()
        if sequence.is_stopped and not self._choice.keep_going:
            return self._conclude(sequence)
        if sequence.pending:
            self._ask(sequence)
        for number, name in enumerate(sequence.services, 1):
            if name not in sequence.pending:
                continue
            self._context.terminal.note(f"\n[{number}/{len(sequence.services)}] {name}")
            session = self._sessions[name]
            ending = sequence.ending_of_killed(self._verb, session)
            if ending is None:
                sequence = self._recorded(sequence.with_begun(session))
                ending = self._run_one(session)
            if ending is None:
                return self._conclude(sequence, interrupted=name)
            sequence = self._recorded(sequence.with_ending(name, ending))
            if ending.code and not self._choice.keep_going:
                break
        return self._conclude(sequence)

    def _open(self, *, listed: bool = False) -> Sequence[Session]:
        context, labels = self._context, self._choice.selector
        return open_sessions(
            context.place, context.terminal, None, everywhere=False, labels=labels, listed=listed
        )

    def _identity(self) -> str:
        """What the same command has in common: its options, the cluster and the namespace, but not the services, of
        which some may be new or gone."""
        place, session = self._context.place, next(iter(self._sessions.values()))
        # Without -n, the services of this machine are those of all namespaces.
        namespace = session.namespace if place.platform == "kubernetes" else place.namespace
        cluster = (session.place, place.kubeconfig, os.environ.get("KUBECONFIG"), namespace)
        options = {k: v for k, v in self._values.items() if k not in _REPAIRS}
        return repr((self._verb, options, self._choice[:2], cluster))

    def _read(self) -> ServiceSequence:
        """The unfinished sequence of the same command, or a new one."""
        names = tuple(self._sessions)
        earlier = self.file.read() if self.file else None
        if earlier is None:
            return ServiceSequence(datetime.now(UTC).isoformat(timespec="seconds"), names)
        sequence, note = earlier.with_services(names), self._context.terminal.note
        done = f"{len(names) - len(sequence.pending)} of {len(names)} services are done"
        note(f"continues the command of {earlier.opened_at}: {done}")
        if new := [name for name in names if name not in earlier.services]:
            note(f"new since then: {', '.join(new)}")
        if gone := [name for name in earlier.services if name not in names]:
            note(f"gone since then: {', '.join(gone)}")
        return sequence

    def _recorded(self, sequence: ServiceSequence) -> ServiceSequence:
        if self.file:
            self.file.write(sequence)
        return sequence

    def _ask(self, sequence: ServiceSequence) -> None:
        """Say what will be done, and ask once where it changes services."""
        terminal, names = self._context.terminal, sequence.pending
        text = f"{self._verb}, one service after another ({len(names)}): {', '.join(names)}"
        if not self._choice.keep_going:
            text += (
                "\nThe first that is rejected, undecided or fails stops it; --keep-going continues."
            )
        if self._asks:
            terminal.confirm(f"{text}\nContinue ({self._sessions[names[0]].place})?")
        else:
            terminal.note(text)

    def _run_one(self, session: Session) -> ServiceEnding | None:
        """Run the command for one service as if it had been typed; None if it was interrupted."""
        context, interrupted = self._context_for(session), False

        def work() -> int:
            nonlocal interrupted
            try:
                values = self._values | {self._argument: session.name}
                return self._run_single(context, **values) or 0
            except (Cancelled, KeyboardInterrupt, click.Abort, EOFError):
                interrupted = True
                raise

        begun = time.monotonic()
        code = root.guarded(context, work)
        if interrupted:
            return None
        words, figure = context.conclusion
        return ServiceEnding(
            words if words and not code else _WORDS.get(code, "failed"),
            code,
            figure,
            time.monotonic() - begun,
            next(iter(context.documents or ()), None),
        )

    def _context_for(self, session: Session) -> CliContext:
        """The context of the call for one service: it agrees to every question, and a result that is no table
        is printed with those of the others."""
        whole = self._context
        elsewhere = ("-l", "--selector", "-n", "--namespace")
        chosen = without_options(whole.arguments, elsewhere)
        words = [word for word in chosen if word not in ("--all", "--keep-going")]
        alone = CliContext(whole.program, [*words, session.name, "-n", session.namespace])
        alone.debug, alone.output, alone.shared = whole.debug, whole.output, whole.shared
        alone.variables, alone.terminal = whole.variables, copy(whole.terminal)
        alone.terminal.yes = True
        alone.find_place = lambda: whole.place._replace(namespace=session.namespace)
        if whole.output not in ("table", "wide"):
            alone.documents = []
        return alone

    def _conclude(self, sequence: ServiceSequence, *, interrupted: str = "") -> int:
        """Print the table, and how to continue where services are not done; returns the exit code."""
        self._print(sequence, interrupted)
        context, terminal, count = self._context, self._context.terminal, len(sequence.pending)
        if self.file and not count:
            self.file.delete()
        elif self.file:
            done = f"{len(sequence.services) - count} of {len(sequence.services)} services are done"
            terminal.note(f"{done}, as {self.file.path} records; delete it to start again")
            stopped = sequence.is_stopped and not interrupted and not self._choice.keep_going
            options = ("--keep-going",) if stopped else ()
            terminal.next_command(context.line(*options), "continues with the others")
        return Cancelled.exit_code if interrupted else sequence.code

    def _print(self, sequence: ServiceSequence, interrupted: str) -> None:
        """Print a row per service: how it ended, what was measured, what serves now."""
        specs = self._specs()

        def ending_of(name: str) -> ServiceEnding:
            words = "interrupted" if name == interrupted else "not started"
            return sequence.endings.get(name) or ServiceEnding(words)

        def row(name: str) -> list[str]:
            ending = ending_of(name)
            took = formatting.duration(ending.seconds)
            return [name, ending.result, ending.figure or "-", specs.get(name, "-"), took]

        def item(name: str) -> Json:
            return {"service": name, "speculation": specs.get(name), **ending_of(name).to_record()}

        header = ["SERVICE", "RESULT", "FIGURE", "SERVES NOW", "TOOK"]
        self._context.emit(
            "ServiceList",
            record=lambda: {"items": [item(name) for name in sequence.services]},
            names=lambda: sequence.services,
            table=lambda _wide: "\n" + columns([header, *map(row, sequence.services)]),
        )

    def _specs(self) -> dict[str, str]:
        """What each service runs now; empty where it cannot be read."""
        try:
            statuses = statuses_of(self._open(listed=True))
        except MpctlError:
            return {}
        return {f"{status.namespace}/{status.name}": status.spec for status in statuses}
