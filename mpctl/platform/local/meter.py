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
_SLOWEST_TOKEN_S = 0.5  # a large model on a busy CPU; only an engine that hangs takes longer
_READ_LOG = "read the engine's log: mpctl local logs"


class LocalMeter:
    """Implements ``mpctl.rollout.ports.Meter``. Close it to end the bench process; it also ends with us."""

    def __init__(self, python: str, cwd: str, *, timeout_s: float = 600.0) -> None:
        self._python = python
        self._cwd = cwd
        self._timeout_s = timeout_s
        self._worker: _Worker | None = None

    def prepare(self) -> None:
        """Start loading the bench client, which takes as long as starting an engine.

        Raises:
            MpctlError: it cannot be started.
        """
        if self._worker is not None and not self._worker.running:
            self.close()
        if self._worker is None:
            try:
                self._worker = _Worker(self._python, self._cwd)
            except OSError as error:
                raise MpctlError(f"the load client cannot be started: {error}") from error

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
            raise MpctlError(f"{url}: {error}", hint=_READ_LOG) from error
        if answer.status_code != 200:
            raise MpctlError(f"{url} answered {answer.status_code}: {answer.text[:300]}", hint=_READ_LOG)
        try:
            told = answer.json()
        except ValueError as error:
            raise MpctlError(f"{url} answered what is not JSON: {answer.text[:300]}", hint=_READ_LOG) from error
        usage = told.get("usage") if isinstance(told, dict) else None
        if not isinstance(usage, dict) or not usage.get("completion_tokens"):
            raise MpctlError(f"{url} answered without a single token", hint=_READ_LOG)

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
        try:
            return self._run(endpoint, prompts, workload)
        except OSError as error:
            raise MpctlError(
                f"a block could not be sent: {error}", hint="is the disk full, or /tmp read-only"
            ) from error

    def _run(self, endpoint: Endpoint, prompts: tuple[str, ...], workload: Workload) -> dict[str, Any]:
        self.prepare()
        assert self._worker is not None
        with tempfile.TemporaryDirectory(prefix="mpctl-bench-") as scratch:
            data = Path(scratch) / "prompts.jsonl"
            data.write_text("".join(json.dumps({"prompt": p}) + "\n" for p in prompts), encoding="utf-8")
            result = Path(scratch) / "result.json"
            arguments = bench_arguments(endpoint, data, result, len(prompts), workload)
            self._worker.ask({"arguments": arguments, "token": endpoint.token}, self._limit_s(len(prompts), workload))
            try:
                loaded = json.loads(result.read_text(encoding="utf-8"))
            except FileNotFoundError as error:
                raise MpctlError("vllm bench serve ended without a result", hint=self._worker.last_lines) from error
            except ValueError as error:
                raise MpctlError(f"vllm bench serve's result is not JSON: {error}") from error
            if not isinstance(loaded, dict):
                raise MpctlError(f"vllm bench serve's result is no JSON object but a {type(loaded).__name__}")
            return loaded

    def _limit_s(self, count: int, workload: Workload) -> float:
        """How long a block may take: more work may take longer."""
        return self._timeout_s + count * workload.max_tokens * _SLOWEST_TOKEN_S / workload.concurrency


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
        self._reader = threading.Thread(target=self._keep_tail, args=(self._process.stderr,), daemon=True)
        self._reader.start()

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
        try:
            answer = json.loads(line) if line else {"error": f"it ended, or gave no answer in {timeout_s:.0f} s"}
        except ValueError:
            answer = {"error": f"it answered what is not JSON: {line.rstrip()[:300]}"}
        if not isinstance(answer, dict) or "error" in answer:
            why = answer["error"] if isinstance(answer, dict) else f"it answered {line.rstrip()[:300]}"
            raise MpctlError(f"vllm bench serve failed: {why}", hint=self.last_lines)

    @property
    def last_lines(self) -> str:
        return "its last lines:\n" + "\n".join(tuple(self._tail))

    def close(self) -> None:
        """Closed input tells it to end. Its output is read until then, or it could block on a full pipe, and closing
        a stream that another thread reads would wait for that thread."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=5.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(timeout=1.0)  # ends with the pipe, unless a child of the client still holds it
        if self._process.stdout is not None:
            with suppress(OSError):
                self._process.stdout.close()
        if self._process.stderr is not None and not self._reader.is_alive():
            with suppress(OSError):
                self._process.stderr.close()
