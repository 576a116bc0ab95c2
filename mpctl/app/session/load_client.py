"""Where the load client of a measurement runs."""

from __future__ import annotations

from mpctl.errors import InputError
from mpctl.rollout.operation import Operation
from mpctl.rollout.plan import Kind


def place_load(asked: str, platform: str, *, unfinished: Operation | None = None) -> str:
    """``job`` or ``local``: as asked, else as an ``unfinished`` rollout has it, else a Job in a cluster, whose requests
    take the path of the service's clients and need no vLLM on this machine.

    An unfinished rollback measures nothing and records no load client. In a cluster it gets the client of Jobs, which
    removes the Job that the undone rollout left.

    Raises:
        InputError: a Job is asked for where there is no cluster.
    """
    if asked == "job" and platform != "kubernetes":
        raise InputError("there is no cluster to run a Job in", field="--load", hint="--load local")
    if asked != "auto":
        return asked
    if unfinished is not None and unfinished.plan.kind is Kind.ROLLOUT:
        return unfinished.plan.load
    return "job" if platform == "kubernetes" else "local"
