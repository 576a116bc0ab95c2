"""Options of a rollout that shifts production traffic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

import click

from mpctl.cli.options.types import Duration, Percentages, Word, all_of, option

if TYPE_CHECKING:
    from mpctl.app.requests import TrafficRequest

_SECTION: dict[str, Any] = {"section": "Traffic"}


class TrafficOptions(TypedDict):
    """The options as click hands them over."""

    mirror: int | None
    traffic_steps: tuple[int, ...] | None
    step_duration: float
    route: str | None
    keep_baseline: bool
    bake: float | None
    measure_on: str
    users_share: int | None
    users_window: float
    measure_limit: float


traffic_options = all_of(
    option(
        "--measure-on",
        type=Word(("auto", "service", "pair", "mirror", "turns", "split")),
        default="auto",
        help="Engines to measure: the service, a pair without users, or users' requests.",
        **_SECTION,
    ),
    option(
        "--users-share",
        type=click.IntRange(1, 100),
        metavar="PERCENT",
        help="Consent that so many of the users' requests meet the candidate while it is measured.",
        **_SECTION,
    ),
    option(
        "--users-window",
        type=Duration(),
        metavar="DURATION",
        default="10s",
        help="Time between the two readings that tell whether users are on the service.",
        **_SECTION,
    ),
    option(
        "--measure-limit",
        type=Duration(),
        metavar="DURATION",
        default="3h",
        help="Refuse a measurement beside users that is predicted to take longer.",
        **_SECTION,
    ),
    option(
        "--mirror",
        type=click.IntRange(1, 100),
        metavar="PERCENT",
        help="Percentage of production requests copied to the candidate before promotion.",
        **_SECTION,
    ),
    option(
        "--traffic-steps",
        type=Percentages(),
        metavar="P[,P...]",
        help="Shares of production traffic for the candidate before promotion, such as 1,5,10,20.",
        **_SECTION,
    ),
    option(
        "--step-duration",
        type=Duration(),
        metavar="DURATION",
        default="2m",
        help="How long a step, and the mirror, lasts.",
        **_SECTION,
    ),
    option("--route", metavar="NAME", help="HTTPRoute to the service (default: the only one).", **_SECTION),
    option(
        "--keep-baseline",
        is_flag=True,
        help="Keep the baseline running after promotion.",
        **_SECTION,
    ),
    option(
        "--bake",
        type=Duration(zero=True),
        metavar="DURATION",
        help="Time to watch the promoted engine (default: 10m side by side in a cluster).",
        **_SECTION,
    ),
)


def traffic_request(given: TrafficOptions) -> TrafficRequest:
    """The request of these options."""
    from mpctl.app.requests import TrafficRequest

    return TrafficRequest(
        mirror_percent=given["mirror"] or 0,
        steps_percent=given["traffic_steps"] or (),
        step_duration_s=given["step_duration"],
        route=given["route"],
        keep_baseline=given["keep_baseline"],
        bake_s=given["bake"],
        measure_on=given["measure_on"],
        users_share_percent=given["users_share"],
        users_window_s=given["users_window"],
        measure_limit_s=given["measure_limit"],
    )
