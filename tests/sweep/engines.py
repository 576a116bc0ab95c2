"""Engines and load agents of pods in memory, behind the requests that mpctl sends through port-forwards.

An engine is the scripted one of ``tests/scripted``, whose waits move the virtual clock. The agent answers as
``mpctl/platform/kubernetes/in_pod/agent.py`` does for one pod: a block is sent when it is asked for, and kept.

Left out: TLS, API keys, and who may ask the agent.
"""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import httpx

from mpctl.experiment.calibration import Pace
from mpctl.platform.kubernetes.api.kinds import POD
from mpctl.platform.kubernetes.load_job.job_manifest import PORT
from tests.scripted.engine import Handler, Model
from tests.sweep.api_server import ApiServer, Json
from tests.sweep.clock import clock
from tests.sweep.controllers import is_ready

PACE = Pace()  # of the server of known timing
_CONNECTION = "the pod does not run"


class _Socket:
    """A connection whose request is complete."""

    def __init__(self, sent: bytes):
        self.sent, self.received = io.BytesIO(sent), b""

    def makefile(self, *_: Any) -> io.BytesIO:
        return self.sent

    def setsockopt(self, *_: Any) -> None:
        """No network, so no delay to turn off."""

    def sendall(self, data: bytes) -> None:
        self.received += data


class Pods:
    """What answers in the pods of a server, by the uid of a pod. ``fails``: every block of a load fails."""

    def __init__(self, server: ApiServer, script: Json):
        self._server, self._script, self.fails = server, script, False
        self._models: dict[str, Model] = {}
        self._truth: Json | list[Json] = []
        self._blocks: dict[str, dict[str, Json]] = {}

    def engines(self, selector: tuple[str, str]) -> list[Model]:
        """Engines of the ready pods with a label."""
        pods = [
            pod
            for pod in self._server.of(POD)
            if pod["metadata"]["labels"].get(selector[0]) == selector[1]
        ]
        return [self._model(pod) for pod in pods if is_ready(pod)]

    def answer(self, request: httpx.Request) -> httpx.Response:
        """Answer a request to ``http://POD:PORT``."""
        pod = self._server.find(POD, request.url.host)
        if pod is None or not is_ready(pod):
            raise httpx.ConnectError(_CONNECTION)
        content = request.read()
        path = request.url.raw_path.decode()
        if request.url.port == PORT:
            status, record = self._agent(pod, request.method, path, json.loads(content or b"null"))
            return httpx.Response(status, stream=httpx.ByteStream(json.dumps(record).encode()))
        return _served(self._model(pod), request.method, path, content)

    def _model(self, pod: Json) -> Model:
        uid = pod["metadata"]["uid"]
        if uid not in self._models:
            self._models[uid] = Model(pod["spec"]["containers"][0].get("args") or [], self._script)
        return self._models[uid]

    def _agent(self, pod: Json, method: str, path: str, body: Any) -> tuple[int, Any]:
        blocks = self._blocks.setdefault(pod["metadata"]["uid"], {})
        route = urlsplit(path).path
        if route == "/ready":
            return 200, {}
        if route == "/paced":
            return 200, {"POST": {"port": "9"}, "GET": self._truth, "DELETE": {}}[method]
        name = route.removeprefix("/blocks/")
        if method == "POST":
            if name not in blocks:
                blocks[name] = {"error": "scripted to fail"} if self.fails else self._sent(body)
            return 202, {}
        return (200, blocks[name]) if name in blocks else (404, {"error": "no such block"})

    def _sent(self, block: Json) -> Json:
        """Send a block to the engine that it names, or to the server of known timing."""
        address = urlsplit(block["address"]).hostname
        prompts = [str(body["messages"][-1]["content"]) for body in block["load"]["bodies"]]
        began, started = clock.passed_s, datetime.now(UTC).isoformat()
        if address == "127.0.0.1":
            rows, before, after = [_paced(prompt) for prompt in prompts], "", ""
            numbers = (int(prompt.split()[-1]) for prompt in prompts)
            self._truth = [
                {"number": number, "first_s": PACE.ttft_s, "last_s": PACE.request_s}
                for number in numbers
            ]
        else:
            pod = next(
                pod
                for pod in self._server.of(POD)
                if pod["status"]["podIP"] == address and is_ready(pod)
            )
            model = self._model(pod)
            before = model.metrics()
            rows = [_sample(model, prompt) for prompt in prompts]
            after = model.metrics()
        result = {"started": started, "duration_s": clock.passed_s - began, "requests": rows}
        return {"result": result, "before": before, "after": after}


def _row(seconds: list[float], tokens: int, text: str) -> Json:
    """A request as the load client reports it."""
    clock.sleep(sum(seconds))
    row: Json = {
        "tokens": tokens,
        "text": text,
        "prompt_ids": [],
        "ids": [],
        "held_s": 0.0,
        "error": "",
    }
    return {**row, "ttft_s": seconds[0], "gaps_s": seconds[1:]}


def _paced(prompt: str) -> Json:
    return _row([PACE.ttft_s, *[PACE.interval_s] * (PACE.chunks - 1)], PACE.tokens, prompt)


def _sample(model: Model, prompt: str) -> Json:
    words = (prompt.split() * 8)[:8]
    model.admit()
    seconds = [step_seconds for step_seconds, _ in model.steps(words)]
    row = _row(seconds, len(words), " ".join(words))
    model.timed(seconds)
    model.leave()
    model.counts["prompt"] += 1
    return row


def _served(model: Model, method: str, path: str, content: bytes) -> httpx.Response:
    """The answer of the scripted engine's HTTP side, without a socket."""
    head = f"{method} {path} HTTP/1.1\r\nHost: engine\r\nContent-Length: {len(content)}\r\nConnection: close\r\n\r\n"
    connection = _Socket(head.encode() + content)
    type("Bound", (Handler,), {"model": model})(connection, ("", 0), None)  # type: ignore[arg-type]
    first, _, body = connection.received.partition(b"\r\n\r\n")
    status = int(first.split(None, 2)[1])
    return httpx.Response(status, stream=httpx.ByteStream(body))
