"""Model files on this machine, read for the preflight; only small files are opened whole."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from mpctl.errors import InputError
from mpctl.plan import ModelFacts, describe_model


def read_model(model: str | None, cwd: Path) -> ModelFacts | None:
    """What the directory ``model`` says of itself, None when it is no directory here (a repository name, say).

    Raises:
        InputError: its ``config.json`` is not JSON.
    """
    directory = cwd / Path(model).expanduser() if model else None
    if directory is None or not (directory / "config.json").is_file():
        return None
    path = directory / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"not JSON: {error}", file=str(path)) from error
    tokenizer = directory / "tokenizer.json"
    return describe_model(
        config,
        weight_bytes=sum(p.stat().st_size for p in directory.glob("*.safetensors")) or None,
        tokenizer_digest=hashlib.sha256(tokenizer.read_bytes()).hexdigest() if tokenizer.is_file() else None,
        chat_template=_chat_template(directory),
    )


def _chat_template(directory: Path) -> str | None:
    separate = directory / "chat_template.jinja"
    if separate.is_file():
        return separate.read_text(encoding="utf-8")
    config = directory / "tokenizer_config.json"
    if not config.is_file():
        return None
    template = json.loads(config.read_text(encoding="utf-8")).get("chat_template")
    return template if isinstance(template, str) else None
