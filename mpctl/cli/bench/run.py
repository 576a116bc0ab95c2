"""Measurements that change nothing: ``mpctl bench run`` and ``mpctl bench compare``."""

from __future__ import annotations

import click

from mpctl import annex
from mpctl.app.bench_requests import BenchRequest, CompareRequest
from mpctl.cli.command import MEASUREMENT, OUTPUT, command, service_argument
from mpctl.cli.context import CliContext
from mpctl.errors import InputError


@command(
    "run",
    service_argument("service"),
    MEASUREMENT,
    BenchRequest,
    OUTPUT,
    common="spec candidate url prompts concurrency max-time run output",
    many=True,
)
def run(context: CliContext, /, request: BenchRequest) -> None:
    """Measure a service as it serves, or two arms on the same prompts in alternating blocks.

    \b
    Examples:
      mpctl bench --concurrency 1,8,32
      mpctl bench qwen --candidate qwen-eagle3
      mpctl bench --url http://a:8000 --candidate http://b:8000
      mpctl bench qwen --spec eagle3 --measurement measurement.yaml
      mpctl bench qwen --spec ngram --set num_speculative_tokens=3

    With --spec, an engine with speculation runs side by side with the serving one; users' traffic does not reach it.
    Interrupted, the same command continues. OPENAI_API_KEY holds the API key for --url.
    """
    from mpctl.app.bench.measure import bench
    from mpctl.cli.bench.bench_result import print_bench

    print_bench(context, bench(context.place, context.terminal, request), request.price_per_hour)


_RUNS = (
    click.Argument(["first"], metavar="RUN[:ARM]"),
    click.Argument(["second"], metavar="[RUN[:ARM]]", required=False),
)


@command("compare", *_RUNS, CompareRequest, OUTPUT)
def compare(context: CliContext, /, request: CompareRequest) -> None:
    """Compare two measurements, or the two arms of one, computed again from their raw samples.

    \b
    Examples:
      mpctl bench compare friday.json.gz                         its two arms
      mpctl bench compare monday.json.gz friday.json.gz          one candidate against the other
      mpctl bench compare monday.json.gz:baseline friday.json.gz:baseline
      mpctl bench compare vllm-1.json vllm-2.json

    ARM is baseline or candidate (default: the only arm, else the candidate). The first one is the baseline of the
    comparison. Exit code 0: the gate would promote, 5: reject, 6: undecided, 2: they cannot be compared. Result files
    of vllm bench serve, AIPerf and GuideLLM are shown side by side; no verdict follows from them (exit code 6).
    """
    from mpctl.app.bench.recorded import compare as judge
    from mpctl.cli.bench.bench_result import print_comparison

    try:
        compared = judge(request)
    except InputError:
        compare_foreign = annex.find("compare-foreign")
        if compare_foreign is None or not compare_foreign(context, request):
            raise
        return
    print_comparison(context, compared)
