"""Options of every command that measures: what is sent, how, and for how long."""

from __future__ import annotations

import click

from mpctl.cli.options.types import Duration, File, Numbers, Word, all_of, option
from mpctl.stats.alpha_spending import MOST_LOOKS

LOADS = ("job", "local")

load_options = all_of(
    option(
        "--prompts",
        type=File(),
        multiple=True,
        metavar="[NAME=]FILE|SET[:SHARE]",
        help="A class of traffic: JSONL with your own prompts, or a built-in set (edits, rag, chat, math, fresh; "
        "default edits). Repeatable; SHARE is its weight among your requests.",
    ),
    option(
        "--dataset",
        multiple=True,
        metavar="NAME=DATASET:PATH[:SHARE]",
        help="A class of traffic that vllm bench serve loads: sharegpt:FILE, hf:openai/gsm8k, ...",
    ),
    option(
        "--requests",
        default=8,
        type=click.IntRange(1),
        help="Prompts per block, or twice the concurrency.",
    ),
    option(
        "--repeats",
        default=12,
        type=click.IntRange(1, MOST_LOOKS),
        help="Rounds at most; the gate looks after each.",
    ),
    option("--max-time", type=Duration(), metavar="DURATION", help="No round begins after so much time of measuring."),
    option(
        "--concurrency",
        type=Numbers(whole=True, least=1),
        metavar="N[,N...]",
        help="Requests in flight; several are measured one after the other.  [default: 1, or none with --rate]",
    ),
    option(
        "--rate",
        type=Numbers(whole=False, least=0, above=True),
        metavar="R[,R...]",
        help="Open loop: requests per second that arrive whether or not the engine keeps up.",
    ),
    option(
        "--temperature",
        type=Numbers(whole=False, least=0),
        default="0",
        metavar="T[,T...]",
        help="Sampling temperatures; outputs are compared at 0.",
    ),
    option("--max-tokens", default=384, type=click.IntRange(1), help="Limit of an answer, in tokens."),
    option("--reuse-prompts", is_flag=True, help="Let prompts go round again when there are too few; reported."),
    option(
        "--load",
        type=Word(("auto", *LOADS)),
        default="auto",
        help="Where the load client runs: a Job of the engine's image in the cluster, or this runner. auto: a Job for "
        "a service in a cluster.",
    ),
    option(
        "--calibrate/--no-calibrate", default=True, help="Hold the load client against a server of known timing first."
    ),
)
