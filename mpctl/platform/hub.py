"""A checkpoint's small files from a Hugging Face hub, when it may be asked and answers in time. Never required.

``HF_HUB_OFFLINE`` or ``TRANSFORMERS_OFFLINE`` forbid to ask, ``HF_ENDPOINT`` names another hub, ``HF_TOKEN`` is sent
where it is set and never shown. What cannot be had is unknown, with its reason.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from mpctl import bounded
from mpctl.errors import InputError
from mpctl.platform.checkpoints import read_checkpoint
from mpctl.platform.http import NoAnswer, read_limited

if TYPE_CHECKING:
    import httpx

    from mpctl.estimate import ModelFacts

_ON = frozenset({"1", "on", "yes", "true"})
CONNECT_S, READ_S = 2.0, 5.0  # one slow hub must not hold up a check that works without it
WHOLE_S = 30.0  # for all files of one repository, tokenizer.json of some 20 MB among them
_LIMIT = 64 * 2**20  # bytes of one file


class Unavailable(Exception):
    """The hub was not asked or did not answer; the message says why."""


def offline() -> str | None:
    """The variable that forbids to ask a hub, or None."""
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        if os.environ.get(name, "").strip().lower() in _ON:
            return name
    return None


def read_hub(repository: str, revision: str = "main") -> ModelFacts:
    """Read the facts in a repository's small files.

    Raises:
        Unavailable: offline by choice, no answer in time, no such repository, or a file that cannot be used.
    """
    forbidden = offline()
    if forbidden:
        raise Unavailable(f"{forbidden} is set")
    import httpx

    endpoint = (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")
    token = os.environ.get("HF_TOKEN", "").strip()
    if not token.isascii():
        raise Unavailable("HF_TOKEN holds characters that no token has")
    headers = {"Accept-Encoding": "identity"} | ({"authorization": f"Bearer {token}"} if token else {})
    timeout = httpx.Timeout(READ_S, connect=CONNECT_S)
    try:
        with httpx.Client(timeout=timeout, headers=headers, follow_redirects=True) as client:
            facts = read_checkpoint(_Repository(client, endpoint, repository, revision))
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise Unavailable(f"{endpoint}: {type(error).__name__}") from error
    except InputError as error:
        raise Unavailable(error.message) from error
    if facts is None:
        raise Unavailable(f"{repository} has no config.json at {endpoint}")
    return facts


class _Repository:
    """The files of one repository at one revision."""

    def __init__(self, client: httpx.Client, endpoint: str, repository: str, revision: str) -> None:
        self._client = client
        self._files = f"{endpoint}/{repository}/resolve/{revision}"
        self._listing = f"{endpoint}/api/models/{repository}/revision/{revision}?blobs=true"
        self.where = f"{endpoint}/{repository}"
        self._end = time.monotonic() + WHOLE_S

    def text(self, name: str) -> str | None:
        """A file's text, None when the repository has none of that name."""
        with self._client.stream("GET", f"{self._files}/{name}") as answer:
            if answer.status_code == 404:
                return None
            if answer.status_code in (401, 403):
                raise Unavailable(f"{self.where} needs a token that may read it (HF_TOKEN)")
            answer.raise_for_status()
            body = self._body(answer, name)
        try:
            return body.decode()
        except UnicodeDecodeError as error:
            raise Unavailable(f"{self.where}/{name} is not UTF-8") from error

    def _body(self, answer: httpx.Response, name: str) -> bytes:
        """Read a body within its limits; of a compressed one, one chunk more may be decompressed."""
        try:
            return read_limited(answer.iter_bytes(), f"{self.where}/{name}", self._end, _LIMIT)
        except NoAnswer as error:
            raise Unavailable(error.message) from error

    def sizes(self) -> Mapping[str, int]:
        """Return the sizes of the files as the hub lists them; empty if the hub does not."""
        with self._client.stream("GET", self._listing) as answer:
            if answer.status_code != 200:
                return {}
            body = self._body(answer, "listing")
        try:
            listed = bounded.loads(body).get("siblings") or []
            sizes = {str(sibling["rfilename"]): sibling.get("size") for sibling in listed}
        except (ValueError, AttributeError, KeyError, TypeError):
            return {}
        return {name: size for name, size in sizes.items() if type(size) is int and size >= 0}

    def header(self, name: str) -> Mapping[str, tuple[int, ...]]:
        """Headers of weights are not asked for."""
        return {}
