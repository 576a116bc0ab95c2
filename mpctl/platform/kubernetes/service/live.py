"""The live service and its second object: read as text, replaced as a whole, never over a foreign change.

A write replaces the whole object with the resourceVersion and uid that were read. Server-side apply cannot remove a
field of another manager, so it could not restore a recorded spec exactly. managedFields name who else changed it.

The second object is a candidate, a copy of the baseline, or the retained baseline that makes a rollback instant. mpctl
owns it, as its annotation says, and never removes it while an HTTPRoute gives it traffic.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from mpctl import commands
from mpctl.errors import Conflict, InputError, MpctlError
from mpctl.json_fields import annotations_of, name_of, value_at
from mpctl.json_types import Json
from mpctl.platform.kubernetes.api.api_client import MANAGER, Client
from mpctl.platform.kubernetes.api.kinds import POD
from mpctl.platform.kubernetes.api.names import candidate_name, copy_name
from mpctl.platform.kubernetes.api.objects import (
    added_fields,
    changed_fields,
    keep_labels,
    last_editor,
    without_labels,
)
from mpctl.platform.kubernetes.api.replies import AlreadyExists, OutcomeUnknown, Stale, undefined
from mpctl.platform.kubernetes.autoscaler import KServePin
from mpctl.platform.kubernetes.httproute.router import Routes
from mpctl.platform.kubernetes.service.conditions import assess_health, schedulable_replicas
from mpctl.platform.kubernetes.service.manifest_text import (
    ARM_ANNOTATION,
    RETAINED_ANNOTATION,
    candidate_of,
    object_of,
    object_to_write,
    text_of,
    transition_text,
    with_transition_strategy,
)
from mpctl.platform.kubernetes.service.reader import ServiceReader
from mpctl.platform.kubernetes.service.shapes import shape_of
from mpctl.platform.kubernetes.service.workload import ServiceWorkload
from mpctl.rollout.ports import Arm, Phase

_TRIES = 6
_GONE_TIMEOUT_S = 180.0  # pods drain: vLLM's own shutdown, for at most their grace period
_AFTER_GRACE_S = 60.0  # until a pod that was killed is gone from the API
_DRAIN_TIMEOUT_S = 600.0  # answers of minutes; the pods' grace period where that is longer
_POLL_S = 1.0


def arm_of(isvc: Json) -> str | None:
    """Arm of an InferenceService that mpctl made; None for any other."""
    return annotations_of(isvc).get(ARM_ANNOTATION)


def retained_route(isvc: Json) -> str | None:
    """HTTPRoute that can return the traffic to a retained baseline; None for a candidate."""
    return annotations_of(isvc).get(RETAINED_ANNOTATION)


def _grace_s(pod: Json) -> float:
    """Termination grace period of a pod; the default of Kubernetes is 30 s."""
    return float(value_at(pod, "spec", "terminationGracePeriodSeconds") or 30)


class Candidate:
    """The second InferenceService of one service. ``copy``: in its place the copy of the baseline, which no HTTPRoute
    names."""

    def __init__(
        self,
        client: Client,
        reader: ServiceReader,
        routes: Routes,
        service: str,
        *,
        copy: bool = False,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client, self._reader, self._routes = client, reader, routes
        self._namespace = reader.namespace
        self.name = copy_name(service) if copy else candidate_name(service)
        self._copy = copy
        self._sleep = sleep

    def read(self) -> Json | None:
        """Return the InferenceService, whoever owns it; None when not found."""
        return self._reader.isvc(self.name)

    def read_owned(self) -> Json | None:
        """Return the InferenceService when mpctl made it."""
        isvc = self.read()
        return isvc if isvc is not None and arm_of(isvc) is not None else None

    def start(
        self, arm: Arm, *, service: Json, pods: int = 1, retained_for: str | None = None
    ) -> None:
        """Run ``arm`` unless it runs already. A failed one is created again, another arm is removed.

        ``service``: the live one, which owns it, so that the garbage collector frees its GPUs when somebody deletes the
        service; every write of mpctl keeps the service's uid. ``retained_for``: name of the HTTPRoute, for a retained
        baseline.

        Raises:
            Conflict: another owner has an InferenceService of that name, or an HTTPRoute gives it traffic.
        """
        body = candidate_of(
            arm.manifest,
            arm.id,
            namespace=self._namespace,
            pods=pods,
            retained_for=retained_for,
            copy=self._copy,
        )
        body["metadata"]["ownerReferences"] = [
            {key: service[key] for key in ("apiVersion", "kind")}
            | {key: service["metadata"][key] for key in ("name", "uid")}
        ]
        for _ in range(_TRIES):
            present = self.read()
            if present is not None:
                same = arm_of(present) == arm.id and retained_route(present) == retained_for
                if same and not self._failed(present):
                    return
                if arm_of(present) is None:
                    raise Conflict(
                        f"{self._reader.resource.name} {self.name} was not created by mpctl and is not removed"
                    )
                self.remove(present)
            try:
                self._client.create(self._reader.resource, body)
                return
            except (AlreadyExists, OutcomeUnknown):
                continue
        raise MpctlError(
            f"{self._reader.resource.name} {self.name} could not be created in {_TRIES} tries",
            hint="run the command again",
        )

    def _failed(self, isvc: Json) -> bool:
        _, health = self._reader.health(lambda: self._reader.workload(isvc))
        return health.phase is Phase.FAILED

    def require_removable(self) -> None:
        """Raise unless a candidate could be removed again; called before anything is started or changed.

        Raises:
            Conflict: an HTTPRoute gives it traffic.
            NotPermitted: HTTPRoutes may not be listed.
        """
        if not self._copy:
            self._routes.require_idle()

    def remove_owned(self) -> None:
        """Remove the second InferenceService when mpctl made it."""
        isvc = self.read_owned()
        if isvc is not None:
            self.remove(isvc)

    def remove(self, isvc: Json) -> None:
        """Delete an InferenceService that mpctl made and wait until its pods have released their GPUs.

        The timeout is 180 s, or the pods' grace period plus a minute when that is longer.

        Raises:
            Conflict: an HTTPRoute gives it traffic.
        """
        name, selector = name_of(isvc), shape_of(isvc).pod_selector(isvc)
        self._delete(isvc)
        began, patience = time.monotonic(), _GONE_TIMEOUT_S
        while True:
            pods = self._client.list(POD, self._namespace, labels=selector) or []
            if not pods and self._reader.isvc(name) is None:
                return
            patience = max([patience, *(_grace_s(pod) + _AFTER_GRACE_S for pod in pods)])
            if time.monotonic() - began > patience:
                break
            self._sleep(_POLL_S)
        raise MpctlError(
            f"pods of {self._reader.resource.name} {name} did not terminate within {patience:.0f} s",
            hint=f"run '{commands.kubectl('get', 'pods', '-l', selector, namespace=self._namespace)}' to see them",
        )

    def _delete(self, isvc: Json) -> None:
        """Delete an InferenceService, as it was read before the HTTPRoutes were: another command that took the Lease
        may have given it traffic since."""
        uid, present = isvc["metadata"]["uid"], isvc
        for _ in range(_TRIES):
            self.require_removable()
            name, version = name_of(present), present["metadata"]["resourceVersion"]
            try:
                self._client.delete(
                    self._reader.resource,
                    name,
                    self._namespace,
                    uid=uid,
                    version=version,
                    foreground=True,
                )
                return
            except Stale:  # its controller wrote its status
                self._client.forget_reads()
                again = self._reader.isvc(name)
                if again is None:
                    return
                present = again
        raise MpctlError(
            f"{self._reader.resource.name} {self._namespace}/{name_of(isvc)} changes faster than it can be "
            "deleted",
            hint="run the same command again",
        )

    def drain(self) -> tuple[str, ...]:
        """Wait until the candidate's engines have answered all requests; return notes on what stayed unanswered or
        unknown. The timeout is 10 minutes, or the grace period of the pods where that is longer.

        Two reads in a row must find no request: a gateway's proxies learn of a route one after the other.
        """
        isvc = self.read_owned()
        began, patience = time.monotonic(), _DRAIN_TIMEOUT_S
        quiet = 0
        while isvc is not None:
            workload = self._reader.workload(isvc)
            if not workload.ready:
                break  # no pod receives requests
            patience = max([patience, *(_grace_s(pod) for pod in workload.ready)])
            busy, unanswered = self._reader.engines.requests(workload)
            quiet = 0 if busy or unanswered else quiet + 1
            if quiet == 2:
                break
            if time.monotonic() - began > patience:
                notes = [f"{self.name} has {busy:.0f} unanswered requests"] if busy else []
                notes += [f"pod {name} did not report its open requests" for name in unanswered]
                return tuple(f"{note} after {patience:.0f} s" for note in notes)
            self._sleep(_POLL_S)
        return ()


class LiveService:
    """The InferenceService of one service."""

    def __init__(self, client: Client, reader: ServiceReader, service: str, pin: KServePin) -> None:
        self._client, self._reader, self.service, self._pin = client, reader, service, pin
        self._stored: dict[
            str, str
        ] = {}  # text by the text that was written, where admission adds to it

    @property
    def title(self) -> str:
        """The service as messages name it."""
        return f"service {self._reader.namespace}/{self.service}"

    def command(self, verb: str, *options: str) -> str:
        """A command on the service, as messages print it."""
        return commands.line(verb, self.service, *options, namespace=self._reader.namespace)

    def read(self) -> Json | None:
        """Return the object without the pin of its autoscaler; None when not found."""
        isvc = self._reader.isvc(self.service)
        return None if isvc is None else self._pin.without_pin(isvc)

    def require(self) -> Json:
        """Return the object.

        Raises:
            InputError: not found.
        """
        isvc = self.read()
        if isvc is None:
            raise self._absent()
        return isvc

    def _absent(self) -> InputError:
        """The error for a service that is not found, or whose kind the cluster does not know any more."""
        resource = self._reader.resource
        recorded = self.command("history", "--revision", "N", "-o", "yaml", "--show-secrets")
        again = f"'{recorded} | {commands.kubectl('apply', '-f', '-', namespace=self._reader.namespace)}'"
        ending = f"'{self.command('abandon')}' ends an unfinished operation"
        if self._reader.is_defined():
            return InputError(
                f"{self.title}: {resource.name} not found",
                hint=f"run {again} to create it from a recorded manifest; {ending} and removes the candidate",
            )
        return InputError(
            f"{self.title}: {undefined(resource)}",
            hint=f"install KServe's definitions again, then run {again} to create the service from a recorded "
            f"manifest; {ending} without it",
        )

    def desired_replicas(self, isvc: Json) -> int:
        """Number of desired pods: of the Deployment, else of the InferenceService's spec."""
        return _desired(isvc, self._reader.workload(isvc))

    def schedulable_replicas(self, isvc: Json) -> int:
        """Number of pods that a pinned autoscaler keeps: the desired ones without unschedulable pods, which no step
        could wait for."""
        workload = self._reader.workload(isvc)
        return schedulable_replicas(_desired(isvc, workload), workload.pods)

    def is_arm(self, isvc: Json, arm: Arm) -> bool:
        """Return whether the object is ``arm``: its text, also with the strategy of a change, also with admission's
        additions, and with others' labels where these reach no pod."""
        text, texts_written = text_of(isvc), [arm.manifest]
        record = object_of(arm.manifest)
        if shape_of(isvc).strategy_of(isvc) != shape_of(record).strategy_of(record):
            texts_written += [
                with_transition_strategy(arm.manifest, downtime=downtime)
                for downtime in (False, True)
            ]
        return text in texts_written or any(
            _relabelled(written, text) or self._added_to(written, text, isvc)
            for written in texts_written
        )

    def added_fields(self, arm: Arm, text: str) -> tuple[str, ...] | None:
        """Return the fields that admission adds to the arm's text; empty when ``text`` is the same but for others'
        labels that reach no pod, None when it differs otherwise."""
        if text == arm.manifest or _relabelled(arm.manifest, text):
            return ()
        return self._added_to(arm.manifest, text, self.require()) or None

    def _added_to(self, written: str, text: str, isvc: Json) -> tuple[str, ...]:
        """Return the fields that admission added to the text ``written``; empty where a foreign change did. A dry run
        tells the two apart, once per text and only when every field of ``written`` has its value."""
        added = added_fields(object_of(written), object_of(text))
        if not added:
            return ()
        if written not in self._stored:
            self._stored[written] = self.dry_run_text(written, isvc)
        return added if self._stored[written] == text else ()

    def dry_run_text(self, text: str, isvc: Json | None) -> str:
        """Return ``text`` as it would read after a write (dryRun=All)."""
        for _ in range(_TRIES):
            live = isvc or self.require()
            try:
                return text_of(
                    self._client.replace(
                        self._reader.resource, object_to_write(text, live), dry_run=True
                    )
                )
            except (Stale, OutcomeUnknown):
                isvc = None
        raise MpctlError(
            f"{self.title} changes faster than it can be checked", hint="run the command again"
        )

    def write(self, arm: Arm, expect: tuple[Arm, ...], *, downtime: bool) -> None:
        """Make ``arm`` the live spec, with another deploymentStrategy during the change where it needs one.

        Raises:
            Conflict: the live spec is neither ``arm`` nor one of ``expect``.
        """
        for _ in range(_TRIES):
            live = self.require()
            text = text_of(live)
            wanted_text = arm.manifest
            if shape_of(live).strategy:
                wanted_text = transition_text(
                    arm.manifest, self.desired_replicas(live), downtime=downtime
                )
            # An earlier try that still waits for a GPU is written again once downtime is allowed.
            is_written = (
                self.is_arm(live, arm)
                and all(text != other.manifest for other in expect if other != arm)
                and (not downtime or text == wanted_text or self._serves(live))
            )
            if not is_written:
                self.require_expected(live, (*expect, arm))
            if (is_written or self._replace(live, wanted_text, (*expect, arm))) and self._deliver(
                live, wanted_text
            ):
                return
        raise self._unwritten()

    def _deliver(self, live: Json, text: str) -> bool:
        """Make the controller write the pods; False when it wrote them meanwhile, so the object must be read again."""
        try:
            shape_of(live).deliver(
                self._client, object_to_write(text, live), self._reader.namespace
            )
        except (Stale, OutcomeUnknown):
            return False
        return True

    def restore_strategy(self, arm: Arm) -> None:
        """Restore the deploymentStrategy that a change replaced for its duration."""
        for _ in range(_TRIES):
            live = self.require()
            # With its own strategy already, or another manifest.
            if self.added_fields(arm, text_of(live)) is not None or not self.is_arm(live, arm):
                return
            if self._replace(live, arm.manifest, (arm,)):
                return
        raise self._unwritten()

    def _unwritten(self) -> MpctlError:
        hint = "run the same command again to resume"
        return MpctlError(f"{self.title} could not be written in {_TRIES} tries", hint=hint)

    def _serves(self, live: Json) -> bool:
        workload = self._reader.workload(live)
        return (
            assess_health(live, workload.deployment, workload.pods, runtime=workload.runtime).phase
            is Phase.READY
        )

    def _replace(self, live: Json, text: str, known: tuple[Arm, ...]) -> bool:
        """Replace the object; False when it must be read again, because KServe writes its status all the time. Labels
        that it has otherwise than the arm of ``known`` that it is are others', and stay where they reach no pod."""
        record = object_to_write(text, live)
        if shape_of(live).labels_stay:
            arm = next((arm for arm in known if self.is_arm(live, arm)), None)
            if arm is not None:
                keep_labels(record, object_of(arm.manifest), live)
        try:
            self._client.replace(self._reader.resource, self._pin.with_pin(record))
        except (Stale, OutcomeUnknown):
            return False
        return True

    def require_expected(self, live: Json, known: tuple[Arm, ...]) -> None:
        """Raise unless this operation wrote the live spec or started from it.

        Raises:
            Conflict: a foreign change; the message names its manager, time and fields.
        """
        if not any(self.is_arm(live, arm) for arm in known):
            raise self._foreign_change(live, known)

    def _foreign_change(self, live: Json, known: tuple[Arm, ...]) -> Conflict:
        """The error that names the fields which no arm of the operation has: the change of that writer alone."""
        now = object_of(text_of(live))
        by_arm = [changed_fields(object_of(arm.manifest), now) for arm in known]
        fields = [field for field in by_arm[0] if all(field in others for others in by_arm)]
        fields = fields or list(by_arm[0])
        return Conflict(
            f"{self.title} was changed by {last_editor(live, MANAGER)} meanwhile: {', '.join(fields[:5])}",
            hint=f"nothing was overwritten. Run '{self.command('rollback')}' to restore what mpctl changed and keep "
            f"that change, or '{self.command('abandon')}' to leave the service as it is and end the operation",
        )


def _relabelled(written: str, text: str) -> bool:
    """Return whether only labels or annotations of the object differ, where these reach no pod."""
    now = object_of(text)
    return shape_of(now).labels_stay and without_labels(object_of(written)) == without_labels(now)


def _desired(isvc: Json, workload: ServiceWorkload) -> int:
    if workload.deployment is not None:
        return int(workload.deployment["spec"].get("replicas", 1))
    return shape_of(isvc).desired_pods(isvc)
