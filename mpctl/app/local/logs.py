"""Read the log of an engine of this machine."""

from __future__ import annotations

from mpctl.app.console import Console
from mpctl.app.requests import LocalLogsRequest
from mpctl.app.session.local import open_local
from mpctl.app.session.place import Place
from mpctl.errors import InputError
from mpctl.manifest import masked
from mpctl.platform.local.logs import log_path


def read_log(place: Place, console: Console, request: LocalLogsRequest) -> tuple[str, ...]:
    """Return the lines of the log of one arm, of the one that gets the traffic unless another is named.

    Raises:
        InputError: the arm has no log.
    """
    session = open_local(place, console, request.name)
    arm = request.arm or session.platform.desired().route
    path = log_path(session.platform.directory, arm)
    if not path.is_file():
        logs = ", ".join(sorted(p.stem for p in path.parent.glob("*.log"))) or "none"
        raise InputError(f"log of {arm} not found", hint=f"logs: {logs}")
    lines = masked(path.read_text(errors="replace")).splitlines()
    return tuple(lines if request.tail is None else lines[max(0, len(lines) - request.tail) :])
