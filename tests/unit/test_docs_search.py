"""The search of the built documentation, asked in a real browser with the words that a newcomer types."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote

import pytest
from browser import Tab, browser, find_browser

ROOT = Path(__file__).parents[2]
# Page after page, as a reader sees them; several sections of a page are one.
HITS = """new Promise(done => {
  const end = Date.now() + 20000
  const look = () => {
    const meta = document.querySelector('.md-search-result__meta')
    const hits = [...document.querySelectorAll('.md-search-result__item > a')]
    const pages = hits.map(hit => new URL(hit.href).pathname.slice(1))
    if ((meta && /matching document/.test(meta.textContent)) || Date.now() > end) done([...new Set(pages)])
    else setTimeout(look, 50)
  }
  look()
})"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """A request is no news."""


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Tab, str]]:
    """A browser, and the address of the site as ``scripts/docs`` builds it."""
    find_browser()
    built = subprocess.run(
        [ROOT / "scripts" / "docs"], capture_output=True, text=True, timeout=300, check=False
    )
    assert built.returncode == 0, built.stdout + built.stderr
    serve = partial(Quiet, directory=str(ROOT / ".cache" / "docs-site"))
    with ThreadingHTTPServer(("127.0.0.1", 0), serve) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with browser(tmp_path_factory.mktemp("profile")) as opened:
            yield opened, f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.mark.parametrize(
    ("question", "page"),
    [
        ("what is speculation", "explanation/speculation.html"),
        ("install", "tutorial/first-rollout.html"),
        ("first rollout", "how-to/first-rollout-on-a-cluster.html"),
        ("requests lost", "how-to/requests.html"),
        ("how many GPUs", "how-to/first-rollout-on-a-cluster.html"),
        ("what stays behind", "reference/objects.html"),
        ("permissions", "how-to/rbac.html"),
        ("no free GPU", "reference/troubleshooting.html"),
        ("undecided", "reference/troubleshooting.html"),
        ("Argo CD", "how-to/gitops.html"),
        ("interrupted", "how-to/rollout.html"),
    ],
)
def test_the_page_that_answers_is_among_the_first_three(
    tab: tuple[Tab, str], question: str, page: str
) -> None:
    browser_tab, site = tab
    browser_tab.events.clear()
    browser_tab.call("Page.navigate", url=f"{site}/index.html?q={quote(question)}")
    while not browser_tab.told("Page.loadEventFired"):
        browser_tab.value("1")
    hits = browser_tab.value(HITS)
    assert page in hits[:3], hits
