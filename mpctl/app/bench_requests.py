"""Requests of the commands that measure without an operation: benchmarks and comparisons."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from mpctl.app.option import File, group, option
from mpctl.app.requests import (
    MeasurementRequest,
    SpeculationRequest,
    price_setting,
    timeout_option,
)

_arms = partial(option, section="Arms")
_output = partial(option, section="Output")


@dataclass(frozen=True)
class CompareRequest:
    """Two measurements to compare, each as typed: ``FILE`` or ``FILE:ARM``."""

    first: str
    second: str | None = None
    policy_file: str | None = option(
        "--policy",
        type=File,
        help="Gate policy, YAML (default: the policy of the second measurement).",
    )
    force: bool = option(
        "--force", type=bool, help="Compare even if prompts, model, device or engine differ."
    )


@dataclass(frozen=True)
class BenchRequest:
    """A measurement of a service, of two, of a service and a speculation, or of servers."""

    service: str | None = None
    candidate: str | None = _arms(
        "--candidate",
        metavar="SERVICE|URL",
        help="Service to measure as the candidate, or with --url a server (default: none).",
    )
    url: str = _arms(
        "--url", metavar="URL", unused="", help="vLLM server to measure instead of a service."
    )
    model: str | None = _arms(
        "--model", metavar="NAME", help="Model of --url (default: the first that the server lists)."
    )
    speculation: SpeculationRequest = group(SpeculationRequest)
    measurement: MeasurementRequest = group(MeasurementRequest)
    run_file: str | None = _output(
        "--run",
        type=File,
        help="Measurement file (default: bench-ID.json.gz).",
    )
    price_per_hour: float | None = price_setting()
    ready_timeout_s: float = timeout_option("10m")
