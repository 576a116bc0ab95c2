"""Clusters: ``mpctl doctor``, ``rbac``, ``connect`` and ``credential``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import click

from mpctl import commands
from mpctl.app.environment_requests import ConnectRequest, RbacRequest
from mpctl.app.option import Option
from mpctl.cli.command import OUTPUT, Word, command, formats_option
from mpctl.cli.context import CliContext
from mpctl.cli.printer import columns, paragraph
from mpctl.errors import Refused

if TYPE_CHECKING:
    from mpctl.app.cluster.doctor import Diagnosis
    from mpctl.doctor import Symptom


_EVERYWHERE = Option(
    "-A",
    "--all-namespaces",
    type=bool,
    help="Check the services of all namespaces (default: one namespace).",
)


@command("doctor", _EVERYWHERE, OUTPUT)
def doctor(context: CliContext, /, *, all_namespaces: bool) -> int:
    """Check a cluster for what prevents rollouts: KServe, GPUs, autoscaling, permissions, leftovers.

    \b
    Examples:
      mpctl doctor                    services of the context's namespace
      mpctl doctor -A -o wide         services of all namespaces, with passed checks
      mpctl doctor -o json | jq '.items[] | select(.severity == "fail")'

    Only reads; objects that you may not read become notes. Exit code 0: no finding fails (warnings are possible), 9: at
    least one does.
    """
    from mpctl.app.cluster.doctor import diagnose_cluster

    diagnosis = diagnose_cluster(context.place, all_namespaces=all_namespaces)
    context.emit(
        "Diagnosis",
        record=lambda: {
            "context": diagnosis.context,
            "namespace": diagnosis.namespace,
            "summary": diagnosis.counts,
            "items": [asdict(finding) for finding in diagnosis.findings],
        },
        names=lambda: [f.id for f in diagnosis.findings if f.severity != "ok"],
        table=lambda wide: "\n".join(_lines(diagnosis, wide=wide)),
    )
    where = f"namespace {diagnosis.namespace}" if diagnosis.namespace else "all namespaces"
    counts = ", ".join(f"{count} {severity}" for severity, count in diagnosis.counts.items())
    context.terminal.note(f"context {diagnosis.context}, {where}: {counts}")
    return Refused.exit_code if diagnosis.counts["fail"] else 0


def _lines(diagnosis: Diagnosis, *, wide: bool) -> Iterator[str]:
    for finding in diagnosis.findings:
        if wide or finding.severity != "ok":
            yield from _finding(finding)


def _finding(finding: Symptom) -> Iterator[str]:
    deeper = " " * 6
    yield paragraph(
        f"{finding.severity:<5} [{finding.id}] {finding.subject}: {finding.cause}", "", deeper
    )
    if finding.fix:
        yield paragraph(f"fix: {finding.fix}", deeper, deeper + "  ")
    if finding.source:
        yield paragraph(f"source: {finding.source}", deeper, deeper + "  ")


_HEADER = ["CALL", "WHERE", "ROLE", "COMMANDS", "FOR"]


_FORMATS = formats_option(
    "table",
    "yaml",
    "json",
    text="Format (default: yaml); table: the API calls behind the role, and the commands that make them.",
)


_ROLE = click.Argument(
    ["role"], required=False, type=Word(("reader", "operator")), metavar="[ROLE]"
)


@command("rbac", _ROLE, RbacRequest, _FORMATS)
def rbac(context: CliContext, /, request: RbacRequest, *, form: str | None) -> None:
    """Print the minimal roles for mpctl, derived from the API calls it makes. Contacts nothing.

    \b
    Examples:
      mpctl rbac -n chat --to group:ml-operators | kubectl apply -f -
      mpctl rbac -n chat --to user:ann --admission-policy --without load-jobs
      mpctl rbac reader -A --to serviceaccount:monitoring/mpctl
      mpctl rbac -o table                      the API calls and their purpose

    ROLE is reader, which changes nothing, or operator (default). Without -A: a Role in the namespace of -n, a
    ClusterRole for what lies outside of it (nodes, devices), and a Role in KServe's namespace for the doctor.
    """
    from mpctl.app.cluster.rbac import list_calls, manifests, subject_warnings

    if form == "table":
        rows = [
            [r.call, r.scope, r.role, ", ".join(r.commands), r.why] for r in list_calls(request)
        ]
        context.terminal.result(columns([_HEADER, *rows]))
        return
    request = replace(request, namespace=context.shared["namespace"])
    context.terminal.result(manifests(request, form or "yaml"))
    for warning in subject_warnings(request):
        context.terminal.warn(warning)
    if not request.bind_to:
        context.terminal.note("roles only; --to user:NAME or group:NAME also prints their bindings")


@command("connect", click.Argument(["cluster"]), ConnectRequest)
def connect(context: CliContext, /, request: ConnectRequest) -> None:
    """Print a kubeconfig for an EKS or GKE cluster. It holds no secret.

    \b
    Examples:
      mpctl connect eks/us-east-1/serving > serving.kubeconfig
      mpctl connect eks/us-east-1/serving --profile prod > serving.kubeconfig
      mpctl connect gke/my-project/us-central1/serving -n inference > serving.kubeconfig
      export KUBECONFIG=serving.kubeconfig:~/.kube/config

    --context names its entries (default: CLUSTER), --namespace the namespace that kubectl starts in. kubectl then asks
    `mpctl credential` for a token at each call.
    """
    from mpctl.app.cluster.clouds import kubeconfig

    shared = {name: context.shared[name] for name in ("context", "namespace")}
    context.terminal.result(kubeconfig(replace(request, **shared)))


@command("credential", click.Argument(["cluster"]), ConnectRequest, shared=False, hidden=True)
def credential(request: ConnectRequest) -> None:
    """Print a short-lived token for kubectl, in the form of an ExecCredential.

    The token goes to standard output, for the program that asked for it, and never to a terminal.
    """
    from mpctl.app.cluster.clouds import credential as token_of

    if sys.stdout.isatty():
        raise Refused(
            "the token is for kubectl and not printed on a terminal",
            hint=f"'{commands.line('connect', 'CLUSTER')}' configures kubectl",
        )
    click.echo(token_of(request))
