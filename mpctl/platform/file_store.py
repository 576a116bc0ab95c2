"""Revisions, ledger, lease and measurements of one local service, as files in its directory, and their deletion."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from mpctl import bounded, commands, safe_text
from mpctl.errors import Conflict, MpctlError
from mpctl.json_types import Json
from mpctl.platform.state_files import (
    RESTORE,
    naming,
    part_of_path,
    read_json,
    try_lock,
    write_json,
)
from mpctl.rollout.ledger import Entry, read_ledger
from mpctl.rollout.ports import PruneResult, RecordCounts
from mpctl.rollout.revision import Revision


class RecordedFiles:
    """The files of one service that hold its history. Files of a service that is up, and the logs of its engines, are
    none of them. The ledger goes first, as in a cluster."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._up = (directory / "desired.json").exists()
        running = _running(directory) if self._up else frozenset[str]()
        self._ledger = _files(directory, "ledger.*")
        self._revisions = _files(directory, "revisions/*")
        self._records = _files(directory, "operations/**/*")
        self._others = [log for log in _files(directory, "arms/*.log") if log.stem not in running]
        self._others += _files(directory, _SEALED)

    def recorded(self) -> RecordCounts:
        """Number of files of each kind; a line of the ledger counts as one entry."""
        lines = sum(path.read_bytes().count(b"\n") or 1 for path in self._ledger)
        return RecordCounts(len(self._revisions), lines, len(self._records), len(self._others))

    def prune(self, operations: frozenset[str]) -> PruneResult:
        """Delete the records of these operations."""
        folders = {self._directory / "operations" / operation for operation in operations}
        going = [path for path in self._records if folders & set(path.parents)]
        sizes = {
            path: path.stat().st_size for path in (*self._ledger, *self._revisions, *self._records)
        }
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
        gone = sum(sizes[path] for path in going)
        return PruneResult(len(going), gone, len(sizes) - len(going), sum(sizes.values()) - gone)

    def delete(self) -> None:
        """Delete them, and the whole directory of a service that is not up; may be repeated."""
        for path in (*self._ledger, *self._revisions, *self._records, *self._others):
            path.unlink(missing_ok=True)
        shutil.rmtree(self._directory / "operations", ignore_errors=True)
        if not self._up:
            shutil.rmtree(self._directory, ignore_errors=True)


def _files(directory: Path, pattern: str) -> list[Path]:
    return sorted(path for path in directory.glob(pattern) if path.is_file())


def _running(directory: Path) -> frozenset[str]:
    """Ids of the arms that the service has, or should have."""
    documents = (read_json(directory / name) for name in ("desired.json", "observed.json"))
    return frozenset(
        arm
        for document in documents
        if isinstance(document, dict)
        for arm in document.get("arms", {})
    )


_SEALED = "sealed.json"
_REVISION_DIGITS = 4
_TAIL_BYTES = 65536
_LEASE_TRIES, _LEASE_PAUSE_S = 4, 0.05


class FileStore:
    """Implements ``mpctl.rollout.ports.Store``. Nothing written here is ever rewritten but measurements, which are
    replaced whole."""

    def __init__(self, directory: Path, who: str) -> None:
        self._directory = directory
        self._who = who

    def revisions(self) -> tuple[Revision, ...]:
        """All recorded revisions, oldest first."""
        paths = sorted((self._directory / "revisions").glob("[0-9]*.json"))
        return tuple(_revision(path) for path in paths)

    def add_revision(self, revision: Revision) -> None:
        """Keep a revision; refuses to overwrite one.

        Raises:
            Conflict: there is already another revision of that number.
        """
        path = self._directory / "revisions" / f"{revision.number:0{_REVISION_DIGITS}}.json"
        if path.exists():
            raise Conflict(f"revision {revision.number} is already recorded in {path}")
        write_json(path, revision.to_record())

    @property
    def _ledger(self) -> Path:
        return self._directory / "ledger.jsonl"

    def entries(self) -> tuple[Entry, ...]:
        """The ledger, oldest first."""
        try:
            text = self._ledger.read_text(
                encoding="utf-8", errors="replace"
            )  # the chain shows what is damaged
        except FileNotFoundError:
            return ()
        return read_ledger(text, where=str(self._ledger))

    def append(self, *entries: Entry, with_next: bool = False) -> None:
        """Write entries and wait until they are on the disk. A torn line left by a crash is moved aside first.

        Raises:
            Conflict: the last entry is not the one that the first of them follows.
        """
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with naming(self._ledger), self._ledger.open("a+b") as file:
            last, torn = _tail(file)
            if torn:
                with self._ledger.with_suffix(".torn").open("ab") as aside:
                    aside.write(torn + b"\n")
                file.truncate(file.seek(0, os.SEEK_END) - len(torn))
            if (last.digest if last else "") != entries[0].previous:
                raise Conflict(
                    f"{self._ledger} was written meanwhile", hint="run the same command again"
                )
            _append(file, "".join(f"{entry.to_line()}\n" for entry in entries).encode())

    def save(self, operation: str, name: str, record: Json, *, only: bool = False) -> None:
        """Keep a record of an operation."""
        write_json(self._record(operation, name), record)

    def _record(self, operation: str, name: str) -> Path:
        return (
            self._directory / "operations" / part_of_path(operation) / f"{part_of_path(name)}.json"
        )

    def save_all(
        self,
        operation: str,
        records: Mapping[str, Json],
        *,
        raw: Mapping[str, Json] | None = None,
    ) -> None:
        """Keep several records of an operation, each in its file."""
        for name, record in {**(raw or {}), **records}.items():
            self.save(operation, name, record)

    def load(self, operation: str, name: str, *, again: bool = False) -> Json | None:
        """A record kept by :meth:`save`, or None.

        Raises:
            MpctlError: the file is damaged.
        """
        path = self._record(operation, name)
        record = read_json(path)
        if record is not None and not isinstance(record, dict):
            raise MpctlError(f"{path} is damaged: it is not an object", hint=RESTORE)
        return record

    def seal(self, value: Json) -> bool:
        """Keep a value in a file that the user alone may read."""
        write_json(self._directory / _SEALED, value)
        return True

    def unseal(self) -> Json | None:
        """The value of :meth:`seal`, or None."""
        value = read_json(self._directory / _SEALED)
        return value if isinstance(value, dict) else None

    def prune(self, operations: frozenset[str]) -> PruneResult:
        """Delete the records of these operations."""
        return RecordedFiles(self._directory).prune(operations)

    def recorded(self) -> RecordCounts:
        """Number of files of each kind."""
        return RecordedFiles(self._directory).recorded()

    def purge(self) -> None:
        """Delete the files of the history; the whole directory of a service that is not up."""
        RecordedFiles(self._directory).delete()

    @contextmanager
    def lease(self, purpose: str) -> Iterator[None]:
        """Hold the service. The lock ends with the process that holds it, however it ends.

        Raises:
            Conflict: somebody else holds it; the message says who, since when and for what.
        """
        note = self._directory / "lease.json"
        for _ in range(_LEASE_TRIES):
            descriptor = try_lock(self._directory / "lease.lock")
            if descriptor is not None:
                break
            time.sleep(_LEASE_PAUSE_S)  # whoever asks for the holder has the lock for a moment, too
        if descriptor is None:
            raise Conflict(
                f"service {self._directory.parent.name}/{self._directory.name} is held by {_holder(note)}",
                hint="wait for it, or watch it with: "
                + commands.line(
                    "status", self._directory.name, "-w", namespace=self._directory.parent.name
                ),
            )
        try:
            since = datetime.now(UTC).isoformat(timespec="seconds")
            write_json(
                note, {"who": self._who, "pid": os.getpid(), "since": since, "purpose": purpose}
            )
            yield
        finally:
            note.unlink(missing_ok=True)
            os.close(descriptor)

    def holder(self) -> str | None:
        """Return the present holder of the lease, or None."""
        descriptor = try_lock(self._directory / "lease.lock")
        if descriptor is not None:
            os.close(descriptor)
            return None
        return _holder(self._directory / "lease.json")


def _append(file: BinaryIO, line: bytes) -> None:
    """Write a whole line or, on a full disk, none of it."""
    end = file.seek(0, os.SEEK_END)
    try:
        if os.write(file.fileno(), line) < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(file.fileno())
    except OSError:
        os.ftruncate(file.fileno(), end)
        raise


def _tail(file: BinaryIO) -> tuple[Entry | None, bytes]:
    """The last whole entry of a ledger, and the torn line after it."""
    size, length = file.seek(0, os.SEEK_END), _TAIL_BYTES
    while True:
        start = max(size - length, 0)
        file.seek(start)
        lines = file.read().split(b"\n")
        if (
            start == 0 or len(lines) > 2
        ):  # otherwise the last whole line begins before what was read
            break
        length *= 4
    whole = [line for line in lines[:-1] if line]
    try:
        return Entry.from_line(whole[-1].decode()) if whole else None, lines[-1]
    except ValueError as error:
        raise MpctlError(
            f"{file.name}: the last line is not a ledger entry ({error})", hint=RESTORE
        ) from error


def _revision(path: Path) -> Revision:
    record = read_json(path)
    return Revision.from_record(record if isinstance(record, dict) else {}, where=str(path))


def _holder(note: Path) -> str:
    try:
        record = bounded.loads(note.read_text(encoding="utf-8"))
        holder = (
            f"{record['who']} (pid {record['pid']}, {record['purpose']}, since {record['since']})"
        )
        return safe_text.line(holder)
    except (OSError, ValueError, KeyError, TypeError):
        return "another mpctl"
