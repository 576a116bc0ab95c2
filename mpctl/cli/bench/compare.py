"""``mpctl bench compare``: finished measurements judged again."""

from __future__ import annotations

from typing import Any

import click

from mpctl.cli.options.shared import output_option, shared_options
from mpctl.cli.options.types import File, option
from mpctl.cli.settings import terminal_of
from mpctl.errors import InputError

_ARMS = ("baseline", "candidate")


@click.command("compare")
@click.argument("first", metavar="RUN[:ARM]")
@click.argument("second", metavar="[RUN[:ARM]]", required=False)
@option(
    "--policy",
    type=File(),
    metavar="FILE",
    help="Limits of the gate, YAML; default: those the second run was measured with.",
)
@option("--force", is_flag=True, help="Compare although prompts, model, device or engine differ.")
@output_option
@shared_options
@click.pass_context
def command(ctx: click.Context, /, first: str, second: str | None, **options: Any) -> None:
    """Compute everything again from the raw samples of two measurements, or of the two arms of one.

    ARM is baseline or candidate; without it, a run's only arm, else its candidate. The first is the baseline of the
    comparison. Exit code 0: the gate would promote, 5: reject, 6: undecided; 2: they cannot be compared.

    \b
    Examples:
      mpctl bench compare friday.json.gz                         its two arms
      mpctl bench compare monday.json.gz friday.json.gz          one candidate against the other
      mpctl bench compare monday.json.gz:baseline friday.json.gz:baseline
    """
    terminal = terminal_of(ctx, options)
    from mpctl.cli.bench.results import conclude, show
    from mpctl.cli.request import read_policy
    from mpctl.cli.runs import read_run
    from mpctl.experiment.compare import arm_of, combine, differences
    from mpctl.rollout.measurement import judge_run

    if second is None:
        path, arm = _split(first)
        if arm is not None:
            raise InputError(f"{first} names one arm", hint=f"mpctl bench compare {path} holds its arms together")
        run = read_run(first)
        if len({b.arm for b in run.blocks}) < 2:
            raise InputError("holds one arm only", file=first, hint="name a second measurement")
    else:
        (one_path, one_arm), (two_path, two_arm) = _split(first), _split(second)
        one, two = read_run(one_path), read_run(two_path)
        one_arm, two_arm = arm_of(one, one_arm), arm_of(two, two_arm)
        differing = differences(one, one_arm, two, two_arm)
        if differing and not options["force"]:
            raise InputError(
                f"{one_path} and {two_path} were measured differently: {'; '.join(differing)}",
                hint="--force compares them all the same",
            )
        for line in differing:
            terminal.warn(f"measured differently: {line}")
        run = combine(one, one_arm, two, two_arm)
    policy = read_policy(options["policy"]) if options["policy"] else run.policy
    analysis, verdict = judge_run(run, policy)
    show(terminal, run, analysis, verdict, options["output"])
    conclude(verdict)


def _split(text: str) -> tuple[str, str | None]:
    path, _, arm = text.rpartition(":")
    return (path, arm) if path and arm in _ARMS else (text, None)
