"""One watch acts at a time: replicas wait for a Lease, and a leader that lost it stops before its next round."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from mpctl.app.session.base import who
from mpctl.app.session.cluster import open_client
from mpctl.app.session.place import Place
from mpctl.errors import Conflict
from mpctl.platform.kubernetes.api.names import lease_name
from mpctl.platform.kubernetes.lease import Lease

LEADER = "watch.leader"  # no service is called so: the name of an InferenceService has no dot
LEASE = lease_name(LEADER)
_PAUSE_S = 2.0


@contextmanager
def leading(place: Place, wait: Callable[[float], bool], tell: Callable[[str], None]) -> Iterator[Callable[[], None]]:
    """Wait for the Lease and hold it. Yields a function that raises Conflict once it is lost.

    ``wait`` sleeps and returns whether to give up, which raises Conflict, too.
    """
    client = open_client(place)
    lease = Lease(client, place.namespace or client.namespace, LEADER, who())
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
