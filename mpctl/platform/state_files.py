"""Files of mpctl's state on this machine: where they lie, and how they are written so that a crash leaves the old or
the new, never half.

::

    $XDG_STATE_HOME/mpctl/local/<namespace>/<name>/
        desired.json     the service as it should be: manifest, route, arms        (written by commands)
        observed.json    what runs                                                  (written by the supervisor)
        revisions/       one JSON file each, never rewritten
        ledger.jsonl     append-only, hash-chained
        lease.lock/.json held by one command at a time
        operations/      measurements and workloads, by operation
        arms/<id>.log    what the engine said
        supervisor.log
    $XDG_STATE_HOME/mpctl/reports/<namespace>/<name>/
        <rollout>-<time>.md   the report on a rollout, on any platform; .html once it was opened
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import platformdirs

from mpctl import bounded
from mpctl.errors import InputError, MpctlError, NotPermitted

RESTORE = (
    "restore this file from a copy; keep the files beside it: rollback needs revisions and ledger"
)


def state_root() -> Path:
    """``MPCTL_STATE_DIR``, else ``mpctl`` in the XDG state directory."""
    override = os.environ.get("MPCTL_STATE_DIR")
    if override:
        return Path(override).absolute()
    return platformdirs.user_state_path("mpctl")


def service_dir(namespace: str, name: str) -> Path:
    """The directory of one service; it may not exist yet.

    Raises:
        InputError: a name would lead elsewhere.
        NotPermitted: another user put it there, or a link to somewhere else.
    """
    root = state_root()
    path = root / "local" / part_of_path(namespace) / part_of_path(name)
    for folder in (root / "local", path.parent, path):
        _require_own(folder)
    return path


def part_of_path(name: str) -> str:
    """Return a name that may come from a file of others, as one part of a path.

    Raises:
        InputError: it would lead elsewhere.
    """
    if not name or name.startswith(".") or set(name) & set("/\\\0"):
        raise InputError(f"{name!r} is not a name")
    return name


def _require_own(folder: Path) -> None:
    """Refuse what another user of a shared state directory made: manifests would be written where they chose."""
    try:
        folder_stat = folder.lstat()
    except OSError:
        return  # it is created, or named by the read or write that follows
    if stat.S_ISLNK(folder_stat.st_mode):
        raise NotPermitted(
            f"{folder} is a symbolic link, which mpctl never makes",
            hint="remove it, or set MPCTL_STATE_DIR to a directory of your own",
        )
    if folder_stat.st_uid != os.geteuid() != 0:
        raise NotPermitted(
            f"{folder} belongs to another user (uid {folder_stat.st_uid})",
            hint="set MPCTL_STATE_DIR to a directory of your own",
        )


def service_dirs(holding: str = "desired.json") -> tuple[Path, ...]:
    """Every service directory that holds a file of this name, by namespace and name."""
    return tuple(sorted(p.parent for p in (state_root() / "local").glob(f"*/*/{holding}")))


def write_text(path: Path, text: str) -> None:
    """Replace a file atomically and durably; readable by the owner alone, because manifests may carry secrets."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with naming(path):
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_directory(path.parent)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name the file in an error of the system that names none: a full disk is found when data is written out."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def write_json(path: Path, record: Any) -> None:
    """:func:`write_text` for a JSON value."""
    write_text(path, json.dumps(record, indent=1, sort_keys=True) + "\n")


def read_json(path: Path, *, hint: str = RESTORE) -> Any | None:
    """The file's JSON value, or None if there is no file.

    Raises:
        MpctlError: it is not JSON; ``hint`` says what may be done about it.
    """
    try:
        return bounded.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise MpctlError(f"{path} is damaged: {error}", hint=hint) from error


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold ``path`` for a short read-modify-write; waits for other writers. A dead holder's lock is gone with it."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def try_lock(path: Path) -> int | None:
    """An open descriptor that holds ``path`` until it is closed or the process dies, or None if somebody else does."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
