"""The page in a real browser: it asks for nothing, complains of nothing, fits a phone, and is there in the dark."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from browser import browser
from report_samples import hostile, several

from mpctl.report.html import html_report

EXAMPLE = Path(__file__).parents[3] / "docs" / "example-report.html"
PHONE = 360  # CSS pixels, the narrowest common phone
# Contrast by WCAG 2.2, 1.4.3: relative luminance of text and background.
_CONTRAST = """
(() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgb = c => { canvas.clearRect(0,0,1,1); canvas.fillStyle = c; canvas.fillRect(0,0,1,1);
                     return [...canvas.getImageData(0,0,1,1).data]; };
  const light = c => { const [r,g,b] = rgb(c).map(v => v/255).map(v => v<=.04045 ? v/12.92 : ((v+.055)/1.055)**2.4);
                       return .2126*r + .7152*g + .0722*b; };
  const behind = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
                        if (rgb(c)[3] > 250) return c; } return 'white'; };
  const poor = [];
  for (const e of document.querySelectorAll('body *')) {
    const own = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    if (!own || !e.checkVisibility() || e.closest('.to-verdict')) continue;
    const style = getComputedStyle(e);
    const ink = e.closest('svg') ? style.fill : style.color;
    const [a, b] = [light(ink), light(behind(e))].sort((x, y) => y - x);
    if ((a + .05) / (b + .05) < 4.5) poor.push(`${e.tagName} ${e.textContent.trim().slice(0, 40)} ${ink}`);
  }
  return poor;
})()
"""


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    directory = tmp_path_factory.mktemp("pages")
    fields = {"several": html_report(several()), "hostile": html_report(hostile())}
    for name, text in fields.items():
        (directory / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: directory / f"{name}.html" for name in fields} | {"example": EXAMPLE}


NAMES = ["several", "hostile", "example"]


@pytest.mark.parametrize("name", NAMES)
def test_the_page_asks_for_nothing_and_complains_of_nothing(tab, pages, name):
    tab.open(pages[name])
    assert tab.requested == [pages[name].as_uri()]
    assert tab.complaints == []
    assert tab.value("document.scripts.length") == 0
    assert tab.value("document.querySelectorAll('img, iframe, object, embed, form').length") == 0
    assert (
        tab.value(
            "[...document.all].flatMap(e => e.getAttributeNames()).filter(n => n.startsWith('on'))"
        )
        == []
    )
    assert tab.value("!!document.querySelector('meta[http-equiv=Content-Security-Policy]')")
    assert tab.value("document.querySelector('h1').checkVisibility()")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("width", [PHONE, 768, 1200])
def test_nothing_sticks_out_at_the_side(tab, pages, name, width):
    tab.open(pages[name], width=width, height=800)
    tab.value("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert tab.value("document.documentElement.scrollWidth") <= width


def test_the_first_table_needs_no_scrolling_on_a_laptop(tab, pages):
    tab.open(pages["several"], width=1280, height=800)
    sizes = (
        "(e => [e.scrollWidth, e.clientWidth])(document.querySelector('table.cells').parentElement)"
    )
    needed, available = tab.value(sizes)
    assert needed <= available


def test_a_rule_that_is_not_asked_says_so(tab, pages):
    tab.open(pages["several"], width=1280, height=800)
    tab.value("document.querySelectorAll('details').forEach(d => d.open = true)")
    text = "[...document.querySelectorAll('.rules .chip')].map(c => c.getBoundingClientRect().left)"
    assert min(tab.value(text)) > 0
    rows = "[...document.querySelectorAll('.rules tr')].filter(r => r.querySelector('.chip.skip'))"
    assert "?" not in tab.value(f"{rows}.map(r => r.cells[2].textContent)")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_text_can_be_read(tab, pages, dark):
    tab.open(pages["several"], dark=dark)
    tab.value("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert tab.value(_CONTRAST) == []


def test_the_text_of_a_plot_is_as_large_on_a_phone(tab, pages):
    tab.open(pages["several"], width=PHONE, height=800)
    sizes = """[...document.querySelectorAll('svg text')].filter(t => t.checkVisibility())
               .map(t => t.getBoundingClientRect().height)"""
    assert min(tab.value(sizes)) >= 10


def test_the_page_is_seen_in_light_and_dark(tab, pages):
    from PIL import Image, ImageStat

    brightness = {}
    for dark in (False, True):
        tab.open(pages["several"], dark=dark)
        picture = Image.open(io.BytesIO(tab.screenshot(whole=False))).convert("L")
        assert picture.size == (1200, 900)
        assert ImageStat.Stat(picture).stddev[0] > 8  # not blank
        brightness[dark] = ImageStat.Stat(picture).median[0]
    assert brightness[False] > 200
    assert brightness[True] < 60


def test_a_browser_that_is_missing_fails_ci_and_is_named_elsewhere(monkeypatch):
    import browser as module

    monkeypatch.setattr(module.shutil, "which", lambda _name: None)
    monkeypatch.setenv("CI", "1")
    with pytest.raises(pytest.fail.Exception, match="apt-get install chromium"):
        module.find_browser()
    monkeypatch.delenv("CI")
    with pytest.raises(pytest.skip.Exception, match="apt-get install chromium"):
        module.find_browser()
