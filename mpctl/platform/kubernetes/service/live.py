"""The live InferenceService: read as text, replaced as a whole, never over a foreign change.

A write replaces the whole object with the resourceVersion and uid that were read. Server-side apply cannot remove a
field of another manager, so it could not restore a recorded spec exactly. managedFields name who else changed it.
"""

from __future__ import annotations

from typing import Any

from mpctl import commands
from mpctl.errors import Conflict, InputError, MpctlError
from mpctl.platform.kubernetes.api.answers import Json, OutcomeUnknown, Stale, undefined
from mpctl.platform.kubernetes.api.client import MANAGER, Client
from mpctl.platform.kubernetes.api.objects import added_fields, changed_fields, editors_since
from mpctl.platform.kubernetes.autoscaler import KServePin
from mpctl.platform.kubernetes.service.conditions import assess_health, schedulable_replicas
from mpctl.platform.kubernetes.service.manifest_text import (
    object_of,
    object_to_write,
    text_of,
    transition_text,
    with_transition_strategy,
)
from mpctl.platform.kubernetes.service.reader import ServiceReader, Workload
from mpctl.platform.kubernetes.service.shapes import shape_of
from mpctl.rollout.ports import Arm, Phase

_TRIES = 6


class LiveService:
    """The InferenceService of one service."""

    def __init__(self, client: Client, reader: ServiceReader, service: str, pin: KServePin) -> None:
        self._client, self._reader, self.service, self._pin = client, reader, service, pin
        self._stored: dict[str, str] = {}  # text by the text that was written, where admission adds to it

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
        additions."""
        text, forms = text_of(isvc), [arm.manifest]
        if shape_of(isvc).strategy_of(isvc) != _strategy(arm.manifest):
            forms += [with_transition_strategy(arm.manifest, downtime=downtime) for downtime in (False, True)]
        return text in forms or any(self._added_to(form, text, isvc) for form in forms)

    def added_fields(self, arm: Arm, text: str) -> tuple[str, ...] | None:
        """Return the fields that admission adds to the arm's text; empty when ``text`` is the same, None when it
        differs otherwise."""
        return () if text == arm.manifest else self._added_to(arm.manifest, text, self.require()) or None

    def _added_to(self, form: str, text: str, isvc: Json) -> tuple[str, ...]:
        """Tell admission's additions from a foreign change by a dry run, once per text and only when every field of
        ``form`` has its value."""
        added = added_fields(object_of(form), object_of(text))
        if not added:
            return ()
        if form not in self._stored:
            self._stored[form] = self.dry_run_text(form, isvc)
        return added if self._stored[form] == text else ()

    def dry_run_text(self, text: str, isvc: Json | None = None) -> str:
        """Return ``text`` as it would read after a write (dryRun=All)."""
        for _ in range(_TRIES):
            live = isvc or self.require()
            try:
                return text_of(self._client.replace(self._reader.resource, object_to_write(text, live), dry_run=True))
            except (Stale, OutcomeUnknown):
                isvc = None
        raise MpctlError(f"{self.title} changes faster than it can be checked", hint="run the command again")

    def write(self, arm: Arm, expect: tuple[Arm, ...], *, downtime: bool) -> None:
        """Make ``arm`` the live spec, with another deploymentStrategy during the change where it needs one.

        Raises:
            Conflict: the live spec is neither ``arm`` nor one of ``expect``.
        """
        for _ in range(_TRIES):
            live = self.require()
            text = text_of(live)
            form = arm.manifest
            if shape_of(live).strategy:
                form = transition_text(arm.manifest, self.desired_replicas(live), downtime=downtime)
            # An earlier try that still waits for a GPU is written again once downtime is allowed.
            if self.is_arm(live, arm) and (not downtime or text == form or self._serves(live)):
                return
            self.require_expected(live, (*expect, arm))
            if self._replace(live, form):
                return
        raise MpctlError(
            f"{self.title} could not be written in {_TRIES} tries", hint="run the same command again to resume"
        )

    def restore_strategy(self, arm: Arm) -> None:
        """Restore the deploymentStrategy that a change replaced for its duration."""
        for _ in range(_TRIES):
            live = self.require()
            if self._is_exact(live, arm) or not self.is_arm(live, arm):
                return
            if self._replace(live, arm.manifest):
                return
        raise MpctlError(
            f"{self.title} could not be written in {_TRIES} tries", hint="run the same command again to resume"
        )

    def _is_exact(self, live: Json, arm: Arm) -> bool:
        text = text_of(live)
        return text == arm.manifest or bool(self._added_to(arm.manifest, text, live))

    def _serves(self, live: Json) -> bool:
        workload = self._reader.workload(live)
        return assess_health(live, workload.deployment, workload.pods, runtime=workload.runtime).phase is Phase.READY

    def _replace(self, live: Json, text: str) -> bool:
        """Replace the object; False when it must be read again, because KServe writes its status all the time."""
        try:
            self._client.replace(self._reader.resource, self._pin.with_pin(object_to_write(text, live)))
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
        editors = editors_since(None, live, MANAGER)
        now = object_of(text_of(live))
        by_arm = [changed_fields(object_of(arm.manifest), now) for arm in known]
        fields = [field for field in by_arm[0] if all(field in others for others in by_arm)]
        fields = fields or list(by_arm[0])
        return Conflict(
            f"{self.title} was changed by {editors[0] if editors else 'another client'} meanwhile: "
            f"{', '.join(fields[:5])}",
            hint=f"nothing was overwritten. Run '{self.command('rollback')}' to restore what mpctl changed and keep "
            f"that change, or '{self.command('abandon')}' to leave the service as it is and end the operation",
        )


def _strategy(text: str) -> Any:
    record = object_of(text)
    return shape_of(record).strategy_of(record)


def _desired(isvc: Json, workload: Workload) -> int:
    if workload.deployment is not None:
        return int(workload.deployment["spec"].get("replicas", 1))
    return shape_of(isvc).desired_pods(isvc)
