"""Users' traffic between a service on a cluster and its second arm, by the user's HTTPRoute."""

from __future__ import annotations

from collections.abc import Mapping

from mpctl.experiment.counters import Counters
from mpctl.json_types import Json
from mpctl.platform.kubernetes.httproute.router import Routes
from mpctl.platform.kubernetes.service.engines import ClusterEngines
from mpctl.platform.kubernetes.service.live import LiveService
from mpctl.platform.kubernetes.service.reader import ServiceReader
from mpctl.rollout.ports import Arm


class Traffic:
    """Shifts, mirrors and returns the traffic of one service."""

    def __init__(
        self, reader: ServiceReader, live: LiveService, routes: Routes, engines: ClusterEngines
    ) -> None:
        self._reader, self._live, self._routes, self._engines = reader, live, routes, engines
        self.shift, self.mirror = routes.shift, routes.mirror

    def require_shifted(self, route: Json, percent: int) -> None:
        """Raise unless the HTTPRoute is as mpctl wrote it."""
        with self._reader.rate_limited():
            self._routes.require_shifted(route, percent)

    def require_mirrored(self, route: Json, percent: int) -> None:
        """Raise unless the HTTPRoute is as mpctl wrote it."""
        with self._reader.rate_limited():
            self._routes.require_mirrored(route, percent)

    def unshift(self, route: Json) -> tuple[str, ...]:
        """Restore the HTTPRoute and wait until the candidate has answered its requests."""
        return (*self._routes.restore(route), *self._engines.candidate.drain())

    def counters(self, arm: Arm) -> Mapping[str, Counters]:
        """Counters of every ready pod of an arm."""
        with self._reader.rate_limited():
            workload = self._engines.workload(arm)
        return {} if workload is None else self._reader.engines.counters(workload)[0]

    def start_retained(self, arm: Arm, route: Json) -> None:
        """Run the retained baseline with as many pods as the service has."""
        live = self._live.require()
        pods = self._live.desired_replicas(live)
        self._engines.candidate.start(arm, service=live, pods=pods, retained_for=route["name"])
