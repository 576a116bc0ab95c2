"""``mpctl bench run``: measure one or two arms without changing what serves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

import click

from mpctl import commands
from mpctl.cli.bench.result import emit_measurement
from mpctl.cli.context import CliContext
from mpctl.cli.options.measurement import MeasurementOptions, measurement_options, measurement_request
from mpctl.cli.options.sections import SectionedCommand
from mpctl.cli.options.shared import name_argument, output_option, shared_options, timeout_option
from mpctl.cli.options.speculation import SpeculationOptions, change_options, speculation_request
from mpctl.cli.options.types import File, option
from mpctl.cli.settings import in_context
from mpctl.errors import InputError

if TYPE_CHECKING:
    from mpctl.app.requests import BenchRequest, TuneRequest


class BenchOptions(SpeculationOptions, MeasurementOptions):
    """The options as click hands them over."""

    candidate: str | None
    url: str | None
    candidate_url: str | None
    model: str | None
    vllm: str | None
    run_file: str | None
    timeout: float
    tune: bool
    write_spec: str | None


@click.command("run", cls=SectionedCommand)
@name_argument
@option("--candidate", section="Arms", metavar="SERVICE", help="Service to measure as the candidate (default: none).")
@option("--url", section="Arms", metavar="URL", help="vLLM server to measure instead of a service.")
@option("--candidate-url", section="Arms", metavar="URL", help="vLLM server to measure as the candidate, with --url.")
@option("--model", section="Arms", metavar="NAME", help="Model of --url (default: the first that the server lists).")
@option(
    "--vllm",
    section="Arms",
    metavar="COMMAND",
    help="vllm command, or its python, that sends the load to --url (default: this environment's).",
)
@change_options(required=False)
@measurement_options
@option(
    "--run",
    "run_file",
    section="Output",
    type=File(),
    metavar="FILE",
    help="File for the measurement (default: bench-ID.json.gz in this directory).",
)
@option(
    "--tune",
    section="Search",
    is_flag=True,
    help="Search the fastest method, K, lookup window and schedule, within --max-time.",
)
@option(
    "--write-spec",
    section="Search",
    type=File(),
    metavar="FILE",
    help="File for the best, for 'rollout --spec @FILE' (default: bench-ID.spec.json).",
)
@timeout_option("10m")
@output_option
@shared_options
@in_context
def command(context: CliContext, /, name: str | None, **given: Unpack[BenchOptions]) -> None:
    """Measure a service as it serves, or two arms on the same prompts in alternating blocks.

    \b
    Examples:
      mpctl bench --concurrency 1,8,32
      mpctl bench qwen --spec ngram --prompts edits --prompts chat
      mpctl bench qwen --candidate qwen-eagle3
      mpctl bench --url http://a:8000 --candidate-url http://b:8000 --rate 4
      mpctl bench qwen --tune --max-time 1h --prompts traffic.jsonl --concurrency 1,16
      mpctl bench qwen --tune --spec ngram,eagle3 --write-spec best.json

    With --spec, an engine with that speculation runs side by side with the serving one during the measurement; users'
    traffic does not reach it. Killed at any point, the same command continues. The variable OPENAI_API_KEY holds the
    API key for --url.

    --tune starts one engine after the other side by side with the serving one and measures the better ones longer. Exit
    code 0: the gate would promote the best, 5: none is better than what serves, 6: undecided.
    """
    if given["tune"]:
        _tune(context, tune_request(name, given))
        return
    request = bench_request(name, given)
    from mpctl.app.bench.measure import bench

    measured = bench(context.place, context.terminal, request)
    emit_measurement(context, measured.run, measured.analysis, measured.verdict, measured.file)
    terminal = context.terminal
    terminal.note(f"measured {measured.rounds} rounds ({measured.ended}); written to {measured.file}")
    if measured.verdict is not None:
        outcome = measured.verdict.outcome
        terminal.note("gate is undecided" if outcome == "undecided" else f"gate would {outcome.value} the candidate")
    terminal.next_command(commands.line("report", str(measured.file)))


def _tune(context: CliContext, request: TuneRequest) -> None:
    from mpctl.app.tune.tune import tune
    from mpctl.cli.bench.tuned import conclude

    session = context.open_session(request.bench.service)
    conclude(context, session, tune(session, request))


def tune_request(name: str | None, given: BenchOptions) -> TuneRequest:
    """The request of a search.

    Raises:
        InputError: an option has no place in it.
    """
    from mpctl.app.requests import BenchRequest, TuneRequest

    for flag, value in (("--candidate", given["candidate"]), ("--url", given["url"])):
        if value:
            raise InputError("cannot be combined with --tune, which starts the engines itself", field=flag)
    if given["detect"] is not None:
        raise InputError("cannot be combined with --tune, whose stages have rounds of their own", field="--detect")
    methods = tuple(word.strip() for word in (given["spec"] or "all").split(",") if word.strip())
    without: BenchOptions = {**given, "spec": None}
    bench = BenchRequest(
        service=name,
        measurement=measurement_request(given),
        run_file=given["run_file"],
        ready_timeout_s=given["timeout"],
    )
    return TuneRequest(methods, speculation_request(without), bench, given["write_spec"])


def bench_request(name: str | None, given: BenchOptions) -> BenchRequest:
    """Return the request of a command line.

    Raises:
        InputError: two options exclude each other, or one lacks another.
    """
    from mpctl.app.requests import BenchRequest, ServersRequest

    _check(name, given)
    if given["write_spec"]:
        raise InputError("needs --tune", field="--write-spec")
    url, spec = given["url"], given["spec"]
    return BenchRequest(
        service=name,
        candidate=given["candidate"],
        speculation=speculation_request(given) if spec else None,
        servers=ServersRequest(url, given["candidate_url"], given["model"], given["vllm"]) if url else None,
        measurement=measurement_request(given),
        run_file=given["run_file"],
        ready_timeout_s=given["timeout"],
    )


def _check(name: str | None, given: BenchOptions) -> None:
    candidates = {"--spec": given["spec"], "--candidate": given["candidate"], "--candidate-url": given["candidate_url"]}
    flags = [flag for flag, value in candidates.items() if value]
    if len(flags) > 1:
        raise InputError(f"cannot be combined with {flags[0]}", field=flags[1])
    if given["url"] is None:
        for flag, value in (("--candidate-url", given["candidate_url"]), ("--model", given["model"])):
            if value:
                raise InputError("needs --url", field=flag)
        return
    for flag in ("--spec", "--candidate"):
        if candidates[flag]:
            raise InputError("cannot be combined with --url", field=flag)
    if name:
        raise InputError(f"cannot be combined with the service {name}", field="--url")
