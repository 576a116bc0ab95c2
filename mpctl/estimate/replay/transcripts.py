"""The file of logged prompts and answers: one JSON object per line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mpctl.errors import InputError

_ANSWERS = ("answer", "completion", "response")
_FORMS = (
    'a line is {"prompt": "...", "answer": "..."}, {"messages": [..., {"role": "assistant", "content": "..."}]}, '
    'or {"prompt_token_ids": [...], "token_ids": [...]}'
)


@dataclass(frozen=True)
class Transcript:
    """One request: texts, or ``tokens`` of prompt and answer. ``messages``: of a chat, without the answer."""

    prompt: str = ""
    messages: tuple[Mapping[str, Any], ...] = ()
    answer: str = ""
    tokens: tuple[tuple[int, ...], tuple[int, ...]] | None = None


def read_transcripts(text: str, file: str) -> tuple[Transcript, ...]:
    """Every line of the file.

    Raises:
        InputError: a line is no JSON object or holds no prompt and answer; with its number.
    """
    transcripts = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            transcripts.append(_read(line, file, number))
    if not transcripts:
        raise InputError("holds no prompt with an answer", file=file, hint=_FORMS)
    return tuple(transcripts)


def _read(line: str, file: str, number: int) -> Transcript:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise InputError(f"not JSON: {error}", file=file, line=number, hint=_FORMS) from error
    made = _made(record) if isinstance(record, Mapping) else None
    if made is None:
        raise InputError("holds no prompt with an answer", file=file, line=number, hint=_FORMS)
    return made


def _made(record: Mapping[str, Any]) -> Transcript | None:
    prompt_ids, ids = _ids(record.get("prompt_token_ids")), _ids(record.get("token_ids"))
    if prompt_ids is not None and ids is not None:
        return Transcript(tokens=(prompt_ids, ids))
    answer = next((record[key] for key in _ANSWERS if isinstance(record.get(key), str)), None)
    messages = record.get("messages")
    if isinstance(messages, list) and messages and all(isinstance(message, Mapping) for message in messages):
        last = messages[-1]
        if answer is None and last.get("role") == "assistant" and isinstance(last.get("content"), str):
            answer, messages = last["content"], messages[:-1]
        return None if not answer or not messages else Transcript(messages=tuple(messages), answer=answer)
    prompt = record.get("prompt")
    return Transcript(prompt=prompt, answer=answer) if isinstance(prompt, str) and prompt and answer else None


def _ids(value: Any) -> tuple[int, ...] | None:
    whole = isinstance(value, list) and all(isinstance(token, int) and not isinstance(token, bool) for token in value)
    return tuple(value) if whole else None
