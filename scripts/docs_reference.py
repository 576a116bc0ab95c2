"""Writes the reference of commands and options from the root command.

The list of all commands is stored in docs/reference/commands.md: ``scripts/docs commands`` renews it, and a test holds
it equal to the commands. A page per command is made while mkdocs builds the site (mkdocs.yml), so it cannot differ from
`--help`. Runbooks and decisions are added to the navigation here, too, so that a new page needs no line in mkdocs.yml.
"""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mpctl.cli.root import cli
from scripts.docs_wrap import wrapped

if TYPE_CHECKING:
    from mkdocs.structure.files import Files

DOCS = Path(__file__).parents[1] / "docs"
FOLDERS = {"Runbooks": "runbooks", "Decisions": "decisions"}
COMMANDS = "reference/commands"
LIST = DOCS / f"{COMMANDS}.md"
GLOBAL = "Global"
EVERYWHERE = {"--color", "--verbose", "--quiet", "--help"}  # beside the section of global options
# How a page counts in the search, by how its path begins: what one does with mpctl before why it was built so.
SEARCH_BOOSTS = {
    "decisions/": 0.02,
    COMMANDS: 0.2,
    "reference/plan-cells": 0.1,
    "reference/evidence": 0.2,
    "explanation/speculation": 2.0,
    "explanation/": 0.2,
    "runbooks/": 0.5,
    "reference/troubleshooting": 8.0,
    "reference/objects": 4.0,
    "reference/": 0.5,
    "how-to/rbac": 8.0,
    "how-to/requests": 8.0,
    "how-to/rollout": 4.0,
    "how-to/first-rollout": 4.0,
    "how-to/": 2.0,
}
LISTED: dict[str, str] = {}  # of llms.txt, a line for each page that was built
INTRODUCTION = """\
# All commands

Find a command and the names of its options; `--help` explains them. This page is written by
`scripts/docs commands`. [Which command when](../how-to/which-command.md) starts from what you want to do.
"""


def on_config(config: Any) -> Any:
    """Fill the sections of the navigation that mkdocs.yml leaves empty."""
    root = context(cli, "mpctl")
    pages = [
        f"{COMMANDS}/{name}.md" for name in ("options", *(name for name, _ in visible(cli, root)))
    ]
    commands = [f"{COMMANDS}.md", *pages]
    for section in config["nav"]:
        (title, listed), *_ = section.items()
        if title in FOLDERS:
            section[title] = folder_pages(FOLDERS[title])
        if title == "Reference":
            listed[:] = [
                {"Commands": commands} if page == {"Commands": []} else page for page in listed
            ]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add a page per command, and one of global options and topics."""
    from mkdocs.structure.files import File

    root = context(cli, "mpctl")
    for name, command in visible(cli, root):
        text = "\n".join(command_page(command, root, name))
        files.append(File.generated(config, f"{COMMANDS}/{name}.md", content=text))
    files.append(
        File.generated(config, f"{COMMANDS}/options.md", content="\n".join(options_page(root)))
    )
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Give each page its weight in the search."""
    weight = next(
        (boost for start, boost in SEARCH_BOOSTS.items() if page.file.src_uri.startswith(start)),
        1.0,
    )
    page.meta["search"] = {"boost": weight}
    if not page.file.src_uri.startswith(("decisions/", f"{COMMANDS}/")):
        LISTED[page.file.src_uri] = (
            f"- [{page.title}]({page.file.src_uri}): {first_sentence(markdown)}"
        )
    return markdown


def on_post_build(config: Any) -> None:
    """Write ``llms.txt`` (https://llmstxt.org): what each page is for, and where its source is, for programs that read
    text; and the sources beside it."""
    site = Path(config["site_dir"])
    for page in LISTED:
        if (source := DOCS / page).is_file():
            (site / page).write_text(source.read_text("utf-8"), "utf-8")
    title, description = config["site_name"], config["site_description"]
    listed = "\n".join(LISTED[page] for page in sorted(LISTED))
    (site / "llms.txt").write_text(
        f"# {title}\n\n> {description}\n\n## Pages\n\n{listed}\n", "utf-8"
    )


def first_sentence(markdown: str) -> str:
    """The first sentence of a page's first paragraph, without links."""
    paragraphs = (part.strip() for part in markdown.split("\n\n"))
    text = next((part for part in paragraphs if re.match(r"\w|[*[]|`(?!``)", part)), "")
    plain = re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", " ".join(text.split()))
    return re.split(r"(?<=[.:]) ", plain, maxsplit=1)[0].removesuffix(":")


def folder_pages(folder: str) -> list[str]:
    """Return the pages of a folder, its index first."""
    names = sorted((DOCS / folder).glob("*.md"), key=lambda path: (path.stem != "index", path.stem))
    return [f"{folder}/{path.name}" for path in names]


def command_list() -> str:
    """Return the stored list of all commands with the names of their options."""
    root = context(cli, "mpctl")
    commands = [
        row for name, command in visible(cli, root) for row in described(command, root, name)
    ]
    sets = Counter(
        group
        for _, _, sections in commands
        for group in sections.items()
        if group[1].count(" ") > 2
    )
    shared = {group for group, times in sets.items() if times > 2}
    lines = [INTRODUCTION, "Options of every command: " + names(cli.get_params(root)) + ".", ""]
    lines += [f"*{title}* means {options}.\n" for title, options in sorted(shared)]
    lines += ["| command | options |", "|---|---|"]
    for path, purpose, sections in commands:
        options = (
            f"*{title}*" if (title, named) in shared else named for title, named in sections.items()
        )
        lines.append(f"| **`{path}`** {purpose} | {' '.join(options)} |")
    return wrapped("\n".join(lines))


def described(
    command: click.Command, parent: click.Context, name: str
) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield a command and those below it: its path, its purpose, the names of its options by section of the help."""
    here = context(command, name, parent)
    sections: dict[str, list[click.Parameter]] = {}
    for param in command.get_params(here):
        if getattr(param, "section", "") != GLOBAL and not EVERYWHERE & {*param.opts}:
            sections.setdefault(getattr(param, "section", "Options"), []).append(param)
    listed = {title: named for title, params in sections.items() if (named := names(params))}
    yield here.command_path, cell(command.get_short_help_str(limit=200)), listed
    if isinstance(command, click.Group):
        for below, child in visible(command, here):
            yield from described(child, here, below)


def names(params: list[click.Parameter]) -> str:
    """Return the names of options, in the order of the help."""
    listed = [
        max(param.opts, key=len)
        for param in params
        if isinstance(param, click.Option) and not param.hidden
    ]
    return " ".join(f"`{name}`" for name in dict.fromkeys(listed))


def options_page(root: click.Context) -> Iterator[str]:
    """Yield the lines of global options and topics."""
    yield from ("# Global options", "", *option_table(cli.get_params(root), root))
    helper = cli.get_command(root, "help")
    topics = (
        getattr(sys.modules[helper.callback.__module__], "TOPICS", {})
        if helper and helper.callback
        else {}
    )
    for text, title in topics.values():
        yield from ("", f"## {title}", "", "```text", text(), "```")


def command_page(
    command: click.Command, parent: click.Context, name: str, level: int = 1
) -> Iterator[str]:
    """Yield the lines that describe a command and the commands below it."""
    here = context(command, name, parent)
    yield from (
        f"{'#' * level} {here.command_path}",
        "",
        "```text",
        command.get_usage(here),
        "```",
        "",
    )
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
    for title in sorted(
        sections, key=lambda name: order.index(name) if name in order else len(order)
    ):
        if title == GLOBAL:
            continue
        table = list(option_table(sections[title], here))
        if table:
            yield from (f"**{title}**", "", *table, "")
    if GLOBAL in sections:
        yield from ("[Global options](options.md) apply, too.", "")


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


def context(
    command: click.Command, name: str, parent: click.Context | None = None
) -> click.Context:
    """Return a context for help texts of one width on every machine."""
    settings = command.context_settings
    return click.Context(
        command,
        info_name=name,
        parent=parent,
        max_content_width=100,
        terminal_width=100,
        **settings,
    )


def visible(group: click.Group, parent: click.Context) -> Iterator[tuple[str, click.Command]]:
    """Yield the subcommands that help lists."""
    for name in group.list_commands(parent):
        command = group.get_command(parent, name)
        if command is not None and not command.hidden:
            yield name, command


if __name__ == "__main__":
    LIST.write_text(command_list(), encoding="utf-8")
