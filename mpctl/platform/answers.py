"""Ask an engine for answers with their token ids, and let it score token ids.

The requests leave from the process of the command, by the way of every other question to an arm: a loopback address, a
unix socket, or the API server's port-forward to the arm's own pod. Nothing is timed here, so the client need not run
beside the engine, and an answer never exists outside this process's memory: no file, argument, pod or log holds one.
A request that failed is known by its status alone, because an engine's message may quote the request.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import TypeVar

from mpctl import bounded
from mpctl.experiment.answers import OWN, Answer, Ask, Scored, ToolCall
from mpctl.gate.answer_forms import documents
from mpctl.json_fields import list_at, mapping_at
from mpctl.json_types import Json, JsonView
from mpctl.platform import http
from mpctl.platform.bounded_process import Unread, run_each
from mpctl.rollout.ports import Endpoint

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_ANSWER_S = 300.0  # of one answer on a busy engine
# Bytes of an answer at most, by what was asked: its frame and the template's tokens; for each byte of the request up to
# one token id; for each token of the answer its id, text and event; for each alternative its id, score and text.
_FRAME_BYTES, _BYTES_PER_BYTE, _BYTES_PER_TOKEN, _BYTES_PER_ALTERNATIVE = 64 * 2**10, 12, 1024, 256
_TEMPLATE_TOKENS = 8192  # that a chat template adds to a request
_ANSWER_BYTES = 64 * bounded.MEBIBYTE  # of any answer
_SCHEMA_S, _SCHEMAS_S = 2.0, 10.0  # to match the answers of a pass with one schema, and with all
_FEWEST = 2  # alternatives of a token
_ID = "token_id:"
_RENDERED = (
    "model",
    "messages",
    "tools",
    "chat_template_kwargs",
)  # of a request, what its prompt's tokens follow from
# Named, or the generation_config.json of one arm's model would set them for that arm alone.
_NEUTRAL = {
    "top_k": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}


class _RefusedError(Exception):
    """The reason why there is no answer, without a word of the request."""


def ask(
    endpoint: Endpoint, asks: Sequence[Ask], *, concurrency: int, salt: str, alternatives: int = 2
) -> tuple[Answer, ...]:
    """Return the answers in the order of ``asks``, ``concurrency`` at once. ``salt``: of the prefix cache, one per run
    and arm: a session meets its own prefix, and nothing of another measurement; "" for users' own part of the cache.
    ``alternatives``: of each token, 2 to 20, or 0 to ask for no log probability; more than 2 come with the answer. The
    first of them is the token itself, which the engine need not name twice: with 1 the most likely token would be
    missing (vLLM 0.32)."""
    return match_schemas(
        asks, _at_once(partial(_answer, endpoint, salt, alternatives), asks, concurrency)
    )


def match_schemas(asks: Sequence[Ask], answers: Sequence[Answer]) -> tuple[Answer, ...]:
    """Return the answers with the results of matching their documents with the schemas. Users write these, so a child
    process with limits reads them: first those of built-in requests, each schema once."""
    rows: dict[str, list[tuple[int, bool, str]]] = {}
    for number in sorted(range(len(asks)), key=lambda number: asks[number].kind == OWN):
        for is_document, text, schema in documents(asks[number], answers[number]):
            rows.setdefault(json.dumps(schema), []).append((number, is_document, text))
    items = [(schema, [text for *_, text in texts]) for schema, texts in rows.items()]
    matched = list(answers)
    results = run_each("schemas", items, item_s=_SCHEMA_S, whole_s=_SCHEMAS_S)
    for texts, fits in zip(rows.values(), results, strict=True):
        for index, (number, is_document, _) in enumerate(texts):
            answer = matched[number]
            if isinstance(fits, Unread):
                matched[number] = replace(answer, unread_schema=fits.reason)
            elif is_document:
                matched[number] = replace(answer, document_fits=fits[index])
            else:
                matched[number] = replace(
                    answer, arguments_fit=answer.arguments_fit and fits[index]
                )
    return tuple(matched)


def score(
    endpoint: Endpoint, answers: Sequence[Answer], *, alternatives: int, concurrency: int, salt: str
) -> tuple[Scored | None, ...]:
    """Return the engine's own log probabilities of answers' token ids; None where it gives none. ``alternatives``: of
    each token, 1 to 20. Every request is a prefill that reads no prefix cache."""
    return _at_once(partial(_scored, endpoint, salt, alternatives), answers, concurrency)


def tokenize(
    endpoint: Endpoint, asks: Sequence[Ask], answers: Sequence[Answer], *, concurrency: int
) -> tuple[Answer, ...]:
    """Return the answers with the engine's token ids of their prompts and texts, of those without ids. A text may have
    other tokens than those that were sampled. Reasoning and tool calls were rendered, so their answers have none."""
    return _at_once(
        partial(_tokenized, endpoint), list(zip(asks, answers, strict=True)), concurrency
    )


def _tokenized(endpoint: Endpoint, pair: tuple[Ask, Answer]) -> Answer:
    ask, answer = pair
    if answer.ids or answer.error or not answer.text or answer.reasoning or answer.tool_calls:
        return answer
    prompt = _prompt_ids(endpoint, ask.body)
    if prompt is None:
        return answer
    ids = _token_ids(endpoint, {"prompt": answer.text, "add_special_tokens": False})
    if ids is None:
        return answer
    return replace(
        answer, prompt_ids=prompt, ids=ids, logprobs=(), best=(), alternatives=(), tokenized=True
    )


def prompt_tokens(
    endpoint: Endpoint, bodies: Sequence[JsonView], *, concurrency: int
) -> tuple[tuple[int, ...] | None, ...]:
    """Return the token ids of requests' prompts, by the engine's own template; None where it tells none."""
    return _at_once(partial(_prompt_ids, endpoint), bodies, concurrency)


def _prompt_ids(endpoint: Endpoint, body: JsonView) -> tuple[int, ...] | None:
    """Token ids of a request's prompt, by the engine's own template."""
    rendered = {key: body[key] for key in _RENDERED if key in body}
    return _token_ids(endpoint, {**rendered, "add_generation_prompt": True})


def _token_ids(endpoint: Endpoint, body: JsonView) -> tuple[int, ...] | None:
    try:
        return tuple(map(int, _object(_post(endpoint, "/tokenize", body))["tokens"]))
    except (_RefusedError, KeyError, TypeError, ValueError):
        return None


def _at_once(
    act: Callable[[_Item], _Result], items: Iterable[_Item], concurrency: int
) -> tuple[_Result, ...]:
    with ThreadPoolExecutor(max(1, concurrency), thread_name_prefix="mpctl ask") as pool:
        return tuple(pool.map(act, items))


def _answer(endpoint: Endpoint, salt: str, alternatives: int, ask: Ask) -> Answer:
    body = {
        **ask.body,
        **_NEUTRAL,
        "temperature": ask.temperature,
        "top_p": ask.top_p,
        "max_tokens": ask.max_tokens,
        "return_token_ids": True,
        "stream": ask.stream,
        **({"cache_salt": salt} if salt else {}),
    }
    if alternatives > (_FEWEST if ask.constrained else 0):  # else its first difference is scored
        body |= {"logprobs": True, "top_logprobs": alternatives, "return_tokens_as_token_ids": True}
    started = monotonic()
    try:
        received = _post(
            endpoint, "/v1/chat/completions", body, tokens=ask.max_tokens, alternatives=alternatives
        )
        parts = _events(received) if ask.stream else [_object(received)]
        answer = _cut(_joined(parts, "delta" if ask.stream else "message"), ask.max_tokens)
        if len(answer.prompt_ids) > len(json.dumps(ask.body)) + _TEMPLATE_TOKENS:
            return Answer(error="more prompt tokens than the request has characters")
        answer = replace(answer, seconds=monotonic() - started, model=ask.body.get("model", ""))
        return answer if alternatives > _FEWEST else replace(answer, alternatives=())
    except _RefusedError as refused:
        return Answer(error=str(refused))
    except (AttributeError, KeyError, IndexError, TypeError, ValueError):
        return Answer(error="not an answer of the chat API")


def _joined(parts: Iterable[JsonView], key: str) -> Answer:
    """Join the parts of an answer: the chunks of a stream, or the whole of it."""
    prompt_ids: list[int] = []
    ids: list[int] = []
    texts: dict[str, str] = {"content": "", "reasoning": ""}
    calls: dict[int, list[str]] = {}
    chosen: list[float] = []
    alternatives: list[dict[int, float]] = []
    finish = ""
    for part in parts:
        prompt_ids += part.get("prompt_token_ids") or ()
        for choice in list_at(part, "choices"):
            ids += choice.get("token_ids") or ()
            finish = choice.get("finish_reason") or finish
            message = choice.get(key) or {}
            texts["content"] += message.get("content") or ""
            texts["reasoning"] += message.get("reasoning") or message.get("reasoning_content") or ""
            for position, call in enumerate(message.get("tool_calls") or ()):
                name_and_arguments = calls.setdefault(call.get("index", position), ["", ""])
                function = mapping_at(call, "function")
                name_and_arguments[0] += function.get("name") or ""
                name_and_arguments[1] += function.get("arguments") or ""
            for token in list_at(choice, "logprobs", "content"):
                # vLLM names none where the token is not among those that it was chosen from
                entries = token["top_logprobs"] or [token]
                if all(
                    entry["token"].startswith(_ID) for entry in entries
                ):  # else named by their texts
                    chosen.append(float(token["logprob"]))
                    alternatives.append(
                        {
                            int(entry["token"].removeprefix(_ID)): float(entry["logprob"])
                            for entry in entries
                        }
                    )
    return Answer(
        prompt_ids=tuple(prompt_ids),
        ids=tuple(ids),
        text=texts["content"],
        reasoning=texts["reasoning"],
        tool_calls=tuple(ToolCall(*call) for _, call in sorted(calls.items())),
        finish=finish,
        logprobs=tuple(chosen),
        best=tuple(max(row.values()) for row in alternatives),
        alternatives=tuple(alternatives),
    )


def _cut(answer: Answer, most: int) -> Answer:
    """Return the answer without the tokens beyond those that were asked for, counted."""
    return replace(
        answer,
        ids=answer.ids[:most],
        logprobs=answer.logprobs[:most],
        best=answer.best[:most],
        alternatives=answer.alternatives[:most],
        surplus=max(0, len(answer.ids) - most),
    )


def _scored(endpoint: Endpoint, salt: str, alternatives: int, answer: Answer) -> Scored | None:
    prompt = [*answer.prompt_ids, *answer.ids]
    body = {
        **({"model": answer.model} if answer.model else {}),
        **_NEUTRAL,
        "prompt": prompt,
        "max_tokens": 1,
        "temperature": 0.0,
        "prompt_logprobs": alternatives,
        "cache_salt": salt,
    }
    try:
        scored = _post(
            endpoint, "/v1/completions", body, tokens=len(prompt), alternatives=alternatives
        )
        (choice,) = _object(scored)["choices"]
        rows = choice["prompt_logprobs"][len(answer.prompt_ids) :]
        return _of_rows(answer.ids, rows)
    except (_RefusedError, AttributeError, KeyError, IndexError, TypeError, ValueError):
        return None


def _of_rows(ids: Sequence[int], rows: Sequence[Mapping[str, JsonView]]) -> Scored:
    """Read a row per token: the log probabilities of the token itself and of the most likely ones, by token id.

    Raises:
        ValueError: there is not one row per token.
    """
    chosen, tops, likeliest = [], [], []
    for token, row in zip(ids, rows, strict=True):
        every = {int(other): float(entry["logprob"]) for other, entry in row.items()}
        chosen.append(every[token])
        tops.append(tuple(sorted(every.values(), reverse=True)))
        likeliest.append(max(every, key=lambda other: (every[other], other == token)))
    return Scored(tuple(chosen), tuple(tops), tuple(likeliest))


def _post(
    endpoint: Endpoint,
    path: str,
    body: JsonView,
    *,
    tokens: int = 0,
    alternatives: int = 0,
) -> bytes:
    """Return the body of an answer with status 200. ``tokens``, ``alternatives`` of each: what the answer may hold."""
    per_token = _BYTES_PER_TOKEN + _BYTES_PER_ALTERNATIVE * (alternatives + 1)
    limit = _FRAME_BYTES + _BYTES_PER_BYTE * len(json.dumps(body)) + per_token * tokens
    try:
        answer = http.request(
            "POST",
            f"{endpoint.base_url}{path}",
            json={"model": endpoint.model, **body},
            headers={"Authorization": f"Bearer {endpoint.token}"} if endpoint.token else {},
            seconds=_ANSWER_S,
            limit=min(limit, _ANSWER_BYTES),
            socket=http.SAME_USER if endpoint.same_user else endpoint.socket,
        )
    except http.NoAnswer:
        raise _RefusedError("no complete answer") from None
    if answer.status != 200:
        raise _RefusedError(f"HTTP {answer.status}")
    return answer.body


def _object(text: str | bytes) -> Json:
    record = bounded.loads(text)
    if not isinstance(record, dict):
        raise TypeError
    return record


def _events(body: bytes) -> Iterator[Json]:
    """The objects of a stream of server-sent events, up to the one that ends it."""
    for line in body.split(b"\n"):
        data = line.removeprefix(b"data:").strip() if line.startswith(b"data:") else b""
        if data == b"[DONE]":
            return
        if data:
            event = _object(data)
            if "error" in event:
                raise _RefusedError("an error within the stream")
            yield event
    raise _RefusedError("the stream was cut off")
