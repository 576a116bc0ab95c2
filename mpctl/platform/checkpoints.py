"""Small files of a checkpoint from where it lies: a directory, a listing of a volume, or a hub. Weights are not read.

Every source offers the same: the text of a small file, the sizes of all, and the shapes in a safetensors header.
:func:`read_checkpoint` makes facts of them. A missing file is unknown; a broken one is an error with its name.

A Hugging Face hub is never required. ``HF_HUB_OFFLINE`` or ``TRANSFORMERS_OFFLINE`` forbid to ask, ``HF_ENDPOINT``
names another hub, ``HF_TOKEN`` is sent where it is set and never shown. What cannot be had is unknown, with its reason.

Tokens of a text are counted by the checkpoint's own tokenizer, or by a running engine's ``/tokenize``.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from mpctl import bounded
from mpctl.errors import InputError, MpctlError
from mpctl.estimate import ModelFacts, describe_model, tokenizer_digests
from mpctl.json_types import Json, JsonView
from mpctl.platform import http
from mpctl.platform.bounded_process import Unread, run_each
from mpctl.platform.http import NoAnswer, read_limited

# Limits of safetensors headers. A tensor takes 100 to 150 bytes: 384 experts in each of 60 layers, three matrices with
# scales each, are 140,000 tensors and 21 MB in all files. The format allows 100 MB a file: gigabytes
# as JSON.
_HEADER_BYTES = 8 * bounded.MEBIBYTE  # of one file
_HEADERS_BYTES = 32 * bounded.MEBIBYTE  # of all files of a checkpoint
_TENSORS = 400_000  # of a checkpoint
_FILE_BYTES = 64 * bounded.MEBIBYTE  # of one file; the largest tokenizer.json seen is about 33 MB
_VALUES = (
    4_000_000  # in one JSON file; 262,144 tokens and 515,000 merges, as Gemma has, are 2.3 million
)


class Files(Protocol):
    """A checkpoint's files, wherever they are; ``where`` names it in messages."""

    where: str

    def text(self, name: str) -> str | None:
        """A small file's text, None when it is missing or was not kept."""

    def sizes(self) -> Mapping[str, int]:
        """Bytes of every file by its name."""

    def header(self, name: str) -> Mapping[str, tuple[int, ...]]:
        """Shapes by tensor name of a safetensors file, empty where its header cannot be had."""
        return {}


def read_checkpoint(files: Files) -> ModelFacts | None:
    """Return the facts in the files; None without a ``config.json``.

    Raises:
        InputError: a file is there and cannot be used.
    """
    config = read_json(files, "config.json")
    if config is None:
        return None
    tokenizer = read_json(files, "tokenizer.json")
    weights = _weights(files.sizes())
    tensors: dict[str, tuple[int, ...]] = {}
    for name in weights:
        tensors.update(files.header(name))
        if len(tensors) > _TENSORS:
            raise InputError(f"has more than {_TENSORS:,} tensors", file=f"{files.where}/{name}")
    try:
        return describe_model(
            config,
            weight_bytes=sum(weights.values()) or None,
            tokenizer=None if tokenizer is None else tokenizer_digests(tokenizer),
            chat_template=_chat_template(files),
            tensors=tensors,
        )
    except (AttributeError, TypeError, ValueError, LookupError) as error:
        raise InputError(
            f"config.json or tokenizer.json is not as checkpoints have it: {error}",
            file=files.where,
        ) from error


def _weights(sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the weights that an engine loads: top-level files, and only the sharded ones if both kinds exist."""
    weights = {
        name: size
        for name, size in sizes.items()
        if name.endswith(".safetensors") and "/" not in name
    }
    plain = {name: size for name, size in weights.items() if not name.startswith("consolidated")}
    return plain or weights


def read_json(files: Files, name: str) -> Json | None:
    """Return the object in a JSON file; None when the file is missing.

    Raises:
        InputError: the file holds something else, or too much.
    """
    text = files.text(name)
    if text is None:
        return None
    if sum(text.count(mark) for mark in ",[{") > _VALUES:
        raise InputError(f"has more than {_VALUES:,} values", file=f"{files.where}/{name}")
    try:
        document = bounded.loads(text)
    except ValueError as error:
        raise InputError(f"not JSON: {error}", file=f"{files.where}/{name}") from error
    if not isinstance(document, dict):
        raise InputError(
            f"must be a JSON object, got {type(document).__name__}", file=f"{files.where}/{name}"
        )
    return document


def _chat_template(files: Files) -> str | None:
    separate = files.text("chat_template.jinja")
    if separate is not None:
        return separate
    config = read_json(files, "tokenizer_config.json")
    template = None if config is None else config.get("chat_template")
    return template if isinstance(template, str) else None


def _require_small(path: Path) -> None:
    if path.stat().st_size > _FILE_BYTES:
        raise InputError(f"is larger than {_FILE_BYTES // bounded.MEBIBYTE} MiB", file=str(path))


class Directory:
    """A checkpoint on this machine."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.where = str(path)
        self._header_bytes = 0  # read so far

    def text(self, name: str) -> str | None:
        """The file's text.

        Raises:
            InputError: it cannot be read, is no text or far too large for what it should be.
        """
        path = self.path / name
        try:
            if not path.is_file():
                return None
            _require_small(path)
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise InputError(f"cannot be read: {reason}", file=str(path)) from error

    def sizes(self) -> Mapping[str, int]:
        """Sizes of the files at the top of the directory."""
        try:
            return {
                path.name: path.stat().st_size
                for path in sorted(self.path.iterdir())
                if path.is_file()
            }
        except OSError as error:
            raise InputError(f"cannot be listed: {error.strerror}", file=self.where) from error

    def header(self, name: str) -> Mapping[str, tuple[int, ...]]:
        """The shapes in a safetensors file: eight bytes of length (little endian), then that much JSON.

        Raises:
            InputError: the file is no safetensors file.
        """
        path = self.path / name
        try:
            with path.open("rb") as file:
                length = int.from_bytes(file.read(8), "little")
                self._header_bytes += length
                if length > _HEADER_BYTES or self._header_bytes > _HEADERS_BYTES:
                    raise ValueError(
                        f"a header of {length} bytes, {self._header_bytes} with those of other files"
                    )
                return shapes(bounded.loads(file.read(length)))
        except (OSError, ValueError) as error:
            raise InputError(
                f"is no safetensors file: {error}",
                file=str(path),
                hint="it may be a pointer of git-lfs; fetch it",
            ) from error


def shapes(header: object) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a parsed safetensors header by tensor name; other entries are skipped."""
    if not isinstance(header, Mapping):
        raise ValueError("the header is no object")
    tensor_shapes = {}
    for name, entry in header.items():
        shape = entry.get("shape") if isinstance(entry, Mapping) else None
        if isinstance(shape, list) and all(isinstance(size, int) for size in shape):
            tensor_shapes[str(name)] = tuple(shape)
    return tensor_shapes


_SIZE_LINE = re.compile(r"(\d+)[ \t]+(\S.*)")
_DIGITS = 18  # of a size; an exabyte has 18
_FILE_LINE = re.compile(r"==> (.+) <==")


class Listing(Files):
    """A volume as a file describes it, for weights that are not on this machine.

    The file holds ``SIZE PATH`` lines and, where a small file's content is known, ``==> PATH <==`` with the content
    below. In a pod that mounts the volume::

        cd DIRECTORY; find . -type f -printf '%s %p\\n'; tail -v -n +1 *.json *.jinja
    """

    def __init__(self, text: str, file: str) -> None:
        self.where = file
        self._sizes: dict[str, int] = {}
        self._texts: dict[str, str] = {}
        lines = text.split("\n")
        row = 0
        while row < len(lines):
            head = _FILE_LINE.fullmatch(lines[row].rstrip("\r"))
            if head is None:
                self._size(lines[row], row + 1)
                row += 1
                continue
            start = row = row + 1
            while row < len(lines) and not _FILE_LINE.fullmatch(lines[row].rstrip("\r")):
                row += 1
            # tail puts an empty line before every heading but the first
            self._texts[_bare(head[1])] = "\n".join(lines[start:row]).rstrip("\n")
        if not self._sizes and not self._texts:
            raise InputError(
                "lists no file", file=file, hint="see docs/how-to/drafts.md to make a listing"
            )

    def _size(self, line: str, number: int) -> None:
        if not line.strip():
            return
        match = _SIZE_LINE.fullmatch(line.rstrip("\r"))
        if match is None:
            raise InputError(
                f"is neither 'SIZE PATH' nor '==> PATH <==': {line[:60]!r}",
                file=self.where,
                line=number,
            )
        if len(match[1]) > _DIGITS:
            raise InputError(f"a size of {len(match[1])} digits", file=self.where, line=number)
        self._sizes[_bare(match[2])] = int(match[1])

    def text(self, name: str) -> str | None:
        """The content, where the listing has it."""
        return self._texts.get(name)

    def sizes(self) -> Mapping[str, int]:
        """The sizes listed."""
        return self._sizes


def _bare(path: str) -> str:
    return path.strip().removeprefix("./")


def read_model(folder: Path) -> ModelFacts | None:
    """Read the facts of a checkpoint's folder; None without a ``config.json``.

    Raises:
        InputError: one of its files cannot be used; with the file's path.
    """
    return read_checkpoint(Directory(folder))


if TYPE_CHECKING:
    import httpx

_ON = frozenset({"1", "on", "yes", "true"})
CONNECT_S, READ_S = 2.0, 5.0  # one slow hub must not hold up a check that works without it
WHOLE_S = 30.0  # for all files of one repository, tokenizer.json of some 20 MB among them


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
    headers = {"Accept-Encoding": "identity"} | (
        {"authorization": f"Bearer {token}"} if token else {}
    )
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


class _Repository(Files):
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
            return read_limited(answer.iter_bytes(), f"{self.where}/{name}", self._end, _FILE_BYTES)
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


Messages = Sequence[JsonView]
Tokenizer = Callable[[Sequence[tuple[Messages, str]]], list[tuple[list[int], list[int]]]]
"""Token ids of conversations: of the messages with the template, as a request has them, and of the answer with its
end."""
_TOKENS_S = 8.0  # of CPU for each conversation, and to read the tokenizer: one of 33 MB takes 4 s
_FIRST_S = 10.0  # until the first result
_CHARACTERS_PER_S = 100_000  # at least, on a busy machine
_INSTALL = "pip install tokenizers jinja2; or give an engine that runs: --url http://host:8000"


def of_directory(path: Path) -> Tokenizer:
    """The tokenizer of a checkpoint on this machine. It and the template may be another's: they run in a child process
    with limits of time and memory.

    Raises:
        InputError: the directory holds no tokenizer.json; when called, also: the library that reads it is not
            installed, or it or the template cannot be used.
    """
    file = path / "tokenizer.json"
    if not file.is_file():
        hint = (
            "name a directory that holds the target's tokenizer.json, or an engine that runs: --url"
        )
        raise InputError(f"{path}: tokenizer.json not found", field="--tokenizer", hint=hint)
    for small in (file, path / "tokenizer_config.json", path / "chat_template.jinja"):
        if small.is_file():
            _require_small(small)

    def tokens(conversations: Sequence[tuple[Messages, str]]) -> list[tuple[list[int], list[int]]]:
        seconds = _FIRST_S + len(str(conversations)) / _CHARACTERS_PER_S
        settings = {"folder": str(path.absolute())}
        results = run_each(
            "tokens", conversations, item_s=_TOKENS_S, whole_s=seconds, settings=settings
        )
        for number, result in enumerate(results, start=1):
            if isinstance(result, Unread):
                missing = result.reason.startswith("No module named")
                reason = f"the tokenizer or its chat template cannot be used for conversation {number}: {result.reason}"
                raise InputError(reason, file=str(file), hint=_INSTALL if missing else None)
        return [(prompt, answer) for prompt, answer in results]

    return tokens


def of_engine(url: str, model: str) -> Tokenizer:
    """The tokenizer of a running engine.

    Raises:
        NoAnswer: it does not answer.
    """

    def ask(body: JsonView) -> list[int]:
        answer = http.request("POST", f"{url.rstrip('/')}/tokenize", json={"model": model, **body})
        tokens = answer.json().get("tokens") if answer.status == 200 else None
        if not isinstance(tokens, list):
            raise MpctlError(
                f"{url}/tokenize: {answer.status} {answer.text[:200]}", hint="is it a vLLM server?"
            )
        return tokens

    return lambda conversations: [
        (
            ask({"messages": list(messages), "add_generation_prompt": True}),
            ask({"prompt": answer, "add_special_tokens": False}),
        )
        for messages, answer in conversations
    ]
