"""The load client in the cluster: ``vllm bench serve`` in a Job of the engine's own image.

The load goes from the Job's pod to the arm's own pod, by its address: a Service may lead to several pods, whose
counters could not be told apart. Every block has a name, made of the operation, the block and the engine's address. The
pod keeps the last ones it sent: a command that comes after one that was killed finds the block running or finished and
does not send it again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import PurePosixPath
from typing import Any

from mpctl.errors import MpctlError, NotPermitted
from mpctl.experiment.calibration import Pace
from mpctl.experiment.cell import Cell
from mpctl.experiment.counters import Counters
from mpctl.platform.kubernetes.load_job.job_pod import LOAD_LOCAL_HINT, LoadPod
from mpctl.platform.load import PacedServer, bench_arguments, limit_s
from mpctl.rollout.ports import Endpoint, Sent

_DATA, _RESULT = PurePosixPath("prompts.jsonl"), PurePosixPath("result.json")
_WAIT_S = 20.0  # of one question after a block


class JobClient:
    """Implements ``mpctl.platform.load.LoadClient``. Close it to remove the Job, also one that an earlier
    command left."""

    def __init__(self, pod: LoadPod) -> None:
        self._pod = pod

    def prepare(self) -> None:
        """Make the Job, so that it starts while engines do.

        Raises:
            NotPermitted: that is not allowed. Whatever else is wrong with it is said when it is needed.
        """
        try:
            self._pod.ensure_job()
        except NotPermitted:
            raise
        except MpctlError:
            return

    def close(self) -> str:
        """Delete the Job with its pod and scripts; return why it remains, empty when it does not."""
        return self._pod.close()

    def send(
        self,
        endpoint: Endpoint,
        prompts: Sequence[str],
        cell: Cell,
        max_tokens: int,
        *,
        key: str,
        counters: Callable[[], Counters] | None,
        salt: str = "",
    ) -> Sent:
        """Send the prompts once, in order, from the Job's pod; a block of the same ``key`` to the same engine is read
        again. The counters are read in the pod, right around the block.

        Raises:
            MpctlError: there is no client, it failed, or it does not answer.
            CounterError: the engine's counters cannot be read.
        """
        from secrets import token_hex

        address = endpoint.inside or endpoint.base_url
        engine = Endpoint(address, endpoint.model, endpoint.tokenizer)
        block = {
            "arguments": bench_arguments(engine, _DATA, _RESULT, prompts, cell, max_tokens, salt=salt),
            "prompts": list(prompts),
            "token": endpoint.token,
            "metrics": None if counters is None else f"{address}/metrics",
        }
        name = hashlib.sha256(f"{key}\n{address}".encode()).hexdigest()[:20] if key else token_hex(10)
        self._pod.wait_until_ready()
        answer = self._sent(f"/blocks/{name}", block, limit_s(len(prompts), cell, max_tokens))
        if "error" in answer:
            raise MpctlError(
                f"vllm bench serve in {self._pod.title} failed: {answer['error']}",
                hint="\n".join(filter(None, (self._pod.log_tail(), LOAD_LOCAL_HINT))),
            )
        if counters is None:
            return Sent(answer["result"], Counters(), Counters())
        return Sent(answer["result"], Counters.parse(answer["before"]), Counters.parse(answer["after"]))

    def _sent(self, path: str, block: dict[str, Any], limit: float) -> dict[str, Any]:
        """Hand a block over and wait for its end; a question without an answer is asked again. Nothing is sent twice,
        because the pod knows the block's name."""
        self._pod.ask("POST", path, block)
        waited = 0.0
        while waited <= limit:
            status, answer = self._pod.ask("GET", f"{path}?wait={_WAIT_S:.0f}")
            if status == 200:
                return dict(answer)
            if status == 404:  # the process in the pod is another one
                self._pod.ask("POST", path, block)
            waited += _WAIT_S
        self._pod.close()  # it hangs; the next block gets a new one
        raise MpctlError(f"{self._pod.title} did not finish a block in {limit:.0f} s", hint=LOAD_LOCAL_HINT)

    @contextmanager
    def paced(self, pace: Pace) -> Iterator[PacedServer]:
        """A process beside the client, in its pod.

        Raises:
            MpctlError: it did not start or does not answer.
        """
        self._pod.wait_until_ready()
        _, answer = self._pod.ask("POST", "/paced", dict(pace.__dict__))
        port = str(answer.get("port"))
        if not port.isdecimal():
            raise MpctlError(f"the server of known timing in {self._pod.title} did not start", hint=LOAD_LOCAL_HINT)
        try:
            yield PacedServer(Endpoint(f"http://127.0.0.1:{port}", "paced", tokenizer=""), self._truth)
        finally:
            with suppress(MpctlError):
                self._pod.ask("DELETE", "/paced")

    def _truth(self) -> list[dict[str, float]]:
        _, found = self._pod.ask("GET", "/paced")
        return found if isinstance(found, list) else []
