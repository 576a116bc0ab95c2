"""Open a service, or all of them, wherever they run."""

from __future__ import annotations

from collections.abc import Sequence

from mpctl import annex, commands
from mpctl.app.console import Console
from mpctl.app.files import read_file
from mpctl.app.session.base import Place, ServiceNotFound, Session
from mpctl.app.session.service_status import Status
from mpctl.errors import InputError, MpctlError
from mpctl.manifest import load_one


def open_session(
    place: Place, console: Console, name: str | None, *, gone: bool = False
) -> Session:
    """The service asked for; without a name the only one. ``gone``: a service that was deleted or is not up, but has a
    history, will do too.

    Raises:
        InputError: there is none, or several; the message lists them.
    """
    if place.platform == "kubernetes":
        from mpctl.app.session.cluster import open_cluster

        return open_cluster(place, console, name, gone=gone)
    session: Session = annex.need("open-local")(place, console, name, gone=gone)
    return session


def open_named_in(place: Place, console: Console, file: str, name: str | None) -> Session:
    """The running service that a manifest names; its namespace where none is asked for.

    Raises:
        InputError: the file cannot be used, or the service does not run; the hint says how to start it.
    """
    service = load_one(read_file(file, "the manifest"), name, file=file)
    place = place._replace(namespace=place.namespace or service.namespace)
    try:
        return open_session(place, console, service.name)
    except ServiceNotFound as error:
        start = commands.line("local", "up", "-f", file)
        if place.platform == "kubernetes":
            start = commands.kubectl("apply", "-f", file, namespace=place.namespace)
        raise ServiceNotFound(
            f"{error.message}; {file} is a manifest of it", hint=f"run '{start}' to start it"
        ) from error


def open_sessions(
    place: Place,
    console: Console,
    name: str | None,
    *,
    everywhere: bool,
    labels: str = "",
    listed: bool = False,
) -> Sequence[Session]:
    """Open the service of this name, or all of the namespace. ``everywhere``: of all namespaces; ``labels``: only
    services that match the selector; ``listed``: for one look, which asks no engine of a cluster with several services.

    Raises:
        InputError: there is no such service, or the platform has no labels.
    """
    if name is not None:
        return [open_session(place, console, name)]
    if place.platform == "kubernetes":
        from mpctl.app.session.cluster import cluster_sessions

        return cluster_sessions(place, console, everywhere=everywhere, labels=labels, listed=listed)
    if labels:
        raise InputError("services of this machine have no labels", field="--selector")
    sessions: Sequence[Session] = annex.need("local-sessions")(place, console)
    return sessions


def statuses_of(sessions: Sequence[Session]) -> list[Status]:
    """Return the status of each service. Of several, one that cannot be read does not hide the others.

    Raises:
        MpctlError: the only service cannot be read.
    """
    if len(sessions) == 1:
        return [sessions[0].status()]
    return [_status_or_problem(session) for session in sessions]


def _status_or_problem(session: Session) -> Status:
    try:
        return session.status()
    except MpctlError as error:
        problem = f"{error.message} ({error.hint})" if error.hint else error.message
        return Status(
            session.namespace,
            session.name,
            spec="-",
            revision=None,
            url="-",
            routed=None,
            arms=(),
            operation=None,
            holder=None,
            supervised=True,
            problems=(problem,),
            readable=False,
        )
