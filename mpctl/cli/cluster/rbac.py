"""``mpctl rbac``: roles with no more permissions than mpctl's own calls need."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mpctl.app.environment_requests import RbacRequest
from mpctl.app.option import Option
from mpctl.cli.command import command, formats_option
from mpctl.cli.context import CliContext
from mpctl.cli.printer import columns
from mpctl.errors import InputError

if TYPE_CHECKING:
    from mpctl.platform.kubernetes.access.calls import CallRow

_HEADER = ["CALL", "WHERE", "ROLE", "COMMANDS", "FOR"]


_CALLS = Option(
    "--calls", type=bool, help="Print the API calls behind the role instead, with the commands that make them."
)
_FORMATS = formats_option("table", "yaml", "json", text="Format (default: yaml; table with --calls).")


@command("rbac", RbacRequest, _CALLS, _FORMATS)
def rbac(context: CliContext, /, request: RbacRequest, *, calls: bool, form: str | None) -> None:
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

    if calls:
        context.output = form or "table"
        _emit_calls(context, list_calls(request))
        return
    if form == "table":
        raise InputError("roles are printed as yaml or json", field="--output", hint="--calls prints a table")
    request = replace(request, namespace=context.shared["namespace"])
    context.terminal.result(_manifests(make_roles(request), form or "yaml"))
    for warning in exposed_accounts(request):
        context.terminal.warn(warning)
    if not request.bind_to:
        context.terminal.note("roles only; --to user:NAME or group:NAME also prints their bindings")


def _manifests(roles: tuple[dict[str, Any], ...], form: str) -> str:
    """Return the roles as kubectl reads them, without apiVersion and kind of mpctl."""
    if form == "json":
        import json

        return json.dumps({"apiVersion": "v1", "kind": "List", "items": roles}, indent=2)
    from mpctl.platform.kubernetes.access.rbac import to_yaml

    return to_yaml(roles)


def _emit_calls(context: CliContext, rows: tuple[CallRow, ...]) -> None:
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
