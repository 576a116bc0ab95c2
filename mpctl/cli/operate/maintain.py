"""The upkeep of a service: ``mpctl abandon``, ``retire``, ``restart``, ``unlock`` and ``prune``."""

from __future__ import annotations

from mpctl.app.option import Option, Whole
from mpctl.cli.command import ASKS, OUTPUT, command, service_argument
from mpctl.cli.context import CliContext
from mpctl.errors import InputError


@command("abandon", service_argument(), *ASKS)
def abandon(context: CliContext, /, name: str | None) -> None:
    """End an unfinished rollout or rollback where it stands, after another writer changed the service.

    The live service stays as it is and is recorded as a revision, the candidate is removed, the autoscaler is
    unpinned. 'mpctl rollback' instead restores the recorded service; with --force over another writer's change.
    """
    from mpctl.app.operate import maintain

    session = context.open_session(name, gone=True)
    ended = maintain.abandon(session)
    for operation in ended:
        context.terminal.note(f"{operation.id} is abandoned; {session.title} is unchanged")
    if ended:
        context.terminal.next_command(session.command("history"))
    else:
        context.terminal.note(f"{session.title} has no unfinished operation")


@command("restart", service_argument(), *ASKS, OUTPUT)
def restart(context: CliContext, /, name: str | None) -> None:
    """Replace the engines of a service by fresh ones of the same spec.

    For an engine fault that ends with its process, such as acceptance at zero. A fresh engine is ready before an old
    one stops, which needs capacity for one more. Interrupted, the same command continues; one that fails leaves the
    service as it was.
    """
    from mpctl.app.operate import maintain
    from mpctl.cli.operate.outcome import conclude

    conclude(context, maintain.restart(context.open_session(name)))


@command("retire", service_argument(), *ASKS, OUTPUT)
def retire(context: CliContext, /, name: str | None) -> None:
    """Stop the baseline that 'mpctl rollout --keep-baseline' retained, and free its GPUs.

    A rollback then takes an engine start. The next rollout and a rollback retire it, too. Interrupted, the same
    command continues.
    """
    from mpctl.app.operate import maintain
    from mpctl.cli.operate.outcome import conclude

    conclude(context, maintain.retire(context.open_session(name)))


_FORCE = Option(
    "--force",
    section="Execution",
    type=bool,
    help="Unlock although the holder is alive or entries of the ledger were removed.",
)


@command("unlock", service_argument(), _FORCE, *ASKS)
def unlock(context: CliContext, /, name: str | None, *, force: bool) -> None:
    """Show who has locked a service, and unlock it when the holder's heartbeat has stopped.

    A holder is dead when its process on this machine is gone, or its heartbeat does not change for 30 s. The next
    command finds that out by itself. The command that held the service writes nothing to it afterwards.
    """
    from mpctl.app.operate import maintain

    session = context.open_session(name, gone=True)
    if maintain.unlock(session, force=force) is not None:
        context.terminal.next_command(session.command("resume"))


_PRUNED = (
    Option("--keep", type=Whole(0), default=10, metavar="N", help="Operations to keep whole."),
    Option(
        "--all",
        "everything",
        type=bool,
        envvar=None,
        help="Delete all that is recorded about the service, which stays.",
    ),
    Option(
        "--force", type=bool, envvar=None, help="With --all: also a history that cannot be read."
    ),
)


@command("prune", service_argument(), *_PRUNED, *ASKS)
def prune(
    context: CliContext, /, name: str | None, *, keep: int, everything: bool, force: bool
) -> None:
    """Delete the measurements of older operations; revisions and the ledger stay.

    \b
    Examples:
      mpctl prune qwen --keep 3
      mpctl prune qwen --all         the whole history; no rollback is possible afterwards
    """
    from mpctl.app.operate import maintain

    if force and not everything:
        raise InputError("is for --all only", field="--force")
    session, note = context.open_session(name, gone=True), context.terminal.note
    if everything:
        deleted = maintain.purge(session, force=force)
        note(
            f"deleted {deleted.describe()} of {session.title}"
            if deleted.total
            else f"nothing is recorded about {session.title}"
        )
        return
    pruned = maintain.prune(session, keep)
    note(
        f"deleted {pruned.objects} objects ({pruned.size / 1024:.0f} KiB) of {session.title}; "
        f"{pruned.remaining} are left ({pruned.remaining_size / 1024:.0f} KiB)"
    )
