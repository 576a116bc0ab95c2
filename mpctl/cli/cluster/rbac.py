"""``mpctl rbac``: roles with no more permissions than mpctl's own calls need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

import click

from mpctl.cli.context import CliContext
from mpctl.cli.options.sections import SectionedCommand
from mpctl.cli.options.shared import own_output_option, shared_options
from mpctl.cli.options.types import Word, option
from mpctl.cli.printer import columns
from mpctl.cli.settings import in_context
from mpctl.errors import InputError

if TYPE_CHECKING:
    from mpctl.platform.kubernetes.access.calls import Row

_HEADER = ["CALL", "WHERE", "ROLE", "COMMANDS", "FOR"]


class _Options(TypedDict):
    """The options that are fields of the request."""

    role: Literal["reader", "operator"]
    cluster_wide: bool
    bind_to: tuple[str, ...]
    secrets: tuple[str, ...]
    load: Literal["job", "local"]
    all_pods: bool
    purge: bool
    deployments: bool
    admission_policy: bool
    allow_in_job: tuple[str, ...]


@click.command("rbac", cls=SectionedCommand)
@option(
    "--role",
    type=Word(["reader", "operator"]),
    default="operator",
    help="reader: changes nothing. operator: everything, including rollouts.",
)
@option("--cluster-wide", is_flag=True, help="Cover the services of all namespaces.")
@option(
    "--to",
    "bind_to",
    multiple=True,
    metavar="KIND:NAME",
    help="Also bind user:NAME, group:NAME or serviceaccount:NAMESPACE/NAME; repeatable.",
)
@option(
    "--secret", "secrets", multiple=True, metavar="NAME", help="Allow reading this Secret with an API key; repeatable."
)
@option(
    "--load",
    type=Word(["job", "local"]),
    default="job",
    help="local: leave out the rights on Jobs; run mpctl with --load local.",
)
@option(
    "--without-all-pods",
    "all_pods",
    flag_value=False,
    default=True,
    show_default=False,
    help="Leave out listing the pods of all namespaces; free GPUs are then unknown.",
)
@option("--purge", is_flag=True, envvar=None, help="Also allow deleting what was recorded: mpctl history --purge.")
@option("--deployments", is_flag=True, help="Also allow changing plain Deployments and LeaderWorkerSets.")
@option(
    "--admission-policy",
    is_flag=True,
    help="Also limit --to to mpctl-* objects, harmless Jobs, and routes to candidates (Kubernetes 1.30).",
)
@option(
    "--allow-in-job",
    multiple=True,
    metavar="KIND:NAME",
    help="With --admission-policy: toleration, pull-secret, runtime-class or scheduler of load Jobs; repeatable.",
)
@option("--calls", is_flag=True, help="Print the API calls behind the role instead, with the commands that make them.")
@own_output_option(["table", "yaml", "json"], help="Format (default: yaml; table with --calls).")
@shared_options
@in_context
def command(
    context: CliContext,
    /,
    *,
    calls: bool,
    form: str | None,
    **options: Unpack[_Options],
) -> None:
    """Print the minimal roles for mpctl, derived from the API calls it makes. Contacts nothing.

    \b
    Examples:
      mpctl rbac -n chat --to group:ml-operators | kubectl apply -f -
      mpctl rbac -n chat --load local --to user:ann --admission-policy
      mpctl rbac --role reader --cluster-wide --to serviceaccount:monitoring/mpctl
      mpctl rbac --calls                       the API calls and their purpose

    Without --cluster-wide: a Role in the namespace of -n, a ClusterRole for what lies outside of it (nodes, devices),
    and a Role in KServe's namespace for the doctor.
    """
    from mpctl.app.cluster.rbac import exposed_accounts, list_calls, make_roles
    from mpctl.app.requests import RbacRequest

    if calls:
        context.output = form or "table"
        _emit_calls(context, list_calls(RbacRequest(**options)))
        return
    if form == "table":
        raise InputError("roles are printed as yaml or json", field="--output", hint="--calls prints a table")
    request = RbacRequest(namespace=context.shared["namespace"], **options)
    context.terminal.result(_manifests(make_roles(request), form or "yaml"))
    for warning in exposed_accounts(request):
        context.terminal.warn(warning)
    if not options["bind_to"]:
        context.terminal.note("roles only; --to user:NAME or group:NAME also prints their bindings")


def _manifests(roles: tuple[dict[str, Any], ...], form: str) -> str:
    """Return the roles as kubectl reads them, without apiVersion and kind of mpctl."""
    if form == "json":
        import json

        return json.dumps({"apiVersion": "v1", "kind": "List", "items": roles}, indent=2)
    from mpctl.platform.kubernetes.access.rbac import to_yaml

    return to_yaml(roles)


def _emit_calls(context: CliContext, rows: tuple[Row, ...]) -> None:
    context.emit(
        "CallList",
        record=lambda: {
            "items": [
                {"call": r.call, "where": r.scope, "role": r.role, "commands": list(r.commands), "for": r.why}
                for r in rows
            ]
        },
        names=lambda: [r.call for r in rows],
        table=lambda _wide: columns(
            [_HEADER, *([r.call, r.scope, r.role, ", ".join(r.commands), r.why] for r in rows)]
        ),
    )
