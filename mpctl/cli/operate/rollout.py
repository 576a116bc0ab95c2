"""Operations on the speculation of a service: ``mpctl rollout``, ``rollback`` and ``resume``."""

from __future__ import annotations

from mpctl.app.option import File, Option
from mpctl.app.requests import RollbackRequest, RolloutRequest, require_server
from mpctl.cli.command import ASKS, MEASUREMENT, OUTPUT, command, service_argument
from mpctl.cli.context import CliContext

_MANIFEST = Option(
    "-f",
    "--file",
    section="Execution",
    type=File,
    help="Manifest that names the running service; the file itself is not changed.",
)


@command(
    "rollout",
    service_argument(),
    _MANIFEST,
    MEASUREMENT,
    RolloutRequest,
    *ASKS,
    OUTPUT,
    common="spec set draft prompts concurrency measure-on users-share bake strategy dry-run policy yes",
    many=True,
)
def rollout(
    context: CliContext, /, name: str | None, file: str | None, request: RolloutRequest
) -> None:
    """Roll speculation onto a service behind a measured gate.

    \b
    Examples:
      mpctl rollout qwen --spec ngram --dry-run=client  check, change nothing
      mpctl rollout -l team=search --spec ngram --set num_speculative_tokens=3
      mpctl rollout qwen --spec ngram --prompts log.jsonl --concurrency 1,8
      mpctl rollout qwen -n ml --spec eagle3 --draft ORG/HEAD --users-share 5

    A candidate engine answers the service's prompts, and the gate promotes it or the service is restored.
    Interrupted, the same command continues.
    """
    from mpctl.app.operate.rollout import run
    from mpctl.cli.operate.outcome import conclude

    require_server(request.dry_run, context.place.platform)
    session = context.open_session(name) if file is None else context.open_named_in(file, name)
    conclude(context, run(session, request))


@command("rollback", service_argument(), RollbackRequest, *ASKS, OUTPUT, many=True)
def rollback(context: CliContext, /, name: str | None, request: RollbackRequest) -> None:
    """Restore what mpctl changed, and compare after the write.

    \b
    Examples:
      mpctl rollback                          undo the last change of the only service
      mpctl rollback qwen --to-revision 1
      mpctl rollback --dry-run=client         what would be restored
      mpctl rollback -l team=search           several services, one after another
      mpctl rollback qwen --exact             every byte, also what others changed since

    An unfinished rollout is undone; otherwise the service goes back to the revision before, or to the one named. What
    others changed elsewhere since (a label, another argument) is kept and named. A rollback works from every point at
    which a rollout can be stopped. Interrupted, the same command continues.
    """
    from mpctl.app.operate.rollback import run
    from mpctl.cli.operate.outcome import conclude

    require_server(request.dry_run, context.place.platform)
    conclude(context, run(context.open_session(name), request))


_PROMPTS = Option(
    "--prompts",
    type=File,
    multiple=True,
    metavar="[NAME=]FILE|@FILE",
    help="Prompts of the rollout again; default: the files that the rollout read on this machine; repeatable.",
)


@command("resume", service_argument(), _PROMPTS, *ASKS, OUTPUT)
def resume(context: CliContext, /, name: str | None, prompts: tuple[str, ...]) -> None:
    """Continue an interrupted rollout, rollback or retire from its last finished step.

    Prompts are never stored. While a rollout measures prompts of a file, the same file is read again; on another
    machine name it with --prompts. An operation that another user opened is shown as a diff against
    the live service and confirmed first.
    """
    from mpctl.app.operate.resume import run
    from mpctl.cli.operate.outcome import conclude

    conclude(context, run(context.open_session(name, gone=True), prompts))
