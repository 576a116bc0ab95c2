"""``mpctl watch install``: print the objects that run the watch in a cluster."""

from __future__ import annotations

import click

from mpctl.cli.context import CliContext
from mpctl.cli.options.sections import SectionedCommand
from mpctl.cli.options.shared import shared_options
from mpctl.cli.options.types import File, option
from mpctl.cli.settings import in_context


@click.command("install", cls=SectionedCommand)
@option("--image", required=True, metavar="IMAGE", help="Image with mpctl, best by digest (deploy/Containerfile).")
@option("-A", "--all-namespaces", is_flag=True, help="Watch the services of all namespaces.")
@option("--prometheus", metavar="URL", help="Read counters from Prometheus (default: from the engines).")
@option("--watch-policy", type=File(), metavar="FILE", help="Limits and what may be done (default: report only).")
@shared_options
@in_context
def command(
    context: CliContext,
    /,
    *,
    image: str,
    all_namespaces: bool,
    prometheus: str | None,
    watch_policy: str | None,
) -> None:
    """Print the objects that run the watch in the namespace of -n. Contacts nothing.

    \b
    Examples:
      mpctl watch install -n ml --image registry.example.com/mpctl@sha256:... | kubectl apply -f -
      mpctl watch install -n ml -A --watch-policy watch.yaml --image registry.example.com/mpctl:0.4

    Type SpeculationStatus, Deployment with two replicas and a Lease, ServiceAccount, roles, ConfigMap with the policy,
    NetworkPolicy, PodDisruptionBudget, PodMonitor. The roles change nothing unless the policy has fall_back: true.
    """
    from mpctl.app.files import read_file
    from mpctl.app.requests import WatchInstallRequest
    from mpctl.app.watch.install import objects
    from mpctl.errors import InputError
    from mpctl.platform.kubernetes.access.rbac import to_yaml

    namespace = context.shared["namespace"]
    if not namespace:
        raise InputError("required", field="--namespace", hint="-n NAME")
    text = "" if watch_policy is None else read_file(watch_policy, "--watch-policy")
    request = WatchInstallRequest(namespace, image, all_namespaces, prometheus, watch_policy or "--watch-policy")
    context.terminal.result(to_yaml(objects(request, text)))
