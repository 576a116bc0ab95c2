"""One value, several formats: what each shows, that nothing in a text can break out of it, that the same run gives
the same bytes."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_samples import HOSTILE, cell, empty, hostile, report, several

from mpctl.report.html import html_report
from mpctl.report.markdown import escape, fenced, markdown_report

FORMATS = {"html": html_report, "md": markdown_report}


class Page(HTMLParser):
    """Tags, attributes and text of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.texts, self.open = [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_data(self, data):
        self.texts.append(data)

    @property
    def text(self):
        return re.sub(r"\s+", " ", " ".join(self.texts))


@pytest.fixture(scope="module")
def page():
    return html_report(several())


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_the_same_run_gives_the_same_bytes(form):
    assert form(several()) == form(several())


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize("make", [report, several, empty, hostile])
def test_every_report_can_be_written_in_every_format(form, make):
    text = form(make())
    assert text.endswith("\n")
    assert text.isprintable() or text.replace("\n", "").replace("\t", "").isprintable()


def test_the_page_opens_with_the_verdict_and_names_its_parts(page):
    actual_page = Page(page)
    assert "Promote" in actual_page.text
    assert actual_page.tags.count("h1") == 1
    assert actual_page.tags.count("h2") >= 6
    assert "2.44x" in actual_page.text
    assert "n/a" not in actual_page.text
    assert "None" not in actual_page.text
    assert "nan" not in actual_page.text.split()


def test_the_page_runs_nothing_and_loads_nothing(page):
    actual_page = Page(page)
    assert not {"script", "iframe", "object", "embed", "form", "img", "base"} & set(
        actual_page.tags
    )
    policy = next(
        v
        for t, n, v in actual_page.attributes
        if t == "meta" and n == "content" and v and "default-src" in v
    )
    assert policy.startswith("default-src 'none'")
    assert "script" not in policy
    loads = [
        v
        for t, n, v in actual_page.attributes
        if n in ("src", "href", "xlink:href", "action", "srcset")
    ]
    assert all(v.startswith(("#", "data:,")) for v in loads), loads
    assert "@import" not in page
    assert all(v.startswith("#") for v in re.findall(r"url\(([^)]*)\)", page))


def test_every_plot_says_its_answer_in_words(page):
    plots = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(plots) >= 11
    for plot in plots:
        assert re.match(r'<svg class="plot" role="img" aria-label="[^"]{20,}"', plot)
        ET.fromstring(plot)


def test_no_two_elements_of_a_page_share_an_id(page):
    ids = [value for _, name, value in Page(page).attributes if name == "id"]
    assert len(ids) == len(set(ids))
    targets = set(re.findall(r'href="#([^"]+)"', page)) | set(re.findall(r"url\(#([^)]+)\)", page))
    assert targets <= set(ids)


def test_outcomes_are_told_by_a_word_and_a_sign(page):
    chips = re.findall(
        r'<span class="chip (\w+)"><span aria-hidden="true">(.)</span> ([^<]+)</span>', page
    )
    assert {c for c, _, _ in chips} >= {"promote", "undecided", "reject", "pass", "fail", "missing"}
    assert len({sign for _, sign, _ in chips}) == 3
    assert all(word for _, _, word in chips)


def test_a_page_stays_small():
    cells = [
        cell(traffic, n, decomposition=None)
        for traffic in ("edits", "chat", "rag", "maths")
        for n in (1, 8, 32)
    ]
    assert len(html_report(report(*cells)).encode()) < 500_000


def test_hostile_texts_stay_texts_in_the_page():
    actual_page = Page(html_report(hostile()))
    assert not {"script", "img", "a href"} & set(actual_page.tags)
    assert [v for t, n, v in actual_page.attributes if t == "a"] == ["to-verdict", "#verdict"]
    assert "alert(1)" in actual_page.text
    assert not [n for _, n, _ in actual_page.attributes if n.startswith("on")]


def test_hostile_texts_stay_texts_in_markdown():
    text = markdown_report(hostile())
    outside = re.sub(r"^(`{3,}).*?^\1$", "", text, flags=re.DOTALL | re.MULTILINE)
    assert "<script" not in outside
    assert "<img" not in outside
    assert "](" not in outside
    assert "http://" not in outside
    rows = [line for line in outside.splitlines() if line.startswith("|")]
    for table in re.split(r"\n(?!\|)", "\n".join(rows)):
        assert table
    widths = {line.count("|") for line in rows if line.count("|") == rows[0].count("|")}
    assert widths == {rows[0].count("|")}


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=40))
def test_any_text_is_shown_as_itself_by_a_markdown_renderer(text):
    from markdown_it import MarkdownIt

    shown = (
        MarkdownIt("commonmark").enable("table").render(f"| a |\n|---|\n| x {escape(text)} x |\n")
    )
    actual_page = Page(shown)
    assert set(actual_page.tags) == {"table", "thead", "tbody", "tr", "th", "td"}
    expected = "".join(c if c.isprintable() else " " for c in f"x {text} x")
    assert " ".join("".join(actual_page.texts[-2:]).split()) == " ".join(
        expected.split()
    ) or " ".join(expected.split()) in " ".join("".join(actual_page.texts).split())


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet=st.sampled_from("`~\n a"), max_size=30))
def test_no_content_closes_a_code_block(text):
    from markdown_it import MarkdownIt

    shown = MarkdownIt("commonmark").render(fenced(text) + "\n\n# after")
    assert shown.endswith("<h1>after</h1>\n")


def test_what_was_not_measured_is_a_question_mark_everywhere():
    page = Page(html_report(empty())).text
    text = markdown_report(empty())
    for shown in (page, text):
        assert "?" in shown
        assert "nan" not in shown.lower().split()
        assert "0.00x" not in shown
        assert "0 ms" not in shown


def test_markdown_is_made_for_a_pull_request():
    text = markdown_report(several())
    assert text.startswith(
        "<!-- mpctl report -->\n\n### ✓ Promote: ngram K=5 lookup 2..4 pays for edits: throughput ratio 2.44x\n"
    )
    assert text.count("<details>") == text.count("</details>") == 3
    before = text[: text.index("<details>")]
    assert before.count("\n| ") == 1 + 1 + 3  # one table: header, rule, cells
    assert "| chat | 32 at once | 20% | ✗ Reject | 0.60x (95% CI 0.54x to 0.66x) |" in before


def test_arguments_that_differ_are_marked():
    page = html_report(report())
    marked = re.findall(r"<mark>(.*?)</mark>", page)
    assert marked == ["&#39;--speculative-config={&#34;method&#34;: &#34;ngram&#34;}&#39;"]
    assert '+ \'--speculative-config={"method": "ngram"}\'' in markdown_report(report())
    assert HOSTILE not in page
