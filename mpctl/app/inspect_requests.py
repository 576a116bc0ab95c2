"""Requests of the commands that look at a service, a report or the methods, and change nothing."""

from __future__ import annotations

from dataclasses import dataclass

from mpctl.app.option import SETTINGS, AboveZero, File, Whole, group, option
from mpctl.app.requests import SigningRequest, SpeculationRequest


@dataclass(frozen=True)
class ChangeRequest:
    """A change to check, or to prepare the draft of."""

    speculation: SpeculationRequest = group(SpeculationRequest, required="--spec")


@dataclass(frozen=True)
class RenderRequest:
    """A change to print."""

    speculation: SpeculationRequest = group(SpeculationRequest, required="--spec")
    candidate: bool = option(
        "--candidate",
        type=bool,
        help="Print only the second InferenceService that runs the change.",
    )


@dataclass(frozen=True)
class DiffRequest:
    """Compare the service with a revision, None for the one before, or with a change."""

    revision: int | None = option(
        "--revision", type=Whole(1), help="Revision to compare with (default: the one before)."
    )
    speculation: SpeculationRequest = group(SpeculationRequest)


@dataclass(frozen=True)
class MethodRequest:
    """A method whose setting is printed; without one the methods are listed."""

    method: str = ""
    draft: str | None = option(
        "--draft", metavar="PATH|REPOSITORY", help="Draft to name in the setting of METHOD."
    )
    settings: tuple[str, ...] = option(
        "--set", multiple=True, metavar="KEY=VALUE", help="Setting of METHOD; repeatable."
    )
    lists_known_bad: bool = option(
        "--known-bad", type=bool, help="List the combinations that are known to fail, by release."
    )


@dataclass(frozen=True)
class DraftsRequest:
    """The published drafts to list."""

    target: str | None = None
    method: str | None = option(
        "--method", metavar="METHOD", help="List only drafts for this method (default: all)."
    )
    catalogue_file: str | None = option(
        "--drafts",
        section=SETTINGS,
        type=File,
        metavar="FILE",
        help="Catalogue of your own, merged over the shipped one (docs/how-to/drafts.md).",
    )


@dataclass(frozen=True)
class ReportRequest:
    """A measurement to report: a file or the name of a rollout, None for the last rollout."""

    run: str | None = None
    service: str | None = option(
        "-s", "--service", metavar="NAME", help="Service of the rollout (default: the only one)."
    )
    output_file: str | None = option(
        "--output-file", type=File, metavar="FILE", help="File to write (default: standard output)."
    )
    force: bool = option("--force", type=bool, help="Overwrite a file that is not a report.")
    signing: SigningRequest = group(SigningRequest)
    policy_file: str | None = option(
        "--policy",
        type=File,
        metavar="FILE",
        help="Gate policy, YAML (default: the policy of the measurement).",
    )


@dataclass(frozen=True)
class ExplainRequest:
    """A measurement that the gate judges again; without one the policy alone is explained."""

    run: str | None = None
    policy_file: str | None = option(
        "--policy",
        type=File,
        metavar="FILE",
        help="Gate policy, YAML (default: the policy of RUN, else mpctl's).",
    )
    service: str | None = option(
        "--service", metavar="NAME", help="Service of the rollout RUN (default: the only one)."
    )
    weights_gb: float | None = option(
        "--weights-gb",
        type=AboveZero(),
        metavar="GB",
        help="Weights that a step reads, for the memory floor.",
    )
    bandwidth_gb_s: float | None = option(
        "--bandwidth",
        type=AboveZero(),
        metavar="GB/S",
        help="Memory bandwidth of the device, from its data sheet, for the memory floor.",
    )
