"""The server of known timing that load clients are compared with."""

import json
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

SERVER = Path(__file__).parents[1] / "support" / "timed_server.py"


@pytest.fixture
def client():
    command = [sys.executable, str(SERVER), "0.02", "0.001", "4"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        base = f"http://127.0.0.1:{server.stdout.readline().strip()}"
        with httpx.Client(base_url=base, trust_env=False) as actual_client:
            yield actual_client
        server.stdin.close()
        assert server.wait(10) == 0


def test_an_answer_has_a_token_per_chunk_and_the_truth_says_when(client):
    answer = client.post("/v1/chat/completions", json={"messages": [], "stream": True})
    events = [event.removeprefix("data: ") for event in answer.text.strip().split("\n\n")]
    assert events[-1] == "[DONE]"
    *chunks, usage = (json.loads(event) for event in events[:-1])
    assert [chunk["choices"][0]["delta"]["content"] for chunk in chunks] == ["word "] * 4
    assert usage["usage"]["completion_tokens"] == 4
    ((first, last),) = client.get("/truth").json()
    assert first >= 0.02
    assert last >= max(first, 0.02 + 3 * 0.001)


def test_a_connection_carries_several_requests_and_the_truth_can_be_forgotten(client):
    for _ in range(3):
        client.post("/v1/completions", json={"prompt": "x"})
    assert client.get("/v1/models").json()["data"][0]["id"] == "timed"
    assert len(client.delete("/truth").json()) == 3
    assert client.get("/truth").json() == []
