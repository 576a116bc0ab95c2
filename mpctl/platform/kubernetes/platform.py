"""The kubernetes platform: implements ``mpctl.rollout.ports.Platform`` for an InferenceService of a cluster.

The live InferenceService is the service (``live``); it is replaced as a whole. Everything else that is written
(candidate, history) is ours alone and applied server-side or created as ``mpctl``.

A candidate is a second InferenceService, ``<service>-candidate`` (``candidate``). KServe's own canary is not used: with
storageUris it neither passes them on nor can it be promoted (KServe 0.20). Users' traffic reaches a candidate only
through an HTTPRoute of theirs (``routing``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from mpctl.errors import MpctlError, NotPermitted, Refused
from mpctl.manifest import Service
from mpctl.platform.kubernetes.api.client import Client, Json, conditions
from mpctl.platform.kubernetes.autoscaler.hpa import Scaling, find_scalers, record_of
from mpctl.platform.kubernetes.autoscaler.kserve_hpa import Hold
from mpctl.platform.kubernetes.httproute.router import Routes
from mpctl.platform.kubernetes.httproute.weights import require_possible
from mpctl.platform.kubernetes.service.candidate import Candidate, arm_of, kept_route
from mpctl.platform.kubernetes.service.conditions import is_ready, wanted
from mpctl.platform.kubernetes.service.engine import edited, read_service, runtime_of
from mpctl.platform.kubernetes.service.inference_service import LiveService
from mpctl.platform.kubernetes.service.knative import is_knative
from mpctl.platform.kubernetes.service.manifest_text import text_of
from mpctl.platform.kubernetes.service.preconditions import Checks
from mpctl.platform.kubernetes.service.reader import Found, Looker, deployment_name
from mpctl.rollout.ports import Arm, ArmState, Live, Phase, RetainedBaseline, Router, Scaler


class KubernetesPlatform:
    """One InferenceService."""

    name = "kubernetes"
    rolls = True

    def __init__(
        self,
        client: Client,
        namespace: str,
        service: str,
        *,
        sleep: Callable[[float], None] = time.sleep,
        held: Callable[[], Mapping[str, Any] | None] = lambda: None,
    ) -> None:
        """``held``: the autoscaler as an unfinished operation found it, None without one."""
        self.client = client
        self.looker = Looker(client, namespace)
        self._namespace = namespace
        self._service = service
        self._hold = Hold(held)
        self._live = LiveService(client, self.looker, service, self._hold)
        self._routes = Routes(client, namespace, service, sleep=sleep)
        self._candidate = Candidate(client, self.looker, self._routes, service, sleep=sleep)

    @property
    def scaler(self) -> Scaler:
        """This one."""
        return self

    @property
    def router(self) -> Router:
        """This one."""
        return self

    @property
    def title(self) -> str:
        """The service as messages name it."""
        return self._live.title

    # Reading

    def isvc(self) -> Json:
        """The live object.

        Raises:
            InputError: it is not there.
        """
        return self._live.need()

    def read(self) -> Live:
        """The live manifest; the arm it asks for is the one that serves."""
        isvc = self.isvc()
        text = text_of(isvc)
        return Live(self._service, self._namespace, text, isvc["metadata"]["resourceVersion"], Arm(text).id)

    def live_text(self) -> str | None:
        """The live manifest; None when the service is gone."""
        found = self._live.find()
        return None if found is None else text_of(found)

    def added_fields(self, arm: Arm, live: Live) -> tuple[str, ...] | None:
        """What admission adds to the arm's text by itself, as a dry run of writing it shows."""
        return self._live.added_fields(arm, live.text)

    def service(self) -> Service:
        """The live service as a value, with the arguments of its runtime."""
        isvc = self.isvc()
        return read_service(isvc, runtime_of(self.client, isvc, self._namespace))

    def with_speculation(self, config: dict[str, Any] | None, edit: Callable[[Service], Service] | None = None) -> str:
        """The text the service would have with another setting: asked of the server, so that what its webhooks add
        is in it, and admission refuses before anything is changed."""
        isvc = self.isvc()
        text = edited(isvc, runtime_of(self.client, isvc, self._namespace), config, edit)
        return self._live.admitted(text, isvc)

    def check(self, arm: Arm, *, side_by_side: bool, downtime: bool = False, retain: bool = False) -> tuple[str, ...]:
        """Return notes; refuse an arm without capacity, and a service that does not serve: it could be neither measured
        nor restored."""
        checks = Checks(self.client, self.looker, self._live, self._candidate)
        return checks.run(arm, side_by_side=side_by_side, downtime=downtime, retain=retain)

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
        """The autoscaler as it is, for the plan; None when there is none, and in Knative mode: its limits are part of
        a revision, so holding it would restart the pods."""
        isvc = self.isvc()
        if is_knative(isvc):
            return None
        scalers = find_scalers(self.client, self._namespace, deployment_name(isvc))
        return record_of(scalers, self._live.held(isvc), isvc)

    def pin(self, scaling: Json) -> None:
        """Hold the autoscaler."""
        Scaling(self.client, self._namespace).pin(scaling)
        self._hold.set(scaling)

    def unpin(self, scaling: Json) -> tuple[str, ...]:
        """Put the autoscaler back; returns what was left as somebody else changed it."""
        left = Scaling(self.client, self._namespace).unpin(scaling)
        self._hold.set(None)
        return left

    def route(self, name: str | None, steps: tuple[int, ...], *, force: bool = False) -> Json:
        """The user's HTTPRoute to the service, as it is.

        Raises:
            InputError: there are several, or none of that name.
            Refused: there is none that can carry weights, or one candidate pod cannot carry a step.
        """
        isvc = self.isvc()
        if is_knative(isvc):
            raise Refused(
                f"{self.title} runs in Knative mode, where Knative itself shares out the traffic",
                hint="leave --traffic-steps and --keep-baseline out",
            )
        require_possible(steps, self._live.pods(isvc), self.title)
        return self._routes.record(name, force=force)

    def shift(self, route: Json, percent: int) -> None:
        """Give the candidate a share of the route."""
        self._routes.shift(route, percent)

    def require_shifted(self, route: Json, percent: int) -> None:
        """Raise unless the route is as it was written."""
        with self.looker.paced():
            self._routes.require_shifted(route, percent)

    def unshift(self, route: Json) -> tuple[str, ...]:
        """Put the route back, and wait until the candidate has answered what it was sent."""
        return (*self._routes.restore(route), *self._candidate.drain())

    def retained_baseline(self) -> RetainedBaseline | None:
        """The retained baseline and its readiness."""
        isvc = self._candidate.ours()
        route = None if isvc is None else kept_route(isvc)
        if isvc is None or route is None:
            return None
        with self.looker.paced():
            found = self.looker.find(isvc)
        ready = sum(is_ready(pod) and not pod["metadata"].get("deletionTimestamp") for pod in found.pods)
        since = str(isvc["metadata"].get("creationTimestamp") or "")
        return RetainedBaseline(str(arm_of(isvc)), since, route, ready, self._live.pods(self.isvc()))

    # Arms

    def _find(self, arm: Arm) -> Found | None:
        live = self._live.find()
        if live is not None and self._live.is_form_of(live, arm):
            return self.looker.find(live)
        candidate = self._candidate.ours()
        return self.looker.find(candidate) if candidate is not None and arm_of(candidate) == arm.id else None

    def state(self, arm: Arm) -> ArmState:
        """What is known of an arm."""
        return self._state(arm.id, lambda: self._find(arm))

    def arms(self) -> tuple[ArmState, ...]:
        """The live arm, and the candidate if there is one."""
        live = self.isvc()
        serving = self._state(Arm(text_of(live)).id, lambda: self.looker.find(live), shown=True)
        candidate = self._candidate.ours()
        if candidate is None:
            return (serving,)
        beside = self._state(str(arm_of(candidate)), lambda: self.looker.find(candidate), shown=True)
        if kept_route(candidate) is not None:
            beside = replace(beside, retained_since=str(candidate["metadata"].get("creationTimestamp") or ""))
        try:
            own, others = self._routes.shares_in_words()
        except NotPermitted as error:
            own = others = f"? ({error.message})"
        return replace(serving, traffic=others), replace(beside, traffic=own)

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
        if not self._live.is_form_of(self.isvc(), arm):
            self._candidate.start(arm)

    def start_retained(self, arm: Arm, route: Json) -> None:
        """Run the retained baseline with as many pods as the service has."""
        self._candidate.start(arm, pods=self._live.pods(self.isvc()), kept=route["name"])

    def replace(self, arm: Arm, *, expect: tuple[Arm, ...], downtime: bool) -> None:
        """Make ``arm`` the service in the place of the serving one."""
        self._live.write(arm, expect, downtime=downtime)

    def promote(
        self, arm: Arm, *, expect: tuple[Arm, ...], downtime: bool = False, candidate_serves: bool = False
    ) -> None:
        """Make ``arm`` the live spec; KServe then rolls the pods, an old one leaving when a new one is ready.

        A candidate, which gets no traffic, is removed first: its GPU is the one the first new pod starts on.
        """
        live = self.isvc()
        if not self._live.is_form_of(live, arm) and not candidate_serves:
            self._live.require_known(live, (*expect, arm))
            self._candidate.remove_ours()
        self._live.write(arm, expect, downtime=downtime)

    def restore_strategy(self, arm: Arm) -> None:
        """Restore the deploymentStrategy that a change replaced for its duration."""
        self._live.restore_strategy(arm)

    def stop_all_except(self, arm: Arm) -> None:
        """Remove the candidate, unless it is ``arm``."""
        candidate = self._candidate.ours()
        if candidate is not None:
            live = self._live.find()
            if arm_of(candidate) != arm.id or (live is not None and self._live.is_form_of(live, arm)):
                self._candidate.remove(candidate)

    def stop(self, arm: Arm) -> None:
        """Remove the candidate when it is ``arm``."""
        candidate = self._candidate.ours()
        if candidate is not None and arm_of(candidate) == arm.id:
            self._candidate.remove(candidate)

    def close(self) -> None:
        """Close forwards and connections."""
        self.looker.close()
        self.client.close()
