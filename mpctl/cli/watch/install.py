"""``mpctl watch install``: print the objects that run the watch in a cluster."""

from __future__ import annotations

from typing import TypedDict, Unpack

import click

from mpctl.app.requests import WATCH_HOME
from mpctl.cli.context import CliContext
from mpctl.cli.options.sections import SectionedCommand
from mpctl.cli.options.shared import shared_options
from mpctl.cli.options.types import File, Word, option
from mpctl.cli.settings import in_context


class _Options(TypedDict):
    """The options that are fields of the request."""

    image: str
    home: str
    shared_home: bool
    prometheus: str | None
    webhook_secret: str | None
    webhook_format: str
    without: tuple[str, ...]


@click.command("install", cls=SectionedCommand)
@option("--image", required=True, metavar="IMAGE", help="Image with mpctl, best by digest (deploy/Containerfile).")
@option("-A", "--all-namespaces", is_flag=True, help="Watch the services of all namespaces, whatever -n says.")
@option("--home", default=WATCH_HOME, metavar="NAME", help="Namespace that runs the watch and has no other users.")
@option("--shared-home", is_flag=True, help="Allow a home with other users, who can then act as the watch.")
@option("--prometheus", metavar="URL", help="Read counters from Prometheus (default: from the engines).")
@option("--watch-policy", type=File(), metavar="FILE", help="Limits and what may be done (default: report only).")
@option(
    "--webhook-secret",
    metavar="NAME",
    help="Secret with the webhook's address in url, and for PagerDuty the routing key in key.",
)
@option(
    "--webhook-format",
    type=Word(("json", "slack", "pagerduty")),
    default="json",
    help="Shape of the webhook's events.",
)
@option(
    "--without",
    type=Word(("podmonitor",)),
    multiple=True,
    help="Leave out an object: podmonitor where the Prometheus operator is not installed.",
)
@shared_options
@in_context
def command(
    context: CliContext, /, *, all_namespaces: bool, watch_policy: str | None, **options: Unpack[_Options]
) -> None:
    """Print the objects that watch the services of -n from a namespace of the watch's own. Contacts nothing.

    \b
    Examples:
      mpctl watch install -n ml --image registry.example.com/mpctl@sha256:... | kubectl apply -f -
      mpctl watch install -A --watch-policy watch.yaml --image registry.example.com/mpctl:0.4

    Namespace, type SpeculationStatus, Deployment with two replicas and a Lease, ServiceAccount, roles, ConfigMap with
    the policy, NetworkPolicy, PodDisruptionBudget, PodMonitor. The roles change nothing unless the policy has
    fall_back: true.
    """
    from mpctl.app.files import read_file
    from mpctl.app.requests import WatchInstallRequest
    from mpctl.app.watch.install import objects
    from mpctl.errors import InputError
    from mpctl.platform.kubernetes.access.rbac import to_yaml

    namespace = None if all_namespaces else context.shared["namespace"]
    if not namespace and not all_namespaces:
        raise InputError("required", field="--namespace", hint="-n NAME, or -A for all namespaces")
    text = "" if watch_policy is None else read_file(watch_policy, "--watch-policy")
    request = WatchInstallRequest(namespace, policy_file=watch_policy or "--watch-policy", **options)
    context.terminal.result(to_yaml(objects(request, text)))
    if "podmonitor" not in options["without"]:
        context.terminal.note(
            "the PodMonitor needs the Prometheus operator's definitions (kubectl get crd podmonitors.monitoring."
            "coreos.com); without them kubectl apply fails for this object: add --without podmonitor"
        )
