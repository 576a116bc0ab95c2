"""The commands by name, and the options that all of them share: what ``mpctl --help`` prints, without click.

The module of a command is imported when the command is used.
"""

from __future__ import annotations

from importlib import import_module

from mpctl.app.option import SETTINGS, Duration, File, Option

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    import click

    from mpctl.errors import InputError

    # name -> (module:attribute, one line of help, topic of the listing; without one it is not listed)
    Table = Mapping[str, tuple[str, str, str]]

ABOUT = """Speculative decoding for vLLM, rolled out behind a measured gate and rolled back exactly.

\b
Examples:
  mpctl try                         check, predict, measure: nothing changes
  mpctl doctor                      find what would stop a rollout
  mpctl plan qwen --gpu L4          predict what each method would bring
  mpctl rollout qwen --spec ngram   measure n-gram, promote it if it pays
  mpctl rollback qwen               restore the service exactly
  mpctl local up -f service.yaml    try it here, without a cluster"""
EPILOG = "Global options: mpctl status --help. Exit codes: mpctl help exit-codes"

COMMANDS: Table = {
    "try": ("trial:try_", "Find out whether speculation pays, step by step", "Rollout"),
    "rollout": (
        "operate.rollout:rollout",
        "Roll speculation onto a service behind a measured gate",
        "Rollout",
    ),
    "rollback": ("operate.rollout:rollback", "Restore a recorded revision", "Rollout"),
    "resume": ("operate.rollout:resume", "Continue an interrupted operation", "Rollout"),
    "abandon": (
        "operate.maintain:abandon",
        "End an unfinished operation, leave the service as it is",
        "Rollout",
    ),
    "restart": (
        "operate.maintain:restart",
        "Replace engines by fresh ones of the same spec",
        "Rollout",
    ),
    "retire": ("operate.maintain:retire", "Stop a retained baseline", "Rollout"),
    "unlock": ("operate.maintain:unlock", "Free a service whose operator is gone", "Rollout"),
    "prune": ("operate.maintain:prune", "Delete old measurements, or the history", "Rollout"),
    "watch": (
        "watch:watch",
        "See whether speculation still pays, and fall back by policy",
        "Inspect",
    ),
    "status": (
        "inspect.status:status",
        "Show services, engines and operations under way",
        "Inspect",
    ),
    "history": ("inspect.history:history", "List recorded revisions, or print one", "Inspect"),
    "diff": (
        "inspect.change:diff",
        "Compare the service with a revision or with a change",
        "Inspect",
    ),
    "doctor": ("cluster:doctor", "Check a cluster for what prevents rollouts", "Inspect"),
    "rbac": ("cluster:rbac", "Print the minimal roles for mpctl", "Inspect"),
    "bench": ("bench:bench", "Measure without changing what serves", "Inspect"),
    "report": ("inspect.report:report", "Write a report of a measurement", "Inspect"),
    "verify": (
        "mpctl.evidence.commands:verify",
        "Verify a signed verdict and the service it is about",
        "Inspect",
    ),
    "plan": (
        "mpctl.lab.commands.plan:plan",
        "Predict what speculation would bring, before it is started",
        "Inspect",
    ),
    "preflight": ("inspect.change:preflight", "Check a change without making it", "Inspect"),
    "render": ("inspect.change:render", "Print the changed manifest, for GitOps", "Inspect"),
    "gate": ("gate:gate", "Explain the gate's rules, or its verdict on a measurement", "Inspect"),
    "methods": (
        "inspect.methods:methods",
        "List speculation methods and their defaults",
        "Inspect",
    ),
    "drafts": (
        "inspect.methods:drafts",
        "List published drafts per target",
        "Inspect",
    ),
    "local": (
        "mpctl.local.commands:local",
        "Run services as processes on this machine",
        "Platform",
    ),
    "connect": ("cluster:connect", "Print a kubeconfig for an EKS or GKE cluster", "Clouds"),
    "credential": (
        "cluster:credential",
        "Print a short-lived token for kubectl",
        "",
    ),  # called by kubectl alone
    "completion": ("shell:completion", "Print a completion script for a shell", "Other"),
    "help": ("shell:help_", "Explain a command or a topic such as exit-codes", "Other"),
    "version": ("shell:version", "Print versions", "Other"),
}

# They may stand before or behind the command, as with kubectl. Before the command an option only carries a flag to it:
# variable, files and default are read once, by the command.
SHARED = (
    Option(
        "--platform",
        section="Global",
        type=("auto", "local", "kubernetes"),
        default="auto",
        help="Where services run; auto: a named cluster, else a local service.",
    ),
    Option(
        "-n",
        "--namespace",
        section="Global",
        metavar="NAME",
        help="Kubernetes namespace (default: the context's; local platform: any).",
    ),
    Option(
        "--context",
        section="Global",
        metavar="NAME",
        shell_complete=lambda ctx, _p, text: _contexts(ctx, text),
        help="Context of the kubeconfig (default: the current one).",
    ),
    Option(
        "--kubeconfig",
        section="Global",
        type=File,
        help="Kubeconfig file (default: KUBECONFIG, ~/.kube/config).",
    ),
    Option(
        "--as",
        "as_user",
        section="Global",
        metavar="USER",
        help="User to impersonate on the cluster.",
    ),
    Option(
        "--request-timeout",
        section=SETTINGS,
        type=Duration(),
        help="Longest wait for one answer of the API server (default: 30s).",
    ),
    Option(
        "--color",
        section="Output",
        type=("auto", "always", "never"),
        default="auto",
        help="Use colour.",
    ),
    Option(
        "-v",
        "--verbose",
        section="Output",
        count=True,
        show_default=False,
        help="Print more; twice: with a time stamp on each line.",
    ),
    Option(
        "-q",
        "--quiet",
        section="Output",
        type=bool,
        help="Print only results, warnings and errors.",
    ),
    Option("--debug", section="Global", type=bool, help="Print a stack trace with every error."),
)


def load_command(table: Table, name: str) -> click.Command:
    """Import the module of a command; one of an annex has its whole name in the table.

    Raises:
        InputError: the annex is not part of this installation.
    """
    if error := absence(table, name):
        raise error
    command: click.Command = load(table[name][0])
    return command


def load(path: str) -> Any:
    """Import ``module:attribute`` of the command line; a module of an annex has its whole name."""
    module, _, attribute = path.partition(":")
    loaded = import_module(module if module.startswith("mpctl.") else f"mpctl.cli.{module}")
    return getattr(loaded, attribute)


def absence(table: Table, name: str) -> InputError | None:
    """The error for a command of an annex that is not part of this installation, else None."""
    module = table[name][0].partition(":")[0]
    if not module.startswith("mpctl."):
        return None
    from mpctl.annex import absent, is_installed

    return None if is_installed(module) else absent(module)


def every_command() -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """All commands of this installation with their paths, breadth first; imports every one."""
    pending: list[tuple[tuple[str, ...], Table]] = [((), COMMANDS)]
    while pending:
        path, table = pending.pop(0)
        for name in table:
            if absence(table, name):
                continue
            command = load_command(table, name)
            below: Table | None = getattr(command, "table", None)
            if below is None:
                yield (*path, name), command
            else:
                pending.append(((*path, name), below))


def _contexts(ctx: Any, text: str) -> list[str]:
    """Contexts for completion; the kubeconfig may be named before the command or behind it."""
    from mpctl.platform.kubernetes.api.connection import contexts

    named = ctx.params.get("kubeconfig") or ctx.find_root().params.get("kubeconfig")
    return sorted(name for name in contexts(named) if name.startswith(text))
