"""The engines of a service on a cluster: those of the live InferenceService, its candidate and the baseline's copy."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from mpctl.errors import MpctlError, NotPermitted
from mpctl.estimate.capacity import gpus_of
from mpctl.platform.kubernetes.api.api_client import Client
from mpctl.platform.kubernetes.gpu_capacity import gpu_product
from mpctl.platform.kubernetes.httproute.router import Routes
from mpctl.platform.kubernetes.service.conditions import is_draining
from mpctl.platform.kubernetes.service.live import Candidate, LiveService, arm_of, retained_route
from mpctl.platform.kubernetes.service.manifest_text import text_of
from mpctl.platform.kubernetes.service.reader import ServiceReader
from mpctl.platform.kubernetes.service.running_engine import read_service
from mpctl.platform.kubernetes.service.shapes import shape_of
from mpctl.platform.kubernetes.service.workload import ServiceWorkload
from mpctl.rollout.ports import Arm, ArmState, Phase


class ClusterEngines:
    """Starts, stops and reads the arms of one service."""

    def __init__(
        self,
        client: Client,
        reader: ServiceReader,
        live: LiveService,
        routes: Routes,
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client, self._reader, self._live, self._routes = client, reader, live, routes
        self.candidate = Candidate(client, reader, routes, live.service, sleep=sleep)
        self.copy = Candidate(client, reader, routes, live.service, copy=True, sleep=sleep)
        self._candidate_arm = (
            ""  # the arm last read as the candidate; empty once this command changed the service
        )

    def forget_candidate(self) -> None:
        """Read the live service first again: it is about to be written."""
        self._candidate_arm = ""

    def workload(self, arm: Arm) -> ServiceWorkload | None:
        """Read the workload of an arm; None when it does not exist."""
        if arm.copy:
            copy = self.copy.read_owned()
            return (
                self._reader.workload(copy) if copy is not None and arm_of(copy) == arm.id else None
            )
        live = None if arm.id == self._candidate_arm else self._live.read()
        if live is not None and self._live.is_arm(live, arm):
            return self._reader.workload(live)
        candidate = self.candidate.read_owned()
        if candidate is not None and arm_of(candidate) == arm.id:
            self._candidate_arm = arm.id
            return self._reader.workload(candidate)
        if arm.id != self._candidate_arm:
            return None
        self.forget_candidate()  # another writer removed the candidate: the live service may be the arm
        return self.workload(arm)

    def state(self, arm: Arm) -> ArmState:
        """Return the state of an arm."""
        return self._state(arm.id, lambda: self.workload(arm))

    def states(self) -> tuple[ArmState, ...]:
        """Return the state of the live arm, and of the candidate when there is one."""
        live = self._live.require()
        serving = self._state(
            Arm(text_of(live)).id, lambda: self._reader.workload(live), read_only=True
        )
        candidate, copy = self.candidate.read_owned(), self.copy.read_owned()
        copies: tuple[ArmState, ...] = ()
        if copy is not None:
            copies = (
                self._state(str(arm_of(copy)), lambda: self._reader.workload(copy), read_only=True),
            )
        if candidate is None:
            return (serving, *copies)
        second = self._state(
            str(arm_of(candidate)), lambda: self._reader.workload(candidate), read_only=True
        )
        if retained_route(candidate) is not None:
            second = replace(
                second, retained_since=str(candidate["metadata"].get("creationTimestamp") or "")
            )
        try:
            candidate_share, others = self._routes.share_texts()
        except NotPermitted as error:
            candidate_share = others = f"? ({error.message})"
        return (replace(serving, traffic=others), replace(second, traffic=candidate_share), *copies)

    def _state(
        self, arm_id: str, read: Callable[[], ServiceWorkload | None], *, read_only: bool = False
    ) -> ArmState:
        """``read_only``: an engine that the user may not reach is a note instead of an error."""
        workload, health = self._reader.health(read, waits_for="" if read_only else arm_id)
        if workload is None:
            return ArmState(arm_id, Phase.ABSENT)
        phase, message, endpoint, matches = health.phase, health.message, None, health.matches
        if health.pods and not self._client.listing:
            try:
                endpoint, counters = self._reader.engines.endpoint(workload, health.pods[0])
            except NotPermitted as error:
                if not read_only:
                    raise  # waiting does not change a right
                message = f"engine not asked: {error.message}"
            except MpctlError as error:
                if phase is Phase.READY:
                    phase, message = Phase.STARTING, error.message
            else:
                configured = read_service(workload.isvc, workload.runtime).speculation() is not None
                speculates = (
                    configured
                    or shape_of(workload.isvc).expected(workload.isvc, workload.runtime).speculates
                )
                if speculates is not (counters.drafts is not None):
                    matches = False
                    has = "has no" if speculates else "has"
                    message = f"pod {health.pods[0]}: the running engine {has} speculation counters"
        return ArmState(
            id=arm_id,
            phase=phase,
            endpoint=endpoint,
            argv=health.argv,
            matches=matches,
            message=message,
            restarts=health.restarts,
            pods_ready=len(health.pods),
            draining=any(map(is_draining, workload.pods)),
            image=health.image,
        )

    def describe_failure(self, arm: Arm) -> str:
        """Return the last lines of the engine's log."""
        workload = self.workload(arm)
        return (
            "the arm does not exist any more"
            if workload is None
            else self._reader.engines.log_excerpt(workload)
        )

    def device(self, arm: Arm) -> str:
        """Return the product of the GPUs of the node that runs an arm; empty where the engine asks for none."""
        workload = self.workload(arm)
        specs = [pod["spec"] for pod in workload.pods if gpus_of(pod["spec"])] if workload else []
        return (
            (gpu_product(self._client, {str(spec.get("nodeName")) for spec in specs}) or "")
            if specs
            else ""
        )

    def lost_pods(self) -> tuple[str, ...]:
        """Return what became of the pods that were measured last and end."""
        return self._reader.engines.lost_pods()

    def start(self, arm: Arm) -> None:
        """Run ``arm`` as the candidate unless it is the service. A failed candidate is created again."""
        live = self._live.require()
        if arm.copy:
            self.copy.start(arm, service=live)
        elif not self._live.is_arm(live, arm):
            self.candidate.start(arm, service=live)

    def stop(self, arm: Arm) -> None:
        """Remove the candidate, or the copy of the baseline, when it runs ``arm``."""
        second = self.copy if arm.copy else self.candidate
        isvc = second.read_owned()
        if isvc is not None and arm_of(isvc) == arm.id:
            second.remove(isvc)

    def stop_all_except(self, arm: Arm) -> None:
        """Remove the candidate, unless it is ``arm``, and the copy of the baseline."""
        self.copy.remove_owned()
        candidate = self.candidate.read_owned()
        if candidate is not None:
            live = self._live.read()
            if arm_of(candidate) != arm.id or (live is not None and self._live.is_arm(live, arm)):
                self.candidate.remove(candidate)
