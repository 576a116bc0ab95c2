"""Schemas of users' requests are matched in a child process: the attacks cost a limited time and memory, and every
other schema of the same pass is matched."""

import json
import socket
import subprocess
import sys

import pytest

from mpctl.experiment.answers import Answer, Ask, ToolCall
from mpctl.platform import bounded_process
from mpctl.platform.answers import match_schemas
from mpctl.platform.bounded_process import Unread, run_each
from tests.unit.support.limits import MOST_MIB, within_limits

UNLIMITED_S = (
    3600.0  # of wall time, which a busy machine stretches: the CPU time of an item decides
)
LEVELS = 22
TWO_REFERENCES = {
    f"level{n}": {"anyOf": [{"$ref": f"#/$defs/level{n - 1}"}] * 2} if n else {"type": "string"}
    for n in range(LEVELS + 1)
}
ATTACKS = {
    "pattern": ({"pattern": "^(a+)+$"}, "a" * 32 + "!", "longer than 1 s"),
    "patternProperties": (
        {"patternProperties": {"^(a+)+$": {}}},
        {"a" * 32 + "!": 1},
        "longer than 1 s",
    ),
    "two references on each of 22 levels": (
        {"$defs": TWO_REFERENCES, "$ref": f"#/$defs/level{LEVELS}"},
        5,
        "longer than 1 s",
    ),
    "uniqueItems": ({"uniqueItems": True}, [{"a": n} for n in range(4000)], "longer than 1 s"),
    "a cycle": ({"$ref": "#"}, 1, "refers to itself"),
    "a longer cycle": (
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        1,
        "itself",
    ),
    "a text": ("words of a user", 1, "no JSON schema"),
    "a list": ([], 1, "no JSON schema"),
    "a type that is none": ({"type": "words of a user"}, 1, "no JSON schema"),
    "a reference to a server": ({"$ref": "http://127.0.0.1:1/schema.json"}, 1, "no JSON schema"),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_a_schema_of_an_attacker_is_named_and_the_others_are_matched(name):
    schema, document, reason = ATTACKS[name]
    items = [
        (json.dumps({"type": "integer"}), ["1", '"x"', "{"]),
        (json.dumps(schema), [json.dumps(document)]),
        (json.dumps({"type": "object"}), ["{}"]),
    ]
    with within_limits():
        first, attack, last = run_each("schemas", items, item_s=1.0, whole_s=UNLIMITED_S)
    assert (first, last) == ([True, False, False], [True])
    assert isinstance(attack, Unread) and reason in attack.reason
    assert "words of a user" not in attack.reason


# Its child is its only one: a worker of the tests has children of other tests, and a child starts as its parent's copy.
PEAK = """
import json, resource, sys
from mpctl.platform.bounded_process import run_each
run_each("schemas", json.loads(sys.stdin.read()), item_s=1.0, whole_s=float(sys.argv[1]))
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)
"""


@pytest.mark.parametrize("name", ATTACKS)
def test_a_schema_of_an_attacker_takes_a_limited_memory(name):
    schema, document, _ = ATTACKS[name]
    items = json.dumps([[json.dumps(schema), [json.dumps(document)]]])
    done = subprocess.run(
        [sys.executable, "-c", PEAK, str(UNLIMITED_S)],
        input=items,
        capture_output=True,
        text=True,
        check=True,
    )
    assert 1 < float(done.stdout) < MOST_MIB


def test_a_child_that_does_not_start_in_time_is_reported_with_the_whole_time(monkeypatch):
    monkeypatch.setattr(bounded_process, "_child", lambda *_: ([], ""))
    results = run_each("schemas", ["{}", "{}"], item_s=1.0, whole_s=3.0)
    assert results == [Unread("all take longer than 3 s")] * 2


def test_all_schemas_of_a_pass_have_one_deadline():
    slow = (json.dumps({"pattern": "^(a+)+$"}), [json.dumps("a" * 32 + "!")])
    with within_limits():
        results = run_each("schemas", [slow] * 20, item_s=1.0, whole_s=3.0)
    assert {type(result) for result in results} == {Unread} and len(results) == 20
    assert results[-1].reason == "all take longer than 3 s"


def ask_of(kind, schema, **body):
    return Ask(
        kind,
        {
            "messages": [],
            "response_format": {"type": "json_schema", "json_schema": {"schema": schema}},
            **body,
        },
        9,
    )


def test_answers_are_matched_with_the_schemas_of_their_requests():
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    calls = Ask("tools", {"messages": [], "tools": [tool, {"type": "web_search"}]}, 9)
    called = [
        Answer(tool_calls=(ToolCall("f", text), ToolCall("search", "words")))
        for text in ("{}", "5")
    ]
    rows = [
        (ask_of("json", {"type": "integer"}), Answer(text="1")),
        (ask_of("json", {"type": "integer"}), Answer(text="x")),
        (ask_of("own", {"$ref": "#"}), Answer(text="1")),
        (ask_of("json", {"type": "integer"}), Answer(text="x", finish="length")),
        *((calls, answer) for answer in called),
    ]
    matched = match_schemas([ask for ask, _ in rows], [answer for _, answer in rows])
    assert [answer.document_fits for answer in matched] == [True, False, True, True, True, True]
    assert [answer.arguments_fit for answer in matched] == [True] * 5 + [False]
    assert [bool(answer.unread_schema) for answer in matched] == [
        False,
        False,
        True,
        False,
        False,
        False,
    ]


def test_no_reference_of_a_schema_is_fetched(tmp_path):
    (tmp_path / "schema.json").write_text('{"type": "string"}')
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        places = (
            f"http://127.0.0.1:{server.getsockname()[1]}/schema.json",
            f"file://{tmp_path}/schema.json",
        )
        items = [
            (json.dumps({key: place}), ["1"])
            for place in places
            for key in ("$ref", "$schema", "$dynamicRef")
        ]
        results = run_each("schemas", items, item_s=1.0, whole_s=UNLIMITED_S)
        with pytest.raises(BlockingIOError):
            server.accept()
    assert not [result for result in results if result == [False]]
