"""Forms that servers give to token ids: equal ids must give equal answers, and an answer must be valid for its request.

Equal token ids with another text, tool call or end are a proof and need no statistics: they find the faults of parsers,
gateways and streams with one answer. Validity is counted in both arms, because a model fails by itself now and then.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from mpctl import bounded
from mpctl.experiment.answers import Answer, Ask, Pair
from mpctl.experiment.block import CUT
from mpctl.json_types import Json
from mpctl.stats.numerics import special

ALPHA = 0.005  # one-sided, of each kind of invalid answers; eight against none decide
OTHER_CALLS = "other tool calls"
_PERIOD, _LOOP = 16, 24  # tokens
_LEAKS = re.compile(
    r"</?tool_calls?>|<function=|\[TOOL_CALLS\]|<\|python_tag\|>|<\|tool_calls?|<\uff5ctool"
)


class Invalid(StrEnum):
    """Kinds of invalid answers."""

    ERROR = "no answer"
    CUT = "a document or call that is cut off"
    LONG = "more tokens than asked for"
    JSON = "no JSON of its schema"
    CALL = "no valid tool call"
    LEAK = "a tool call in the text"
    LOOP = "a repetition loop"


def invalid_kinds(ask: Ask, answer: Answer) -> frozenset[Invalid]:
    """Return in which ways an answer is invalid for its request; none for a valid one. The platform has matched its
    documents with their schemas already (see :func:`documents`)."""
    if answer.error:
        return frozenset({Invalid.ERROR})
    checks = {
        Invalid.CUT: ask.constrained and answer.finish == CUT,
        Invalid.LONG: answer.surplus > 0,
        Invalid.JSON: answer.finish != CUT and not answer.document_fits,
        Invalid.CALL: answer.finish != CUT and not _calls_are_valid(ask, answer),
        Invalid.LEAK: bool(ask.body.get("tools")) and _LEAKS.search(answer.text) is not None,
        Invalid.LOOP: loops(answer.ids or answer.text.split()),
    }
    return frozenset(kind for kind, invalid in checks.items() if invalid)


def documents(ask: Ask, answer: Answer) -> list[tuple[bool, str, Any]]:
    """Return the texts of an answer that must be JSON, each with its schema: its document (True) and the arguments of
    its calls of known functions (False)."""
    if answer.error or answer.finish == CUT:
        return []
    schemas = [
        (True, answer.text, schema) for schema in _document_schemas(ask.body.get("response_format"))
    ]
    functions = _functions(ask)
    calls = [call for call in answer.tool_calls if call.name in functions]
    return schemas + [(False, call.arguments, functions[call.name]) for call in calls]


def _document_schemas(wanted: Any) -> list[Any]:
    """Return the schema of the document that a response format asks for, if it asks for one."""
    if not isinstance(wanted, Mapping) or wanted.get("type") not in ("json_schema", "json_object"):
        return []
    if wanted["type"] == "json_object":
        return [{"type": "object"}]
    named = wanted.get("json_schema") or {}
    return [named.get("schema") or {} if isinstance(named, Mapping) else named]


def _functions(ask: Ask) -> Json:
    """Return the schemas of the functions' arguments by name. Tools of other types (web_search, mcp, custom) have
    none."""
    functions = (tool.get("function") for tool in ask.body.get("tools") or ())
    return {
        function["name"]: function.get("parameters") or {}
        for function in functions
        if isinstance(function, Mapping) and isinstance(function.get("name"), str)
    }


def _calls_are_valid(ask: Ask, answer: Answer) -> bool:
    """At least one call where a tool may be called; every call of a known tool, with arguments by its schema. Of tools
    other than functions nothing is known but that."""
    functions, choice = _functions(ask), ask.body.get("tool_choice", "auto")
    if not ask.body.get("tools") or choice == "none":
        return not answer.tool_calls
    if len(functions) < len(ask.body["tools"]):
        return answer.arguments_fit
    named = choice["function"]["name"] if isinstance(choice, Mapping) else None
    names = {call.name for call in answer.tool_calls}
    return (
        bool(names) and names <= ({named} if named else functions.keys()) and answer.arguments_fit
    )


def loops(tokens: Sequence[object]) -> bool:
    """Return whether at least 24 tokens repeat with a period of at most 16, each at least twice."""
    for period in range(1, min(_PERIOD, len(tokens) - 1) + 1):
        run, wanted = 0, max(_LOOP - period, period)
        for token, earlier in zip(tokens[period:], tokens, strict=False):
            run = run + 1 if token == earlier else 0
            if run >= wanted:
                return True
    return False


def excess_by_chance(worse: int, better: int) -> float:
    """Return the probability of at least ``worse`` of ``worse + better`` discordant pairs if both arms are equal
    (McNemar's exact test, one-sided)."""
    if worse <= 0:
        return 1.0
    return float(special.bdtrc(worse - 1, worse + better, 0.5))


def rendering_fault(first: Answer, second: Answer) -> str:
    """Return what two answers of equal token ids differ in, "" where they agree."""
    parts = (
        ("another text", first.text.strip(), second.text.strip()),
        ("other reasoning", first.reasoning.strip(), second.reasoning.strip()),
        (OTHER_CALLS, _plain(first), _plain(second)),
        ("another finish reason", first.finish, second.finish),
    )
    return next((fault for fault, mine, theirs in parts if mine != theirs), "")


def call_difference(first: Answer, second: Answer) -> str:
    """Return how the second answer's calls differ from the first's, by names of functions and arguments."""
    for (name, wanted), (other, given) in zip(_plain(first), _plain(second), strict=False):
        if name != other:
            return f"{other} in place of {name}"
        if wanted != given:
            before, after = _arguments(wanted), _arguments(given)
            lost = before.keys() - after.keys() if before and after is not None else ()
            return (
                f"{name} without {', '.join(sorted(lost))}"
                if lost
                else f"{name} with other arguments"
            )
    return f"{len(second.tool_calls)} calls in place of {len(first.tool_calls)}"


def _arguments(text: str) -> Json | None:
    """Arguments by name; None for a text that is no JSON object."""
    try:
        value = bounded.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _plain(answer: Answer) -> list[tuple[str, str]]:
    """Names and arguments of the calls; parsers write the same JSON with more or fewer spaces."""
    return [(call.name, _canonical(call.arguments)) for call in answer.tool_calls]


def _canonical(text: str) -> str:
    try:
        return json.dumps(bounded.loads(text))
    except (ValueError, RecursionError):
        return text


def stream_twins(pairs: Iterable[Pair]) -> list[tuple[Pair, Pair]]:
    """Return the pairs of each request that was sent streamed and not streamed."""
    by_request: dict[str, dict[bool, Pair]] = {}
    for pair in pairs:
        if pair.ask.greedy:
            by_request.setdefault(pair.ask.digest, {}).setdefault(pair.ask.stream, pair)
    return [(both[False], both[True]) for both in by_request.values() if len(both) == 2]


def stream_fault(plain: Answer, streamed: Answer) -> str:
    """Return what the streamed answer of equal token ids differs in; finished answers only, because servers render a
    call that was cut off in several ways."""
    finished = not plain.error and not streamed.error and CUT not in (plain.finish, streamed.finish)
    if not finished or not plain.ids or plain.ids != streamed.ids:
        return ""
    fault = rendering_fault(plain, streamed)
    return fault and f"{fault} when streamed"
