"""Wraps the paragraphs of the documentation at 120 characters, so that no line is left short: scripts/docs wrap

Tables, headings, code, HTML and what stands before a page between two lines of "---" stay as they are. A span of
code is never broken, because a reader copies it, and no figure is parted from its unit.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
WIDTH = 120
ITEM = re.compile(r"(\s*)([-*]|\d+\.) +")
LITERAL = re.compile(r"\s*(\||#{1,6} |<|!!!|!\[|$)")
FENCE = re.compile(r"\s*```")
WORD = re.compile(r"(?:`[^`]*`|\d (?=(?:%|h|min|m?s|[KMG]i?B)(?!\w))|\S)+")
MARKER = re.compile(
    r"([-+*>]|#{1,6}|\d+[.)])$"
)  # at the start of a line it would begin a list or a heading


def wrapped(text: str) -> str:
    """Return a page with each paragraph filled to the width."""
    lines: list[str] = []
    paragraph: list[str] = []
    first = indent = ""
    in_code = False

    def flush() -> None:
        lines.extend(filled(" ".join(paragraph), first, indent))
        paragraph.clear()

    head = re.match(r"---\n.*?\n---\n", text, re.DOTALL)
    lines.extend(head[0].splitlines() if head else ())
    for line in text[head.end() if head else 0 :].splitlines():
        item = None if in_code else ITEM.match(line)
        if FENCE.match(line):
            flush()
            lines.append(line)
            in_code = not in_code
        elif in_code or LITERAL.match(line):
            flush()
            lines.append(line)
        elif item:
            flush()
            first, indent = item[0], " " * len(item[0])
            paragraph.append(line[item.end() :])
        else:
            if not paragraph:
                first = indent = line[: len(line) - len(line.lstrip())]
            paragraph.append(line.strip())
    flush()
    return "\n".join(lines).rstrip("\n") + "\n"


def filled(paragraph: str, first: str, indent: str) -> list[str]:
    """Return the lines of a paragraph, each as long as the width allows."""
    lines: list[str] = []
    line = ""
    for word in WORD.findall(paragraph):
        if not line:
            line = (indent if lines else first) + word
        elif len(line) + 1 + len(word) <= WIDTH or MARKER.match(word):
            line += f" {word}"
        else:
            lines.append(line)
            line = indent + word
    return [*lines, line] if line else lines


if __name__ == "__main__":
    for path in PAGES:
        page = path.read_text(encoding="utf-8")
        if (result := wrapped(page)) != page:
            path.write_text(result, encoding="utf-8")
            sys.stdout.write(f"wrapped {path.relative_to(ROOT)}\n")
