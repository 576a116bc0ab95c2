"""The state of one call of the program, which click carries from the root command to every other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from mpctl import commands
from mpctl.cli.printer import Result, render
from mpctl.cli.terminal import Terminal
from mpctl.errors import MpctlError

if TYPE_CHECKING:
    from mpctl.app.session.base import Place, Session, Source
    from mpctl.cli.settings_files import SettingsFiles


# Options and variables that another measurement does not share.
_OF_ONE_MEASUREMENT = ("--repeats", "--run", "MPCTL_REPEATS", "MPCTL_RUN")


class Conclusion(NamedTuple):
    """How a command ended, in words, and what it measured or predicted; empty where it says neither."""

    words: str
    figure: str = ""


class CliContext:
    """The call of the program, and the needs of every command: terminal, place, output format, settings files."""

    def __init__(self, program: str, arguments: Sequence[str] = ()) -> None:
        self.program = program
        self.arguments = tuple(arguments)
        self.variables: Sequence[str] = ()  # NAME=VALUE of the environment that the command reads
        self.terminal = Terminal.of_environment()
        self.debug = False
        self.failure = 1  # the exit code of errors that have none of their own
        self.output = "table"
        self.shared: Mapping[
            str, Any
        ] = {}  # values of the shared options, for a command that opens no service
        self.find_place: Callable[[], Place] | None = None
        self.conclusion = Conclusion("")  # for the table of several services
        # Results of a command for several services, which are one document.
        self.documents: list[Mapping[str, Any]] | None = None
        self._place: Place | None = None
        self._session: Session | None = None  # that was opened last
        self._files: SettingsFiles | None = None

    @property
    def files(self) -> SettingsFiles:
        """The settings files, read once.

        Raises:
            InputError: one of them cannot be used.
        """
        if self._files is None:
            from mpctl.cli.settings_files import find_settings

            self._files = find_settings(self.terminal.warn)
        return self._files

    @property
    def place(self) -> Place:
        """Return the place of this call's services; the platform of ``auto`` is looked up once."""
        if self._place is None:
            assert self.find_place is not None
            self._place = self.find_place()
        return self._place

    def open_session(self, name: str | None, *, gone: bool = False) -> Session:
        """The service asked for; without a name the only one. ``gone``: a deleted one with a history will do too.

        Raises:
            InputError: there is none, or several; the message lists them.
        """
        from mpctl.app.session.open import open_session

        self._session = open_session(self.place, self.terminal, name, gone=gone)
        return self._session

    def describe_unfinished(self) -> str:
        """The unfinished operation of the service of this call, and what ends it; empty where none is known."""
        from mpctl.rollout.operation import unfinished_operation

        session = self._session
        if session is None:
            return ""
        try:
            operation = unfinished_operation(session.store.entries())
        except (
            MpctlError,
            OSError,
        ):  # what ended the call may keep the ledger from being read, too
            return ""
        if operation is None:
            return ""
        return (
            f"{operation.id} of {session.title} is unfinished: '{session.command('resume')}' continues it, "
            f"'{session.command('rollback')}' takes it back"
        )

    def open_source(self, name: str | None, file: str | None) -> Source:
        """The service of a manifest file, or without one the running service.

        Raises:
            InputError: there is none, or several; the file cannot be read.
        """
        if file is None:
            return self.open_session(name)
        from mpctl.app.change.source import FileSource

        return FileSource(file, name)

    def open_named_in(self, file: str, name: str | None) -> Session:
        """The running service that a manifest file names.

        Raises:
            InputError: the file cannot be used, or the service does not run.
        """
        from mpctl.app.session.open import open_named_in

        return open_named_in(self.place, self.terminal, file, name)

    def again(self, repeats: int) -> str:
        """The command line of this call with another number of rounds; empty for a command that plans none."""
        if not {"rollout", "bench"} & set(self.arguments):
            return ""
        return self.line("--repeats", str(repeats), without=_OF_ONE_MEASUREMENT)

    def line(self, *words: str, without: Sequence[str] = ()) -> str:
        """The command line of this call with more words, and ``without`` some options and variables, each with a
        value."""
        from mpctl.manifest import redacted

        arguments = without_options(self.arguments, without)
        variables = (v for v in self.variables if v.partition("=")[0] not in without)
        return " ".join(
            [*variables, commands.joined([*self.program.split(), *redacted(arguments), *words])]
        )

    def emit(
        self,
        kind: str,
        *,
        record: Callable[[], Mapping[str, Any]],
        names: Callable[[], Iterable[str]],
        table: Callable[[bool], str],
    ) -> None:
        """Print a result in the format asked for; ``table`` is given whether all columns are wanted.

        Raises:
            MpctlError: standard output cannot be written.
        """
        if self.documents is not None:
            self.documents.append(record())
            return
        text = render(self.output, Result(kind, record, names, table), self.terminal.page_width)
        if text:
            self.terminal.result(text)


def without_options(arguments: Sequence[str], flags: Sequence[str]) -> list[str]:
    """The words of a command line without some options and their values."""
    remaining: list[str] = []
    words = iter(arguments)
    for word in words:
        flag, equals, _ = word.partition("=")
        if flag not in flags:
            remaining.append(word)
        elif not equals:
            next(words, None)
    return remaining
