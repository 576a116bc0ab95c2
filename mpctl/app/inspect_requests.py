"""Requests of the commands that look at a service, a report or the methods, and change nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from mpctl.app.option import SETTINGS, File, Whole, group, option
from mpctl.app.requests import SigningRequest, SpeculationRequest, price_setting
from mpctl.errors import InputError


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
    """A method whose setting is printed, or ``known-bad``: the combinations that fail; without it the methods are
    listed."""

    method: str = ""
    draft: str | None = option(
        "--draft", metavar="PATH|REPOSITORY", help="Draft to name in the setting of METHOD."
    )
    settings: tuple[str, ...] = option(
        "--set", multiple=True, metavar="KEY=VALUE", help="Setting of METHOD; repeatable."
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
        help="Catalogue of your own, merged over the shipped one (docs/how-to/drafts.md).",
    )


@dataclass(frozen=True)
class RunRequest:
    """A measurement: the file of one, or a rollout of a service. None: the last rollout, of the only service."""

    run: str | None = None
    service: str | None = None
    words: tuple[str, ...] = ()  # of the command line, in place of both: [SERVICE] [RUN]

    def completed(self) -> Self:
        """The request with the run and the service that the words name.

        Raises:
            InputError: the words name two runs, or two services.
        """
        runs = [word for word in self.words if is_file(word) or re.fullmatch(r"rollout-\d+", word)]
        services = [word for word in self.words if word not in runs]
        if len(runs) > 1 or len(services) > 1:
            raise InputError("expected a service and a run at most")
        return replace(self, run=next(iter(runs), None), service=next(iter(services), None))


def is_file(run: str) -> bool:
    """Return whether a run is named by the path of its file."""
    return run.endswith((".json", ".gz")) or "/" in run or Path(run).is_file()


@dataclass(frozen=True)
class ReportRequest(RunRequest):
    """A measurement to report."""

    output_file: str | None = option(
        "--output-file", type=File, help="File to write (default: standard output)."
    )
    opens: bool = option("--open", type=bool, help="Write an HTML page and open it in a browser.")
    force: bool = option("--force", type=bool, help="Overwrite a file that is not a report.")
    signing: SigningRequest = group(SigningRequest)
    policy_file: str | None = option(
        "--policy",
        type=File,
        help="Gate policy, YAML (default: the policy of the measurement).",
    )
    price_per_hour: float | None = price_setting()


@dataclass(frozen=True)
class ExplainRequest(RunRequest):
    """A measurement that the gate judges again; without a run and a service the policy alone is explained."""

    policy_file: str | None = option(
        "--policy",
        type=File,
        help="Gate policy, YAML (default: that of the measurement, else mpctl's).",
    )
