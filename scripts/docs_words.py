"""Counts turns that a native reader stumbles over in the documentation; scripts/docs fails above the limit.

A turn is a pattern of ``TURNS``, outside of code. Other projects' documentation has 0.3 to 1.2 of them in 1,000 words.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST = 2.0  # in 1,000 words
_TURNS = (
    r"beside|somebody|nobody|meanwhile|anew|hence|thereof|whatever|way back|put back|foresee\w*",
    r"by (it|them)sel(f|ves)|by hand|at once|in between|once more|all the same|as well|as it (was|is|stands)",
    r"of (its|their) own|its own|of it|of one's|the ones?|for one|the like|where it|in place of|says? so|tells?",
    r"go(es)? on|begins?|lies|stands? (in|on|at|there|for)|not there|no longer there|(is|are) of",
    r"what (it|they|the \w+) (is|are|has|have|does|do|says?|holds|took|takes|needs)",
)
TURNS = re.compile(rf"\b({'|'.join(_TURNS)})\b", re.IGNORECASE)
_CODE = re.compile(r"```.*?```|`[^`]*`|<!--.*?-->", re.DOTALL)


def pages() -> list[Path]:
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def prose(text: str) -> str:
    """The text without code; its lines stay where they are."""
    return _CODE.sub(lambda code: "X" + "\n" * code.group().count("\n"), text)


def turns(text: str) -> Iterator[tuple[int, str]]:
    """Line and words of each turn."""
    clean = prose(text)
    for found in TURNS.finditer(clean):
        yield clean.count("\n", 0, found.start()) + 1, found.group()


def main() -> int:
    words = sum(len(prose(page.read_text(encoding="utf-8")).split()) for page in pages())
    places = [
        f"{page.relative_to(ROOT)}:{line}: {turn}"
        for page in pages()
        for line, turn in turns(page.read_text(encoding="utf-8"))
    ]
    rate = 1000 * len(places) / words
    print(f"{len(places)} odd turns in {words} words: {rate:.2f} in 1,000, at most {MOST:g}")
    if rate <= MOST:
        return 0
    print("\n".join(places), file=sys.stderr)
    print(
        "hint: write plain words instead, such as next to, separate, immediately, another user",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
