"""Options of a rollout that shifts the users' traffic."""

from __future__ import annotations

from mpctl.cli.options.types import Duration, Percentages, all_of, option

traffic_options = all_of(
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
