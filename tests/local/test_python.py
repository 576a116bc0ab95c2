"""docs/how-to/python.md, its blocks run in order as a program would; numbers of a measurement differ each time."""

import json
import re
import subprocess
import sys

from tests.local.conftest import LAX, ROOT, SCRIPTED, environment_in

PAGE = ROOT / "docs" / "how-to" / "python.md"
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Prints what each block prints, as a list.
NOTEBOOK = """
import contextlib, io, json, sys
shared, printed = {}, []
for block in json.load(sys.stdin):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(block, shared)
    printed.append(out.getvalue())
json.dump(printed, sys.stdout)
"""


def cells():
    """The blocks of the page, each with the output below it."""
    blocks = BLOCK.findall(PAGE.read_text())
    following = [*blocks[1:], ("python", "")]
    return [
        (text, after if kind_after == "text" else "")
        for (kind, text), (kind_after, after) in zip(blocks, following, strict=True)
        if kind == "python"
    ]


def without_measured(text):
    """The text with N for each ratio and interval that a measurement gives."""
    return re.sub(r"\d+\.\d+x", "Nx", text)


def test_every_block_of_the_page_prints_what_stands_below_it(tmp_path, mpctl):
    mpctl("local", "up", "-f", str(mpctl.manifest()))
    (tmp_path / "policy.yaml").write_text(LAX)
    # None of the settings that the fixture gives to the command line.
    environment = environment_in(tmp_path) | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", NOTEBOOK],
        input=json.dumps([code for code, _ in cells()]),
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    printed = [without_measured(text) for text in json.loads(done.stdout)]
    assert printed == [without_measured(expected) for _, expected in cells()]
    assert len(printed) == 8
    assert str(SCRIPTED) in (mpctl.service / "desired.json").read_text()
