"""The load client in the cluster, in a Job of the engine's own image.

The load goes from the Job's pod to the arm's own pod, by its address: a Service may lead to several pods, whose
counters could not be told apart. Every block has a name, made of the operation, the block and the engine's address. The
pod keeps the blocks that it sent: a command that continues a killed one finds a block running or finished and does not
send it again, also those whose records died with the killed command.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from secrets import token_hex

from mpctl.errors import MpctlError, NotPermitted, Refused
from mpctl.experiment.block import LoadResult
from mpctl.experiment.calibration import Pace
from mpctl.experiment.counters import Counters
from mpctl.json_types import Json
from mpctl.platform.kubernetes.load_job.job_pods import LOAD_LOCAL_HINT, LoadPod
from mpctl.platform.load import PacedServer, block_of, limit_s
from mpctl.rollout.ports import BlockLost, Endpoint, LoadOrder, SentBlock

_WAIT_S = 20.0  # of one question after a block


class JobClient:
    """Implements ``mpctl.platform.load.LoadClient``. Close it to remove the Job, also one that an earlier
    command left."""

    def __init__(self, pod: LoadPod) -> None:
        self._pod = pod

    def prepare(self) -> None:
        """Make the Job, so that it starts while engines do.

        Raises:
            NotPermitted: that is not allowed.
            Refused: a quota has no room for it. Whatever else is wrong with it is said when it is needed.
        """
        try:
            self._pod.ensure_job()
        except (NotPermitted, Refused):
            raise
        except MpctlError:
            return

    def close(self) -> str:
        """Delete the Job with its pod; return why it remains, empty when it does not."""
        return self._pod.close()

    def send(
        self, endpoint: Endpoint, order: LoadOrder, counters: Callable[[], Counters] | None
    ) -> SentBlock:
        """Send a block from the Job's pod; one of the same key to the same engine is read again. The counters are read
        in the pod, right around the block. If the pod is lost, the Job is deleted."""
        address = endpoint.inside or endpoint.base_url
        name = (
            hashlib.sha256(f"{order.key}\n{address}".encode()).hexdigest()[:20]
            if order.key
            else token_hex(10)
        )
        self._pod.wait_until_ready()
        block = {
            "address": address,
            "token": endpoint.token,
            "metrics": None if counters is None else f"{address}/metrics",
            "load": block_of(order, endpoint.model),
        }
        try:
            answer = self._answer(f"/blocks/{name}", block, limit_s(order))
        except BlockLost:
            self._pod.close()  # nothing may send the rest of the block
            raise
        result = LoadResult.read(answer["result"])
        if counters is None:
            return SentBlock(result, Counters(), Counters())
        return SentBlock(result, Counters.parse(answer["before"]), Counters.parse(answer["after"]))

    def _answer(self, path: str, block: Json, limit: float) -> Json:
        """Order a block and wait for its end; a question without an answer is asked again. Nothing is sent twice,
        because the pod knows the block's name."""
        self._order(path, block)
        waited = 0.0
        while waited <= limit:
            status, answer = self._pod.ask("GET", f"{path}?wait={_WAIT_S:.0f}")
            if status == 200 and "error" in answer:
                raise MpctlError(
                    f"the load client in {self._pod.title} failed: {answer['error']}",
                    hint="\n".join(filter(None, (self._pod.log_tail(), LOAD_LOCAL_HINT))),
                )
            if status == 200:
                return dict(answer)
            if status == 404:  # the process in the pod is another one
                self._order(path, block)
            waited += _WAIT_S
        self._pod.close()  # it hangs; the next block gets a new one
        raise MpctlError(
            f"{self._pod.title} did not finish a block in {limit:.0f} s", hint=LOAD_LOCAL_HINT
        )

    def _order(self, path: str, block: Json) -> None:
        status, _ = self._pod.ask("POST", path, block)
        if status == 409:
            raise BlockLost(
                f"{self._pod.title}: its pod has other requests under this block's name"
            )

    @contextmanager
    def paced(self, pace: Pace) -> Iterator[PacedServer]:
        """A process next to the client, in its pod."""
        self._pod.wait_until_ready()
        port = str(self._pod.ask("POST", "/paced", dict(pace.__dict__))[1].get("port"))
        if not port.isdecimal():
            raise MpctlError(
                f"the server of known timing in {self._pod.title} did not start",
                hint=LOAD_LOCAL_HINT,
            )
        try:
            yield PacedServer(Endpoint(f"http://127.0.0.1:{port}", "paced"), self._truth)
        finally:
            with suppress(MpctlError):
                self._pod.ask("DELETE", "/paced")

    def _truth(self) -> list[dict[str, float]]:
        records = self._pod.ask("GET", "/paced")[1]
        return records if isinstance(records, list) else []
