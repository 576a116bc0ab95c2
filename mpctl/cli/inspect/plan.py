"""``mpctl plan``: will speculation pay, before anything is started."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Unpack

import click

from mpctl.cli.context import CliContext
from mpctl.cli.options.sections import SectionedCommand
from mpctl.cli.options.shared import file_option, name_argument, own_output_option, shared_options
from mpctl.cli.options.speculation import SpeculationOptions, change_options, speculation_request
from mpctl.cli.options.types import AboveZero, File, Numbers, Word, option
from mpctl.cli.printer import columns, document, page, page_width
from mpctl.cli.settings import in_context
from mpctl.errors import InputError

if TYPE_CHECKING:
    from mpctl.app.requests import PlanRequest

_LOAD: dict[str, Any] = {"section": "Traffic"}
_EVIDENCE: dict[str, Any] = {"section": "Measurement"}
_WIDTH = 100  # of a plan that goes to a file, and at most
_CLASSES = ("code", "chat", "math", "summary")  # estimate.payoff.cell.CLASSES, which takes long to load


class PlanOptions(SpeculationOptions):
    """The options as click hands them over."""

    cell: str | None
    concurrency: tuple[int, ...]
    k: tuple[int, ...] | None
    prompt_tokens: float | None
    output_tokens: float | None
    prompts: tuple[str, ...]
    acceptance: tuple[float, ...] | None
    coverage: float | None
    traffic: str | None
    measure: bool
    transcripts: str | None
    tokenizer: str | None
    url: str | None
    temperature: tuple[float, ...]
    run: tuple[str, ...]
    prices: str | None
    history: bool


@click.command("plan", cls=SectionedCommand)
@name_argument
@file_option
@change_options(required=False)
@option(
    "--cell",
    type=File(),
    metavar="FILE|-",
    help="Answer the questions of a file, without a service (docs/how-to/will-it-pay.md).",
)
@option(
    "--concurrency",
    type=Numbers(whole=True, least=1),
    default="1,8,32,64",
    metavar="N[,N...]",
    help="Requests in flight to plan for.",
    **_LOAD,
)
@option("--prompt-tokens", type=AboveZero(), metavar="N", help="Mean tokens of a prompt.", **_LOAD)
@option("--output-tokens", type=AboveZero(), metavar="N", help="Mean tokens of an answer.", **_LOAD)
@option(
    "--prompts",
    type=File(),
    multiple=True,
    metavar="[NAME=]FILE|SET[:SHARE]",
    help="Prompts whose lengths are used: JSONL files, or edits, rag, chat, math, fresh.",
    **_LOAD,
)
@option(
    "--temperature",
    type=Numbers(whole=False, least=0),
    default="0",
    metavar="T[,T...]",
    help="Sampling temperatures of your traffic; the highest counts.",
    **_LOAD,
)
@option(
    "--k",
    type=Numbers(whole=True, least=1),
    metavar="K[,K...]",
    help="Draft lengths to compare (default: 1 to 7).",
    section="Speculation",
)
@option(
    "--acceptance",
    type=Numbers(whole=False, least=0, repeat=True),
    metavar="RATE[,RATE...]",
    help="Acceptance rate per position, measured on your own traffic, as vLLM logs it.",
    **_EVIDENCE,
)
@option("--coverage", type=AboveZero(), metavar="SHARE", help="Share of steps with a proposal (ngram).", **_EVIDENCE)
@option(
    "--traffic", type=Word(_CLASSES), help="Class of traffic to screen with, where nothing is measured.", **_EVIDENCE
)
@option(
    "--measure",
    is_flag=True,
    help="Measure acceptance: a candidate answers --prompts for a minute; or --transcripts, --url.",
    **_EVIDENCE,
)
@option(
    "--transcripts",
    type=File(),
    metavar="FILE",
    help="JSONL of prompts and answers: ngram and suffix are replayed on them, without an engine.",
    **_EVIDENCE,
)
@option("--tokenizer", type=File(), metavar="DIR", help="Directory with the target's tokenizer.json.", **_EVIDENCE)
@option("--url", metavar="URL", help="Engine that runs anywhere: its counters, or its tokenizer.", **_EVIDENCE)
@option(
    "--run",
    type=File(),
    multiple=True,
    metavar="FILE",
    help="Measurement of mpctl bench as evidence; repeatable. Rollouts of the service always are.",
    **_EVIDENCE,
)
@option("--history", is_flag=True, section="Output", help="Compare earlier predictions with what rollouts measured.")
@option("--prices", type=File(), metavar="FILE", section="Output", help="Price list, YAML (default: the shipped one).")
@own_output_option(("table", "json", "yaml", "name", "html", "md"), help="Format (default: table).")
@shared_options
@in_context
def command(
    context: CliContext,
    /,
    name: str | None,
    file: str | None,
    *,
    form: str | None,
    **given: Unpack[PlanOptions],
) -> None:
    """Predict what speculation would bring, before anything is started.

    \b
    Examples:
      mpctl plan qwen --spec eagle3 --gpu L4 --traffic code
      mpctl plan -f service.yaml --spec all --gpu H100-SXM --concurrency 1,16,64
      mpctl plan qwen --spec eagle3 --acceptance 0.73,0.52,0.35 -o html > plan.html
      mpctl plan qwen --spec ngram,suffix --measure --transcripts log.jsonl
      mpctl plan qwen --spec eagle3 --measure --prompts traffic.jsonl
      mpctl plan --cell cells.yaml -o json             any target, draft and GPU
      mpctl plan qwen --history                        how right earlier predictions were

    One page: can it run, does it fit, throughput and time-per-token ratio by concurrency and K with 90 % bands, the
    smallest K that is as good as the best, where the gain ends, cost, and what would change the answer. A gain is only
    called on acceptance measured on your own traffic; a class of traffic or a published figure is screening.
    """
    if given["cell"] is not None:
        from mpctl.app.plan import cells

        record = cells.run(given["cell"], given["drafts"]).to_record()
    elif given["history"]:
        from mpctl.app.plan import predicted

        record = predicted.read_record(context.open_session(name)).to_record()
    else:
        from mpctl.app.plan import service

        record = service.run(context.open_source(name, file), plan_request(given)).to_record()
    with page(context.terminal.page_width):
        context.terminal.result(_written(record, form or "table"))


def plan_request(given: PlanOptions) -> PlanRequest:
    """The request of these options.

    Raises:
        InputError: no method is named.
    """
    from mpctl.app.requests import PlanRequest

    if not given["spec"]:
        raise InputError("no method is named", field="--spec", hint="--spec ngram,eagle3; or --spec all")
    return PlanRequest(
        methods=tuple(word.strip() for word in given["spec"].split(",") if word.strip()),
        speculation=speculation_request(given),
        concurrency=given["concurrency"],
        ks=given["k"] or (),
        prompt_tokens=given["prompt_tokens"],
        output_tokens=given["output_tokens"],
        prompts=given["prompts"],
        rates=given["acceptance"] or (),
        coverage=given["coverage"],
        traffic=given["traffic"],
        transcripts=given["transcripts"],
        tokenizer=given["tokenizer"],
        url=given["url"],
        measure=given["measure"],
        temperature=max(given["temperature"], default=0.0),
        runs=given["run"],
        prices=given["prices"],
    )


def _written(record: Mapping[str, Any], form: str) -> str:
    if form in ("json", "yaml"):
        return document("Plan", record, form)
    if form == "name":
        return "\n".join(f"method/{method['method']}" for method in record.get("methods", ()))
    from mpctl.report.plan.html import plan_html
    from mpctl.report.plan.page import page_of
    from mpctl.report.plan.text import plan_markdown, plan_text

    sheet = page_of(record)
    if form == "html":
        return plan_html(sheet)
    return plan_markdown(sheet) if form == "md" else plan_text(sheet, _table, page_width(_WIDTH))


def _table(rows: list[list[str]], indent: str) -> str:
    """A table indented as a whole; -o json has what a narrow terminal wraps."""
    with page(page_width(1000) - len(indent) if page_width(1000) < 1000 else None):
        return "\n".join(indent + line if line else line for line in columns(rows).split("\n"))
