"""The root command: finds commands by name, loads the one that is used, and turns errors into exit codes.

A command's module is imported when the command is used, and what the command needs when it runs, so that help and
completion stay fast.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Sequence

import click

from mpctl import __version__, commands
from mpctl.cli.command import click_option
from mpctl.cli.context import CliContext
from mpctl.cli.group import LazyGroup, named
from mpctl.cli.registry import ABOUT, COMMANDS, EPILOG, SHARED
from mpctl.cli.size import width
from mpctl.cli.terminal import drop
from mpctl.errors import Cancelled, MpctlError

HELP_WIDTH = 80  # columns; narrower where the terminal is
_COMPLETE = "_MPCTL_COMPLETE"
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


cli = LazyGroup(
    "cli",
    table=COMMANDS,
    params=[click_option(option) for option in SHARED],
    context_settings={"help_option_names": ["-h", "--help", "--help-all"]},
    help=ABOUT,
    epilog=EPILOG,
)
click.version_option(__version__, "--version", message="mpctl %(version)s")(cli)
cli.params.insert(0, cli.params.pop())


def run(program: str, arguments: Sequence[str]) -> int:
    """Run a command line and return its exit code."""
    call = CliContext(program, arguments)
    commands.set_reader(commands.Reader(program))
    instruction = os.environ.get(_COMPLETE)
    if instruction:
        return _complete(call, instruction)
    return guarded(call, lambda: _invoke(call, list(arguments)))


def guarded(call: CliContext, work: Callable[[], int]) -> int:
    """Do the work of a call and return its exit code; an error is printed and becomes one."""
    try:
        return work()
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        call.terminal.aside(error.ctx.get_help() if error.ctx else "")
        return 2
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001
        if isinstance(error, BrokenPipeError) and _reader_is_gone():
            return 0  # mpctl rollout --help | head: click prints help itself, and nothing is wrong
        if call.debug or os.environ.get("MPCTL_DEBUG") or "--debug" in call.arguments:
            import traceback

            call.terminal.aside(traceback.format_exc().rstrip())
        return _report(call, error)


def unwritten(error: OSError, code: int) -> int:
    """Report that buffered output could not be written. Returns the exit code of a call that ended with ``code``; a
    reader that went away is no error."""
    drop(sys.stdout)
    if code or isinstance(error, BrokenPipeError):
        return code
    return _report(CliContext("mpctl"), error)


def _invoke(call: CliContext, arguments: list[str]) -> int:
    root = named(cli, call.program)
    wide = max(min(width(), HELP_WIDTH) - 2, 50)
    with root.make_context(call.program, arguments, obj=call, terminal_width=wide) as ctx:
        code = root.invoke(ctx)
    return code if isinstance(code, int) else 0


def _report(call: CliContext, error: BaseException) -> int:
    code = _explain(call, error)
    return call.failure if code == MpctlError.exit_code else code


def _explain(call: CliContext, error: BaseException) -> int:
    terminal = call.terminal
    if isinstance(error, MpctlError):
        terminal.error(error.message, error.hint)
        return error.exit_code
    if isinstance(error, click.UsageError):
        from mpctl.cli.usage import explain

        terminal.error(*explain(error))
        return 2
    if isinstance(error, click.Abort | KeyboardInterrupt | EOFError):
        terminal.error(
            "interrupted", f"run '{commands.line('status', '-A')}' to see unfinished operations"
        )
        return Cancelled.exit_code
    if isinstance(error, OSError) and (error.filename is not None or error.errno in _NO_ROOM):
        message, hint = _refused(error)
        terminal.error(message, "\n".join(filter(None, (hint, call.describe_unfinished()))))
        return 1
    terminal.error(
        f"{type(error).__name__}: {error}",
        "this is a bug in mpctl: run again with --debug and report it",
    )
    return 1


def _refused(error: OSError) -> tuple[str, str]:
    """Message and hint of an error of the operating system."""
    from mpctl.platform.state_files import state_root

    if error.filename is None:
        return str(error.strerror), "free space on the disk; --debug prints where it happened"
    hint = "check its permissions and the free space on its disk; --debug prints where it happened"
    if str(error.filename).startswith(str(state_root())):
        hint = (
            "mpctl keeps its state there: check permissions and free space, or set MPCTL_STATE_DIR"
        )
    return f"{error.filename}: {error.strerror}", hint


def _complete(call: CliContext, instruction: str) -> int:
    """Answer a shell's completion request; errors are silent, since the user is typing."""
    from click.shell_completion import shell_complete

    try:
        return shell_complete(cli, {"obj": call}, "mpctl", _COMPLETE, instruction)
    except Exception:  # noqa: BLE001
        return 1


def _reader_is_gone() -> bool:
    """Return whether the reader of standard output is gone; polled, since a broken pipe may be another one."""
    import select

    poll = select.poll()
    poll.register(sys.stdout, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
