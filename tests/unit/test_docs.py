"""What the documentation says about the command line, checked against the commands; scripts/docs checks its links."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from mpctl.cli.root import cli

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]


def commands(text: str) -> Iterator[str]:
    """Yield the mpctl commands of a page: lines of code blocks, and code within sentences."""
    blocks = re.findall(r"^```.*?\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))
    for code in (*lines, *spans):
        for part in re.split(r"[|;>]|&&|\s#\s", code):
            if match := re.match(r"(?:\$ )?mpctl (.+)", part.strip()):
                yield match[1]


def unknown(line: str) -> list[str]:
    """Return the words of a command line that no command or option has."""
    words = shlex.split(line.replace("'", '"').replace("...", ""), posix=False)
    command: click.Command = cli
    here = click.Context(cli)
    while words and isinstance(command, click.Group):
        names = (*command.list_commands(here), "credential")  # kubectl calls it; no listing names it
        name = words.pop(0) if words[0] in names else "run"  # mpctl bench qwen: run needs no name
        below = command.get_command(here, name) if name in names else None
        if below is None:
            return [] if words[0][0] in "-<" else [words[0]]
        command, here = below, click.Context(below, parent=here)
    known = {name for param in (*command.get_params(here), *cli.get_params(here)) for name in param.opts}
    return [word for word in (w.partition("=")[0] for w in words) if word.startswith("--") and word not in known]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_and_options_of_a_page_exist(page):
    found = {line: bad for line in commands(page.read_text()) if (bad := unknown(line))}
    assert not found


def test_the_pages_show_commands():
    assert sum(1 for page in PAGES for _ in commands(page.read_text())) > 100


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_paths_that_a_page_names_exist(page):
    tops = "mpctl|tests|scripts|infra|stacks|manifests|environments|docs|requirements"
    named = re.findall(rf"`((?:{tops})/[\w./-]*)`", page.read_text())
    assert not [path for path in named if not (ROOT / path).exists()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_lines_fit(page):
    """Sentences have at most 120 characters a line; tables, pictures and code may be longer."""
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert not [line for line in text.splitlines() if len(line) > 120 and not line.startswith(("|", "!["))]


@pytest.mark.parametrize(("page", "at_least"), [("attacks", 26), ("threat-model", 12)])
def test_the_tests_that_hold_attacks_and_promises_exist(page, at_least):
    rows = re.findall(r"^\|.*`tests/.*$", (ROOT / f"docs/explanation/{page}.md").read_text(), re.MULTILINE)
    assert len(rows) >= at_least
    for row in rows:
        for file, names in re.findall(r"`(tests/[^`]+)`((?:,? `test_\w+`)*)", row):
            text = (ROOT / file).read_text()
            assert [n for n in re.findall(r"test_\w+", names) if f"def {n}(" not in text] == [], file
