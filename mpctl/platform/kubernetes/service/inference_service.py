"""The live InferenceService: read as text, written as a whole, and never over a change that is not ours.

It is changed by a replace of the whole object with the version and uid that were read. Server-side apply would not do
here: it cannot take away a field that another manager owns, so it could not restore a recorded spec exactly. Who else
changed the object is read from its managedFields and named.
"""

from __future__ import annotations

from typing import Any

from mpctl.errors import Conflict, InputError, MpctlError
from mpctl.platform.kubernetes.api.client import MANAGER, Client, Json
from mpctl.platform.kubernetes.api.failure import OutcomeUnknown, Stale
from mpctl.platform.kubernetes.api.fields import added_fields, changed_fields
from mpctl.platform.kubernetes.api.kinds import INFERENCE_SERVICE
from mpctl.platform.kubernetes.autoscaler.kserve_hpa import Hold
from mpctl.platform.kubernetes.service.conditions import judge, with_a_node
from mpctl.platform.kubernetes.service.knative import is_knative
from mpctl.platform.kubernetes.service.manifest_text import bridge, bridged, editors_since, object_of, text_of, to_write
from mpctl.platform.kubernetes.service.reader import Found, Looker
from mpctl.rollout.ports import Arm, Phase

_TRIES = 6


class LiveService:
    """The InferenceService of one service."""

    def __init__(self, client: Client, looker: Looker, service: str, hold: Hold) -> None:
        self._client, self._looker, self.service, self._hold = client, looker, service, hold
        self._stored: dict[str, str] = {}  # text by the text that was written, where admission adds to it

    @property
    def title(self) -> str:
        """The service as messages name it."""
        return f"service {self._looker.namespace}/{self.service}"

    def find(self) -> Json | None:
        """The object, as it reads without the pin of its autoscaler; None when it is not there."""
        found = self._looker.isvc(self.service)
        return None if found is None else self._hold.released(found)

    def need(self) -> Json:
        """The object.

        Raises:
            InputError: it is not there.
        """
        found = self.find()
        if found is None:
            raise InputError(
                f"{self.title} is not there: no such InferenceService",
                hint=f"what was recorded is kept: mpctl history {self.service} --revision 1 -o yaml prints it for "
                f"kubectl create; mpctl abandon {self.service} ends what is unfinished and removes the candidate",
            )
        return found

    def pods(self, isvc: Json) -> int:
        """How many pods it should have: of its Deployment, else of its own spec."""
        return _wanted(isvc, self._looker.find(isvc))

    def held(self, isvc: Json) -> int:
        """At how many pods an autoscaler of it is held: as many as it should have, without those that no node takes. It
        asked for them, and no step could ever wait for them."""
        found = self._looker.find(isvc)
        return with_a_node(_wanted(isvc, found), found.pods)

    def is_form_of(self, isvc: Json, arm: Arm) -> bool:
        """Whether the object is ``arm``: its own text, or that with a change's strategy, or either with what admission
        adds to it."""
        text, forms = text_of(isvc), [arm.manifest]
        if isvc["spec"]["predictor"].get("deploymentStrategy") != _strategy(arm.manifest):
            forms += [bridged(arm.manifest, downtime=downtime) for downtime in (False, True)]
        return text in forms or any(self._added_to(form, text, isvc) for form in forms)

    def added_fields(self, arm: Arm, text: str) -> tuple[str, ...] | None:
        """What admission adds to the arm's text by itself, when ``text`` is just that; empty when both are the same,
        None when they differ otherwise."""
        return () if text == arm.manifest else self._added_to(arm.manifest, text, self.need()) or None

    def _added_to(self, form: str, text: str, isvc: Json) -> tuple[str, ...]:
        """A field may be admission's or somebody's: a dry run of the write tells. Asked for once per text, and only
        where every field of ``form`` is as it says."""
        added = added_fields(object_of(form), object_of(text))
        if not added:
            return ()
        if form not in self._stored:
            self._stored[form] = self.admitted(form, isvc)
        return added if self._stored[form] == text else ()

    def admitted(self, text: str, isvc: Json | None = None) -> str:
        """``text`` as it would read after a write (dryRun=All)."""
        for _ in range(_TRIES):
            live = isvc or self.need()
            try:
                return text_of(self._client.replace(INFERENCE_SERVICE, to_write(text, live), dry_run=True))
            except (Stale, OutcomeUnknown):
                isvc = None
        raise MpctlError(f"{self.title} changes faster than it can be checked", hint="try again")

    def write(self, arm: Arm, expect: tuple[Arm, ...], *, downtime: bool) -> None:
        """Make ``arm`` the live spec, with another deploymentStrategy for the time of the change where it needs one.

        Raises:
            Conflict: what is live is none of ``expect`` and not ``arm``.
        """
        for _ in range(_TRIES):
            live = self.need()
            text = text_of(live)
            # Knative starts every revision beside the one before it, and KServe refuses a strategy there.
            form = None if is_knative(live) else bridge(arm.manifest, self.pods(live), downtime=downtime)
            form = form or arm.manifest
            # Written by an earlier try that waits for a GPU, it is written again once an old pod may go first.
            if self.is_form_of(live, arm) and (not downtime or text == form or self._serves(live)):
                return
            self.require_known(live, (*expect, arm))
            if self._put(live, form):
                return
        raise MpctlError(f"{self.title} could not be written in {_TRIES} tries", hint="the same command goes on")

    def restore_strategy(self, arm: Arm) -> None:
        """Take a strategy that was set for the change back out of the live spec."""
        for _ in range(_TRIES):
            live = self.need()
            if self._is_whole(live, arm) or not self.is_form_of(live, arm):
                return
            if self._put(live, arm.manifest):
                return
        raise MpctlError(f"{self.title} could not be written in {_TRIES} tries", hint="the same command goes on")

    def _is_whole(self, live: Json, arm: Arm) -> bool:
        text = text_of(live)
        return text == arm.manifest or bool(self._added_to(arm.manifest, text, live))

    def _serves(self, live: Json) -> bool:
        found = self._looker.find(live)
        return judge(live, found.deployment, found.pods, runtime=found.runtime).phase is Phase.READY

    def _put(self, live: Json, text: str) -> bool:
        """Write; False when it has to be looked at again: KServe writes status all the time, which makes ours stale."""
        try:
            self._client.replace(INFERENCE_SERVICE, self._hold.kept(to_write(text, live)))
        except (Stale, OutcomeUnknown):
            return False
        return True

    def require_known(self, live: Json, known: tuple[Arm, ...]) -> None:
        """Raise when the live spec is none of those this operation wrote or started from.

        Raises:
            Conflict: somebody else changed it; the message says who, when and what.
        """
        if not any(self.is_form_of(live, arm) for arm in known):
            raise self._foreign(live, known[0])

    def _foreign(self, live: Json, known: Arm) -> Conflict:
        who = editors_since(None, live, MANAGER)
        what = changed_fields(object_of(known.manifest), object_of(text_of(live)))
        return Conflict(
            f"{self.title} was changed by {who[0] if who else 'somebody else'} meanwhile: {', '.join(what[:5])}",
            hint=f"nothing was overwritten. mpctl abandon {self.service} keeps that change and ends the operation; "
            f"mpctl rollback {self.service} --force keeps it as a revision and restores the recorded one",
        )


def _strategy(text: str) -> Any:
    return object_of(text)["spec"]["predictor"].get("deploymentStrategy")


def _wanted(isvc: Json, found: Found) -> int:
    if found.deployment is not None:
        return int(found.deployment["spec"].get("replicas", 1))
    return int(isvc["spec"]["predictor"].get("minReplicas") or 1)
