"""An option is one declaration beside the field that it sets, an output format one row: help, variable, settings files
and every command that measures, or prints, follow from it."""

from __future__ import annotations

from package_copy import PackageCopy

FIELD = """    prompt_seed: int = _measurement("--prompt-seed", type=Whole(0), default=7, help="Seed of the order.")
    load: str = _setting("""
PROGRAM = """
import os
from mpctl.app.operate import rollout
from mpctl.cli.registry import every_command
from mpctl.cli.root import run
from mpctl.cli.settings_files import options_of
print([" ".join(path) for path, command in every_command() if "prompt_seed" in options_of(command)])
rollout.run = lambda session, request: print(request.measurement.prompt_seed) or exit()
from mpctl.cli.context import CliContext
CliContext.open_session = lambda *_: None
for arguments in (["--prompt-seed", "3"], []):
    try:
        run("mpctl", ["rollout", "--spec", "ngram", "--platform", "local", *arguments])
    except SystemExit:
        os.environ["MPCTL_PROMPT_SEED"] = "5"
run("mpctl", ["bench", "run", "--help-all"])
"""
ROW = """_FORMATS: dict[str, Callable[[Result], str]] = {
    "shout": lambda result: " ".join(result.names()).upper(),
"""


def test_an_option_takes_one_declaration(tmp_path):
    copy = PackageCopy(tmp_path)
    copy.edit("app/requests.py", "    load: str = _setting(", FIELD)
    commands, typed, variable, *help_ = copy.run(PROGRAM).splitlines()
    assert commands == "['rollout', 'bench run']"
    assert (typed, variable) == ("3", "5")
    assert "--prompt-seed INTEGER RANGE Seed of the order. [default: 7; x>=0]" in " ".join(
        " ".join(help_).split()
    )
    assert copy.touched == {"app/requests.py"}


def test_an_output_format_takes_one_row(tmp_path):
    copy = PackageCopy(tmp_path)
    copy.edit("cli/printer.py", "_FORMATS: dict[str, Callable[[Result], str]] = {\n", ROW)
    program = "from mpctl.cli.root import run; run('mpctl', ['version', '-o', 'shout'])"
    assert copy.run(program) == "MPCTL PYTHON SCHEMA VLLM\n"
    assert copy.touched == {"cli/printer.py"}
