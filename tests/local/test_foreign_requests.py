"""Rollouts with a log whose requests have tools and schemas of every kind: they end with a verdict."""

import json

import pytest

REQUESTS = {
    "web search": {"tools": [{"type": "web_search"}]},
    "mcp and custom": {
        "tools": [{"type": "mcp", "server_label": "x"}, {"type": "custom", "custom": {"name": "y"}}]
    },
    "a schema with a cycle": {
        "response_format": {"type": "json_schema", "json_schema": {"schema": {"$ref": "#"}}}
    },
    "a schema that is a text": {"response_format": {"type": "json_schema", "json_schema": "words"}},
    "a pattern without an end": {
        "response_format": {
            "type": "json_schema",
            "json_schema": {"schema": {"pattern": "^(a+)+$"}},
        }
    },
}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_rollout_with_such_requests_ends_with_a_verdict(mpctl, tmp_path, name):
    """The engine answers with the prompt, which is a JSON text."""
    mpctl("local", "up", "-f", str(mpctl.manifest(script={"finish": ""})))
    file = tmp_path / "log.jsonl"
    messages = [
        [{"role": "user", "content": json.dumps("a" * 32 + f"!{n}" + " word" * 20)}]
        for n in range(80)
    ]
    file.write_text(
        "".join(json.dumps({"messages": row, **REQUESTS[name]}) + "\n" for row in messages)
    )
    done = mpctl(
        "rollout", "--spec", "ngram", "--prompts", str(file), "--fidelity", "quick", "--yes"
    )
    assert "promoted" in done.stderr
    report = mpctl("report", "-o", "md").stdout
    assert ("2 schemas cannot be read: request" in report) == (
        "schema" in name or "pattern" in name
    )
    assert "^(a+)+$" not in done.stdout + done.stderr + report
