"""Load and counters of an engine this machine can reach: the load client wherever it runs, /metrics and one real
completion over HTTP; device and model of this machine, which are recorded with every measurement.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

from mpctl.errors import MpctlError
from mpctl.experiment.calibration import Pace, calibrate, requests_for
from mpctl.experiment.cell import Cell
from mpctl.experiment.counters import CounterError, Counters
from mpctl.experiment.prompt_files import text_of
from mpctl.experiment.run import Calibration
from mpctl.json_types import Json
from mpctl.platform import answers, http
from mpctl.platform.load import LoadClient
from mpctl.rollout.ports import Endpoint, EngineFacts, LoadOrder, SentBlock
from mpctl.safe_text import conceal

_WHOLE_BYTES = (
    64 * 2**20
)  # larger files are told by size, first and last MiB, or a digest would take minutes
_PART_BYTES = 2**20


def device() -> str:
    """The GPUs as nvidia-smi names them, else the CPU model and its cores: ``2 x NVIDIA L4``, ``AMD EPYC 7B13, 8
    cores``."""
    names = _gpus()
    if names:
        return ", ".join(
            f"{names.count(n)} x {n}" if names.count(n) > 1 else n for n in dict.fromkeys(names)
        )
    try:
        model = re.search(
            r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE
        )
    except OSError:
        model = None
    name = model[1].strip() if model else os.uname().machine
    return f"{name}, {len(os.sched_getaffinity(0))} cores"


def _gpus() -> list[str]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    try:
        done = subprocess.run(
            [program, "--query-gpu=name", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]


def model_digest(model: str, cwd: str) -> str:
    """sha256 over a directory's files (name, size, content; of large ones the ends), or the commit of a repository in
    the Hugging Face cache; empty for what is neither."""
    directory = Path(cwd) / Path(model).expanduser()
    if directory.is_dir():
        total = hashlib.sha256()
        for path in sorted(p for p in directory.rglob("*") if p.is_file()):
            size = path.stat().st_size
            total.update(f"{path.relative_to(directory)} {size} ".encode())
            total.update(_content(path, size))
        return total.hexdigest()
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    hub = Path(os.environ.get("HF_HUB_CACHE") or home / "hub")
    main = hub / f"models--{model.replace('/', '--')}" / "refs" / "main"
    return main.read_text().strip() if main.is_file() else ""


def _content(path: Path, size: int) -> bytes:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        if size <= _WHOLE_BYTES:
            while chunk := file.read(_PART_BYTES):
                digest.update(chunk)
        else:
            digest.update(file.read(_PART_BYTES))
            file.seek(-_PART_BYTES, os.SEEK_END)
            digest.update(file.read(_PART_BYTES))
    return digest.digest()


_COMPLETION_S = 120.0  # of four tokens, also on a busy engine
_READ_LOG = "read the engine's log"
_CACHE = re.compile(r"^vllm:cache_config_info\{(.*)\}", re.MULTILINE)
_NUMBERED = re.compile(r'(\w+)="(\d+)"')
# A hit is a multiple of each of them, whichever layers the model has, unless a finer unit is named (vLLM 0.32).
_UNITS = ("block_size", "mamba_block_size")
_FINE = ("cache_hit_alignment_tokens", "prefix_match_unit")
# Layers other than attention keep their state where prompts end. The labels are of vLLM 0.32; without one of them more
# is expected than such a model keeps.
_SPARSE = ('mamba_cache_mode="align"', 'prefix_cache_retention_interval="0"')


class HttpMeter:
    """Implements ``mpctl.rollout.ports.Meter``. Close it to end its client.

    ``cwd``: what relative paths of models start from. ``forwarded``: a loopback address leads to an engine elsewhere,
    so this machine's device and files are not its own.
    """

    def __init__(self, client: LoadClient, cwd: str, *, forwarded: bool = False) -> None:
        self.client = client
        self._cwd = cwd
        self._forwarded = forwarded
        self._prompts: set[str] = set()

    def prepare(self) -> None:
        self.client.prepare()

    def close(self) -> str:
        return self.client.close()

    def complete(self, endpoint: Endpoint) -> None:
        """Request one short chat completion.

        Raises:
            MpctlError: no answer, or one without content tokens.
        """
        body = {
            "model": endpoint.model,
            "messages": [{"role": "user", "content": "Say something"}],
            "max_tokens": 4,
            "temperature": 0,
        }
        url = f"{endpoint.base_url}/v1/chat/completions"
        try:
            answer = http.request(
                "POST",
                url,
                json=body,
                headers=_headers(endpoint),
                seconds=_COMPLETION_S,
                socket=_socket(endpoint),
            )
        except http.NoAnswer as error:
            raise MpctlError(error.message, hint=_READ_LOG) from error
        if answer.status != 200:
            raise MpctlError(f"{url} answered {answer.status}: {answer.text[:300]}", hint=_READ_LOG)
        try:
            completion = answer.json()
        except ValueError as error:
            raise MpctlError(
                f"{url}: the answer is not JSON: {answer.text[:300]}", hint=_READ_LOG
            ) from error
        usage = completion.get("usage") if isinstance(completion, dict) else None
        if not isinstance(usage, dict) or not usage.get("completion_tokens"):
            raise MpctlError(f"{url} answered without a single token", hint=_READ_LOG)

    def counters(self, endpoint: Endpoint) -> Counters:
        """Scrape /metrics.

        Raises:
            CounterError: no answer, or one that cannot be read.
        """
        return read_counters(endpoint)

    def describe(self, endpoint: Endpoint, draft: str | None = None) -> EngineFacts:
        """Version, model and KV pool as the engine tells them; device and digests only where the engine runs on this
        machine.

        Raises:
            CounterError: /metrics does not answer.
        """
        model = next(iter(served_models(endpoint).values()), {})
        root, context = model.get("root"), model.get("max_model_len")
        metrics = _metrics(endpoint)
        line = _CACHE.search(metrics)
        # What the configuration of the engine's KV cache says in whole numbers, by name.
        labels = line[1] if line else ""
        cache = {name: int(value) for name, value in _NUMBERED.findall(labels)}
        fine = next((cache[name] for name in _FINE if name in cache), None)
        counters, here = Counters.parse(metrics), is_here(endpoint) and not self._forwarded
        return EngineFacts(
            engine_version=release_of(endpoint),
            model=str(root or endpoint.model),
            device=device() if here else "",
            model_digest=model_digest(str(root), self._cwd) if root and here else "",
            kv_pool_tokens=cache.get("kv_cache_size_tokens"),
            served_tokens=counters.generation_tokens,
            context_tokens=context if isinstance(context, int) else None,
            draft_digest=model_digest(draft, self._cwd) if draft and here else "",
            cache_unit=fine or max((cache[name] for name in _UNITS if name in cache), default=None),
            cache_sparse=fine is None and all(label in labels for label in _SPARSE),
            started=counters.started_at,
            cache_use=counters.cache_use,
        )

    def send(self, endpoint: Endpoint, order: LoadOrder) -> SentBlock:
        self._prompts.update(map(text_of, order.prompts))
        try:
            return self.client.send(endpoint, order, lambda: self.counters(endpoint))
        except (
            MpctlError
        ) as error:  # its text is recorded, and a client's last lines may quote what it sent
            conceal(error, self._prompts)
            raise

    ask = staticmethod(answers.ask)
    score = staticmethod(answers.score)
    tokenize = staticmethod(answers.tokenize)

    def calibrate(self, concurrency: int) -> Calibration:
        """Measure a server of known timing, where the client is, with the client that measures the engines.

        Raises:
            MpctlError: the server or the client failed, or the client counts tokens wrong.
        """
        pace = Pace()
        count = requests_for(concurrency, pace)
        prompts = tuple(f"request {number}" for number in range(count))
        warm = tuple(f"warm up {-number}" for number in range(1, 1 + min(count, 2 * concurrency)))
        cell = Cell("calibration", concurrency)
        with self.client.paced(pace) as server:
            self.client.send(server.endpoint, LoadOrder(warm, cell, pace.tokens), None)
            sent = self.client.send(server.endpoint, LoadOrder(prompts, cell, pace.tokens), None)
            truth = [record for record in server.truth() if record["number"] >= 0]
        return calibrate(sent.result, truth, pace, concurrency)


def served_models(endpoint: Endpoint) -> dict[str, Json]:
    """The records of the models that an engine lists, by the names that requests carry; an adapter has a parent."""
    listed = _get_json(endpoint, "/v1/models").get("data")
    records = listed if isinstance(listed, list) else []
    return {str(record.get("id")): record for record in records if isinstance(record, dict)}


def release_of(endpoint: Endpoint) -> str:
    """Return the engine's release as it answers; empty without an answer."""
    return str(_get_json(endpoint, "/version").get("version") or "")


def read_counters(endpoint: Endpoint) -> Counters:
    """Scrape /metrics.

    Raises:
        CounterError: no answer, or one that cannot be read.
    """
    return Counters.parse(_metrics(endpoint))


def _metrics(endpoint: Endpoint) -> str:
    try:
        return http.metrics(endpoint.base_url, headers=_headers(endpoint), socket=_socket(endpoint))
    except http.NoAnswer as error:
        raise CounterError(error.message) from error


def is_here(endpoint: Endpoint) -> bool:
    """Return whether the endpoint is on this machine's loopback."""
    return urlsplit(endpoint.base_url).hostname in ("127.0.0.1", "localhost", "::1")


def _headers(endpoint: Endpoint) -> dict[str, str]:
    return {"Authorization": f"Bearer {endpoint.token}"} if endpoint.token else {}


def _socket(endpoint: Endpoint) -> str | None:
    return http.SAME_USER if endpoint.same_user else endpoint.socket


def _get_json(endpoint: Endpoint, path: str) -> Json:
    """Return a JSON object from the engine; empty without one, since it decides nothing."""
    try:
        answer = http.get(
            f"{endpoint.base_url}{path}", headers=_headers(endpoint), socket=_socket(endpoint)
        )
        record = answer.json() if answer.status == 200 else {}
    except (http.NoAnswer, ValueError):
        return {}
    return record if isinstance(record, dict) else {}
