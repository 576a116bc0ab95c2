"""One watch acts at a time: replicas wait for a Lease, and a leader that lost it stops before its next round."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from mpctl.app.session.base import Place, who
from mpctl.app.session.cluster import open_client
from mpctl.errors import Conflict
from mpctl.platform.kubernetes.lease import Lease

_PAUSE_S = 2.0
_LEADER = "watch.leader"


def lease_of(watched: str | None) -> str:
    """Name of the Lease of the watch of a namespace, None for all."""
    return f"mpctl--{_leader(watched)}"  # that of no service, whose name begins with a letter or digit


def _leader(watched: str | None) -> str:
    return f"{_LEADER}.{watched}" if watched else _LEADER


@contextmanager
def leading(
    place: Place,
    wait: Callable[[float], bool],
    tell: Callable[[str], None],
    *,
    everywhere: bool = False,
    home: str | None = None,
) -> Iterator[Callable[[], None]]:
    """Wait for the Lease and hold it. Yields a function that raises Conflict once it is lost.

    ``wait`` sleeps and returns whether to give up, which raises Conflict, too. ``everywhere``: the watch of all
    namespaces. ``home``: the namespace of the Lease, None for that of the place.
    """
    client = open_client(place)
    watched = place.namespace or client.namespace
    leads = None if everywhere else watched
    lease = Lease(client, home or watched, _leader(leads), who(), name=lease_of(leads))
    waiting = ""
    with ExitStack() as held:
        while True:
            try:
                held.enter_context(lease.hold("watch"))
                break
            except Conflict as error:
                if error.message != waiting:
                    waiting = error.message
                    tell(f"another watch leads: {waiting}")
            if wait(_PAUSE_S):
                raise Conflict("stopped while another watch led")
        tell("this watch leads")
        yield lease.require
