"""A headless Chromium over its DevTools protocol: what a page asks for, says and looks like.

``python tests/unit/report/browser.py PAGE DIRECTORY`` takes the pictures of a report that stand in the documents.

The protocol (https://chromedevtools.github.io/devtools-protocol/) is JSON over one web socket; a page's session is
attached flat, so its messages carry a sessionId.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect

_NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
_PATIENCE_S = 60.0  # for any one answer; a starved machine may take seconds


def find_browser() -> str:
    """The browser's path. Where there is none: a failure in CI, elsewhere a skip; both say what to install."""
    actual_path = next((path for name in _NAMES if (path := shutil.which(name))), None)
    if actual_path:
        return actual_path
    reason = "no Chromium on the PATH; Debian and Ubuntu: apt-get install chromium"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


class Tab:
    """One page and everything that was told about it."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket, self._number = socket, 0
        self.events: list[tuple[str, dict[str, Any]]] = []
        self._session = ""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Ask, and wait for the answer; events that come meanwhile are kept."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._socket.send(json.dumps(message))
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]

    def _receive(self) -> dict[str, Any]:
        answer = json.loads(self._socket.recv(timeout=_PATIENCE_S))
        if "method" in answer and answer.get("sessionId", "") == self._session:
            self.events.append((answer["method"], answer["params"]))
        return answer

    def open(self, page: Path, *, width: int = 1200, height: int = 900, dark: bool = False) -> None:
        """Load a file, as a screen of that many CSS pixels sees it."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 700,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.events.clear()
        self.call("Page.navigate", url=page.as_uri())
        while not any(method == "Page.loadEventFired" for method, _ in self.events):
            self._receive()
        self.value("document.fonts.ready.then(() => true)")

    def value(self, expression: str) -> Any:
        """What JavaScript evaluates to, promises awaited. The page itself may forbid scripts; DevTools may not."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def told(self, method: str) -> list[dict[str, Any]]:
        """Events of one kind since the page was opened."""
        return [parameters for name, parameters in self.events if name == method]

    @property
    def requested(self) -> list[str]:
        """Addresses the page asked for, ``data:`` left out: it never leaves the page."""
        urls = [event["request"]["url"] for event in self.told("Network.requestWillBeSent")]
        return [url for url in urls if not url.startswith("data:")]

    @property
    def complaints(self) -> list[str]:
        """What the console would show, violations of the page's own policy included."""
        texts = [event["entry"]["text"] for event in self.told("Log.entryAdded")]
        texts += [str(event["args"]) for event in self.told("Runtime.consoleAPICalled")]
        return texts + [
            event["exceptionDetails"]["text"] for event in self.told("Runtime.exceptionThrown")
        ]

    def screenshot(self, *, whole: bool = True) -> bytes:
        """PNG of the page, or of what the screen shows of it."""
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(answer["data"])


@contextmanager
def browser(profile: Path) -> Iterator[Tab]:
    """A browser that ends with the block, with a profile of its own."""
    command = [
        find_browser(),
        *(
            "--headless=new",
            "--remote-debugging-port=0",
            f"--user-data-dir={profile}",
            "--no-first-run",
        ),
        *(
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--disable-extensions",
        ),
        *(
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "about:blank",
        ),
    ]
    process = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stderr is not None
        address = next(
            (
                m.group(1)
                for line in process.stderr
                if (m := re.search(r"listening on (ws://\S+)", line))
            ),
            "",
        )
        assert address, f"{command[0]} ended before it listened, with {process.wait()}"
        with connect(address, max_size=None, open_timeout=_PATIENCE_S) as socket:
            yield Tab(socket)
    finally:
        _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    """End the browser with all its processes: the group is its own."""
    import signal

    for what in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, what)
            process.wait(15)
            break
        except subprocess.TimeoutExpired:
            continue
        except ProcessLookupError:
            break
    if process.stderr is not None:
        process.stderr.close()


def take_pictures(page: Path, directory: Path) -> None:
    """``report-light.png``, ``report-dark.png`` and ``report-phone.png``: the top of the page, in few colours."""
    import io
    import tempfile

    from PIL import Image

    kinds = {"light": (1200, 1500, False), "dark": (1200, 1500, True), "phone": (390, 1500, False)}
    with tempfile.TemporaryDirectory() as profile, browser(Path(profile)) as tab:
        for name, (width, height, dark) in kinds.items():
            tab.open(page.resolve(), width=width, height=height, dark=dark)
            picture = Image.open(io.BytesIO(tab.screenshot(whole=False))).convert("RGB")
            small = picture.quantize(256, dither=Image.Dither.NONE)
            small.save(directory / f"report-{name}.png", optimize=True)


if __name__ == "__main__":
    import sys

    take_pictures(Path(sys.argv[1]), Path(sys.argv[2]))
