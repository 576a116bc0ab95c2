"""A real vLLM and a real Prometheus on loopback, for the length of a ``with`` block."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import yaml

from mpctl.errors import Refused
from mpctl.local.engine import ENGINE_MAIN, python_of

from . import tiny_model

SLOTS = 4
ENGINE_START = 240.0  # 45-75 s on an idle pair of cores, four times that when they are shared


def engine_python() -> str:
    """The interpreter that has vLLM, found as the local platform finds it."""
    try:
        return python_of(os.environ.get("MPCTL_VLLM"))
    except Refused as error:
        pytest.skip(f"{error.message}: {error.hint}, or set MPCTL_VLLM")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def server(command: list[str], log: Path, ready: str, timeout: float, **env: str) -> Iterator[None]:
    """Runs ``command`` in a process group of its own until the block ends; waits until ``ready`` answers 200."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, **env},
            start_new_session=True,
        )
    try:
        wait_until_ready(process, ready, log, timeout)
        yield
    finally:
        stop(process)


def wait_until_ready(process: subprocess.Popen[bytes], url: str, log: Path, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise AssertionError(
                f"exit {process.returncode}:\n{log.read_text(errors='replace')[-3000:]}"
            )
        try:
            if httpx.get(url, timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.5)
    raise AssertionError(
        f"not ready after {timeout:.0f} s:\n{log.read_text(errors='replace')[-3000:]}"
    )


def stop(process: subprocess.Popen[bytes]) -> None:
    for sent, patience in ((signal.SIGTERM, 15), (signal.SIGKILL, 5)):
        try:
            os.killpg(process.pid, sent)
        except ProcessLookupError:
            break
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            continue
    process.wait(5)


@contextmanager
def engine(folder: Path) -> Iterator[str]:
    """The base URL of a vLLM that runs at most SLOTS requests at once."""
    python, port = engine_python(), free_port()
    model = tiny_model.write(folder / "model")
    command = [
        python, str(ENGINE_MAIN), "serve", str(model), "--served-model-name", "tiny",
        "--host", "127.0.0.1", "--port", str(port),
        "--load-format", "dummy", "--enforce-eager", "--max-num-seqs", str(SLOTS), "--max-model-len", "131072",
        "--enable-per-request-metrics",
    ]  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    quiet = {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    small = {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "OMP_NUM_THREADS": "1",
        "VLLM_CACHE_ROOT": str(folder / "cache"),
    }
    fields = {
        "MPCTL_STATE_DIR": str(folder / "state")
    }  # where the wrapper keeps what it adds to the engine
    with server(
        command, folder / "engine.log", f"{url}/health", ENGINE_START, **quiet, **small, **fields
    ):
        yield url


@contextmanager
def prometheus(binary: str, rules: Path, target: str, folder: Path) -> Iterator[str]:
    """The base URL of a Prometheus that evaluates ``rules`` over ``target``, labelled as the PodMonitor would."""
    port = free_port()
    labels = {"namespace": "inference", "inference_service": "llm", "pod": "llm-predictor-0"}
    config = {
        "scrape_configs": [
            {
                "job_name": "engine",
                "scrape_interval": "1s",
                "scrape_timeout": "1s",
                "static_configs": [{"targets": [target.removeprefix("http://")], "labels": labels}],
            }
        ],
        "rule_files": [str(rules)],
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    command = [
        binary, f"--config.file={folder / 'prometheus.yaml'}", f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    with server(command, folder / "prometheus.log", f"{url}/-/ready", 60):
        yield url
