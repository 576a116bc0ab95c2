"""``mpctl watch``: see whether speculation still pays; ``watch acknowledge`` and ``watch install``."""

from __future__ import annotations

from dataclasses import replace

from mpctl import commands
from mpctl.app.environment_requests import WatchInstallRequest, WatchRequest
from mpctl.cli.command import OUTPUT, SELECTION, command, require_no_name, service_argument
from mpctl.cli.context import CliContext
from mpctl.cli.group import LazyGroup
from mpctl.errors import InputError

watch = LazyGroup(
    "watch",
    default="run",
    table={
        "run": ("watch:run", "Watch services until Ctrl-C, or once (default)", "Commands"),
        "acknowledge": ("watch:acknowledge", "Acknowledge a fallback of the watch", "Commands"),
        "install": (
            "watch:install",
            "Print the objects that run the watch in a cluster",
            "Commands",
        ),
    },
    help="""See whether speculation still pays, why not, and fall back where a policy says so.

\b
Examples:
  mpctl watch                                  the services of the namespace
  mpctl watch qwen --once -o json              one judgement, for scripts
  mpctl watch -A --prometheus http://prometheus.monitoring:9090
  mpctl watch qwen --watch-policy watch.yaml   fall back as the file says""",
)


@command(
    "run",
    service_argument(),
    WatchRequest,
    *SELECTION,
    OUTPUT,
    common="all-namespaces selector all once watch-policy prometheus webhook output",
)
def run(context: CliContext, /, request: WatchRequest, *, every: bool) -> None:
    """Compare services with what the gate measured, until Ctrl-C. Nothing is changed without a policy that says so.

    \b
    Examples:
      mpctl watch
      mpctl watch qwen --once; echo $?
      mpctl watch -l team=search --prometheus http://prometheus.monitoring:9090
      mpctl watch -A -o json --listen 127.0.0.1:9464

    A table is redrawn on a terminal; elsewhere each event is a line, with -o json a JSON object.
    """
    from mpctl.cli.watch_rounds import print_rounds

    require_no_name(request.name, selector=request.selector, every=every)
    commands.name_every_namespace()
    print_rounds(context, request)


@command("acknowledge", service_argument())
def acknowledge(context: CliContext, /, name: str | None) -> None:
    """Acknowledge that the watch fell back: the service's signal is FellBack until then.

    \b
    Examples:
      mpctl watch acknowledge qwen
      mpctl watch acknowledge qwen -n team-a

    Records who acknowledged, and changes nothing that serves. A promotion or a rollback by a person ends the signal,
    too.
    """
    from mpctl.app.watch.ledger_facts import acknowledge as record

    context.terminal.note(record(context.open_session(name)))


@command("install", WatchInstallRequest)
def install(context: CliContext, /, request: WatchInstallRequest) -> None:
    """Print the objects that watch the services of -n from a namespace of the watch's own. Contacts nothing.

    \b
    Examples:
      mpctl watch install -n ml --image registry.example.com/mpctl@sha256:... | kubectl apply -f -
      mpctl watch install -A --watch-policy watch.yaml --image registry.example.com/mpctl:0.5.0 --allow-from monitoring

    Namespace, type SpeculationStatus, Deployment with two replicas and a Lease, ServiceAccount, roles, ConfigMap with
    the policy, NetworkPolicy, PodDisruptionBudget, PodMonitor. The roles change nothing unless the policy has
    fall_back: true.
    """
    from mpctl.app.watch.install import manifests

    namespace = None if request.everywhere else context.shared["namespace"]
    if not namespace and not request.everywhere:
        raise InputError("required", field="--namespace", hint="-n NAME, or -A for all namespaces")
    context.terminal.result(manifests(replace(request, namespace=namespace)))
    if not request.allow_from:
        context.terminal.note(
            "the NetworkPolicy lets no pod read metrics and verdicts: add --allow-from with the namespace of "
            "Prometheus, Argo Rollouts or Flagger"
        )
    if "podmonitor" not in request.without:
        context.terminal.note(
            "the PodMonitor needs the Prometheus operator's definitions "
            f"({commands.kubectl('get', 'crd', 'podmonitors.monitoring.coreos.com')}); without them the API server "
            "refuses this object: add --without podmonitor"
        )
