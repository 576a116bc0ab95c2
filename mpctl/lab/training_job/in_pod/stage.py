"""A stage of a training Job: skipped if it was done before, else its command runs; ``collect`` first gets the prompts.

Runs in the pod; imports nothing of mpctl. The Job's command has the order's digest: another order is not obeyed. While
``collect`` waits it listens on 127.0.0.1 only, which is where the API server's port-forward arrives: ``POST /prompts``
takes the lines of prompts.jsonl, and refuses those of which the order has another digest, so it does not matter who
posts first. ``card`` ends with the card as one line of output, without the digests of prompts, which the order has.

``stage.py STAGE FOLDER ORDER DIGEST PORT WAIT_S COMMAND...``.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

CARD_LINE = "mpctl-card: "
PROMPTS = "prompts.jsonl"
REQUEST_BYTES = 64 * 2**20


def sha256(text: str) -> str:
    """Return the digest of a text, hex."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def receive(folder: Path, order: dict[str, object], port: int, wait_s: float) -> bool:
    """Wait until the order's prompts are in the folder; return whether they are."""
    arrived = threading.Event()

    class PromptReceiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            if self.path != "/prompts" or not 0 < size <= REQUEST_BYTES:
                self._end(404)
                return
            lines = str(json.loads(self.rfile.read(size))["lines"])
            if sha256(f"{order['salt']}\n{lines}") != order["prompts"]:
                self._end(409)
                return
            write(folder / PROMPTS, lines)
            self._end(200)
            arrived.set()

        def _end(self, status: int) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *values: object) -> None:
            """Nothing of a request reaches the log."""

    server = ThreadingHTTPServer(("127.0.0.1", port), PromptReceiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    arrived.wait(wait_s)
    server.shutdown()
    return arrived.is_set()


def say(line: str) -> None:
    """Write a line of the container's output."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def write(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    part = path.with_name(f".{path.name}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def main(arguments: list[str]) -> int:
    """Run a stage; return its exit code."""
    stage, folder, order, digest, port, wait_s = arguments[0], Path(arguments[1]), *arguments[2:6]
    done = folder / f".{stage}.done"
    if not done.exists():
        text = Path(order).read_text(encoding="utf-8")
        if sha256(text) != digest:
            say(
                f"{order} is not the order that this Job was created for: its ConfigMap was replaced"
            )
            return 1
        folder.mkdir(parents=True, exist_ok=True)
        write(folder / "order.json", text)
        if stage == "collect" and not (folder / PROMPTS).exists():
            say("waiting for the prompts")
            if not receive(folder, json.loads(text), int(port), float(wait_s)):
                say(f"no prompts arrived in {float(wait_s):.0f} s")
                return 1
        code = subprocess.run(arguments[6:], check=False).returncode
        if code:
            return code
        write(done, "")
    if stage == "card":
        card = json.loads((folder / "card.json").read_text(encoding="utf-8"))
        say(CARD_LINE + json.dumps({**card, "training_digests": []}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
