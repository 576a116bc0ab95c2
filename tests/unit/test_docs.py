"""What the documentation says about commands and messages, checked against the code; scripts/docs checks its links."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from mpctl.cli.root import cli
from scripts.docs_reference import LIST, command_list
from scripts.docs_wrap import wrapped

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]


def commands(text: str) -> Iterator[str]:
    """Yield the mpctl commands of a page: lines of code blocks, and code within sentences."""
    blocks = re.findall(r"^```.*?\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    spans = re.findall(
        r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    )
    for code in (*lines, *spans):
        for part in re.split(r"[|;>]|&&|\s#\s", code):
            if match := re.match(r"(?:\$ )?mpctl (.+)", part.strip()):
                yield match[1]


def unknown(line: str) -> list[str]:
    """Return the words of a command line that no command or option has."""
    words = shlex.split(line.replace("'", '"').replace("...", ""), posix=False)
    command: click.Command = cli
    here = click.Context(cli, **cli.context_settings)
    while words and isinstance(command, click.Group):
        names = (
            *command.list_commands(here),
            "credential",
        )  # kubectl calls it; no listing names it
        name = words.pop(0) if words[0] in names else "run"  # mpctl bench qwen: run needs no name
        below = command.get_command(here, name) if name in names else None
        if below is None:
            return [] if words[0][0] in "-<" else [words[0]]
        command, here = below, click.Context(below, parent=here)
    known = {
        name for param in (*command.get_params(here), *cli.get_params(here)) for name in param.opts
    }
    return [
        word
        for word in (w.partition("=")[0] for w in words)
        if word.startswith("--") and word not in known
    ]


@pytest.mark.needs("local")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_and_options_of_a_page_exist(page):
    found = {line: bad for line in commands(page.read_text()) if (bad := unknown(line))}
    assert not found


def test_the_pages_show_commands():
    assert sum(1 for page in PAGES for _ in commands(page.read_text())) > 100


@pytest.mark.needs("local")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_paths_that_a_page_names_exist(page):
    tops = "mpctl|tests|scripts|infra|stacks|manifests|environments|docs|requirements"
    named = re.findall(rf"`((?:{tops})/[\w./-]*)`", page.read_text())
    assert not [path for path in named if not (ROOT / path).exists()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_lines_are_filled(page):
    """``scripts/docs wrap`` fills them."""
    assert page.read_text() == wrapped(page.read_text())


def test_a_span_of_code_is_not_broken_and_no_line_begins_a_list():
    text = f"{'a' * 110} `mpctl rollout qwen` b\n\n- {'c' * 115} - 1. d e\n"
    assert wrapped(text).splitlines() == [
        "a" * 110,
        "`mpctl rollout qwen` b",
        "",
        f"- {'c' * 115} - 1.",
        "  d e",
    ]
    assert wrapped(f"{'a' * 117} 30 % b\n").splitlines() == ["a" * 117, "30 % b"]
    assert wrapped("---\na: b\nc: d\n---\n\ne\nf\n") == "---\na: b\nc: d\n---\n\ne f\n"
    assert wrapped("```\na\nb\n```\n| c |\n| d |\n") == "```\na\nb\n```\n| c |\n| d |\n"


@pytest.mark.needs("local")
def test_the_list_of_commands_is_that_of_the_commands():
    assert LIST.read_text() == command_list(), "scripts/docs commands"


def test_the_page_on_commands_names_each_one():
    page = (ROOT / "docs/how-to/which-command.md").read_text()
    others = {"completion", "credential", "help", "version"}
    assert [
        name
        for name in cli.list_commands(click.Context(cli))
        if f"mpctl {name}" not in page and name not in others
    ] == []


def test_a_how_to_is_short():
    lengths = {
        page.name: len(page.read_text().split()) for page in (ROOT / "docs/how-to").glob("*.md")
    }
    assert {name: words for name, words in lengths.items() if words > 1200} == {}


def literals() -> Iterator[str]:
    """Yield the texts in the code of mpctl, with a NUL for each value that is put into one."""
    for path in (ROOT / "mpctl").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                yield "".join(
                    str(part.value) if isinstance(part, ast.Constant) else "\0"
                    for part in node.values
                )
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_the_messages_of_the_troubleshooting_page_are_those_of_the_code():
    page = (ROOT / "docs/reference/troubleshooting.md").read_text()
    quoted = [
        text
        for cell in re.findall(r"^\| (.*?) \|", page, re.MULTILINE)
        for text in re.findall(r"`(.+?)`", cell)
    ]
    messages = [text for text in quoted if not text.startswith("mpctl ")]
    assert len(messages) > 30
    texts = list(literals())
    patterns = {
        text: re.compile(".*".join(map(re.escape, text.split("..."))), re.DOTALL)
        for text in messages
    }
    assert [text for text, pattern in patterns.items() if not any(map(pattern.search, texts))] == []


def test_pages_that_messages_name_exist():
    named = {page for text in literals() for page in re.findall(r"\bdocs/[\w./-]+\.md", text)}
    assert len(named) > 5
    assert [page for page in named if not (ROOT / page).exists()] == []


@pytest.mark.needs("local")
def test_the_tests_that_hold_promises_exist():
    rows = re.findall(
        r"^\|.*`tests/.*$", (ROOT / "docs/explanation/threat-model.md").read_text(), re.MULTILINE
    )
    assert len(rows) >= 12
    for row in rows:
        for file, names in re.findall(r"`(tests/[^`]+)`((?:,? `test_\w+`)*)", row):
            text = (ROOT / file).read_text()
            assert [n for n in re.findall(r"test_\w+", names) if f"def {n}(" not in text] == [], (
                file
            )
