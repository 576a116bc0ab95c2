"""Processes of the local platform: told apart by pid *and* start time, stopped by process group, found again by their
environment. An engine is orphaned when its service is not up, does not list it, or has no supervisor.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from mpctl import commands
from mpctl.local.desired import Process, read_desired, read_observed
from mpctl.platform.state_files import state_root
from mpctl.records import Record

STATE_VARIABLE = "MPCTL_STATE_DIR"
ARM_VARIABLE = "MPCTL_ARM"
_SEGMENT = re.compile(r"(?m) (/dev/shm/psm_\w+)$")  # multiprocessing.shared_memory


def identify(pid: int) -> Process | None:
    """The process with this pid now, or None."""
    created = _created(pid)
    return Process(pid, created) if created else None


def _created(pid: int) -> str | None:
    """Boot and start time in clock ticks since it (proc_pid_stat(5), field 22); the wall clock may be set meanwhile."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()}/{fields[19]}"
    except (OSError, IndexError):
        return None


def alive(process: Process | None) -> psutil.Process | None:
    """Return exactly this process if it still runs; a zombie does not run."""
    if process is None or _created(process.pid) != process.created:
        return None
    try:
        running = psutil.Process(process.pid)
        return None if running.status() == psutil.STATUS_ZOMBIE else running
    except psutil.NoSuchProcess:
        return None


def arguments_of(process: Process | None) -> tuple[str, ...] | None:
    """The process's own command line, from the kernel."""
    running = alive(process)
    if running is None:
        return None
    try:
        return tuple(running.cmdline())
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return None


def is_supervised(directory: Path) -> bool:
    """Return whether a supervisor of a service runs. ``directory``: of the service's files."""
    observed = read_observed(directory)
    return observed is not None and alive(observed.supervisor) is not None


def memory_of(process: Process | None) -> int:
    """Bytes that a process and its children hold, shared pages counted once."""
    leader = alive(process)
    total = 0
    for member in [leader, *leader.children(recursive=True)] if leader else []:
        with suppress(psutil.Error):
            total += member.memory_full_info().pss
    return total


def stop_group(process: Process | None, *, grace_s: float = 10.0) -> None:
    """End an engine and its process group: SIGTERM, then SIGKILL after ``grace_s``. The shared memory that it mapped is
    removed: vLLM unlinks none once its API server got SIGTERM.

    If the leader has already ended, its remaining children are ended too. An empty group is no error.
    """
    if process is None:
        return
    # The engine processes of the group: processes that reuse its number do not carry mpctl's tag.
    members = [member for member, group, _ in _engine_processes() if group == process.pid]
    segments = {segment for member in members for segment in _segments(member)}
    leader = alive(process)
    if leader is not None:
        members = [leader, *(m for m in members if m.pid != leader.pid)]
        with suppress(psutil.NoSuchProcess):
            leader.terminate()
        psutil.wait_procs([leader], timeout=grace_s)  # vLLM's API server ends its own children
    for member in members:
        with suppress(psutil.NoSuchProcess):
            member.terminate()
    _, survivors = psutil.wait_procs(members, timeout=grace_s if leader is None else 2.0)
    for member in survivors:
        with suppress(psutil.NoSuchProcess):
            member.kill()
    psutil.wait_procs(survivors, timeout=5.0)
    for segment in segments:
        Path(segment).unlink(missing_ok=True)


def _segments(member: psutil.Process) -> list[str]:
    """The segments of Python's shared memory that a process maps."""
    try:
        return _SEGMENT.findall(Path(f"/proc/{member.pid}/maps").read_text())
    except OSError:  # it has ended
        return []


def marked(environment: Mapping[str, str], state_dir: str, tag: str) -> dict[str, str]:
    """Return the environment with the marks by which an engine's processes are found again, at its end:
    a process that renames itself (setproctitle) overwrites the beginning of what the kernel shows of it, if not all."""
    marks = {STATE_VARIABLE: state_dir, ARM_VARIABLE: tag}
    return {**{name: value for name, value in environment.items() if name not in marks}, **marks}


def marks_of(pid: int) -> dict[str, str]:
    """Return a process's environment as far as it can be read. psutil's reading ends where a renamed process's begins.

    Raises:
        OSError: the process is gone, or belongs to another user.
    """
    block = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="surrogateescape")
    return {
        name: value
        for name, _, value in (entry.partition("=") for entry in block.split("\0"))
        if name and value
    }


def _engine_processes() -> Iterator[tuple[psutil.Process, int, dict[str, str]]]:
    """Every process of an engine that mpctl started, with its group and its environment."""
    for process in psutil.process_iter():
        try:
            environment = marks_of(process.pid)
            if ARM_VARIABLE in environment:
                yield process, os.getpgid(process.pid), environment
        except OSError:
            continue  # it ended while we looked, or belongs to somebody else


def tagged(state_dir: str) -> Iterator[tuple[str, psutil.Process]]:
    """(arm tag, process) of every engine that was started from ``state_dir``: its leader, or where that is gone, one of
    the processes it left behind."""
    groups: dict[int, tuple[str, psutil.Process]] = {}
    for process, group, environment in _engine_processes():
        with suppress(psutil.Error):
            ours = (
                environment.get(STATE_VARIABLE) == state_dir
                and process.status() != psutil.STATUS_ZOMBIE
            )
            if ours and (group not in groups or process.pid == group):
                groups[group] = (environment[ARM_VARIABLE], process)
    yield from groups.values()


def who_listens(port: int) -> str:
    """Name of the process on a loopback port, as far as we may see it."""
    with suppress(psutil.AccessDenied):
        for connection in psutil.net_connections(kind="tcp"):
            if (
                connection.status == psutil.CONN_LISTEN
                and connection.laddr
                and connection.laddr.port == port
            ):
                with suppress(psutil.Error):
                    return f"{psutil.Process(connection.pid).name()} (pid {connection.pid})"
    return "another process"


def wait_until_gone(process: Process, timeout_s: float) -> bool:
    """Return whether the process ended within ``timeout_s``."""
    end = time.monotonic() + timeout_s
    while alive(process) is not None:
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


_UNSUPERVISED = "has lost its supervisor"


@dataclass(frozen=True)
class Orphan(Record):
    """``arm`` is namespace/service/arm id; ``adoptable``: its service wants it, so that a new supervisor takes it."""

    arm: str
    pid: int
    reason: str
    adoptable: bool

    @property
    def remedy(self) -> str:
        """Return the advice to adopt or stop the orphan."""
        stop = f"{commands.line('local', 'down', '--orphans')} stops it"
        namespace, service = self.arm.split("/")[:2]
        adopt = commands.line("local", "up", service, namespace=namespace)
        return f"{adopt} adopts it, {stop}" if self.adoptable else stop


def find_orphans() -> tuple[Orphan, ...]:
    """All orphans of this state directory."""
    orphans = []
    for tag, process in tagged(str(state_root())):
        namespace, name, arm_id = tag.split("/")
        reason = _orphan_reason(state_root() / "local" / namespace / name, arm_id)
        if reason:
            orphans.append(Orphan(tag, process.pid, reason, adoptable=reason == _UNSUPERVISED))
    return tuple(orphans)


def stop_orphans() -> tuple[Orphan, ...]:
    """Stop all orphans and return them."""
    orphans = find_orphans()
    for orphan in orphans:
        stop_group(identify(orphan.pid))
        namespace, name, arm_id = orphan.arm.split("/")
        shutil.rmtree(
            state_root() / "local" / namespace / name / "arms" / arm_id, ignore_errors=True
        )
    return orphans


def _orphan_reason(directory: Path, arm_id: str) -> str:
    desired, observed = read_desired(directory), read_observed(directory)
    if observed is not None and alive(observed.supervisor) is not None:
        return ""  # a supervisor that lives stops what it does not want
    if desired is None:
        return "runs although its service is not up"
    if arm_id not in desired.arms:
        return "runs although its service does not want it"
    return _UNSUPERVISED
