"""Files of prompts and conversations, read by their structure, and the sets that mpctl brings along.

A line holds a prompt, a conversation as ShareGPT has it, or a request as OpenAI's API gets it, which logs of gateways
wrap. A conversation becomes one request per turn of the user, each with everything before it: the prefix grows as in a
chat or an agent's session. The answers in between are those of the file, so that both arms get the same requests.
Sessions take turns, eight at a time: a request never runs at the same time as the one before it of its session, up to
eight at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import resources
from typing import Any

from mpctl import bounded
from mpctl.errors import InputError

_AT_ONCE = 8
_LEVELS = 100  # of nesting in a request; what reads it later recurses
_NAMED = 4  # faults of a file that are named besides the first
_NESTED = ("request", "body", "request_body")  # where logs of gateways and servers keep what was sent
_ROLES = {"human": "user", "gpt": "assistant", "bot": "assistant", "chatgpt": "assistant", "function": "tool"}
_HINT = 'one JSON object per line, {"prompt": "..."}, or a format of docs/how-to/bench.md'


@dataclass(frozen=True)
class Chat:
    """A request with several messages, tools or a response format. ``text``: its body as JSON, with sorted keys."""

    text: str

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Chat:
        """Return the request of a body."""
        return cls(json.dumps(body, sort_keys=True))

    @property
    def body(self) -> dict[str, Any]:
        """The body of the request."""
        body: dict[str, Any] = json.loads(self.text)
        return body


Prompt = str | Chat
"""What a request sends: the text of its one message, or more."""


def text_of(prompt: Prompt) -> str:
    """Return the text by which a prompt is compared, counted and named."""
    return prompt.text if isinstance(prompt, Chat) else prompt


@dataclass(frozen=True)
class Prompts:
    """The requests of one class: distinct, in the order they are sent. ``count``: with repeats."""

    texts: tuple[Prompt, ...]
    count: int


def read_prompts(text: str, *, file: str) -> tuple[tuple[Prompt, ...], int]:
    """Return the distinct requests of a file and its number of duplicates.

    Raises:
        InputError: the file is not JSON, a record has no known structure, or there is none.
    """
    distinct = _distinct(_in_turns([session for _, session in _sessions(text, file)]))
    return distinct.texts, distinct.count - len(distinct.texts)


def read_classes(text: str, *, file: str) -> dict[str, Prompts]:
    """Return the requests of a file by class: the record's category where it has one, else ``tools`` (a tool is offered
    or was called), ``sessions`` (several turns) or ``chat``.

    Raises:
        InputError: as for :func:`read_prompts`.
    """
    classes: dict[str, list[list[Prompt]]] = {}
    for name, session in _sessions(text, file):
        classes.setdefault(name, []).append(session)
    return {name: _distinct(_in_turns(sessions)) for name, sessions in classes.items()}


def _distinct(texts: Sequence[Prompt]) -> Prompts:
    return Prompts(tuple(dict.fromkeys(texts)), len(texts))


def _in_turns(sessions: Sequence[Sequence[Prompt]]) -> list[Prompt]:
    """The requests of all sessions: one of each of the running sessions, then the next of each."""
    waiting, order = list(reversed(sessions)), list[Prompt]()
    running: list[Iterator[Prompt]] = []
    while waiting or running:
        while waiting and len(running) < _AT_ONCE:
            running.append(iter(waiting.pop()))
        still = []
        for session in running:
            request = next(session, None)
            if request is not None:
                order.append(request)
                still.append(session)
        running = still
    return order


def _sessions(text: str, file: str) -> list[tuple[str, list[Prompt]]]:
    sessions: list[tuple[str, list[Prompt]]] = []
    faults: list[InputError] = []
    hidden = 0  # an error holds its frames: a file of nothing but faults would take seconds
    for line, record in _records(text, file):
        try:
            sessions.append(_session(record(), file, line))
        except InputError as error:
            if len(faults) <= _NAMED:
                faults.append(error)
            else:
                hidden += 1
    if faults:
        raise _joined(faults, hidden)
    if not sessions:
        raise InputError("holds no prompts", file=file, hint=_HINT)
    return sessions


def _joined(faults: Sequence[InputError], hidden: int) -> InputError:
    """The first fault of a file, with the lines of the others and the number of those that are hidden."""
    first, *others = faults
    if not others:
        return first
    named = "; ".join(f"line {fault.line}: {fault.reason}" for fault in others)
    reason = f"{first.reason}; {named}" + (f"; and {hidden} more" if hidden else "")
    return InputError(reason, file=first.file, line=first.line, field=first.field, hint=first.hint)


def _records(text: str, file: str) -> Iterator[tuple[int, Callable[[], Any]]]:
    """Every record, to be read, with its line, or with its number in a JSON list."""
    if text.lstrip()[:1] == "[":
        for number, record in enumerate(_loads(text, file, None), start=1):
            yield number, partial(_as_is, record)
        return
    for number, line in enumerate(text.split("\n"), start=1):  # not splitlines: U+2028 may stand inside a prompt
        if line.strip():
            yield number, partial(_loads, line, file, number)


def _as_is(record: Any) -> Any:
    return record


def _loads(text: str, file: str, line: int | None) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"not JSON: {error.msg}", file=file, line=line or error.lineno) from error
    except (RecursionError, ValueError) as error:
        raise InputError("not JSON that can be read: too deep, or a number too long", file=file, line=line) from error


def _session(record: Any, file: str, line: int) -> tuple[str, list[Prompt]]:
    """The class and the requests of one record."""
    try:
        kind, requests = _requests(record)
    except _UnknownError as error:
        raise InputError(error.why, file=file, line=line, field=error.field, hint=_HINT) from error
    category = record.get("category")
    return (category if isinstance(category, str) and category.strip() else kind), requests


class _UnknownError(Exception):
    def __init__(self, why: str, field: str) -> None:
        super().__init__(why)
        self.why, self.field = why, field


def _requests(record: Any) -> tuple[str, list[Prompt]]:
    if not isinstance(record, dict):
        raise _UnknownError("needs a non-empty string", "prompt")
    if bounded.is_nested_deeper(record, _LEVELS):
        raise _UnknownError(f"is nested more than {_LEVELS} levels deep", "request")
    for key in _NESTED:
        inner = _nested(record.get(key))
        if inner is not None:
            return _requests(inner)
    settings = _settings(record)
    if isinstance(record.get("messages"), list):
        return _conversation(record["messages"], settings, "messages")
    if isinstance(record.get("conversations"), list):
        return _conversation(record["conversations"], settings, "conversations")
    prompt = _text(record.get("prompt"), "prompt")
    if settings:
        return _conversation([{"role": "user", "content": prompt}], settings, "messages")
    return "chat", [prompt]


def _settings(record: Mapping[str, Any]) -> dict[str, Any]:
    """The tools and the response format of a request, which every turn of it is sent with."""
    tools, response_format = record.get("tools"), record.get("response_format")
    if tools is not None and not (isinstance(tools, list) and all(isinstance(tool, dict) for tool in tools)):
        raise _UnknownError("needs a list of objects", "tools")
    if response_format is not None and not isinstance(response_format, dict):
        raise _UnknownError("needs an object", "response_format")
    return {key: value for key, value in (("tools", tools), ("response_format", response_format)) if value}


def _nested(value: Any) -> dict[str, Any] | None:
    if isinstance(value, str) and value.lstrip()[:1] == "{":
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, dict) else None


def _text(value: Any, field: str) -> str:
    if not isinstance(value, str) or not value:
        raise _UnknownError("needs a non-empty string", field)
    return value


def _conversation(listed: Sequence[Any], settings: Mapping[str, Any], field: str) -> tuple[str, list[Prompt]]:
    """A request per turn of the user or a tool. A list of messages that ends with one is a request as it was sent;
    of questions without answers only the first is asked, which needs no answer of the model under test."""
    messages = [_message(message, field) for message in listed]
    if not {"assistant", "tool"} & {message["role"] for message in messages}:
        questions = [i for i, message in enumerate(messages) if message["role"] == "user"]
        messages = messages[: questions[0] + 1] if questions else messages
    ends = [i for i, message in enumerate(messages) if message["role"] in ("user", "tool") and _is_last(messages, i)]
    if not ends:
        raise _UnknownError("has no message of a user", field)
    if field == "messages" and ends[-1] == len(messages) - 1:
        ends = ends[-1:]
    called = "tools" in settings or any(message["role"] == "tool" or "tool_calls" in message for message in messages)
    kind = "tools" if called else "sessions" if sum(message["role"] == "user" for message in messages) > 1 else "chat"
    return kind, [_request(messages[: end + 1], settings) for end in ends]


def _is_last(messages: Sequence[Mapping[str, Any]], index: int) -> bool:
    """Return whether an answer follows, or nothing: several results of tools are one turn."""
    return index + 1 == len(messages) or messages[index + 1]["role"] == "assistant"


def _message(message: Any, field: str) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise _UnknownError("needs messages with a role and a content", field)
    role = message.get("role", message.get("from"))
    content = message.get("content", message.get("value"))
    if not isinstance(role, str) or not _is_content(content, message):
        raise _UnknownError("needs messages with a role and a text", field)
    tool_fields = {key: message[key] for key in ("tool_calls", "tool_call_id", "name") if message.get(key)}
    return {"role": _ROLES.get(role, role), "content": content, **tool_fields}


def _is_content(content: Any, message: Mapping[str, Any]) -> bool:
    if content is None:
        return bool(message.get("tool_calls"))
    if isinstance(content, list):
        return all(isinstance(p, dict) and p.get("type") == "text" and isinstance(p.get("text"), str) for p in content)
    return isinstance(content, str)


def _request(messages: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> Prompt:
    (only, *following) = messages
    if not following and not settings and isinstance(only["content"], str) and only["content"]:
        return _text(only["content"], "messages")
    return Chat.of({"messages": list(messages), **settings})


def body_of(prompt: Prompt) -> dict[str, Any]:
    """The body of the request that a prompt of the workload stands for: its messages, tools and response format."""
    return prompt.body if isinstance(prompt, Chat) else {"messages": [{"role": "user", "content": prompt}]}


def asks_for_more_than_a_text(prompt: Prompt) -> bool:
    """Return whether a request brings tools, a response format or several messages."""
    body = body_of(prompt)
    return len(body["messages"]) > 1 or not body.keys().isdisjoint(("tools", "response_format"))


BUILT_IN = ("edits", "rag", "chat", "math", "fresh")


def built_in_prompts(name: str) -> tuple[tuple[Prompt, ...], int] | None:
    """Distinct prompts of a built-in set and how many repeats were left out; None where there is no such set."""
    if name not in BUILT_IN:
        return None
    file = resources.files("mpctl.experiment") / "prompts" / f"{name}.jsonl"
    return read_prompts(file.read_text(encoding="utf-8"), file=name)
