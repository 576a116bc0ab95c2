"""Figures of the pages are those that their scripts printed last."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FIGURES = ROOT / "scripts/figures"
PAGES = yaml.safe_load((FIGURES / "cited.yaml").read_text())
CITED = [(page, entry) for page, parts in PAGES.items() for entry in parts.get("cited", ())]
FIGURE = re.compile(r"\d[\d.,]*(?: to \d[\d.,]*)? ?%|\b\d[\d,]* (?:of|in) \d[\d,]*\b")


def words(text):
    return " ".join(text.split())


def prose(page):
    """A page without its code blocks and its links' addresses."""
    text = re.sub(r"^```.*?^```", "", (ROOT / page).read_text(), flags=re.DOTALL | re.MULTILINE)
    return words(re.sub(r"\]\([^)]*\)", "]", text))


def numbers(text):
    return [float(number.replace(",", "").rstrip(".")) for number in re.findall(r"\d[\d.,]*", text)]


def decimals(number):
    return len(f"{number:g}".partition(".")[2])


@pytest.mark.parametrize(("page", "entry"), CITED, ids=lambda value: str(value)[:60])
def test_a_figure_of_a_page_is_the_last_of_its_script(page, entry):
    assert words(entry["says"]) in prose(page)
    file = ROOT / entry.get("file", f"scripts/figures/{Path(entry['command'].split()[0]).stem}.md")
    if entry["command"].startswith("tests/"):
        file = FIGURES / "request-path.md"
    output = file.read_text()
    assert (ROOT / entry["command"].split()[0]).exists()
    printed = [entry[key] for key in ("printed", "also", "more") if key in entry]
    assert [
        line for line in printed if line not in output and words(line) not in words(output)
    ] == []
    known = [*numbers(" ".join(printed)), *entry.get("given", ()), *entry.get("derived", ())]
    unknown = [
        number
        for number in numbers(entry["says"])
        if not any(abs(other - number) <= 0.501 * 10 ** -decimals(number) for other in known)
    ]
    assert unknown == []


@pytest.mark.parametrize("page", PAGES)
def test_every_figure_of_a_page_is_cited(page):
    parts, text = PAGES[page], prose(page)
    phrases = [entry["says"] for entry in parts.get("cited", ())]
    phrases += [*parts.get("unrepeated", ()), *parts.get("settings", ())]
    absent = [phrase for phrase in phrases if words(phrase) not in text]
    assert absent == []
    for phrase in sorted(phrases, key=len, reverse=True):
        text = text.replace(words(phrase), "")
    uncited = [text[max(0, m.start() - 60) : m.end() + 20] for m in FIGURE.finditer(text)]
    assert uncited == []
