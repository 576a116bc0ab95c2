"""Processes that end with their owner, and the loopback addresses of one cluster.

Every process of a cluster carries ``MPCTL_RIG`` in its environment. One small process, the reaper, holds the reading
end of a pipe; when the owner ends, however it ends, the pipe closes, and the reaper kills whatever carries the tag,
its grandchildren too, and removes the cluster's directory. Stopping a cluster is closing the pipe.

A cluster takes one second octet X of 64..127: its servers listen on 127.X.0.1, nodes are 127.X.n.1, and a pod that
reports 100.X.n.p (the range of carrier-grade NAT, which GKE uses for pods too) really lives at 127.X.n.p, because only
127/8 needs no privilege and the API server refuses loopback addresses in endpoints. Ports never clash.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

TAG = "MPCTL_RIG"
FIRST, LAST = 64, 127


class Failed(Exception):
    """A process of the rig did not come up; the text has its last words."""


class Slot:
    """One X, held by a socket with a name of its own; it is taken as long as any process that inherited it lives."""

    def __init__(self) -> None:
        for number in range(FIRST, LAST + 1):
            lock = socket.socket(socket.AF_UNIX)
            try:
                lock.bind(f"\0mpctl-rig-{number}")  # no file: the name goes with the last process
            except OSError:
                lock.close()
                continue
            if _free(
                f"127.{number}.0.1", 6443
            ):  # a cluster in another network namespace has the same names
                self.number, self.lock = number, lock
                return
            lock.close()
        raise Failed("all 64 address ranges of the rig are in use")

    @property
    def host(self) -> str:
        """Where the control plane listens."""
        return f"127.{self.number}.0.1"

    def node(self, index: int) -> str:
        """The address of a node, counted from 1."""
        return f"127.{self.number}.{index}.1"

    def port(self, index: int) -> int:
        """A port of this cluster's own, for a program that listens on every address. Below the range from which the
        kernel takes the ports of connections: a free one of that range may be taken before it is listened on."""
        return 20000 + 16 * (self.number - FIRST) + index

    def pod(self, node: int, index: int) -> str:
        """The address a pod reports."""
        return f"100.{self.number}.{node}.{index}"


def real(address: str) -> str:
    """Where a reported pod address is on this machine."""
    return "127." + address.removeprefix("100.") if address.startswith("100.") else address


def _free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


class Processes:
    """The processes of one cluster, tagged ``tag``, with their logs in ``folder/logs``."""

    def __init__(self, tag: str, folder: Path, slot: Slot) -> None:
        self.tag = tag
        self.folder = folder
        self.logs = folder / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)
        self.started: dict[str, subprocess.Popen[bytes]] = {}
        reading, self._writing = os.pipe()
        self._reaper = subprocess.Popen(
            [sys.executable, "-S", "-E", __file__, tag, str(folder)],
            stdin=reading,
            pass_fds=[slot.lock.fileno()],
            start_new_session=True,
            cwd="/",
        )
        os.close(reading)

    def environment(self, extra: dict[str, str] | None = None) -> dict[str, str]:
        """What a process of this cluster starts with; no proxy may stand between it and loopback."""
        inherited = {
            k: v
            for k, v in os.environ.items()
            if not k.upper().endswith("_PROXY") and not k.startswith("MPCTL_")
        }
        return {**inherited, **(extra or {}), TAG: self.tag}

    def start(
        self, name: str, command: list[str], environment: dict[str, str] | None = None
    ) -> None:
        """Start a process; its output goes to ``logs/<name>.log``."""
        with (self.logs / f"{name}.log").open("ab") as log:
            self.started[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment(environment),
                cwd=self.folder,
                start_new_session=True,
            )

    def wait(self, name: str, ready: Callable[[], bool], timeout_s: float = 300.0) -> None:
        """Until ``ready`` says so.

        Raises:
            Failed: the process ended, or time is up.
        """
        end = time.monotonic() + timeout_s
        while not ready():
            code = self.started[name].poll()
            if code is not None or time.monotonic() > end:
                what = (
                    f"ended with {code}"
                    if code is not None
                    else f"was not ready after {timeout_s:.0f} s"
                )
                raise Failed(f"{name} {what}:\n{self.last_words(name)}")
            time.sleep(0.05)

    def last_words(self, name: str) -> str:
        """The end of a log."""
        return (self.logs / f"{name}.log").read_text(errors="replace")[-3000:]

    def stop(self, name: str) -> None:
        """End one process."""
        process = self.started.pop(name)
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def close(self) -> None:
        """End everything and remove the folder; returns when it is gone."""
        os.close(self._writing)
        self._reaper.wait(60)
        for process in self.started.values():
            process.wait(10)


def _reap(tag: str, folder: str) -> None:
    """Main of the reaper: wait for the end of the owner, then kill until nothing with the tag is left."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    while os.read(0, 1):
        pass
    mark = f"\0{TAG}={tag}\0".encode()
    quiet = 0
    while quiet < 2:  # twice, since a process may be born while we look
        victims = _victims(mark)
        for pid in victims:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        quiet = 0 if victims else quiet + 1
        time.sleep(0.02)
    shutil.rmtree(folder, ignore_errors=True)


def _victims(mark: bytes) -> list[int]:
    """Tagged processes and the rest of their sessions: a program that sets its title overwrites its environment."""
    sessions: dict[int, int] = {}
    tagged = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with suppress(OSError):
            fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
            if fields[0] == "Z":
                continue
            sessions[int(entry.name)] = int(fields[3])
            if mark in b"\0" + (entry / "environ").read_bytes():
                tagged.add(int(fields[3]))
    return [pid for pid, session in sessions.items() if session in tagged]


if __name__ == "__main__":
    _reap(sys.argv[1], sys.argv[2])
