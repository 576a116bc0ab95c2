"""``mpctl connect CLUSTER``: a kubeconfig entry that works without aws or gcloud."""

from __future__ import annotations

import os
import shutil
from typing import Any

import click

from mpctl.cli.clouds import cluster_options, named, terminal_of
from mpctl.cli.options import option, output_option


@click.command("connect")
@cluster_options
@option(
    "--kubeconfig", default=None, metavar="FILE", help="File to write; default: KUBECONFIG's first, ~/.kube/config."
)
@option("--context", default=None, metavar="NAME", help="Name of the entry; default: the cluster's short name.")
@option("-n", "--namespace", default=None, metavar="NAME", help="Namespace of the context.")
@option("--use", is_flag=True, help="Make it the current context even if there is one.")
@output_option("table", "json", "yaml", "name")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    cluster: str,
    region: str | None,
    project: str | None,
    location: str | None,
    profile: str | None,
    output: str,
    **options: Any,
) -> None:
    """Write a kubeconfig entry for an EKS or GKE cluster.

    kubectl then asks `mpctl credential` for a short-lived token at each call. Nothing secret is written, and no
    entry that another program wrote is touched.

    \b
    Examples:
      mpctl connect eks/us-east-1/serving
      mpctl connect serving --region us-east-1 --profile prod --use
      mpctl connect gke/my-project/us-central1/serving -n inference
    """
    from mpctl.cloud.kubeconfig import Entry, kubeconfig_path, write_entry
    from mpctl.cloud.reach import open_cloud

    early = ctx.find_root().params
    target = named(ctx, cluster, region=region, project=project, location=location)
    endpoint = open_cloud(target, profile=profile).endpoint()
    entry = Entry(
        name=options["context"] or early.get("context") or target.short,
        server=endpoint.server,
        ca_data=endpoint.ca_data,
        command=shutil.which("mpctl") or "mpctl",
        args=("credential", target.short),
        env={"AWS_PROFILE": profile} if profile else {},
        namespace=options["namespace"] or early.get("namespace"),
    )
    path = kubeconfig_path(options["kubeconfig"] or early.get("kubeconfig"), os.environ)
    written = write_entry(path, entry, use=options["use"])
    terminal = terminal_of(ctx)
    if output == "table":
        done = "Wrote" if written.changed else "Already there:"
        terminal.result(f"{done} context {entry.name} in {written.path}")
    elif output == "name":
        terminal.result(entry.name)
    else:
        body = {
            "context": entry.name,
            "file": str(written.path),
            "changed": written.changed,
            "current": written.current,
        }
        terminal.record("Connection", {"server": entry.server, **body}, output)
    if written.backup:
        terminal.note(f"The file as it was: {written.backup}")
    terminal.note(f"Next: kubectl {'' if written.current else f'--context {entry.name} '}get nodes")
