"""A Lease of coordination.k8s.io for one operator at a time, renewed by a thread while it is held.

The time that a Lease claims decides nothing: clocks differ, and whoever may write Leases may write any time. A holder
is dead when its identity and heartbeat have not changed for a lease's duration by this machine's monotonic clock. A
holder on this machine whose process is gone is dead at once, so ``mpctl resume`` after a crash does not wait.

The Lease also names the newest entry of the ledger, so that entries which somebody removed from its end are missed.

A Lease that cannot be renewed is lost: from then on every write of the client raises, and the operation stops before
its next step, resumable. Before every write the Lease is read, or renewed where its heartbeat is old: nothing is
written when it has another holder by then. A command that is stopped between that read and its write is fenced off by
whoever takes the Lease over (``service.fence``), which is due unless the last holder released the Lease.
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

from mpctl import commands, safe_text
from mpctl.errors import Conflict, InputError, MpctlError
from mpctl.json_fields import annotations_of, mapping_at
from mpctl.json_types import Json
from mpctl.platform.kubernetes.api.api_client import MANAGER, Client
from mpctl.platform.kubernetes.api.kinds import LEASE
from mpctl.platform.kubernetes.api.names import labels, lease_name
from mpctl.platform.kubernetes.api.objects import last_writer, writer_of
from mpctl.platform.kubernetes.api.replies import (
    AlreadyExists,
    Call,
    OutcomeUnknown,
    Stale,
    Unreachable,
)
from mpctl.platform.kubernetes.ledger_objects import NEWEST, NewestEntry, naming, newest_entry_of

HEARTBEAT_S = 10.0  # as the kubelet's for its node's Lease
DURATION_S = 30  # the Lease's leaseDurationSeconds: two heartbeats may be lost
_PURPOSE, _PROCESS, _WHO = "mpctl.dev/purpose", "mpctl.dev/process", "mpctl.dev/who"
_RELEASED = "mpctl.dev/released"  # by its holder, after its last write
_TRIES = 4
_MOST_CHANGES = 2**31 - 1  # the field is an int32
_WATCH_S = 1.0  # between two reads of a heartbeat
# Counts while the machine sleeps, where such a clock exists.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


@dataclass(frozen=True)
class Holder:
    """The holder that a Lease names. ``process``: boot id, process id and start time; empty when not reported.
    ``written_by``: the client that wrote the heartbeat, where it is not mpctl. Of such a Lease the identity and the
    time count alone: its annotations are those of an earlier holder, whose process ended."""

    identity: str
    who: str
    purpose: str
    process: str
    renewed: str
    version: str
    written_by: str = ""

    @property
    def heartbeat(self) -> tuple[str, str]:
        """Changes with every renewal."""
        return self.identity, self.renewed

    def describe(self) -> str:
        """For messages."""
        foreign = f", written by {self.written_by} and not by mpctl" if self.written_by else ""
        purpose = f", mpctl {self.purpose}" if self.purpose else ""
        return safe_text.line(f"{self.who}{purpose}, last heartbeat {self.renewed}{foreign}")


def holder_of(lease: Json | None) -> Holder | None:
    """Return the holder that a Lease names; None without one."""
    spec = mapping_at(lease, "spec")
    if lease is None or not spec.get("holderIdentity"):
        return None
    foreign = _foreign_writer(lease)
    notes = {} if foreign else annotations_of(lease)
    return Holder(
        identity=spec["holderIdentity"],
        who=notes.get(_WHO) or spec["holderIdentity"],
        purpose="" if foreign else notes.get(_PURPOSE, "?"),
        process=notes.get(_PROCESS, ""),
        renewed=str(spec.get("renewTime") or "never"),
        version=lease["metadata"]["resourceVersion"],
        written_by=foreign,
    )


def _foreign_writer(lease: Json) -> str:
    """The client that wrote the heartbeat, with its time, where it is another than mpctl."""
    written = writer_of(lease, "spec", "renewTime")
    if written is None or written[0] == MANAGER:
        return ""
    manager, time = written
    return f"{manager or 'an unnamed client'} at {time or 'an unknown time'}"


def this_process() -> str:
    """Boot id, process id and its start time: the same text never names two processes."""
    return f"{_boot_id()} {os.getpid()} {_start_time(os.getpid())}"


def process_is_gone(process: str) -> bool:
    """Return whether a text of :func:`this_process` names a process of this machine that ended; any other text names
    none."""
    boot, _, pid_and_start = process.partition(" ")
    pid, _, started = pid_and_start.partition(" ")
    if not boot or boot != _boot_id() or not pid.isdecimal() or not started.isdecimal():
        return False
    return _start_time(pid) != started


def _boot_id() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}-{Path('/proc/self/ns/pid').readlink()}"  # another container has other process ids
    except OSError:
        return ""


def _start_time(pid: int | str) -> str:
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "gone"
    return "gone" if state == "Z" else fields[18]  # field 22 of proc(5)


class Lease:
    """The Lease of one service, as one operator."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        service: str,
        who: str,
        *,
        name: str = "",
        heartbeat_s: float = HEARTBEAT_S,
        pause: Callable[[float], None] | None = None,
        elapsed: Callable[[], float] = lambda: time.clock_gettime(_CLOCK),
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._service = service
        self._name = name or lease_name(service)
        self._who = who
        self._heartbeat_s = heartbeat_s
        self._stop = threading.Event()
        self._pause = pause or (lambda seconds: threading.Event().wait(seconds) and None)
        self._elapsed = elapsed
        self._beaten = 0.0
        self._lost = ""
        self._aftermath = ""  # what this command had written when it noticed the loss
        self._confirmed = (
            0  # number of writes that were answered before the Lease was last known to be held
        )
        self._unfenced = False  # an earlier holder may still write
        self._held_for = ""
        self.fence: Callable[[], None] = lambda: None  # ends the writes of earlier holders
        self.was_used: Callable[[], bool] = lambda: (
            False
        )  # whether a Lease that is not found may have had a holder
        self._token = f"{who}/{secrets.token_hex(8)}"
        self._read: tuple[tuple[str, str], float] | None = (
            None  # a heartbeat, and when it was read first
        )
        self._written: Json | None = (
            None  # as the server stored it: nobody else wrote it since while it is renewed
        )
        # As the Lease was read last; while it is held, as the holder wrote the ledger.
        self.newest_entry: NewestEntry | None = None

    def read(self) -> Holder | None:
        """Return the current holder."""
        lease = self._client.get(LEASE, self._name, self._namespace)
        if not self._held_for:
            self.newest_entry = newest_entry_of(lease)
        return holder_of(lease)

    def holder(self) -> str | None:
        """Describe the current holder; None when it is known to be dead: its process was of this machine and is gone,
        or its heartbeat is the same as in an earlier call, ``DURATION_S`` and more ago."""
        holder = self.read()
        return None if holder is None or self._is_known_dead(holder) else holder.describe()

    @contextmanager
    def hold(self, purpose: str) -> Iterator[None]:
        """Acquire the Lease, fence off an earlier holder that did not release it, renew it, release it.

        Raises:
            Conflict: it has a live holder.
            NotPermitted: an object of the service may not be written, which fencing needs.
        """
        begun = self._elapsed()
        self._acquire(purpose)
        self._beaten, self._lost, self._aftermath, self._held_for = begun, "", "", purpose
        self._confirmed = 0
        self._stop.clear()
        beat = threading.Thread(target=self._beat, args=(purpose,), name="mpctl lease", daemon=True)
        beat.start()
        before = self._client.guard
        self._client.guard = self.require
        try:
            if self._unfenced:
                self.fence()
                self._unfenced = False
            self._client.written = []
            yield
        finally:
            self._client.guard, self._client.written = before, None
            self._stop.set()
            beat.join(timeout=self._heartbeat_s)
            self._release()
            self._held_for = ""

    def require(self) -> None:
        """Raise when the Lease is lost: read it, or renew it when its heartbeat is as old as others wait for.

        Raises:
            Conflict: it is lost.
            Unreachable: it cannot be read, or its heartbeat is old and cannot be written.
        """
        if not self._lost:
            answered = len(self._client.written or ())
            try:
                if self._elapsed() - self._beaten > DURATION_S:
                    self._renew(self._held_for)
                else:
                    self._require_ours(self._client.get(LEASE, self._name, self._namespace))
                    self._confirmed = answered
            except Conflict as error:
                self._lost = error.message
        if self._lost:
            self._aftermath = self._aftermath or self._written_so_far()
            raise Conflict(
                f"{self._title} is not locked by this command any more: {self._lost}",
                hint=f"{self._aftermath}; run '{self._command('status')}' to see the holder, "
                f"'{self._command('resume')}' to continue",
            )

    def _require_ours(self, lease: Json | None) -> Json:
        holder = holder_of(lease)
        if lease is None or holder is None or holder.identity != self._token:
            raise Conflict(
                "it was taken by " + (holder.describe() if holder else "an unlock of another user")
            )
        return lease

    def _written_so_far(self) -> str:
        """Describe what this command wrote before it noticed the loss, as the objects read now."""
        written = self._client.written or []
        if not written:
            return "nothing was written to the service by this command"
        self._client.forget_reads()
        newest = {call.target: (call, answer) for call, answer in written}
        objects = ", ".join(f"{target} ({self._state(*last)})" for target, last in newest.items())
        if len(written) == self._confirmed:
            return f"nothing was written since; before, this command wrote {objects}"
        return f"the last write of this command may have come after that; it wrote {objects}"

    def _state(self, call: Call, answer: Json | None) -> str:
        """Compare an object with the answer to the last write of it."""
        if answer is None:
            return "no answer came"
        try:
            record = self._client.get(call.kind, str(call.name), call.namespace)
        except MpctlError as error:
            return f"it cannot be read: {error.message}"
        if call.verb == "delete":
            return "deleted" if record is None else "deleted, and still listed"
        if record is None:
            return "deleted since"
        return "unchanged since" if record.get("spec") == answer.get("spec") else "changed since"

    def unlock(self, holder: Holder, *, force: bool = False) -> None:
        """Release the Lease of a dead holder, with ``force`` of any, and fence that holder off.

        Raises:
            Conflict: the holder is alive.
            NotPermitted: an object of the service may not be written, which fencing needs.
        """
        if not force:
            self.require_dead(holder)
        for _ in range(_TRIES):
            present = self.read()
            if present is None or (not force and present.heartbeat != holder.heartbeat):
                return  # released, or acquired by another operator meanwhile
            try:
                self._clear(present, released=False)
            except Stale:
                continue
            self.fence()
            return
        raise MpctlError(
            f"{self._title} could not be unlocked in {_TRIES} tries",
            hint="run the same command again",
        )

    def require_dead(self, holder: Holder) -> None:
        """Raise unless a holder is dead, which takes up to ``DURATION_S`` to tell.

        Raises:
            Conflict: its heartbeat changes.
        """
        if not self._is_dead(holder):
            ask = "ask the holder to stop, or use --force: its command writes nothing to the service afterwards"
            raise Conflict(
                f"{self._title} is held by {holder.describe()}, which is alive",
                hint=self._remedy(holder, ask),
            )

    def _remedy(self, holder: Holder, usual: str) -> str:
        """The hint about a holder: ``usual``, unless another client than mpctl wrote its heartbeat."""
        if not holder.written_by:
            return usual
        return (
            "another client wrote that Lease: the API server's audit log names the user. "
            f"'{self._command('unlock', '--force')}' takes it; a user who writes it again and again needs the right to "
            "write Leases taken away"
        )

    def forget_entries(self) -> None:
        """Name no entry of the ledger any more: it is deleted, or its loss is accepted."""
        self.newest_entry = None
        if self._client.get(LEASE, self._name, self._namespace) is not None:
            patch = {"metadata": {"annotations": {NEWEST: None}}}
            self._client.merge(LEASE, self._name, self._namespace, patch)

    def _command(self, verb: str, *options: str) -> str:
        return commands.line(verb, self._service, *options, namespace=self._namespace)

    @property
    def _title(self) -> str:
        return f"service {self._namespace}/{self._service}"

    # Acquiring

    def _acquire(self, purpose: str) -> None:
        name, refused = self._name, ""
        dead: tuple[str, str] | None = None
        for _ in range(_TRIES):
            lease = self._client.get(LEASE, name, self._namespace)
            holder, self.newest_entry = holder_of(lease), newest_entry_of(lease)
            if holder is None or holder.identity != self._token:
                self._unfenced = self.was_used() if lease is None else not _was_released(lease)
            if holder is not None and holder.identity != self._token and holder.heartbeat != dead:
                if not self._is_known_dead(holder) and (
                    _claims_fresh(holder) or not self._is_dead(holder)
                ):
                    raise Conflict(
                        f"{self._title} is held by {holder.describe()}",
                        hint=self._remedy(
                            holder,
                            f"wait for the holder, or run '{self._command('unlock')}' when it is gone",
                        ),
                    )
                dead = holder.heartbeat
            try:
                body = self._body(purpose, lease or {}, acquired=True)
                write = self._client.create if lease is None else self._client.replace
                self._written = write(LEASE, body)
                return
            except (AlreadyExists, Stale, OutcomeUnknown) as error:
                refused = error.message  # read again: this command may hold it, or another one does
            except InputError as error:  # what another client wrote into it
                raise Conflict(
                    f"Lease {self._namespace}/{name} cannot be written{last_writer(lease or {})}: {error.message}",
                    hint=commands.kubectl("delete", "lease", name, namespace=self._namespace)
                    + ", then the same command again",
                ) from error
        raise MpctlError(
            f"{self._title} could not be locked in {_TRIES} tries: {refused}",
            hint="run the same command again",
        )

    def _is_dead(self, holder: Holder) -> bool:
        """Return whether the holder's process is gone, or its heartbeat stays the same for ``DURATION_S`` of our own
        clock."""
        while True:
            present = self.read()
            if present is None:
                return True
            if present.heartbeat != holder.heartbeat:
                return False
            if self._is_known_dead(present):
                return True
            self._pause(_WATCH_S)

    def _is_known_dead(self, holder: Holder) -> bool:
        """Return whether a holder that was read just now is dead, as far as earlier reads tell."""
        if self._read is None or self._read[0] != holder.heartbeat:
            self._read = holder.heartbeat, self._elapsed()
        return process_is_gone(holder.process) or self._elapsed() - self._read[1] >= DURATION_S

    def _body(self, purpose: str, present: Json, *, acquired: bool) -> Json:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        metadata: Json = {
            **mapping_at(present, "metadata"),
            "name": self._name,
            "namespace": self._namespace,
            "labels": labels(self._service, "lease"),
            "annotations": {
                _PURPOSE: purpose,
                _PROCESS: this_process(),
                _WHO: self._who,
                **naming(self.newest_entry),
            },
        }
        metadata.pop("managedFields", None)
        spec = mapping_at(present, "spec")
        changes = min(int(spec.get("leaseTransitions") or 0) + acquired, _MOST_CHANGES)
        return {
            "metadata": metadata,
            "spec": {
                "holderIdentity": self._token,
                "leaseDurationSeconds": DURATION_S,
                "acquireTime": now if acquired else spec.get("acquireTime", now),
                "renewTime": now,
                "leaseTransitions": changes,
            },
        }

    # Renewing

    def _beat(self, purpose: str) -> None:
        while not self._stop.wait(self._heartbeat_s):
            try:
                self._renew(purpose)
            except Conflict as error:
                self._lost = error.message
                return
            except MpctlError as error:
                silent_s = self._elapsed() - self._beaten
                if silent_s >= DURATION_S - self._heartbeat_s:
                    self._lost = f"no heartbeat for {silent_s:.0f} s: {error.message}"
                    return

    def _renew(self, purpose: str) -> None:
        name = self._name
        for _ in range(_TRIES):
            begun, answered = self._elapsed(), len(self._client.written or ())
            lease, self._written = (
                self._written or self._client.get(LEASE, name, self._namespace),
                None,
            )
            lease = self._require_ours(lease)
            try:
                self._written = self._client.replace(
                    LEASE, self._body(purpose, lease, acquired=False)
                )
                self._beaten, self._confirmed = begun, answered
                return
            except (Stale, OutcomeUnknown, InputError):  # the last: it was deleted
                continue  # read it: this command may hold it, or another one does
        raise Unreachable("the heartbeat could not be written")

    def _release(self) -> None:
        """Release the Lease, best effort: the next command finds a dead holder otherwise."""
        for _ in range(_TRIES):
            try:
                holder = self.read()
                if holder is not None and holder.identity == self._token:
                    self._clear(holder, released=not self._unfenced)
                return
            except Stale:
                continue
            except MpctlError:
                return

    def _clear(self, holder: Holder, *, released: bool) -> None:
        annotations = {**naming(self.newest_entry), _RELEASED: "true" if released else None}
        metadata = {"resourceVersion": holder.version, "annotations": annotations}
        patch = {"metadata": metadata, "spec": {"holderIdentity": None}}
        self._client.merge(LEASE, self._name, self._namespace, patch)


def _was_released(lease: Json) -> bool:
    """Return whether the last holder released the Lease: others may be stopped before a write."""
    annotations = annotations_of(lease)
    return holder_of(lease) is None and _RELEASED in annotations


def _claims_fresh(holder: Holder) -> bool:
    """Return whether the heartbeat's time is within the last ``DURATION_S``: true for a dead holder at most that long,
    so a command refuses at once instead of watching. A process of this machine that is gone claims nothing."""
    if process_is_gone(holder.process):
        return False
    try:
        renewed = datetime.fromisoformat(holder.renewed)
        return 0 <= (datetime.now(UTC) - renewed).total_seconds() <= DURATION_S
    except (ValueError, TypeError):
        return False
