"""The core imports no annex: with the folder of one deleted it works, and the commands of the annex say so."""

import shutil

import pytest
from package_copy import PackageCopy

ANNEXES = ["lab", "local", "evidence"]
IMPORT_ALL = """
import pkgutil, importlib, mpctl
for module in pkgutil.walk_packages(mpctl.__path__, "mpctl."):
    # Programs run in an engine or a pod; annexes may need each other.
    if not {"in_pod", "in_engine", "lab", "local", "evidence"} & {*module.name.split(".")}:
        importlib.import_module(module.name)
from mpctl.cli.registry import every_command
print(len(list(every_command())))
"""
RUN = "from mpctl.cli.root import run; import sys; sys.exit(print(run('mpctl', {words!r})))"
COMMANDS = {
    "lab": ["plan", "qwen"],
    "local": ["local", "down"],
    "evidence": ["verify", "bundle.jsonl", "--key", "key.pub"],
}


@pytest.fixture
def without(tmp_path):
    """Builds a copy of the package without an annex."""

    def build(annex: str) -> PackageCopy:
        copy = PackageCopy(tmp_path)
        shutil.rmtree(copy.folder / "mpctl" / annex, ignore_errors=True)
        return copy

    return build


@pytest.mark.parametrize("annex", ANNEXES)
def test_every_module_of_the_core_loads_without_an_annex(without, annex):
    assert int(without(annex).run(IMPORT_ALL)) > 20


@pytest.mark.parametrize("annex", ANNEXES)
def test_a_command_of_an_absent_annex_says_what_is_missing(without, annex, capfd):
    copy = without(annex)
    run = RUN.format(words=COMMANDS[annex])
    program = f"import contextlib, sys\nwith contextlib.redirect_stderr(sys.stdout): {run}"
    printed = copy.run(program)
    assert f"error: mpctl/{annex} is not part of this installation" in printed
    assert printed.splitlines()[-1] == "2"
