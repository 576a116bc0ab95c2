"""From flags to a service that can be worked on: which platform, which service, which store, who asks."""

from __future__ import annotations

import getpass
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from mpctl.cli.terminal import Terminal
from mpctl.errors import InputError, Refused
from mpctl.platform.local.files import service_dirs
from mpctl.platform.local.meter import LocalMeter
from mpctl.platform.local.platform import LocalPlatform
from mpctl.platform.local.store import LocalStore
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
    """``user@host`` of whoever runs the command."""
    return f"{getpass.getuser()}@{socket.gethostname()}"


@dataclass(frozen=True)
class Settings:
    """The shared options, resolved."""

    platform: str
    namespace: str | None
    terminal: Terminal

    @classmethod
    def of(cls, ctx: click.Context, shared: dict[str, Any]) -> Settings:
        """Behind the command wins over before it, both over files, files over defaults."""

        def pick(name: str) -> Any:
            root = ctx.find_root()
            own, early = shared.get(name), (root.params or {}).get(name)
            source, root_source = ctx.get_parameter_source(name), root.get_parameter_source(name)
            if source is ParameterSource.COMMANDLINE or root_source in (None, ParameterSource.DEFAULT):
                return own if own not in (None, 0, False) else early
            return early

        verbose = int(pick("verbose") or 0)
        terminal = Terminal.of_environment(str(pick("color") or "auto"), quiet=bool(pick("quiet")), verbose=verbose)
        platform = str(pick("platform") or "local")
        if platform == "kubernetes":
            raise Refused(
                "this build has no kubernetes platform yet", hint="--platform local runs services on this machine"
            )
        return cls(platform, pick("namespace"), terminal)


@dataclass(frozen=True)
class Session:
    """One service on the local platform and all that works on it."""

    name: str
    namespace: str
    platform: LocalPlatform
    store: LocalStore
    terminal: Terminal

    @contextmanager
    def world(self) -> Iterator[World]:
        """The world for an operation; the load client ends with the block."""
        desired = self.platform.desired()
        meter = LocalMeter(desired.python, desired.cwd)
        try:
            yield World(self.platform, self.store, meter, SystemClock(), self.terminal, who())
        finally:
            meter.close()


def open_session(settings: Settings, name: str | None) -> Session:
    """The service asked for; without a name the only one there is.

    Raises:
        InputError: there is none, or several; the message lists them.
    """
    found = known_services(settings.namespace)
    if name is None:
        if len(found) == 1:
            namespace, name = found[0]
            return make_session(settings, namespace, name)
        listing = ", ".join(f"{ns}/{n}" for ns, n in found)
        if not found:
            raise InputError("no service is up on this machine", hint="mpctl local up -f MANIFEST")
        raise InputError(f"there are {len(found)} services: {listing}", hint="name one")
    matching = [(ns, n) for ns, n in found if n == name]
    if len(matching) > 1:
        spaces = ", ".join(ns for ns, _ in matching)
        raise InputError(f"service {name} exists in several namespaces: {spaces}", hint="choose one with -n")
    if not matching:
        import difflib

        near = difflib.get_close_matches(name, [n for _, n in found], n=1)
        hint = f"did you mean {near[0]}" if near else "mpctl status lists the services; mpctl local up starts one"
        raise InputError(f"there is no service {name}", hint=hint)
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
    """A file the user named, ``-`` for standard input.

    Raises:
        InputError: it cannot be read.
    """
    import sys

    if path == "-":
        return sys.stdin.read()
    try:
        with Path(path).open(encoding="utf-8", newline="") as file:  # line ends are the user's
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InputError(f"{what} cannot be read: {reason}", file=path) from error
