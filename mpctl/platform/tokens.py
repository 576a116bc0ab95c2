"""Tokens of a text: by the target's own tokenizer file, or by a running engine's ``/tokenize``."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from mpctl import bounded
from mpctl.errors import InputError, MpctlError
from mpctl.platform import http

Messages = Sequence[Mapping[str, Any]]
_FILE_BYTES = 64 * bounded.MEBIBYTE  # the largest tokenizer.json seen is about 33 MB
_RENDER_S = 10.0  # a template may loop
_INSTALL = "pip install tokenizers jinja2; or give an engine that runs: --url http://host:8000"


class Tokenizer(NamedTuple):
    """``prompt``: tokens of a chat with the template, as a request has them; ``text``: of an answer, with its end."""

    prompt: Callable[[Messages], list[int]]
    text: Callable[[str], list[int]]


def of_directory(path: Path) -> Tokenizer:
    """The tokenizer of a checkpoint on this machine.

    Raises:
        InputError: the directory holds no tokenizer.json, the library that reads it is not installed, or it or the
            template cannot be used. Both may be another's: they run no code, and have limits of size and time.
    """
    file = path / "tokenizer.json"
    if not file.is_file():
        hint = "name a directory that holds the target's tokenizer.json, or an engine that runs: --url"
        raise InputError(f"{path}: tokenizer.json not found", field="--tokenizer", hint=hint)
    try:
        from tokenizers import Tokenizer as Reader
    except ImportError as error:
        raise InputError("the tokenizers library is not installed", field="--transcripts", hint=_INSTALL) from error
    if file.stat().st_size > _FILE_BYTES:
        raise InputError(f"is larger than {_FILE_BYTES // bounded.MEBIBYTE} MiB", file=str(file))
    try:
        reader: Any = Reader.from_file(str(file))
    except Exception as error:
        raise InputError(f"is no tokenizer: {error}", file=str(file)) from error
    config = _config(path / "tokenizer_config.json")
    render = _template(path, config)
    ending = _token(config.get("eos_token"))
    last = reader.token_to_id(ending) if ending else None

    def text(answer: str) -> list[int]:
        return [*reader.encode(answer, add_special_tokens=False).ids, *([last] if last is not None else [])]

    def prompt(messages: Messages) -> list[int]:
        return list(reader.encode(render(messages), add_special_tokens=False).ids)

    return Tokenizer(prompt, text)


def of_engine(url: str, model: str) -> Tokenizer:
    """The tokenizer of a running engine.

    Raises:
        NoAnswer: it does not answer.
    """

    def ask(body: Mapping[str, Any]) -> list[int]:
        answer = http.request("POST", f"{url.rstrip('/')}/tokenize", json={"model": model, **body})
        tokens = answer.json().get("tokens") if answer.status == 200 else None
        if not isinstance(tokens, list):
            raise MpctlError(f"{url}/tokenize: {answer.status} {answer.text[:200]}", hint="is it a vLLM server?")
        return tokens

    return Tokenizer(
        lambda messages: ask({"messages": list(messages), "add_generation_prompt": True}),
        lambda text: ask({"prompt": text, "add_special_tokens": False}),
    )


def _config(file: Path) -> Mapping[str, Any]:
    try:
        config = bounded.loads(file.read_bytes())
    except (OSError, ValueError):
        return {}
    return config if isinstance(config, Mapping) else {}


def _token(value: Any) -> str:
    return str(value.get("content", "")) if isinstance(value, Mapping) else str(value or "")


def _template(path: Path, config: Mapping[str, Any]) -> Callable[[Messages], str]:
    """The chat template, run in a sandbox; without one the contents of the messages."""
    file = path / "chat_template.jinja"
    source = file.read_text(encoding="utf-8") if file.is_file() else config.get("chat_template")
    if not isinstance(source, str):
        return lambda messages: "".join(str(message.get("content", "")) for message in messages)
    try:
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError as error:
        raise InputError("the chat template needs jinja2", field="--transcripts", hint=_INSTALL) from error
    specials = {key: _token(config.get(key)) for key in ("bos_token", "eos_token")}

    def render(messages: Messages) -> str:
        try:
            with _within(_RENDER_S):
                template = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True).from_string(source)
                return str(template.render(messages=list(messages), add_generation_prompt=True, **specials))
        except Exception as error:
            reason = str(error) or type(error).__name__
            raise InputError(f"the chat template cannot be used: {reason}", file=str(path)) from error

    return render


@contextmanager
def _within(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in the main thread after some seconds; elsewhere there is no limit."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def expire(*_: object) -> None:
        raise TimeoutError(f"it takes longer than {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
