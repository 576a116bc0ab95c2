"""One operator at a time: a coordination.k8s.io Lease, renewed by a thread while it is held.

Clocks of two machines differ, so the age of a foreign heartbeat is never computed from its time alone: a lease that
looks expired is watched for one more heartbeat before it is taken. A holder on this very machine whose process is gone
is known to be dead and its lease is taken at once; that makes ``mpctl resume`` after a crash immediate.

A lease that cannot be renewed is lost: from then on every write of the client raises, so the operation stops before
its next step. What was begun stays resumable. Before every write the age of the last heartbeat is looked at, too: a
process that was stopped for a while, or whose heartbeats hang in a connection, renews first, and writes nothing when
the lease is somebody else's by then.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mpctl.errors import Conflict, MpctlError
from mpctl.platform.kubernetes.api.client import Client, Json
from mpctl.platform.kubernetes.api.failure import AlreadyExists, OutcomeUnknown, Stale, Unreachable
from mpctl.platform.kubernetes.api.kinds import LEASE
from mpctl.platform.kubernetes.api.names import labels, lease_name

HEARTBEAT_S = 5.0
DURATION_S = 20  # the Lease's leaseDurationSeconds: three heartbeats may be lost
_PURPOSE, _PROCESS, _WHO = "mpctl.dev/purpose", "mpctl.dev/process", "mpctl.dev/who"
_TRIES = 4
# Goes on while the machine sleeps, where there is such a clock.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


@dataclass(frozen=True)
class Evidence:
    """What a Lease says of its holder. ``process`` is boot id, process id and start time; empty elsewhere."""

    holder: str
    who: str
    purpose: str
    process: str
    renewed: str
    version: str

    def describe(self) -> str:
        """For messages."""
        return f"{self.who}, mpctl {self.purpose}, last heartbeat {self.renewed}"


def evidence(lease: Json | None) -> Evidence | None:
    """Who holds a Lease; None when nobody does."""
    spec = (lease or {}).get("spec") or {}
    if lease is None or not spec.get("holderIdentity"):
        return None
    notes = lease["metadata"].get("annotations") or {}
    return Evidence(
        holder=spec["holderIdentity"],
        who=notes.get(_WHO) or spec["holderIdentity"],
        purpose=notes.get(_PURPOSE, "?"),
        process=notes.get(_PROCESS, ""),
        renewed=str(spec.get("renewTime") or "never"),
        version=lease["metadata"]["resourceVersion"],
    )


def this_process() -> str:
    """Boot id, process id and its start time: the same text never names two processes."""
    return f"{_boot_id()} {os.getpid()} {_start_time(os.getpid())}"


def known_dead(process: str) -> bool:
    """Whether a process text names one of this machine that is gone."""
    words = process.split()
    if len(words) != 3 or words[0] != _boot_id() or not words[0]:
        return False
    return _start_time(int(words[1])) != words[2]


def _boot_id() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}-{Path('/proc/self/ns/pid').readlink()}"  # another container has other process ids
    except OSError:
        return ""


def _start_time(pid: int) -> str:
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "gone"
    return "gone" if state == "Z" else rest[18]  # field 22 of proc(5)


class Lease:
    """The lease of one service, as one operator."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        service: str,
        who: str,
        *,
        heartbeat_s: float = HEARTBEAT_S,
        pause: Callable[[float], None] | None = None,
        elapsed: Callable[[], float] = lambda: time.clock_gettime(_CLOCK),
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._service = service
        self._who = who
        self._heartbeat_s = heartbeat_s
        self._stop = threading.Event()
        self._pause = pause or (lambda seconds: threading.Event().wait(seconds) and None)
        self._elapsed = elapsed
        self._beaten = 0.0
        self._lost = ""
        self._held_for = ""
        self._token = f"{who}/{secrets.token_hex(8)}"

    def look(self) -> Evidence | None:
        """Who holds the service now."""
        return evidence(self._client.get(LEASE, lease_name(self._service), self._namespace))

    def holder(self) -> str | None:
        """Who holds the service in words; a process of this machine that is gone holds nothing."""
        found = self.look()
        return None if found is None or known_dead(found.process) else found.describe()

    @contextmanager
    def hold(self, purpose: str) -> Iterator[None]:
        """Take the lease, renew it, give it back.

        Raises:
            Conflict: somebody else holds it.
        """
        begun = self._elapsed()
        self._take(purpose)
        self._beaten, self._lost, self._held_for = begun, "", purpose
        self._stop.clear()
        beat = threading.Thread(target=self._beat, args=(purpose,), name="mpctl lease", daemon=True)
        beat.start()
        before = self._client.guard
        self._client.guard = self.require
        try:
            yield
        finally:
            self._client.guard = before
            self._stop.set()
            beat.join(timeout=self._heartbeat_s)
            self._give_back()

    def require(self) -> None:
        """Raise when the lease is lost. One whose last heartbeat is older than others wait for is renewed first.

        Raises:
            Conflict: it is lost.
            Unreachable: its heartbeat is old and cannot be written.
        """
        if not self._lost and self._elapsed() - self._beaten > DURATION_S:
            try:
                self._renew(self._held_for)
            except Conflict as error:
                self._lost = error.message
        if self._lost:
            raise Conflict(
                f"the lease of service {self._namespace}/{self._service} is lost: {self._lost}",
                hint="nothing was written since; mpctl status shows who is at work, mpctl resume goes on",
            )

    def unlock(self) -> Evidence | None:
        """Take the lease from a holder that is not alive; returns what it last said, None when nobody holds it.

        Raises:
            Conflict: its heartbeat is fresh.
        """
        found = self.look()
        if found is None:
            return None
        self.require_dead(found)
        self._client.merge(
            LEASE,
            lease_name(self._service),
            self._namespace,
            {"metadata": {"resourceVersion": found.version}, "spec": {"holderIdentity": None}},
        )
        return found

    def require_dead(self, found: Evidence) -> None:
        """Raise when a holder is alive.

        Raises:
            Conflict: its heartbeat is fresh.
        """
        if not self._is_dead(found):
            raise Conflict(
                f"service {self._namespace}/{self._service} is held by {found.describe()}, which is alive",
                hint="ask them; when their process ends the lease is free within "
                f"{DURATION_S + self._heartbeat_s:.0f} s",
            )

    # Taking

    def _take(self, purpose: str) -> None:
        name = lease_name(self._service)
        for _ in range(_TRIES):
            there = self._client.get(LEASE, name, self._namespace)
            found = evidence(there)
            if found is not None and found.holder != self._token and not self._is_dead(found):
                raise Conflict(
                    f"service {self._namespace}/{self._service} is held by {found.describe()}",
                    hint="wait until they are done; mpctl unlock shows more when they seem gone",
                )
            try:
                if there is None:
                    self._client.create(LEASE, self._body(name, purpose, {}, acquired=True))
                else:
                    self._client.replace(LEASE, self._body(name, purpose, there, acquired=True))
                return
            except (AlreadyExists, Stale, OutcomeUnknown):
                continue  # look again: it is ours, or somebody was first
        raise MpctlError(
            f"the lease of service {self._namespace}/{self._service} could not be taken in {_TRIES} tries",
            hint="the same command again tries anew",
        )

    def _is_dead(self, found: Evidence) -> bool:
        """Whether a holder is gone for certain: its process is, or its heartbeat is old and does not come again."""
        if known_dead(found.process):
            return True
        try:
            age = (datetime.now(UTC) - datetime.fromisoformat(found.renewed.replace("Z", "+00:00"))).total_seconds()
        except ValueError:
            age = float("inf")
        if age <= DURATION_S:
            return False
        self._pause(self._heartbeat_s * 1.5)
        again = self.look()
        return again is None or again == found

    def _body(self, name: str, purpose: str, there: Json, *, acquired: bool) -> Json:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        metadata: dict[str, Any] = {
            **(there.get("metadata") or {}),
            "name": name,
            "namespace": self._namespace,
            "labels": labels(self._service, "lease"),
            "annotations": {_PURPOSE: purpose, _PROCESS: this_process(), _WHO: self._who},
        }
        metadata.pop("managedFields", None)
        spec = there.get("spec") or {}
        changes = int(spec.get("leaseTransitions") or 0)
        return {
            "metadata": metadata,
            "spec": {
                "holderIdentity": self._token,
                "leaseDurationSeconds": DURATION_S,
                "acquireTime": now if acquired else spec.get("acquireTime", now),
                "renewTime": now,
                "leaseTransitions": changes + (1 if acquired else 0),
            },
        }

    # Keeping

    def _beat(self, purpose: str) -> None:
        missed = 0.0
        while not self._stop.wait(self._heartbeat_s):
            try:
                self._renew(purpose)
                missed = 0.0
            except Conflict as error:
                self._lost = error.message
                return
            except MpctlError as error:
                missed += self._heartbeat_s
                if missed >= DURATION_S - self._heartbeat_s:
                    self._lost = f"no heartbeat for {missed:.0f} s: {error.message}"
                    return

    def _renew(self, purpose: str) -> None:
        name = lease_name(self._service)
        for _ in range(_TRIES):
            begun = self._elapsed()
            there = self._client.get(LEASE, name, self._namespace)
            found = evidence(there)
            if there is None or found is None or found.holder != self._token:
                raise Conflict("it was taken by " + (found.describe() if found else "mpctl unlock"))
            try:
                self._client.replace(LEASE, self._body(name, purpose, there, acquired=False))
                self._beaten = begun
                return
            except (Stale, OutcomeUnknown):
                continue
        raise Unreachable("the heartbeat could not be written")

    def _give_back(self) -> None:
        """Best effort: what stays is found dead by the next one."""
        try:
            found = self.look()
            if found is not None and found.holder == self._token:
                patch = {"metadata": {"resourceVersion": found.version}, "spec": {"holderIdentity": None}}
                self._client.merge(LEASE, lease_name(self._service), self._namespace, patch)
        except MpctlError:
            return
