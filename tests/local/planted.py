"""Marked secrets and prompts, and a search for them in everything that a command shows or leaves behind."""

import base64
import gzip
import json
import secrets
import threading
import zlib
from pathlib import Path

TOKEN, KEY, DATABASE, PROMPT = (
    f"{name}{secrets.token_hex(8)}" for name in ("hfToken", "apiKey", "dbWord", "prompt")
)
SECRETS = (TOKEN, KEY, DATABASE)
MARKED = (*SECRETS, PROMPT)


def write_prompts(path, count=64):
    """A file of prompts, each with the mark. The scripted engine answers with the prompt, so answers have it, too."""
    path.write_text(
        "".join(
            json.dumps({"prompt": f"{PROMPT} tells number {i} of a life"}) + "\n"
            for i in range(count)
        )
    )
    return path


def finds(content, marks=MARKED):
    """The marks that some bytes hold, also within base64 and gzip, and within what these hold."""
    marks_inside, layers = set(), [content]
    while layers:
        layer = layers.pop()
        marks_inside |= {mark for mark in marks if mark.encode() in layer}
        if layer[:2] == b"\x1f\x8b":
            try:
                layers.append(gzip.decompress(layer))
            except (OSError, EOFError, zlib.error):
                continue
        for part in layer.replace(b'"', b" ").replace(b"\\n", b" ").split():
            if len(part) > 40 and part.isascii():
                try:
                    layers.append(base64.b64decode(part, validate=True))
                except ValueError:
                    continue
    return marks_inside


def files_with_finds(directory, marks=MARKED):
    """Files below a folder that hold a mark, by their path in it."""
    marked_files = {}
    for path in sorted(p for p in Path(directory).rglob("*") if p.is_file() and not p.is_symlink()):
        marked = finds(path.read_bytes(), marks)
        if marked:
            marked_files[str(path.relative_to(directory))] = marked
    return marked_files


class CommandLines:
    """Watches the command lines of all processes of this machine for the marks."""

    def __enter__(self):
        self.found, self._stop = set(), threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()

    def _watch(self):
        while not self._stop.wait(0.05):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    line = path.read_bytes()
                except OSError:
                    continue
                self.found |= {line for mark in MARKED if mark.encode() in line}
