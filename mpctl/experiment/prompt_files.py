"""Files of prompts and conversations, read by their structure, and the sets that mpctl brings along.

A record holds a prompt, questions, an instruction, a conversation, or a request as OpenAI's API gets it, which logs of
gateways wrap. A conversation becomes one request per turn of the user, each with everything before it: the prefix grows
as in a chat or an agent's session. Earlier answers are those of the file, so that both arms get the same requests.
Sessions take turns, eight at a time: a request never runs at the same time as the one before it of its session, up to
eight concurrently.

A record without a request is left out and counted, and so are settings that are not sent. A file is refused if nothing
remains, or if it is not JSON.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib import resources
from itertools import accumulate, chain
from typing import Any

from mpctl import bounded
from mpctl.errors import InputError
from mpctl.experiment.answers import GRAMMAR, has_grammar
from mpctl.json_types import Json, JsonView
from mpctl.packaged import packaged

_AT_ONCE = 8
_LEVELS = 100  # of nesting in a request; what reads it later recurses
_NAMED = 4  # reasons or settings that are named; the others are counted together
_FIELDS = 8  # of a record of an unknown format that are named
_NAMES = packaged(__package__, "prompt_fields.yaml")
_ROLES = {alias: role for role, aliases in _NAMES["roles"].items() for alias in aliases}
_SENT = frozenset((*GRAMMAR, *chain.from_iterable(_NAMES["sent"].values())))
_UNSENT = frozenset(chain.from_iterable(_NAMES["unsent"].values()))
_UNCOUNTED = frozenset((*_NAMES["uncounted"], *_NAMES["conversations"]))
_LATER = "later questions without an answer"
_HINT = 'one JSON object per line, {"prompt": "..."}, or a format of docs/how-to/bench.md'


@dataclass(frozen=True)
class Chat:
    """A request with several messages or settings. ``text``: its body as JSON, with sorted keys."""

    text: str

    @classmethod
    def of(cls, body: JsonView) -> Chat:
        """Return the request of a body."""
        return cls(json.dumps(body, sort_keys=True, ensure_ascii=False))

    @property
    def body(self) -> Json:
        """The body of the request."""
        body: Json = json.loads(self.text)
        return body


Prompt = str | Chat
"""What a request sends: the text of its one message, or more."""


def text_of(prompt: Prompt) -> str:
    """Return the text by which a prompt is compared, counted and named."""
    return prompt.text if isinstance(prompt, Chat) else prompt


@dataclass(frozen=True)
class Prompts:
    """The requests of one class: distinct, in the order they are sent. ``count``: with duplicates; ``notes``: what of
    the file is left out or not sent."""

    texts: tuple[Prompt, ...]
    count: int
    notes: tuple[str, ...] = ()

    @property
    def repeated(self) -> int:
        """Number of duplicates."""
        return self.count - len(self.texts)


@dataclass(frozen=True)
class _Session:
    """The requests of a record. ``unsent``: names of what they lack."""

    kind: str
    requests: list[Prompt]
    unsent: tuple[str, ...] = ()


@dataclass
class _LeftOut:
    """Records without a request: how many for each reason, and the line of the first."""

    counts: Counter[str] = field(default_factory=Counter)
    lines: dict[str, int] = field(default_factory=dict)

    def add(self, reason: str, line: int) -> None:
        self.counts[reason] += 1
        self.lines.setdefault(reason, line)

    def note(self, records: int) -> str:
        common = self.counts.most_common(_NAMED)
        named = [
            f"{reason} ({count}, first in line {self.lines[reason]})" for reason, count in common
        ]
        others = self.counts.total() - sum(count for _, count in common)
        named += [f"other reasons ({others})"] if others else []
        return f"left out {self.counts.total()} of {records} records: {', '.join(named)}"

    def error(self, file: str) -> InputError:
        """The refusal of a file in which nothing remains: the first reasons with their lines."""
        (first, line), *others = list(self.lines.items())[: _NAMED + 1]
        reasons = [first, *(f"line {number}: {reason}" for reason, number in others)]
        alike = self.counts.total() - len(reasons)
        reasons += [f"and {alike} more"] if alike else []
        return InputError("; ".join(reasons), file=file, line=line, hint=_HINT)


def read_prompts(text: str, *, file: str) -> Prompts:
    """Return the distinct requests of a file.

    Raises:
        InputError: the file is not JSON, or no record holds a request.
    """
    return _prompts(*_sessions(text, file))


def read_classes(text: str, *, file: str) -> dict[str, Prompts]:
    """Return the requests of a file by class: the record's category where it has one, else ``tools`` (a tool is offered
    or was called), ``sessions`` (several turns) or ``chat``. The first class has the notes about the file.

    Raises:
        InputError: as for :func:`read_prompts`.
    """
    sessions, notes = _sessions(text, file)
    classes: dict[str, list[_Session]] = {}
    for session in sessions:
        classes.setdefault(session.kind, []).append(session)
    first = sessions[0].kind
    return {
        name: _prompts(members, notes if name == first else ()) for name, members in classes.items()
    }


def _prompts(sessions: Sequence[_Session], notes: Sequence[str]) -> Prompts:
    texts = _in_turns([session.requests for session in sessions])
    return Prompts(tuple(dict.fromkeys(texts)), len(texts), (*notes, *_unsent(sessions)))


def _unsent(sessions: Sequence[_Session]) -> Iterator[str]:
    counts = Counter[str]()
    for session in sessions:
        counts.update(dict.fromkeys(session.unsent, len(session.requests)))
    if counts:
        named = [
            f"{name} in {count} request{'s' * (count > 1)}" for name, count in counts.most_common()
        ]
        yield f"not sent: {', '.join(named)}"


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


def _sessions(text: str, file: str) -> tuple[list[_Session], tuple[str, ...]]:
    """The sessions of a file, and notes about what of it is left out or replaced."""
    sessions: list[_Session] = []
    left_out, broken, replaced = _LeftOut(), _LeftOut(), 0
    for line, read in _records(text.removeprefix("\ufeff"), file):
        try:
            record = read()
            if bounded.is_nested_deeper(record, _LEVELS):
                raise _UnknownError(f"is nested more than {_LEVELS} levels deep", "request")
            session = _session(record)
            sessions.append(
                replace(session, requests=[_whole(request) for request in session.requests])
            )
            replaced += sessions[-1] != session
        except _UnknownError as unknown:
            left_out.add(str(unknown), line)
        except InputError as error:
            broken.add(error.reason, line)
    if broken.counts:
        raise broken.error(file)
    if not sessions and left_out.counts:
        raise left_out.error(file)
    if not sessions:
        raise InputError("holds no prompts", file=file, hint=_HINT)
    notes = [left_out.note(len(sessions) + left_out.counts.total())] if left_out.counts else []
    if replaced:
        notes.append(
            f"replaced half a surrogate pair by U+FFFD in {replaced} record{'s' * (replaced > 1)}"
        )
    return sessions, tuple(notes)


def _records(text: str, file: str) -> Iterator[tuple[int, Callable[[], Any]]]:
    """Every record, to be read, with its line, or with its number in a JSON list."""
    if text.lstrip().startswith("["):
        for number, record in enumerate(_loads(text, file, None), start=1):
            yield number, partial(copy, record)
        return
    for number, line in enumerate(
        text.split("\n"), start=1
    ):  # not splitlines: U+2028 may stand inside a prompt
        if line.strip():
            yield number, partial(_loads, line, file, number)


def _loads(text: str, file: str, line: int | None) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"not JSON: {error.msg}", file=file, line=line or error.lineno) from error
    except (RecursionError, ValueError) as error:
        raise InputError(
            "not JSON that can be read: too deep, or a number too long", file=file, line=line
        ) from error


def _whole(request: Prompt) -> Prompt:
    """The request with U+FFFD for each half of a surrogate pair, which logs cut by length hold and UTF-8 does not."""
    text = text_of(request).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return Chat(text) if isinstance(request, Chat) else text


class _UnknownError(Exception):
    """A record holds no request that can be sent."""

    def __init__(self, why: str, name: str) -> None:
        super().__init__(f"{name}: {why}" if name else why)


def _session(record: Any) -> _Session:
    """The class and the requests of one record."""
    session = _requests(record, nested=False)
    category = record.get("category")
    return (
        replace(session, kind=category)
        if isinstance(category, str) and category.strip()
        else session
    )


def _requests(record: Any, *, nested: bool) -> _Session:
    """``nested``: the record is a request alone, without fields of a data set."""
    if not isinstance(record, dict):
        raise _UnknownError("needs a non-empty string", "prompt")
    for key in _NAMES["nested"]:
        inner = _parsed(record.get(key))
        if isinstance(inner, dict):
            return _requests(inner, nested=True)
    extra = record.get("extra_body")
    record = {**record, **extra} if isinstance(extra, dict) else record
    settings, unsent = _settings(record, nested=nested)
    if media := next((name for name in _NAMES["media"] if record.get(name)), None):
        raise _UnknownError("cannot be sent", media)
    system = [{"role": "system", "content": record["system"]}] if record.get("system") else []
    lists = {name: _parsed(record.get(name)) for name in _NAMES["conversations"]}
    for name, turns in lists.items():
        if isinstance(turns, list):
            return _conversation([*system, *turns], settings, unsent, name)
    if "prompt" not in record and "instruction" in record:
        return _conversation([*system, *_instruction(record)], settings, unsent, "instruction")
    if "prompt" not in record:
        raise _UnknownError(
            f"holds none of prompt, {', '.join(lists)}, instruction; {_fields(record)}", ""
        )
    prompt = _text(record["prompt"], "prompt")
    if settings or system:
        return _conversation(
            [*system, {"role": "user", "content": prompt}], settings, unsent, "messages"
        )
    return _Session("chat", [prompt], unsent)


def _fields(record: JsonView) -> str:
    """The fields of a record of another format, whose names may be anything."""
    named = ", ".join(f"{name:.40}" for name in [*record][:_FIELDS])
    return (
        f"its fields: {named}{', ...' * (len(record) > _FIELDS)}" if record else "it has no fields"
    )


def _instruction(record: JsonView) -> list[Json]:
    """The messages of an instruction with its input, as Alpaca has them, and with its history."""
    parts = _text(record["instruction"], "instruction"), record.get("input")
    text = "\n\n".join(part for part in parts if isinstance(part, str) and part)
    history = record.get("history") or ()
    if not isinstance(history, list | tuple) or not all(
        isinstance(pair, list) and len(pair) == 2 for pair in history
    ):
        raise _UnknownError("needs pairs of a question and an answer", "history")
    earlier = [
        (role, text)
        for pair in history
        for role, text in zip(("user", "assistant"), pair, strict=True)
    ]
    return [{"role": role, "content": content} for role, content in (*earlier, ("user", text))]


def _settings(record: JsonView, *, nested: bool) -> tuple[Json, tuple[str, ...]]:
    """The settings of a request, which every turn of it is sent with, and the names of those that are not sent."""
    sent = {
        name: value
        for name, value in record.items()
        if (name in _SENT or name.startswith("guided_")) and value not in (None, [], {}, "")
    }
    if "tools" in sent:
        sent["tools"] = _tools(sent["tools"])
    if not isinstance(sent.get("response_format", {}), dict):
        raise _UnknownError("needs an object", "response_format")
    unsent = [
        name for name in record if name in _UNSENT or (nested and name not in _SENT | _UNCOUNTED)
    ]
    if not _is_choice(sent.get("tool_choice", "auto")):
        unsent.append("tool_choice")
        del sent["tool_choice"]
    if not sent.get("tools"):
        sent = {name: value for name, value in sent.items() if name not in ("tools", "tool_choice")}
    return sent, tuple(name for name in unsent if record[name] is not None and name not in sent)


def _tools(tools: Any) -> list[Json]:
    """The tools of a request; trainers write them as a text, and without their type."""
    listed = _parsed(tools)
    if not isinstance(listed, list) or not all(isinstance(tool, dict) for tool in listed):
        raise _UnknownError("needs a list of objects", "tools")
    return [
        tool if "function" in tool or "type" in tool else {"type": "function", "function": tool}
        for tool in listed
    ]


def _is_choice(choice: Any) -> bool:
    """Return whether a tool_choice is a word or names a function."""
    function = choice.get("function") if isinstance(choice, dict) else None
    return isinstance(choice, str) or (
        isinstance(function, dict) and isinstance(function.get("name"), str)
    )


def _parsed(value: Any) -> Any:
    """A value that a log may hold as a text; None where the text is not JSON."""
    if not isinstance(value, str):
        return value
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return None if bounded.is_nested_deeper(parsed, _LEVELS) else parsed


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str) or not value:
        raise _UnknownError("needs a non-empty string", name)
    return value


def _conversation(
    listed: Sequence[Any], settings: JsonView, unsent: tuple[str, ...], name: str
) -> _Session:
    """A request per turn of the user or a tool. A list of messages that ends with one is a request as it was sent;
    of questions without answers only the first is asked, which needs no answer of the model under test."""
    messages = _with_ids([_message(message, name) for message in listed])
    if not {"assistant", "tool"} & {message["role"] for message in messages}:
        questions = [i for i, message in enumerate(messages) if message["role"] == "user"]
        messages = messages[: questions[0] + 1] if questions else messages
        unsent += (_LATER,) * (len(questions) > 1)
    ends = [i for i, message in enumerate(messages) if _asks(message) and _is_last(messages, i)]
    if not ends:
        raise _UnknownError("no question of a user", name)
    if name == "messages" and ends[-1] == len(messages) - 1:
        ends = ends[-1:]
    called = "tools" in settings or any(
        message["role"] == "tool" or "tool_calls" in message for message in messages
    )
    kind = (
        "tools"
        if called
        else "sessions"
        if sum(message["role"] == "user" for message in messages) > 1
        else "chat"
    )
    return _Session(kind, [_request(messages[: end + 1], settings) for end in ends], unsent)


def _asks(message: JsonView) -> bool:
    """Return whether a message is a result of a tool or a question with a text."""
    content = message["content"]
    texts = [content] if isinstance(content, str) else [part["text"] for part in content or ()]
    return message["role"] == "tool" or (
        message["role"] == "user" and any(text.strip() for text in texts)
    )


def _is_last(messages: Sequence[JsonView], index: int) -> bool:
    """Return whether an answer follows, or nothing: several results of tools are one turn."""
    return index + 1 == len(messages) or messages[index + 1]["role"] == "assistant"


def _message(message: Any, name: str) -> Json:
    if name == "turns" and isinstance(message, str):
        message = {"role": "user", "content": message}
    if not isinstance(message, dict):
        raise _UnknownError("needs messages with a role and a content", name)
    speaker, content = (
        message.get("role", message.get("from")),
        message.get("content", message.get("value")),
    )
    role = _ROLES.get(speaker.lower()) if isinstance(speaker, str) else None
    if role is None:
        raise _UnknownError(
            f"needs messages with a role and a text, not the role {speaker!r:.40}", name
        )
    fields = {key: message[key] for key in _NAMES["message"] if message.get(key)}
    call = content if str(speaker).lower() in _NAMES["callers"] else message.get("function_call")
    if call:
        return {"role": role, **fields, "content": None, "tool_calls": _calls(call, name)}
    if content is None and "tool_calls" in fields:
        return {"role": role, **fields, "content": None}
    return {"role": role, **fields, "content": _content(content, name)}


def _content(content: Any, name: str) -> str | list[Json]:
    """The text of a message, or its parts if all are texts; a log has null for an answer that was cut off."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        raise _UnknownError("needs messages with a role and a text", name)
    for part in content:
        if part.get("type") not in _NAMES["texts"] or not isinstance(part.get("text"), str):
            raise _UnknownError(f"a part of type {part.get('type')!r:.40} cannot be sent", name)
    return [{"type": "text", "text": part["text"]} for part in content]


def _calls(call: Any, name: str) -> list[Json]:
    """The tool calls of a message, of the form in which trainers and earlier versions of the API write them."""
    parsed = _parsed(call)
    calls = parsed if isinstance(parsed, list) else [parsed]
    if not calls or not all(
        isinstance(each, dict) and isinstance(each.get("name"), str) for each in calls
    ):
        raise _UnknownError("needs a function_call with a name and arguments", name)
    arguments = [each.get("arguments", each.get("parameters", {})) for each in calls]
    texts = [
        value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for value in arguments
    ]
    functions = [
        {"name": each["name"], "arguments": text} for each, text in zip(calls, texts, strict=True)
    ]
    return [{"id": "", "type": "function", "function": function} for function in functions]


def _with_ids(messages: Sequence[Json]) -> list[Json]:
    """The messages with an id for each call that has none, and for the result that follows it."""
    numbered, waiting = list[Json](), list[str]()
    for number, message in enumerate(messages):
        calls = message.get("tool_calls")
        added: Json = {}
        if isinstance(calls, list) and all(
            isinstance(call, dict) and call.get("id") == "" for call in calls
        ):
            waiting = [f"call-{number}-{index}" for index in range(len(calls))]
            added = {
                "tool_calls": [
                    {**call, "id": name} for call, name in zip(calls, waiting, strict=True)
                ]
            }
        elif message["role"] == "tool" and waiting and "tool_call_id" not in message:
            added = {"tool_call_id": waiting.pop(0)}
        numbered.append({**message, **added})
    return numbered


def _request(messages: Sequence[JsonView], settings: JsonView) -> Prompt:
    (only, *following) = messages
    if (
        not following
        and not settings
        and only.keys() == {"role", "content"}
        and isinstance(only["content"], str)
    ):
        return str(only["content"])
    return Chat.of({"messages": list(messages), **settings})


def body_of(prompt: Prompt) -> Json:
    """The body of the request that a prompt of the workload stands for: its messages and settings."""
    return (
        prompt.body
        if isinstance(prompt, Chat)
        else {"messages": [{"role": "user", "content": prompt}]}
    )


def asks_for_more_than_a_text(prompt: Prompt) -> bool:
    """Return whether a request brings tools, a form of the answer or several messages."""
    body = body_of(prompt)
    return len(body["messages"]) > 1 or "tools" in body or has_grammar(body)


def conversations_of(prompts: Iterable[Prompt]) -> list[list[Prompt]]:
    """The prompts by conversation: one that begins with all messages of an earlier one is a later turn of it."""
    every: list[list[Prompt]] = []
    by_messages: dict[int, list[Prompt]] = {}
    for prompt in prompts:
        texts = (json.dumps(message, sort_keys=True) for message in body_of(prompt)["messages"])
        # A name for each beginning of the messages, which depends on all of them.
        *beginnings, whole = accumulate(texts, lambda before, text: hash((before, text)), initial=0)
        turns = next(
            (by_messages[name] for name in reversed(beginnings) if name in by_messages), None
        )
        if turns is None:
            every.append(turns := [])
        turns.append(prompt)
        by_messages[whole] = turns
    return every


CONVERSATIONS = "conversations"
BUILT_IN = ("edits", "rag", "chat", "math", "fresh", CONVERSATIONS)


@cache
def built_in_prompts(name: str) -> tuple[tuple[Prompt, ...], int] | None:
    """Distinct prompts of a built-in set and how many repeats were left out; None where there is no such set."""
    if name not in BUILT_IN:
        return None
    file = resources.files("mpctl.experiment") / "prompts" / f"{name}.jsonl"
    prompts = read_prompts(file.read_text(encoding="utf-8"), file=name)
    return prompts.texts, prompts.repeated
