"""Writes the reference of commands and options from the root command, while mkdocs builds the site (mkdocs.yml).

Nothing is stored in docs/: a page per command is made from the click objects, so the reference cannot differ from
`--help`. Runbooks and decisions are added to the navigation here, too, so that a new page needs no line in mkdocs.yml.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from mkdocs.structure.files import File, Files

from mpctl.cli.root import cli

DOCS = Path(__file__).parents[1] / "docs"
FOLDERS = {"Runbooks": "runbooks", "Decisions": "decisions"}
COMMANDS = "reference/commands"
WIDTH = 100


def on_config(config: Any) -> Any:
    """Fill the sections of the navigation that mkdocs.yml leaves empty."""
    names = [f"{COMMANDS}/index.md", *(f"{COMMANDS}/{name}.md" for name, _ in visible(cli, context(cli, "mpctl")))]
    for section in config["nav"]:
        (title, pages), *_ = section.items()
        if title in FOLDERS:
            folder = FOLDERS[title]
            section[title] = sorted(
                (f"{folder}/{page.name}" for page in (DOCS / folder).glob("*.md")),
                key=lambda path: (not path.endswith("index.md"), path),
            )
        if title == "Reference":
            pages[:] = [{"Commands": names} if page == {"Commands": []} else page for page in pages]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add a page per top-level command and an index of them."""
    root = context(cli, "mpctl")
    rows = []
    for name, command in visible(cli, root):
        text = "\n".join(pages(command, root, name))
        files.append(File.generated(config, f"{COMMANDS}/{name}.md", content=text))
        rows.append(f"| [`mpctl {name}`]({name}.md) | {command.get_short_help_str(limit=120)} |")
    index = ["# Commands", "", "| command | purpose |", "|---|---|", *rows, ""]
    files.append(File.generated(config, f"{COMMANDS}/index.md", content="\n".join(index)))
    return files


def context(command: click.Command, name: str, parent: click.Context | None = None) -> click.Context:
    """Return a context for help texts of one width on every machine."""
    return click.Context(command, info_name=name, parent=parent, max_content_width=WIDTH, terminal_width=WIDTH)


def visible(group: click.Group, parent: click.Context) -> Iterator[tuple[str, click.Command]]:
    """Yield the subcommands that help lists."""
    for name in group.list_commands(parent):
        command = group.get_command(parent, name)
        if command is not None and not command.hidden:
            yield name, command


def pages(command: click.Command, parent: click.Context, name: str, level: int = 1) -> Iterator[str]:
    """Yield the lines that describe a command and everything below it."""
    here = context(command, name, parent)
    help_text = re.sub(r"\x1b\[[0-9;]*m", "", command.get_help(here))
    yield from (f"{'#' * level} {here.command_path}", "", "```text", help_text, "```", "")
    if isinstance(command, click.Group):
        for below, child in visible(command, here):
            yield from pages(child, here, below, level + 1)
