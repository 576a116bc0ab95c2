"""``mpctl bench run``: one or two arms measured, nothing that serves is changed."""

from __future__ import annotations

from typing import Any

import click

from mpctl.cli.options.measurement import measurement_options
from mpctl.cli.options.sections import SectionedCommand
from mpctl.cli.options.shared import name_argument, output_option, shared_options, timeout_option
from mpctl.cli.options.speculation import change_options
from mpctl.cli.options.types import File, option
from mpctl.cli.settings import Settings, configure
from mpctl.errors import InputError


@click.command("run", cls=SectionedCommand)
@name_argument
@change_options(required=False)
@option("--candidate", metavar="SERVICE", help="Measure this service as the candidate.")
@option("--url", metavar="URL", help="Measure this server; no service of mpctl is needed.")
@option("--candidate-url", metavar="URL", help="Measure this server as the candidate.")
@option("--model", metavar="NAME", help="Model name in requests to --url; default: the first the server lists.")
@option("--vllm", metavar="COMMAND", help="vllm command or its python that sends the load to --url.")
@measurement_options
@option(
    "--run", "file", type=File(), metavar="FILE", help="Where the measurement goes; default: bench-ID.json.gz here."
)
@timeout_option("10m")
@output_option
@shared_options
@click.pass_context
def command(ctx: click.Context, /, name: str | None, **options: Any) -> None:
    """Measure a service as it serves, or two arms on the same prompts in alternating blocks.

    With --spec an engine with that speculation is started beside the serving one, gets no traffic but ours, and is
    stopped at the end. Killed at any point, the same command goes on where it was. An API key for --url is read from
    the variable OPENAI_API_KEY.

    \b
    Examples:
      mpctl bench --concurrency 1,8,32
      mpctl bench qwen --spec ngram --prompts edits --prompts chat
      mpctl bench --url http://a:8000 --candidate-url http://b:8000 --rate 4
    """
    context = configure(ctx, options)
    settings = Settings(context.place, context.terminal)
    _check(name, options)
    from mpctl.cli.bench.targets import open_targets
    from mpctl.cli.bench.work import carry_out

    with open_targets(settings, name, options) as targets:
        carry_out(context, targets, options)


def _check(name: str | None, options: dict[str, Any]) -> None:
    """Refuse options that exclude each other, by name."""
    second = [f"--{o.replace('_', '-')}" for o in ("spec", "candidate", "candidate_url") if options[o]]
    if len(second) > 1:
        raise InputError(f"cannot be combined with {second[0]}", field=second[1])
    for needing in ("candidate_url", "model"):
        if options[needing] and not options["url"]:
            raise InputError("needs --url", field=f"--{needing.replace('_', '-')}")
    if options["url"]:
        for wrong in ("spec", "candidate"):
            if options[wrong]:
                raise InputError("cannot be combined with --url", field=f"--{wrong}")
        if name:
            raise InputError(f"cannot be combined with the service {name}", field="--url")
