"""From flags to a service that can be worked on: which service, which store, who asks."""

from __future__ import annotations

import getpass
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from mpctl.cli.interrupt import interruptible
from mpctl.cli.settings import Settings
from mpctl.cli.terminal import Terminal
from mpctl.errors import Cancelled, InputError
from mpctl.platform.local.files import service_dirs
from mpctl.platform.local.platform import LocalPlatform
from mpctl.platform.local.store import LocalStore
from mpctl.rollout.operation import open_operation

if TYPE_CHECKING:
    from mpctl.rollout.machine import World


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Now, in UTC."""
        return datetime.now(UTC)

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


def who() -> str:
    """``user@host`` of whoever runs the command; ``uid-N@host`` where the user has no name, as in many containers."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # KeyError up to Python 3.12
        user = f"uid-{os.getuid()}"
    return f"{user}@{socket.gethostname()}"


@dataclass(frozen=True)
class Session:
    """One service on the local platform and all that works on it."""

    name: str
    namespace: str
    platform: LocalPlatform
    store: LocalStore
    terminal: Terminal

    @property
    def title(self) -> str:
        """The service as messages name it."""
        return f"service {self.namespace}/{self.name}"

    @contextmanager
    def world(self, *, interrupted: Cancelled | None = None) -> Iterator[World]:
        """The world for a change: a supervisor that is gone is replaced, the load client ends with the block.

        Raises:
            Cancelled: Ctrl-C was pressed; ``interrupted``, or what is unfinished and how to go on.
        """
        from mpctl.platform.local.meter import LocalMeter
        from mpctl.rollout.machine import World

        desired = self.platform.desired()
        platform = LocalPlatform(self.namespace, self.name, keeps=True)
        meter = LocalMeter(desired.python, desired.cwd)
        with interruptible(lambda: interrupted or self._interrupted()):
            try:
                yield World(platform, self.store, meter, SystemClock(), self.terminal, who())
            finally:
                meter.close()

    def _interrupted(self) -> Cancelled:
        operation = open_operation(self.store.entries())
        if operation is None:
            return Cancelled(f"interrupted; nothing of {self.title} is unfinished")
        step = f" at step {operation.begun}" if operation.begun else ""
        return Cancelled(
            f"interrupted{step}; {operation.id} of {self.title} is unfinished",
            hint=f"mpctl resume {self.name} goes on with it, mpctl rollback {self.name} undoes it",
        )


def open_session(settings: Settings, name: str | None) -> Session:
    """The service asked for; without a name the only one there is.

    Raises:
        InputError: there is none, or several; the message lists them.
    """
    found = known_services(settings.namespace)
    where = f" in namespace {settings.namespace}" if settings.namespace else " on this machine"
    if name is None:
        if len(found) == 1:
            namespace, name = found[0]
            return make_session(settings, namespace, name)
        listing = ", ".join(f"{ns}/{n}" for ns, n in found)
        if not found:
            raise InputError(f"no service is up{where}", hint="mpctl local up -f MANIFEST starts one")
        raise InputError(f"there are {len(found)} services: {listing}", hint="name one")
    matching = [(ns, n) for ns, n in found if n == name]
    if len(matching) > 1:
        spaces = ", ".join(ns for ns, _ in matching)
        raise InputError(f"service {name} exists in several namespaces: {spaces}", hint="choose one with -n")
    if not matching:
        import difflib

        near = difflib.get_close_matches(name, [n for _, n in found], n=1)
        hint = f"did you mean {near[0]}" if near else "mpctl status lists the services; mpctl local up starts one"
        raise InputError(f"there is no service {name}{where}", hint=hint)
    return make_session(settings, *matching[0])


def make_session(settings: Settings, namespace: str, name: str) -> Session:
    """A session without looking whether the service exists."""
    platform = LocalPlatform(namespace, name)
    return Session(name, namespace, platform, LocalStore(platform.directory, who()), settings.terminal)


def known_services(namespace: str | None) -> list[tuple[str, str]]:
    """(namespace, name) of every service that is up, in one namespace or in all."""
    pairs = [(d.parent.name, d.name) for d in service_dirs()]
    return [(ns, n) for ns, n in pairs if namespace in (None, ns)]


def read_file(path: str, what: str) -> str:
    """A file the user named, ``-`` for standard input; UTF-8, line ends as they are.

    Raises:
        InputError: it cannot be read.
    """
    try:
        return (sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InputError(f"{what} cannot be read: {reason}", file=path) from error
