"""What the commands of this machine ask for."""

from __future__ import annotations

from dataclasses import dataclass

from mpctl.app.option import Duration, File, Whole, option


@dataclass(frozen=True)
class LocalUpRequest:
    """A service to start on this machine; without a file from the manifest of the one that is up."""

    name: str | None = None
    file: str | None = option(
        "-f",
        "--file",
        type=File,
        metavar="FILE|-",
        help="Manifest, - for standard input (default: that of the service that is up).",
    )
    port: int | None = option(
        "--port", type=Whole(1, 65535), help="Port of the service (default: a free one)."
    )
    vllm: str | None = option(
        "--vllm",
        metavar="COMMAND",
        help="vllm command or its python (default: of this environment).",
    )
    lifeline_pid: int | None = option(
        "--lifeline", type=int, metavar="PID", help="Stop the service when this process ends."
    )
    wait: bool = option(
        "--wait/--no-wait", type=bool, default=True, help="Wait until the service answers."
    )
    ready_timeout_s: float = option(
        "--timeout",
        section="Execution",
        type=Duration(),
        default="10m",
        help="Time for an engine to become ready.",
    )


@dataclass(frozen=True)
class LocalDownRequest:
    """Services of this machine to stop."""

    name: str | None = None
    every: bool = option(
        "--all", type=bool, help="Stop every service of this machine, or of the namespace."
    )
    orphans: bool = option(
        "--orphans", type=bool, help="Also stop engines that no supervisor manages."
    )
    force: bool = option(
        "--force",
        type=bool,
        help="Stop a service during a rollout; 'mpctl local up' must precede its resume.",
    )


@dataclass(frozen=True)
class LocalLogsRequest:
    """The log of an engine of this machine."""

    name: str | None = None
    arm: str | None = option(
        "--arm",
        metavar="ID",
        help="Arm whose log is printed (default: the arm that gets the traffic).",
    )
    tail: int | None = option(
        "--tail", type=Whole(0), metavar="LINES", help="Print only the last lines (default: all)."
    )
