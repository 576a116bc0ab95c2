"""The commands by name. A command's module is imported when the command is used; it calls its command ``command``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import click

# name -> (module, one line of help, topic of the listing; without one it is not listed)
Table = Mapping[str, tuple[str, str, str]]

COMMANDS: Table = {
    "rollout": ("mpctl.cli.operate.rollout", "Roll speculation onto a service behind a measured gate", "Rollout"),
    "rollback": ("mpctl.cli.operate.rollback", "Restore a recorded revision", "Rollout"),
    "resume": ("mpctl.cli.operate.resume", "Continue an interrupted operation", "Rollout"),
    "abandon": ("mpctl.cli.operate.abandon", "End an unfinished operation, leave the service as it is", "Rollout"),
    "restart": ("mpctl.cli.operate.restart", "Replace engines by fresh ones of the same spec", "Rollout"),
    "retire": ("mpctl.cli.operate.retire", "Stop a retained baseline", "Rollout"),
    "unlock": ("mpctl.cli.operate.unlock", "Free a service whose operator is gone", "Rollout"),
    "watch": ("mpctl.cli.watch", "See whether speculation still pays, and fall back by policy", "Inspect"),
    "status": ("mpctl.cli.inspect.status", "Show services, engines and operations under way", "Inspect"),
    "history": ("mpctl.cli.inspect.history", "List recorded revisions, or print one", "Inspect"),
    "diff": ("mpctl.cli.inspect.diff", "Compare the service with a revision or with a change", "Inspect"),
    "doctor": ("mpctl.cli.cluster.doctor", "Check a cluster for what prevents rollouts", "Inspect"),
    "rbac": ("mpctl.cli.cluster.rbac", "Print the minimal roles for mpctl", "Inspect"),
    "bench": ("mpctl.cli.bench", "Measure without changing what serves", "Inspect"),
    "report": ("mpctl.cli.inspect.report", "Write a report of a measurement", "Inspect"),
    "plan": ("mpctl.cli.inspect.plan", "Predict what speculation would bring, before anything is started", "Inspect"),
    "preflight": ("mpctl.cli.inspect.preflight", "Check a change without making it", "Inspect"),
    "render": ("mpctl.cli.inspect.render", "Print the changed manifest, for GitOps", "Inspect"),
    "gate": ("mpctl.cli.gate", "Explain the gate's rules, or its verdict on a measurement", "Inspect"),
    "methods": ("mpctl.cli.inspect.methods", "List speculation methods and their defaults", "Inspect"),
    "drafts": ("mpctl.cli.inspect.drafts", "List published drafts per target", "Inspect"),
    "stage": ("mpctl.cli.inspect.stage", "Explain and prepare how a draft gets into the pod", "Inspect"),
    "local": ("mpctl.cli.local", "Run services as processes on this machine", "Platform"),
    "connect": ("mpctl.cli.cluster.connect", "Write a kubeconfig entry for an EKS or GKE cluster", "Clouds"),
    "capacity": ("mpctl.cli.cluster.capacity", "Check whether a rollout fits a managed cluster", "Clouds"),
    "credential": (
        "mpctl.cli.cluster.credential",
        "Print a short-lived token for kubectl",
        "",
    ),  # called by kubectl alone
    "config": ("mpctl.cli.config", "Show settings and their origin", "Other"),
    "completion": ("mpctl.cli.shell.completion", "Print a completion script for a shell", "Other"),
    "help": ("mpctl.cli.shell.help", "Explain a command or a topic such as exit-codes", "Other"),
    "version": ("mpctl.cli.shell.version", "Print versions", "Other"),
}


def load_command(table: Table, name: str) -> click.Command:
    """Import the module of a command."""
    command: click.Command = import_module(table[name][0]).command
    return command


def every_command() -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """All commands with their paths, breadth first; imports every one."""
    pending: list[tuple[tuple[str, ...], Table]] = [((), COMMANDS)]
    while pending:
        path, table = pending.pop(0)
        for name in table:
            command = load_command(table, name)
            below: Table | None = getattr(command, "table", None)
            if below is None:
                yield (*path, name), command
            else:
                pending.append(((*path, name), below))
