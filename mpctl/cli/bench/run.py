"""Measurements that change nothing: ``mpctl bench run`` and ``mpctl bench compare``."""

from __future__ import annotations

import click

from mpctl import annex
from mpctl.app.bench_requests import BenchRequest, CompareRequest
from mpctl.app.option import Option
from mpctl.cli.command import MEASUREMENT, OUTPUT, command, service_argument
from mpctl.cli.context import CliContext
from mpctl.errors import InputError

_SEARCH = Option(
    "--tune",
    section="Search",
    type=bool,
    help="Search the fastest method, K, lookup window and schedule, within --max-time.",
)


@command(
    "run",
    service_argument("service"),
    MEASUREMENT,
    BenchRequest,
    _SEARCH,
    OUTPUT,
    common="spec candidate url prompts concurrency max-time tune run output",
    many=True,
)
def run(context: CliContext, /, request: BenchRequest, *, tune: bool) -> None:
    """Measure a service as it serves, or two arms on the same prompts in alternating blocks.

    \b
    Examples:
      mpctl bench --concurrency 1,8,32
      mpctl bench qwen --candidate qwen-eagle3
      mpctl bench --url http://a:8000 --candidate http://b:8000
      mpctl bench qwen --spec eagle3 --measurement measurement.yaml
      mpctl bench qwen --tune --spec ngram,eagle3 --max-time 1h

    With --spec or --tune, engines with speculation run side by side with the serving one; users' traffic does not reach
    them. Interrupted, the same command continues. OPENAI_API_KEY holds the API key for --url. --tune writes the best
    next to the measurement, with the ending .spec.json, for rollout --spec @FILE. Its exit code: 0 the gate would
    promote the best, 5 none is better than what serves, 6 undecided.
    """
    if tune:
        annex.need("search")(context, request)
        return
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
