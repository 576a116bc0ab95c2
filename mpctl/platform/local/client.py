"""``vllm bench serve`` of the engine's version, as a warm process on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from mpctl import bounded
from mpctl.errors import MpctlError
from mpctl.experiment.calibration import Pace
from mpctl.experiment.counters import Counters
from mpctl.manifest import masked
from mpctl.platform import http
from mpctl.platform.load import PACED, WORKER, PacedServer, bench_arguments, limit_s
from mpctl.platform.local.engine import DEFAULT_ENV
from mpctl.platform.local.processes import STATE_VARIABLE
from mpctl.platform.local.state_files import private_folder, remove_abandoned_folders, state_root
from mpctl.rollout.ports import Endpoint, LoadOrder, SentBlock

_SAMPLES_S = 600.0
WITHOUT = "--no-calibrate measures without"


class BenchClient:
    """The client's process and what it is asked. Close it to end the process; it also ends with us.

    ``python``: the interpreter of the engine's environment; ``cwd``: what relative paths of models start from.
    """

    def __init__(self, python: str, cwd: str) -> None:
        self._python = python
        self._cwd = cwd
        self._worker: _Worker | None = None

    def prepare(self) -> None:
        """Start loading the client, which takes as long as starting an engine.

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

    def close(self) -> str:
        """End the process; nothing of it is left, nor of one that was killed with its command."""
        remove_abandoned_folders()
        if self._worker is not None:
            self._worker.close()
            self._worker = None
        return ""

    def send(self, endpoint: Endpoint, order: LoadOrder, counters: Callable[[], Counters] | None) -> SentBlock:
        before = counters() if counters else Counters()
        result = self.run(endpoint, order)
        return SentBlock(result, before, counters() if counters else Counters())

    @contextmanager
    def paced(self, pace: Pace) -> Iterator[PacedServer]:
        def truth() -> list[dict[str, float]]:
            try:
                times = http.get(f"{endpoint.base_url}/truth").json()
            except (http.NoAnswer, ValueError) as error:
                raise MpctlError(f"the server of known timing: {error}", hint=WITHOUT) from error
            return times if isinstance(times, list) else []

        command = [sys.executable, str(PACED), pace.to_line()]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/") as server:
            assert server.stdout is not None
            assert server.stdin is not None
            try:
                port = server.stdout.readline().strip()
                if not port.isdecimal():
                    raise MpctlError("the server of known timing did not start", hint=WITHOUT)
                endpoint = Endpoint(f"http://127.0.0.1:{port}", "paced", tokenizer="")
                yield PacedServer(endpoint, truth)
            finally:
                server.stdin.close()

    def run(self, endpoint: Endpoint, order: LoadOrder) -> dict[str, Any]:
        """Send a block; the client's own JSON.

        Raises:
            MpctlError: the client failed; its last lines are in the message.
        """
        with _scratch("a block could not be sent") as scratch:
            data = scratch / "prompts.jsonl"
            data.write_text("".join(json.dumps({"prompt": p}) + "\n" for p in order.prompts), encoding="utf-8")
            result = scratch / "result.json"
            arguments = bench_arguments(endpoint, data, result, order)
            port = urlsplit(endpoint.base_url).port if endpoint.same_user else None
            request = {"arguments": arguments, "token": endpoint.token, "same_user_port": port}
            loaded = self._ask(request, limit_s(order), result)
            if not isinstance(loaded, dict):
                raise MpctlError(f"vllm bench serve's result is no JSON object but a {type(loaded).__name__}")
            return loaded

    def prompts_of(self, dataset: str, path: str, tokenizer: str, count: int) -> tuple[str, ...]:
        """``count`` prompts of a data set that the client can read, as it would send them.

        ``dataset``: a value of ``--dataset-name``; ``path``: of ``--dataset-path``, for ``hf`` also
        ``REPOSITORY@DIRECTORY``, a copy on this machine.

        Raises:
            MpctlError: the client cannot read it, or it holds no prompts.
        """
        name, _, directory = path.partition("@") if dataset == "hf" else ("", "", path)
        options = {
            "dataset-name": dataset,
            "dataset-path": directory or name,
            "tokenizer": tokenizer,
            "num-prompts": str(count),
            "seed": "0",
            **({"hf-name": name} if directory and name else {}),
        }
        switches = ["--skip-chat-template", "--no-oversample"]
        with _scratch("a data set could not be read") as scratch:
            result = scratch / "prompts.json"
            arguments = [f"--{name}={value}" for name, value in options.items()] + switches
            loaded = self._ask({"samples": arguments, "result": str(result), "token": None}, _SAMPLES_S, result)
        prompts = tuple(p for p in loaded if isinstance(p, str) and p) if isinstance(loaded, list) else ()
        if not prompts:
            raise MpctlError(f"the data set {dataset} {path} holds no prompts that are plain text")
        return prompts

    def _ask(self, request: dict[str, Any], limit_s: float, result: Path) -> Any:
        self.prepare()
        assert self._worker is not None
        self._worker.ask(request, limit_s)
        try:
            return bounded.loads(result.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise MpctlError("vllm bench serve ended without a result", hint=self._worker.last_lines) from error
        except ValueError as error:
            raise MpctlError(f"vllm bench serve's result is not JSON: {error}") from error


@contextmanager
def _scratch(failed: str) -> Iterator[Path]:
    try:
        with private_folder() as folder:
            yield folder
    except OSError as error:
        raise MpctlError(f"{failed}: {error}", hint=f"is the disk full, or {state_root()} read-only") from error


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
            answer = bounded.loads(line) if line else {"error": f"it ended, or gave no answer in {timeout_s:.0f} s"}
        except ValueError:
            answer = {"error": f"it answered what is not JSON: {line.rstrip()[:300]}"}
        if not isinstance(answer, dict) or "error" in answer:
            why = answer["error"] if isinstance(answer, dict) else f"it answered {line.rstrip()[:300]}"
            raise MpctlError(f"vllm bench serve failed: {why}", hint=self.last_lines)

    @property
    def last_lines(self) -> str:
        return "its last lines:\n" + masked("\n".join(tuple(self._tail)))

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
