"""What is looked at before a change: does the service serve, is there room, will its autoscaler last. Only reads."""

from __future__ import annotations

from mpctl.errors import Refused
from mpctl.platform.kubernetes.api.client import Client, Json
from mpctl.platform.kubernetes.api.kinds import HPA
from mpctl.platform.kubernetes.capacity.free_gpus import require_room
from mpctl.platform.kubernetes.service.candidate import Candidate, arm_of
from mpctl.platform.kubernetes.service.conditions import judge
from mpctl.platform.kubernetes.service.inference_service import LiveService
from mpctl.platform.kubernetes.service.knative import is_knative, require_changeable, starting_pods
from mpctl.platform.kubernetes.service.manifest_text import candidate_of, text_of
from mpctl.platform.kubernetes.service.reader import Found, Looker, deployment_name
from mpctl.rollout.ports import Arm, Phase


class Checks:
    """Of one service."""

    def __init__(self, client: Client, looker: Looker, live: LiveService, candidate: Candidate) -> None:
        self._client, self._looker, self._live, self._candidate = client, looker, live, candidate

    def run(self, arm: Arm, *, side_by_side: bool, downtime: bool, retain: bool) -> tuple[str, ...]:
        """Return notes on running ``arm``.

        Raises:
            Refused: the service does not serve as it is, or there is no room.
            Conflict: a route gives the second InferenceService traffic, so that it could not be removed.
        """
        isvc = self._live.need()
        if is_knative(isvc):
            require_changeable(isvc, self._live.title, self._live.pods(isvc), downtime=downtime)
        found = self._looker.find(isvc)
        self._require_serving(found)
        notes = self._doomed_scaler(isvc)
        other = self._candidate.found()
        if side_by_side:
            candidate_of(arm.manifest, arm.id, namespace=self._looker.namespace)
            if other is not None and arm_of(other) is None:
                raise Refused(
                    f"InferenceService {self._candidate.name} is there already and is not a candidate of ours",
                    hint="rename or remove it, or use --strategy in-place",
                )
        ours = other is not None and arm_of(other) is not None
        if side_by_side or ours:
            self._candidate.require_removable()
        if text_of(isvc) == arm.manifest or (downtime and not side_by_side):
            return notes
        # Another arm of ours goes first, and its GPUs are free then.
        freed = len(self._looker.find(other).pods) if other is not None and ours else 0
        pods, what, instead = self._needed(isvc, side_by_side=side_by_side, retain=retain)
        if pods <= freed:
            return notes
        more = require_room(self._client, found, title=self._live.title, pods=pods - freed, what=what, instead=instead)
        return (*notes, *more)

    def _needed(self, isvc: Json, *, side_by_side: bool, retain: bool) -> tuple[int, str, str]:
        """How many pods more than now there are at most, what they are, and what to do without room for them."""
        if retain:
            pods = self._live.pods(isvc)
            return (
                pods + 1,
                f"the old arm's {pods} and one more, with which a rollback replaces the service's pods",
                "without --keep-baseline a rollout needs one; mpctl capacity adds a node",
            )
        if is_knative(isvc):
            pods = starting_pods(isvc)
            return pods, f"a new revision's {pods} beside it", "mpctl capacity adds a node"
        if side_by_side:
            instead = "--strategy in-place --accept-downtime changes it on the one GPU; mpctl capacity adds a node"
            return 1, "a candidate beside it", instead
        instead = "--accept-downtime lets the old pod go first; mpctl capacity adds a node"
        return 1, "the new pod before the old one goes", instead

    def _doomed_scaler(self, isvc: Json) -> tuple[str, ...]:
        """An HPA that KServe is about to delete: one of its own predictor's name that it does not own (KServe 0.20)."""
        if is_knative(isvc):
            return ()
        name = deployment_name(isvc)
        for item in self._client.list(HPA, self._looker.namespace) or []:
            owners = item["metadata"].get("ownerReferences") or []
            if item["metadata"]["name"] == name and not any(o.get("uid") == isvc["metadata"]["uid"] for o in owners):
                return (f"HPA {name} has the name KServe uses itself: it will be deleted; give it another one",)
        return ()

    def _require_serving(self, found: Found) -> None:
        seen = judge(found.isvc, found.deployment, found.pods, runtime=found.runtime)
        if seen.phase is not Phase.READY:
            raise Refused(
                f"{self._live.title} does not serve as it is: {seen.message}",
                hint=f"mpctl status {self._live.service} and kubectl describe pods say more; try again once it serves",
            )
