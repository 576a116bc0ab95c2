"""Processes of the local platform: told apart by pid *and* start time, stopped by process group, found again by their
environment."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress

import psutil

from mpctl.platform.local.desired import Process
from mpctl.platform.local.engine import ARM_VARIABLE

STATE_VARIABLE = "MPCTL_STATE_DIR"


def identify(pid: int) -> Process | None:
    """The process with this pid now, or None."""
    try:
        return Process(pid, psutil.Process(pid).create_time())
    except psutil.NoSuchProcess:
        return None


def alive(process: Process | None) -> psutil.Process | None:
    """The very process, if it still runs; a zombie does not."""
    if process is None:
        return None
    try:
        found = psutil.Process(process.pid)
        # Start times are derived from the boot time, which the kernel may shift by a tick.
        if abs(found.create_time() - process.created) > 1.0 or found.status() == psutil.STATUS_ZOMBIE:
            return None
        return found
    except psutil.NoSuchProcess:
        return None


def arguments_of(process: Process | None) -> tuple[str, ...] | None:
    """The process's own command line, from the kernel."""
    found = alive(process)
    if found is None:
        return None
    try:
        return tuple(found.cmdline())
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return None


def stop_group(process: Process | None, *, grace_s: float = 10.0) -> None:
    """End a process and its whole group: a polite signal, then after ``grace_s`` the other one. Nothing to stop is
    fine."""
    leader = alive(process)
    if leader is None:
        return
    group = leader.pid
    members = [leader]
    with suppress(psutil.NoSuchProcess):
        members += leader.children(recursive=True)
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGTERM)
    _, left = psutil.wait_procs(members, timeout=grace_s)
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
    for member in left:
        with suppress(psutil.NoSuchProcess):
            member.kill()
    psutil.wait_procs(left, timeout=5.0)


def tagged(state_dir: str) -> Iterator[tuple[str, psutil.Process]]:
    """(arm tag, leader process) of every engine that was started from ``state_dir``."""
    for process in psutil.process_iter():
        try:
            environment = process.environ()
            ours = environment.get(STATE_VARIABLE) == state_dir and ARM_VARIABLE in environment
            if ours and os.getpgid(process.pid) == process.pid and process.status() != psutil.STATUS_ZOMBIE:
                yield environment[ARM_VARIABLE], process
        except (psutil.Error, ProcessLookupError):
            continue  # it ended while we looked, or belongs to somebody else


def who_listens(port: int) -> str:
    """Name of the process on a loopback port, as far as we may see it."""
    with suppress(psutil.AccessDenied):
        for connection in psutil.net_connections(kind="tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port:
                with suppress(psutil.Error):
                    return f"{psutil.Process(connection.pid).name()} (pid {connection.pid})"
    return "another process"


def wait_until_gone(process: Process, timeout_s: float) -> bool:
    """Whether the process ended within ``timeout_s``."""
    end = time.monotonic() + timeout_s
    while alive(process) is not None:
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True
