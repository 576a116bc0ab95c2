"""The proxy of the demo and of the bench plants what it says, and leaves token ids as they are."""

from __future__ import annotations

import copy
import importlib.machinery
import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "python-wrong"
CALLS = [
    {"index": n, "id": f"call-{n}", "type": "function",
     "function": {"name": name, "arguments": '{"row": 4, "on": true}'}}
    for n, name in enumerate(("record_part", "find_orders"))
]  # fmt: skip


@pytest.fixture(scope="module")
def wrong() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("python_wrong", str(SCRIPT))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def chunk(ids: list[int], delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"token_ids": ids, "delta": delta, "finish_reason": finish}]}


def stream(deltas: list[dict[str, Any]], finish: str) -> list[dict[str, Any]]:
    middle = [chunk([n], delta) for n, delta in enumerate(deltas)]
    return [chunk([], {"role": "assistant", "content": ""}), *middle, chunk([99], {}, finish)]


def planted(
    wrong: ModuleType, kind: str, parts: list[dict[str, Any]], key: str
) -> list[dict[str, Any]] | None:
    """What the proxy makes of an answer that is hit."""
    proxy = wrong.Proxy.__new__(wrong.Proxy)
    changed: list[dict[str, Any]] | None = proxy.changed(
        copy.deepcopy(parts), key, {"kind": kind, "every": 1}
    )
    return changed


def ids(parts: list[dict[str, Any]]) -> list[int]:
    return [token for part in parts for choice in part["choices"] for token in choice["token_ids"]]


@pytest.mark.parametrize("streamed", [True, False])
def test_every_fault_of_form_changes_calls_or_text_and_no_token(
    wrong: ModuleType, streamed: bool
) -> None:
    key = "delta" if streamed else "message"
    called = (
        stream([{"tool_calls": [call]} for call in CALLS], "tool_calls")
        if streamed
        else [{"choices": [{"token_ids": [1, 2], "message": {"content": None, "tool_calls": CALLS},
                            "finish_reason": "tool_calls"}]}]
    )  # fmt: skip
    said = (
        stream([{"content": "Shelf 4 "}, {"content": "is grey."}], "stop")
        if streamed
        else [
            {
                "choices": [
                    {
                        "token_ids": [1],
                        "message": {"content": "Shelf 4 is grey."},
                        "finish_reason": "stop",
                    }
                ]
            }
        ]
    )
    for kind in wrong.FORMS:
        hits = 0
        for parts in (called, said):
            changed = planted(wrong, kind, parts, key)
            if changed is not None:
                hits += 1
                assert wrong.read(changed, key) != wrong.read(parts, key), kind
                assert ids(changed) == ids(parts), kind
        assert hits, kind


def test_a_fault_of_the_stream_drops_or_repeats_a_chunk_with_its_tokens(wrong: ModuleType) -> None:
    parts = stream([{"content": word} for word in ("one ", "two ", "three")], "stop")
    assert ids(planted(wrong, "stream chunk dropped", parts, "delta") or []) == [0, 2, 99]
    assert ids(planted(wrong, "stream chunk doubled", parts, "delta") or []) == [0, 1, 1, 2, 99]


def test_an_answer_may_come_to_another_request_as_a_whole(wrong: ModuleType) -> None:
    wrong.Proxy.last = None
    first, second = (stream([{"content": text}], "stop") for text in ("first", "second"))
    assert planted(wrong, "another request's answer", first, "delta") is None
    changed = planted(wrong, "another request's answer", second, "delta")
    assert changed is not None and wrong.read(changed, "delta")["text"] == "first"


def test_one_answer_in_so_many_is_hit(wrong: ModuleType) -> None:
    proxy = wrong.Proxy.__new__(wrong.Proxy)
    hits = [proxy.hit({"kind": "counted", "every": 25}) for _ in range(100)]
    assert hits.count(True) == 4


def test_requests_lose_their_grammar_or_get_a_seed(wrong: ModuleType) -> None:
    free = wrong.free_of_grammar({"response_format": {}, "tool_choice": "required"})
    assert free == {"tool_choice": "auto"}
    assert wrong.free_of_grammar({"messages": []}) is None
    proxy = wrong.Proxy.__new__(wrong.Proxy)
    fault = {"kind": "seed used again", "every": 1}
    assert json.loads(proxy.asked(json.dumps({"temperature": 1.0}).encode(), fault))["seed"] == 7
    assert "seed" not in json.loads(proxy.asked(b'{"temperature": 0}', fault))
