"""``mpctl connect CLUSTER``: a kubeconfig entry that works without aws or gcloud."""

from __future__ import annotations

import os
import shutil
from typing import Any

import click

from mpctl.cli.clouds import cluster_options, named
from mpctl.cli.options.shared import output_option, shared_options
from mpctl.cli.options.types import option
from mpctl.cli.settings import pick, terminal_of


@click.command("connect")
@cluster_options
@option("--use", is_flag=True, help="Make it the current context even if there is one.")
@output_option
@shared_options
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

    --kubeconfig names the file (default: KUBECONFIG's first, ~/.kube/config), --context the entry (default: the
    cluster's short name), --namespace the one it starts in.

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

    target = named(ctx, cluster, region=region, project=project, location=location)
    endpoint = open_cloud(target, profile=profile).endpoint()
    entry = Entry(
        name=pick(ctx, options, "context") or target.short,
        server=endpoint.server,
        ca_data=endpoint.ca_data,
        command=shutil.which("mpctl") or "mpctl",
        args=("credential", target.short),
        env={"AWS_PROFILE": profile} if profile else {},
        namespace=pick(ctx, options, "namespace"),
    )
    path = kubeconfig_path(pick(ctx, options, "kubeconfig"), os.environ)
    written = write_entry(path, entry, use=options["use"])
    terminal = terminal_of(ctx, options)
    if output in ("table", "wide"):
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
