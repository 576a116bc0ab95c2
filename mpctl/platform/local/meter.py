"""Load and counters of a local engine: ``vllm bench serve`` in a warm process, /metrics and one real completion over
HTTP.

Faults of the bench client that are met here (vLLM 0.32): the custom data set applies the chat template although the
chat endpoint does so again (``--skip-chat-template``); the client's own readiness probe sends the first prompt once
more than counted (``--ready-check-timeout-sec 0``; its warm-ups repeat that one prompt, so ours are prompts of their
own); it shuffles (``--disable-shuffle``). Its arrival-to-send delay at full concurrency is not part of TTFT: it
reports service time, and so do we.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from mpctl.errors import MpctlError
from mpctl.measure.counters import CounterError, Counters
from mpctl.measure.workload import Workload
from mpctl.platform.local.engine import DEFAULT_ENV
from mpctl.platform.local.files import state_root
from mpctl.platform.local.processes import STATE_VARIABLE
from mpctl.rollout.ports import Endpoint

WORKER = Path(__file__).parent / "engine_side" / "bench.py"


class LocalMeter:
    """Implements ``mpctl.rollout.ports.Meter``. Close it to end the bench process; it also ends with us."""

    def __init__(self, python: str, cwd: str, *, timeout_s: float = 600.0) -> None:
        self._python = python
        self._cwd = cwd
        self._timeout_s = timeout_s
        self._worker: _Worker | None = None

    def prepare(self) -> None:
        """Start loading the bench client, which takes as long as starting an engine."""
        if self._worker is None or not self._worker.running:
            self._worker = _Worker(self._python, self._cwd)

    def close(self) -> None:
        """End the bench process."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def complete(self, endpoint: Endpoint) -> None:
        """One short chat completion.

        Raises:
            MpctlError: no answer, or one without content tokens.
        """
        import httpx

        body = {
            "model": endpoint.model,
            "messages": [{"role": "user", "content": "Say something"}],
            "max_tokens": 4,
            "temperature": 0,
        }
        headers = {"Authorization": f"Bearer {endpoint.token}"} if endpoint.token else {}
        url = f"{endpoint.base_url}/v1/chat/completions"
        try:
            answer = httpx.post(url, json=body, headers=headers, timeout=120.0, trust_env=False)
        except httpx.HTTPError as error:
            raise MpctlError(f"{url}: {error}", hint="read the engine's log: mpctl local logs") from error
        if answer.status_code != 200:
            raise MpctlError(
                f"{url} answered {answer.status_code}: {answer.text[:300]}",
                hint="read the engine's log: mpctl local logs",
            )
        if not answer.json().get("usage", {}).get("completion_tokens"):
            raise MpctlError(f"{url} answered without a single token", hint="read the engine's log: mpctl local logs")

    def counters(self, endpoint: Endpoint) -> Counters:
        """Scrape /metrics.

        Raises:
            CounterError: no answer, or one that cannot be read.
        """
        import httpx

        url = f"{endpoint.base_url}/metrics"
        try:
            answer = httpx.get(url, timeout=30.0, trust_env=False).raise_for_status()
        except httpx.HTTPError as error:
            raise CounterError(f"{url}: {error}") from error
        return Counters.parse(answer.text)

    def run(self, endpoint: Endpoint, prompts: tuple[str, ...], workload: Workload) -> dict[str, Any]:
        """Send the prompts once, in order.

        Raises:
            MpctlError: the client failed; its last lines are in the message.
        """
        self.prepare()
        assert self._worker is not None
        with tempfile.TemporaryDirectory(prefix="mpctl-bench-") as scratch:
            data = Path(scratch) / "prompts.jsonl"
            data.write_text("".join(json.dumps({"prompt": p}) + "\n" for p in prompts), encoding="utf-8")
            result = Path(scratch) / "result.json"
            arguments = bench_arguments(endpoint, data, result, len(prompts), workload)
            self._worker.ask({"arguments": arguments, "token": endpoint.token}, self._timeout_s)
            loaded: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
            return loaded


def bench_arguments(endpoint: Endpoint, data: Path, result: Path, count: int, workload: Workload) -> list[str]:
    """What follows ``vllm bench serve``."""
    options = {
        "backend": "openai-chat",
        "endpoint": "/v1/chat/completions",
        "base-url": endpoint.base_url,
        "model": endpoint.model,
        "tokenizer": endpoint.tokenizer,
        "dataset-name": "custom",
        "dataset-path": str(data),
        "custom-output-len": str(workload.max_tokens),
        "num-prompts": str(count),
        "max-concurrency": str(workload.concurrency),
        "temperature": str(workload.temperature),
        "ready-check-timeout-sec": "0",
        "result-dir": str(result.parent),
        "result-filename": result.name,
        "percentile-metrics": "ttft,tpot,itl,e2el",
        "seed": "0",
    }
    switches = ["--disable-shuffle", "--skip-chat-template", "--save-result", "--save-detailed", "--disable-tqdm"]
    return [f"--{name}={value}" for name, value in options.items()] + switches


class _Worker:
    """The bench process: one request at a time; its last lines are kept for error messages."""

    def __init__(self, python: str, cwd: str) -> None:
        self._process = subprocess.Popen(
            [python, str(WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=cwd,
            env={**DEFAULT_ENV, **os.environ, STATE_VARIABLE: str(state_root())},
            start_new_session=True,  # Ctrl-C is ours to handle; the closed pipe ends it
        )
        self._tail: deque[str] = deque(maxlen=20)
        assert self._process.stderr is not None
        threading.Thread(target=self._keep_tail, args=(self._process.stderr,), daemon=True).start()

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def _keep_tail(self, stream: IO[str]) -> None:
        with suppress(ValueError):  # closed under us when the worker is closed
            self._tail.extend(line.rstrip() for line in stream)

    def ask(self, request: dict[str, Any], timeout_s: float) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        watchdog = threading.Timer(timeout_s, self._process.kill)
        watchdog.start()
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except OSError:
            line = ""
        finally:
            watchdog.cancel()
        answer = json.loads(line) if line else {"error": f"it ended, or gave no answer in {timeout_s:.0f} s"}
        if "error" in answer:
            lines = "\n".join(self._tail)
            raise MpctlError(f"vllm bench serve failed: {answer['error']}", hint=f"its last lines:\n{lines}")

    def close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        try:
            self._process.wait(timeout=5.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
