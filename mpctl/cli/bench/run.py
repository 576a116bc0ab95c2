"""Measurements that change nothing: ``mpctl bench run`` and ``mpctl bench compare``."""

from __future__ import annotations

import click

from mpctl import annex
from mpctl.app.bench_requests import BenchRequest, CompareRequest
from mpctl.app.option import File, Option
from mpctl.cli.command import MEASUREMENT, OUTPUT, command, service_argument
from mpctl.cli.context import CliContext
from mpctl.errors import InputError

_SEARCH = (
    Option(
        "--tune",
        section="Search",
        type=bool,
        help="Search the fastest method, K, lookup window and schedule, within --max-time.",
    ),
    Option(
        "--write-spec",
        section="Search",
        type=File,
        help="File for the best, for 'rollout --spec @FILE' (default: bench-ID.spec.json).",
    ),
)


@command(
    "run",
    service_argument("service"),
    MEASUREMENT,
    BenchRequest,
    *_SEARCH,
    OUTPUT,
    common="spec candidate url prompts concurrency max-time tune run output",
)
def run(
    context: CliContext, /, request: BenchRequest, *, tune: bool, write_spec: str | None
) -> None:
    """Measure a service as it serves, or two arms on the same prompts in alternating blocks.

    \b
    Examples:
      mpctl bench --concurrency 1,8,32
      mpctl bench qwen --candidate qwen-eagle3
      mpctl bench --url http://a:8000 --candidate-url http://b:8000
      mpctl bench qwen --spec eagle3 --measurement measurement.yaml
      mpctl bench qwen --tune --spec ngram,eagle3 --max-time 1h

    With --spec or --tune, engines with speculation run side by side with the serving one; users' traffic does not reach
    them. Interrupted, the same command continues. OPENAI_API_KEY holds the API key for --url. Exit code of --tune: 0
    the gate would promote the best, 5 none is better than what serves, 6 undecided.
    """
    if tune:
        annex.need("search")(context, request, write_spec)
        return
    _check(request)
    if write_spec:
        raise InputError("needs --tune", field="--write-spec")
    from mpctl.app.bench.measure import bench
    from mpctl.cli.bench.bench_result import print_bench

    print_bench(context, bench(context.place, context.terminal, request), request.price_per_hour)


_EXCLUDED = (
    "--spec --candidate",
    "--spec --candidate-url",
    "--candidate --candidate-url",
    "--url --spec",
    "--url --candidate",
)
_NEEDED = {
    "--set": "--spec",
    "--spec-config": "--spec",
    "--candidate-url": "--url",
    "--model": "--url",
}


def _check(request: BenchRequest) -> None:
    """Refuse options that exclude each other, and one that lacks another."""
    servers, speculation = request.servers, request.speculation
    typed = {
        "--url": servers.url,
        "--spec": speculation.method,
        "--candidate": request.candidate,
        "--candidate-url": servers.candidate_url,
        "--set": speculation.settings,
        "--spec-config": speculation.config,
        "--model": servers.model,
    }
    for first, second in map(str.split, _EXCLUDED):
        if typed[first] and typed[second]:
            raise InputError(f"cannot be combined with {first}", field=second)
    for flag, needed in _NEEDED.items():
        if typed[flag] and not typed[needed]:
            raise InputError(f"needs {needed}", field=flag)
    if servers.url and request.service:
        raise InputError(f"cannot be combined with the service {request.service}", field="--url")


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

    ARM is baseline or candidate (default: the only arm, else the candidate). The first one is the baseline of the
    comparison. Exit code 0: the gate would promote, 5: reject, 6: undecided, 2: they cannot be compared.
    """
    from mpctl.app.bench.recorded import compare as judge
    from mpctl.cli.bench.bench_result import print_comparison

    print_comparison(context, judge(request))
