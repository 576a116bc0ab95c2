"""``mpctl rbac``: roles with no more than mpctl's own calls need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mpctl.cli.options.shared import own_output_option, shared_options
from mpctl.cli.options.types import Word, option
from mpctl.cli.settings import pick, terminal_of
from mpctl.errors import InputError

if TYPE_CHECKING:
    from mpctl.cli.terminal import Terminal


@click.command("rbac")
@option(
    "--role",
    type=Word(["reader", "operator"]),
    default="operator",
    help="reader: status, history, diff of revisions, doctor; operator: all that changes something, too.",
)
@option("--cluster-wide", is_flag=True, help="For services of all namespaces.")
@option(
    "--to",
    multiple=True,
    metavar="KIND:NAME",
    help="Also print bindings: user:NAME, group:NAME, serviceaccount:NAMESPACE/NAME; repeatable.",
)
@option("--secret", "secrets", multiple=True, metavar="NAME", help="A Secret with an engine's API key; repeatable.")
@option("--calls", is_flag=True, help="Print the calls behind the role, and which command makes them, instead.")
@own_output_option(
    ["table", "yaml", "json"],
    help="Format; default: yaml, with --calls table. Roles are no table. Read from here alone, not from MPCTL_OUTPUT.",
)
@shared_options
@click.pass_context
def command(ctx: click.Context, /, *, role: str, cluster_wide: bool, output: str | None, **options: Any) -> None:
    """Print the least roles that mpctl needs, made from the calls it makes. Nothing is contacted.

    Without --cluster-wide: a Role in the namespace of -n, a ClusterRole for what lies outside of it (nodes, devices),
    and a Role in KServe's namespace for the doctor.

    \b
    Examples:
      mpctl rbac -n chat --to group:ml-operators | kubectl apply -f -
      mpctl rbac --role reader --cluster-wide --to serviceaccount:monitoring/mpctl
      mpctl rbac --calls                       which call is for what
    """
    from mpctl.platform.kubernetes.access.rbac import require_name, roles, subject_of, to_yaml

    terminal = terminal_of(ctx, options)
    namespace = pick(ctx, options, "namespace")
    if options["calls"]:
        _show_calls(terminal, role, output or "table")
        return
    if output == "table":
        raise InputError("roles are printed as yaml or json", field="--output", hint="--calls prints a table")
    if cluster_wide and namespace:
        raise InputError("cannot be combined with -n", field="--cluster-wide")
    if not cluster_wide and not namespace:
        raise InputError("is needed", field="--namespace", hint="-n NAME, or --cluster-wide for all namespaces")
    if namespace:
        require_name(namespace, "--namespace", dots=False)
    for secret in options["secrets"]:
        require_name(secret, "--secret")
    to = [subject_of(text) for text in options["to"]]
    documents = roles("reader" if role == "reader" else "operator", namespace, to=to, secrets=options["secrets"])
    if output == "json":
        import json

        terminal.result(json.dumps({"apiVersion": "v1", "kind": "List", "items": documents}, indent=2))
    else:
        terminal.result(to_yaml(documents))
    if not to:
        terminal.note("roles only; --to user:NAME or group:NAME also prints their bindings")


def _show_calls(terminal: Terminal, role: str, output: str) -> None:
    from mpctl.platform.kubernetes.access.calls import needs

    rows = needs("reader" if role == "reader" else "operator")
    if output == "table":
        table = [[row.call, row.scope, row.role, ", ".join(row.commands), row.why] for row in rows]
        terminal.table(["CALL", "WHERE", "ROLE", "COMMANDS", "FOR"], table)
        return
    items = [
        {"call": row.call, "where": row.scope, "role": row.role, "commands": list(row.commands), "for": row.why}
        for row in rows
    ]
    terminal.record("CallList", {"items": items}, output)
