"""Writes the reference of commands and options from the root command while mkdocs builds the site (mkdocs.yml).

Nothing is stored in docs/: each page is made from the click objects, so the reference cannot differ from `--help`.
Runbooks and decisions are added to the navigation here, too, so that a new page needs no line in mkdocs.yml.
"""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from mkdocs.structure.files import File, Files

from mpctl.cli.root import cli

DOCS = Path(__file__).parents[1] / "docs"
FOLDERS = {"Runbooks": "runbooks", "Decisions": "decisions"}
COMMANDS = "reference/commands"
GLOBAL = "Global"


def on_config(config: Any) -> Any:
    """Fill the sections of the navigation that mkdocs.yml leaves empty."""
    root = context(cli, "mpctl")
    commands = [f"{COMMANDS}/index.md", *(f"{COMMANDS}/{name}.md" for name, _ in visible(cli, root))]
    for section in config["nav"]:
        (title, pages), *_ = section.items()
        if title in FOLDERS:
            section[title] = folder_pages(FOLDERS[title])
        if title == "Reference":
            pages[:] = [{"Commands": commands} if page == {"Commands": []} else page for page in pages]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add a page per command and an index of them."""
    root = context(cli, "mpctl")
    for name, command in visible(cli, root):
        text = "\n".join(command_page(command, root, name))
        files.append(File.generated(config, f"{COMMANDS}/{name}.md", content=text))
    files.append(File.generated(config, f"{COMMANDS}/index.md", content="\n".join(index_page(root))))
    return files


def folder_pages(folder: str) -> list[str]:
    """Return the pages of a folder, its index first."""
    names = sorted((DOCS / folder).glob("*.md"), key=lambda path: (path.stem != "index", path.stem))
    return [f"{folder}/{path.name}" for path in names]


def index_page(root: click.Context) -> Iterator[str]:
    """Yield the lines of the list of commands, global options and topics."""
    yield from ("# Commands", "", "| command | purpose |", "|---|---|")
    for name, command in visible(cli, root):
        yield f"| [`mpctl {name}`]({name}.md) | {cell(command.get_short_help_str(limit=200))} |"
    yield from ("", "## Global options", "", *option_table(cli.get_params(root), root))
    helper = cli.get_command(root, "help")
    topics = getattr(sys.modules[helper.callback.__module__], "TOPICS", {}) if helper and helper.callback else {}
    for text, title in topics.values():
        yield from ("", f"## {title}", "", "```text", text(), "```")


def command_page(command: click.Command, parent: click.Context, name: str, level: int = 1) -> Iterator[str]:
    """Yield the lines that describe a command and the commands below it."""
    here = context(command, name, parent)
    yield from (f"{'#' * level} {here.command_path}", "", "```text", command.get_usage(here), "```", "")
    yield from description(command.help or "")
    yield from option_sections(command, here)
    if isinstance(command, click.Group):
        for below, child in visible(command, here):
            yield from command_page(child, here, below, level + 1)


def description(help_text: str) -> Iterator[str]:
    """Yield the paragraphs of a help text; those that click leaves unwrapped become blocks of code."""
    for paragraph in inspect.cleandoc(help_text).split("\n\n"):
        head, _, body = paragraph.partition("\n")
        if head.strip() != "\b":
            yield from (paragraph, "")
            continue
        title, _, code = body.partition("\n")
        if title.rstrip().endswith(":"):
            yield from (title, "", "```text", textwrap.dedent(code), "```", "")
        else:
            yield from ("```text", textwrap.dedent(body), "```", "")


def option_sections(command: click.Command, here: click.Context) -> Iterator[str]:
    """Yield a table of options per section of the help; global options are only linked."""
    sections: dict[str, list[click.Parameter]] = {}
    for param in command.get_params(here):
        if not isinstance(param, click.Argument):
            sections.setdefault(getattr(param, "section", "Options"), []).append(param)
    order = getattr(sys.modules[type(command).__module__], "SECTIONS", tuple(sections))
    for title in sorted(sections, key=lambda name: order.index(name) if name in order else len(order)):
        if title == GLOBAL:
            continue
        table = list(option_table(sections[title], here))
        if table:
            yield from (f"**{title}**", "", *table, "")
    if GLOBAL in sections:
        yield from ("[Global options](index.md#global-options) apply, too.", "")


def option_table(params: list[click.Parameter], here: click.Context) -> Iterator[str]:
    """Yield the rows of a table of options, as help describes them."""
    records = [record for param in params if (record := param.get_help_record(here))]
    if records:
        yield from ("| option | description |", "|---|---|")
        yield from (f"| `{option}` | {cell(text)} |" for option, text in records)


def cell(text: str) -> str:
    """Return a text that stays within one cell of a table."""
    flat = " ".join(text.split())
    for sign in "|<[*_":
        flat = flat.replace(sign, f"\\{sign}")
    return flat


def context(command: click.Command, name: str, parent: click.Context | None = None) -> click.Context:
    """Return a context for help texts of one width on every machine."""
    return click.Context(command, info_name=name, parent=parent, max_content_width=100, terminal_width=100)


def visible(group: click.Group, parent: click.Context) -> Iterator[tuple[str, click.Command]]:
    """Yield the subcommands that help lists."""
    for name in group.list_commands(parent):
        command = group.get_command(parent, name)
        if command is not None and not command.hidden:
            yield name, command
