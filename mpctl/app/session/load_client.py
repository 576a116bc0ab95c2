"""Place of a measurement's load client."""

from __future__ import annotations

from dataclasses import dataclass

from mpctl.errors import InputError
from mpctl.rollout.operation import Operation
from mpctl.rollout.plan import Kind


@dataclass(frozen=True)
class LoadPlace:
    """``where``: ``job``, a Job of so many ``pods`` in the cluster, or ``local``, the machine of the command."""

    where: str
    pods: int = 1

    def __str__(self) -> str:
        return self.where if self.pods == 1 else f"{self.where} of {self.pods} pods"


def place_load(asked: str, pods: int | None, platform: str, *, unfinished: Operation | None = None) -> LoadPlace:
    """As asked, else as an ``unfinished`` rollout has it, else a Job in a cluster, whose requests take the path of the
    service's clients and need no vLLM on this machine. ``pods``: None without a wish.

    An unfinished rollback measures nothing and records no load client. In a cluster it gets the client of Jobs, which
    removes the Job that the undone rollout left.

    Raises:
        InputError: a Job is asked for where there is no cluster, or several pods where there is no Job.
    """
    if asked == "job" and platform != "kubernetes":
        raise InputError("there is no cluster to run a Job in", field="--load", hint="--load local")
    begun = unfinished.plan if unfinished is not None and unfinished.plan.kind is Kind.ROLLOUT else None
    if asked == "auto" and begun is not None:
        asked = begun.load
    elif asked == "auto":
        asked = "job" if platform == "kubernetes" else "local"
    if asked != "job":
        if pods is not None and pods > 1:
            raise InputError("only a Job in a cluster has pods", field="--load-pods", hint="--load job")
        return LoadPlace(asked)
    return LoadPlace(asked, pods or (begun.load_pods if begun is not None else 1))
