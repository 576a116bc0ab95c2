"""Options of a rollout that shares out users' traffic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from mpctl.cli.load_options import Numbers
from mpctl.cli.options import Duration, option

F = TypeVar("F", bound=Callable[..., Any])


class Percentages(Numbers):
    """``1,10,50`` as whole percentages, 1 to 100, each larger than the one before."""

    name = "percentages"

    def __init__(self) -> None:
        super().__init__(whole=True, least=1)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        """The percentages, in their order."""
        found = super().convert(value, param, ctx)
        if any(one > 100 for one in found):
            self.fail(f"{max(found)} in {value!r} is more than 100 percent", param, ctx)
        if list(found) != sorted(found):
            self.fail(f"{value!r} must rise from step to step", param, ctx)
        return found


def traffic_options(function: F) -> F:
    """Declare them, in this order."""
    for decorator in reversed(_OPTIONS):
        function = decorator(function)
    return function


_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    option(
        "--traffic-steps",
        type=Percentages(),
        metavar="P[,P...]",
        help="On a cluster, once the gate agrees: percentages of the users' own traffic that the candidate gets one "
        "after the other before it is promoted, such as 1,10,50.",
    ),
    option("--step-duration", type=Duration(), default="2m", help="How long each traffic step is held and watched."),
    option("--route", metavar="NAME", help="The HTTPRoute to the service; default: the only one of yours."),
    option("--keep-baseline", is_flag=True, help="Keep the old engine running after promotion: an instant way back."),
)
