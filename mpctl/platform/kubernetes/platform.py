"""The kubernetes platform: implements ``mpctl.rollout.ports.Platform`` for an InferenceService of a cluster.

The live InferenceService is the service. It is changed by a replace of the whole object with the version and uid that
were read. Server-side apply would not do here: it cannot take away a field that another manager owns, so it could not
restore a recorded spec exactly. Who else changed the object is read from its managedFields and named. Everything else
that is written (candidate, history) is applied server-side as ``mpctl``.

A candidate is a second InferenceService, ``<service>-candidate``. KServe's own canary is not used: with storageUris it
neither passes them on nor can it be promoted (KServe 0.20).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from mpctl.errors import Conflict, InputError, MpctlError, NotPermitted, Refused
from mpctl.plan.capacity import Need
from mpctl.platform.kubernetes import room
from mpctl.platform.kubernetes.client import MANAGER, Client, Json, conditions
from mpctl.platform.kubernetes.engine import edited, read_service, runtime_of
from mpctl.platform.kubernetes.failure import AlreadyExists, OutcomeUnknown, Stale
from mpctl.platform.kubernetes.fields import changed_fields
from mpctl.platform.kubernetes.kinds import HPA, INFERENCE_SERVICE, NODE, POD, RESOURCE_CLAIM, RESOURCE_SLICE
from mpctl.platform.kubernetes.look import ISVC_LABEL, Found, Looker, deployment_name
from mpctl.platform.kubernetes.observe import judge, wanted
from mpctl.platform.kubernetes.scaling import Scaling, find_scalers, record_of
from mpctl.platform.kubernetes.text import (
    ARM_ANNOTATION,
    bridge,
    bridged,
    candidate_name,
    candidate_of,
    editors_since,
    object_of,
    text_of,
    to_write,
)
from mpctl.rollout.ports import Arm, ArmState, Live, Phase
from mpctl.service import Service

_TRIES = 6
_GONE_TIMEOUT_S = 180.0  # pods drain: vLLM's own shutdown plus the grace period


class KubernetesPlatform:
    """One InferenceService."""

    name = "kubernetes"
    rolls = True

    def __init__(
        self, client: Client, namespace: str, service: str, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.client = client
        self.looker = Looker(client, namespace)
        self._namespace = namespace
        self._service = service
        self._sleep = sleep

    @property
    def title(self) -> str:
        """The service as messages name it."""
        return f"service {self._namespace}/{self._service}"

    # Reading

    def isvc(self) -> Json:
        """The live object.

        Raises:
            InputError: it is not there.
        """
        found = self.looker.isvc(self._service)
        if found is None:
            raise InputError(
                f"{self.title} is not there: no such InferenceService",
                hint=f"what was recorded is kept: mpctl history {self._service} --revision 1 -o yaml prints it for "
                f"kubectl create; mpctl abandon {self._service} ends what is unfinished and removes the candidate",
            )
        return found

    def read(self) -> Live:
        """The live manifest; the arm it asks for is the one that serves."""
        isvc = self.isvc()
        text = text_of(isvc)
        return Live(self._service, self._namespace, text, isvc["metadata"]["resourceVersion"], Arm(text).id)

    def live_text(self) -> str | None:
        """The live manifest; None when the service is gone."""
        found = self.looker.isvc(self._service)
        return None if found is None else text_of(found)

    def service(self) -> Service:
        """The live service as a value, with the arguments of its runtime."""
        isvc = self.isvc()
        return read_service(isvc, runtime_of(self.client, isvc, self._namespace))

    def with_speculation(self, config: dict[str, Any] | None, edit: Callable[[Service], Service] | None = None) -> str:
        """The text the service would have with another setting: asked of the server, so that what its webhooks add
        is in it, and admission refuses before anything is changed."""
        isvc = self.isvc()
        text = edited(isvc, runtime_of(self.client, isvc, self._namespace), config, edit)
        return self.admitted(text, isvc)

    def admitted(self, text: str, isvc: Json | None = None) -> str:
        """``text`` as it would read after a write (dryRun=All)."""
        for _ in range(_TRIES):
            live = isvc or self.isvc()
            try:
                return text_of(self.client.replace(INFERENCE_SERVICE, to_write(text, live), dry_run=True))
            except (Stale, OutcomeUnknown):
                isvc = None
        raise MpctlError(f"{self.title} changes faster than it can be checked", hint="try again")

    def check(self, arm: Arm, *, beside: bool, downtime: bool = False) -> tuple[str, ...]:
        """Refuse what has no room, and a service that does not serve now: nothing could be measured, and nothing that
        works could be gone back to. Returns notes."""
        isvc = self.isvc()
        found = self.looker.find(isvc)
        self._require_serving(found)
        notes = self._doomed_scaler(isvc)
        if beside:
            candidate_of(arm.manifest, arm.id, namespace=self._namespace)
            other = self.looker.isvc(candidate_name(self._service))
            if other is not None and ARM_ANNOTATION not in (other["metadata"].get("annotations") or {}):
                raise Refused(
                    f"InferenceService {candidate_name(self._service)} is there already and is not a candidate of ours",
                    hint="rename or remove it, or use --strategy in-place",
                )
            if other is not None:
                return notes
        if text_of(isvc) == arm.manifest or (downtime and not beside):
            return notes
        return (*notes, *self._check_room(found, beside=beside))

    def _doomed_scaler(self, isvc: Json) -> tuple[str, ...]:
        """An HPA that KServe is about to delete: one of its own predictor's name that it does not own (KServe 0.20)."""
        name = deployment_name(isvc)
        for item in self.client.list(HPA, self._namespace) or []:
            owners = item["metadata"].get("ownerReferences") or []
            if item["metadata"]["name"] == name and not any(o.get("uid") == isvc["metadata"]["uid"] for o in owners):
                return (f"HPA {name} has the name KServe uses itself: it will be deleted; give it another one",)
        return ()

    def _require_serving(self, found: Found) -> None:
        seen = judge(found.isvc, found.deployment, found.pods, runtime=found.runtime)
        if seen.phase is not Phase.READY:
            raise Refused(
                f"{self.title} does not serve as it is: {seen.message}",
                hint=f"mpctl status {self._service} and kubectl describe pods say more; try again once it serves",
            )

    def _check_room(self, found: Found, *, beside: bool) -> tuple[str, ...]:
        spec: Json = {} if found.deployment is None else found.deployment["spec"]["template"]["spec"]
        gpus = room.gpus_of(spec)
        if gpus == 0:
            return ("no GPU is asked for, so room for a second engine was not checked",)
        lists = [self.client.list(kind) for kind in (NODE, RESOURCE_SLICE, RESOURCE_CLAIM, POD)]
        nodes, slices, claims, pods = (found_items or [] for found_items in lists)
        fit = room.room_for(Need(1, gpus), nodes, slices, claims, pods)
        if fit.verdict == "fits":
            # Of a pod that runs: admission adds tolerations (GKE does for GPUs). It may add others to a new pod, so
            # this is said and not refused.
            pod = found.pods[0]["spec"] if found.pods else spec
            why = {node["metadata"]["name"]: room.barred(pod, node) for node in nodes}
            usable = [node for node in nodes if not why[node["metadata"]["name"]]]
            if room.room_for(Need(1, gpus), usable, slices, claims, pods).verdict == "fits":
                return fit.reasons
            told = "; ".join(reason for reason in why.values() if reason)
            return (*fit.reasons, f"the pods may not use the nodes whose GPUs are free, so it may not start: {told}")
        if beside:
            instead = "--strategy in-place --accept-downtime changes it on the one GPU; mpctl capacity adds a node"
        else:
            instead = "--accept-downtime lets the old pod go first; mpctl capacity adds a node"
        what = "a candidate beside it" if beside else "the new pod before the old one goes"
        raise Refused(f"{self.title}: there is no GPU for {what}: {'; '.join(fit.reasons)}", hint=instead)

    def url(self) -> str:
        """Where clients reach the service, as KServe says."""
        return str((self.isvc().get("status") or {}).get("url") or "-")

    def problems(self) -> tuple[str, ...]:
        """Conditions of the InferenceService that are not met, with KServe's reasons."""
        return tuple(
            f"{c.get('type')}: {c.get('message') or c.get('reason')}"
            for c in conditions(self.isvc())
            if c.get("status") == "False" and c.get("severity") != "Info"
        )

    def cold_start_s(self) -> float | None:
        """How long the pods that serve now took to get ready."""
        return self.looker.cold_start_s(self.looker.find(self.isvc()))

    def scaling(self) -> Json | None:
        """The autoscaler as it is, for the plan; None when there is none."""
        isvc = self.isvc()
        scalers = find_scalers(self.client, self._namespace, deployment_name(isvc))
        return record_of(scalers, self._replicas(isvc)) if scalers else None

    def pin(self, scaling: Json) -> None:
        """Hold the autoscaler."""
        Scaling(self.client, self._namespace).pin(scaling)

    def unpin(self, scaling: Json) -> tuple[str, ...]:
        """Put the autoscaler back; returns what was left as somebody else changed it."""
        return Scaling(self.client, self._namespace).unpin(scaling)

    def _replicas(self, isvc: Json) -> int:
        found = self.looker.find(isvc).deployment
        if found is not None:
            return int(found["spec"].get("replicas", 1))
        return int(isvc["spec"]["predictor"].get("minReplicas") or 1)

    # Arms

    def _find(self, arm: Arm) -> Found | None:
        live = self.looker.isvc(self._service)
        if live is not None and text_of(live) in self._forms(arm, live):
            return self.looker.find(live)
        candidate = self.looker.isvc(candidate_name(self._service))
        if candidate is not None and _arm_of(candidate) == arm.id:
            return self.looker.find(candidate)
        return None

    def _forms(self, arm: Arm, live: Json) -> set[str]:
        """The texts the live object may have while ``arm`` is the service: its own, or with a change's strategy."""
        if live["spec"]["predictor"].get("deploymentStrategy") == _strategy(arm.manifest):
            return {arm.manifest}
        return {arm.manifest, bridged(arm.manifest, downtime=False), bridged(arm.manifest, downtime=True)}

    def state(self, arm: Arm) -> ArmState:
        """What is known of an arm."""
        return self._state(arm.id, lambda: self._find(arm))

    def arms(self) -> tuple[ArmState, ...]:
        """The live arm, and the candidate if there is one."""
        live = self.isvc()
        found = [self._state(Arm(text_of(live)).id, lambda: self.looker.find(live), shown=True)]
        candidate = self.looker.isvc(candidate_name(self._service))
        arm_id = None if candidate is None else _arm_of(candidate)
        if candidate is not None and arm_id is not None:
            found.append(self._state(arm_id, lambda: self.looker.find(candidate), shown=True))
        return tuple(found)

    def _state(self, arm_id: str, find: Callable[[], Found | None], *, shown: bool = False) -> ArmState:
        """``shown``: to somebody who only looks; an engine that may not be asked leaves the rest to be said."""
        found, seen = self.looker.seen(find)
        if found is None:
            return ArmState(arm_id, Phase.ABSENT)
        phase, message, endpoint, matches = seen.phase, seen.message, None, seen.matches
        if phase is Phase.READY:
            try:
                endpoint, counters = self.looker.endpoint(found, seen.pods[0])
            except NotPermitted as error:
                if not shown:
                    raise  # waiting does not change it
                message = f"the engine itself was not asked: {error.message}"
            except MpctlError as error:
                phase, message = Phase.STARTING, error.message
            else:
                own = read_service(found.isvc, found.runtime).speculation() is not None
                speculates = own or bool(wanted(found.isvc, found.runtime).inherited)
                if speculates is not (counters.drafts is not None):
                    matches = False
                    has = "has no" if speculates else "has"
                    message = f"pod {seen.pods[0]}: the running engine {has} speculation counters"
        return ArmState(
            id=arm_id,
            phase=phase,
            endpoint=endpoint,
            argv=seen.argv,
            matches=matches,
            message=message,
            restarts=seen.restarts,
            pods_ready=len(seen.pods),
        )

    def describe_failure(self, arm: Arm) -> str:
        """The engine's last words."""
        found = self._find(arm)
        return "there is nothing of it left" if found is None else self.looker.last_words(found)

    # Acting

    def start(self, arm: Arm) -> None:
        """Run ``arm`` as the candidate; nothing to do when it is the service. A candidate that failed is made anew."""
        live = self.isvc()
        if text_of(live) in self._forms(arm, live):
            return
        body = candidate_of(arm.manifest, arm.id, namespace=self._namespace)
        name = body["metadata"]["name"]
        for _ in range(_TRIES):
            there = self.looker.isvc(name)
            if there is not None and _arm_of(there) == arm.id and not self._failed(there):
                return
            if there is not None:
                self._require_ours(there)
                self._remove(there)
            try:
                self.client.create(INFERENCE_SERVICE, body)
                return
            except (AlreadyExists, OutcomeUnknown):
                continue
        raise MpctlError(f"InferenceService {name} could not be created in {_TRIES} tries", hint="try again")

    def _failed(self, isvc: Json) -> bool:
        _, seen = self.looker.seen(lambda: self.looker.find(isvc))
        return seen.phase is Phase.FAILED

    def _require_ours(self, isvc: Json) -> None:
        if _arm_of(isvc) is None:
            raise Conflict(f"InferenceService {isvc['metadata']['name']} is not ours to remove")

    def replace(self, arm: Arm, *, expect: tuple[Arm, ...], downtime: bool) -> None:
        """Make ``arm`` the service in the place of the serving one."""
        self._write(arm, expect, downtime=downtime)

    def adopt(self, arm: Arm, *, expect: tuple[Arm, ...], downtime: bool = False) -> None:
        """Make ``arm`` the live spec; KServe then rolls the pods, an old one leaving when a new one is ready.

        The candidate, which gets no traffic, is removed first: its GPU is the one the first new pod starts on.
        """
        live = self.isvc()
        if text_of(live) not in self._forms(arm, live):
            self._expected(live, (*expect, arm))
            self._remove_candidate()
        self._write(arm, expect, downtime=downtime)

    def settle(self, arm: Arm) -> None:
        """Take a strategy that was set for the change back out of the live spec."""
        for _ in range(_TRIES):
            live = self.isvc()
            text = text_of(live)
            if text == arm.manifest or text not in self._forms(arm, live):
                return
            if self._put(live, arm.manifest):
                return
        raise MpctlError(f"{self.title} could not be written in {_TRIES} tries", hint="the same command goes on")

    def retire(self, keep: Arm) -> None:
        """Remove the candidate, unless it is the one to keep."""
        candidate = self.looker.isvc(candidate_name(self._service))
        if candidate is not None and _arm_of(candidate) is not None:
            live = self.looker.isvc(self._service)
            if _arm_of(candidate) != keep.id or (live is not None and text_of(live) == keep.manifest):
                self._remove(candidate)

    def stop(self, arm: Arm) -> None:
        """Remove the candidate when it is ``arm``."""
        candidate = self.looker.isvc(candidate_name(self._service))
        if candidate is not None and _arm_of(candidate) == arm.id:
            self._remove(candidate)

    def _remove_candidate(self) -> None:
        candidate = self.looker.isvc(candidate_name(self._service))
        if candidate is not None and _arm_of(candidate) is not None:
            self._remove(candidate)

    def _remove(self, isvc: Json) -> None:
        """Delete an InferenceService of ours and wait until its pods have left their GPUs."""
        name = isvc["metadata"]["name"]
        self.client.delete(INFERENCE_SERVICE, name, self._namespace, uid=isvc["metadata"]["uid"], foreground=True)
        end = time.monotonic() + _GONE_TIMEOUT_S
        while time.monotonic() < end:
            pods = self.client.list(POD, self._namespace, labels=f"{ISVC_LABEL}={name}")
            if not pods and self.looker.isvc(name) is None:
                return
            self._sleep(1.0)
        raise MpctlError(
            f"pods of InferenceService {name} did not end within {_GONE_TIMEOUT_S:.0f} s",
            hint=f"kubectl get pods -n {self._namespace} -l {ISVC_LABEL}={name} shows them",
        )

    def _write(self, arm: Arm, expect: tuple[Arm, ...], *, downtime: bool) -> None:
        for _ in range(_TRIES):
            live = self.isvc()
            text = text_of(live)
            form = bridge(arm.manifest, self._replicas(live), downtime=downtime) or arm.manifest
            # Written by an earlier try that waits for a GPU, it is written again once an old pod may go first.
            if text in self._forms(arm, live) and (not downtime or text == form or self._serves(live)):
                return
            self._expected(live, (*expect, arm))
            if self._put(live, form):
                return
        raise MpctlError(f"{self.title} could not be written in {_TRIES} tries", hint="the same command goes on")

    def _serves(self, live: Json) -> bool:
        found = self.looker.find(live)
        return judge(live, found.deployment, found.pods, runtime=found.runtime).phase is Phase.READY

    def _put(self, live: Json, text: str) -> bool:
        """Write; False when it has to be looked at again: KServe writes status all the time, which makes ours stale."""
        try:
            self.client.replace(INFERENCE_SERVICE, to_write(text, live))
        except (Stale, OutcomeUnknown):
            return False
        return True

    def _expected(self, live: Json, known: tuple[Arm, ...]) -> None:
        """Raise when the live spec is none of those this operation wrote or started from.

        Raises:
            Conflict: somebody else changed it; the message says who, when and what.
        """
        text = text_of(live)
        if any(text in self._forms(arm, live) for arm in known):
            return
        raise self.foreign(live, known[0])

    def foreign(self, live: Json, known: Arm) -> Conflict:
        """The error for an edit that is not ours."""
        who = editors_since(None, live, MANAGER)
        what = changed_fields(object_of(known.manifest), object_of(text_of(live)))
        return Conflict(
            f"{self.title} was changed by {who[0] if who else 'somebody else'} meanwhile: {', '.join(what[:5])}",
            hint=f"nothing was overwritten. mpctl abandon {self._service} keeps that change and ends the operation; "
            f"mpctl rollback {self._service} --force keeps it as a revision and restores the recorded one",
        )

    def close(self) -> None:
        """Close forwards and connections."""
        self.looker.close()
        self.client.close()


def _arm_of(isvc: Json) -> str | None:
    found = (isvc["metadata"].get("annotations") or {}).get(ARM_ANNOTATION)
    return None if found is None else str(found)


def _strategy(text: str) -> Any:
    return object_of(text)["spec"]["predictor"].get("deploymentStrategy")
