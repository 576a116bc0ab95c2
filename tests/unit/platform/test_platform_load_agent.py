"""The load client's side in a pod, as a process, against an engine of a few lines."""

import hashlib
import http.server
import json
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import httpx
import pytest

from mpctl.platform.kubernetes.load_job import job_manifest as load_job
from mpctl.platform.load import PACED, STREAM

METRICS, CHAT = "/metrics", "/v1/chat/completions"


@pytest.fixture
def engine():
    """An engine whose counter grows with every look, and which answers with what it was asked."""
    looks, sent = [], []

    class Answering(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            looks.append(self.headers.get("Authorization"))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(f"vllm:generation_tokens_total {len(looks)}.0\n".encode())

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            sent.append((self.headers.get("Authorization"), body))
            if body["model"] == "broken":
                self.send_error(404)
                return
            self.send_response(200)
            self.end_headers()
            text = {"choices": [{"delta": {"content": body["messages"][-1]["content"]}}]}
            for event in (text, {"choices": [], "usage": {"completion_tokens": 2}}):
                self.wfile.write(b"data: %s\n\n" % json.dumps(event).encode())
            self.wfile.write(b"data: [DONE]\n\n")

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield SimpleNamespace(address=f"http://127.0.0.1:{server.server_port}", looks=looks, sent=sent)
    server.shutdown()
    server.server_close()


OWNER = {"Authorization": "Bearer of the operator"}


def block(address, salt="", metrics=METRICS, token=None, **what):
    load = {"bodies": bodies(**what), "concurrency": 2, "rate": None, "seed": 0, "salt": salt}
    return {
        "address": address,
        "token": token,
        "metrics": metrics and address + metrics,
        "load": load,
    }


def bodies(prompts=("a", "b"), model="demo"):
    return [
        {"model": model, "messages": [{"role": "user", "content": prompt}]} for prompt in prompts
    ]


def texts_of(answer):
    return [request["text"] for request in answer.json()["result"]["requests"]]


class Agent:
    """The process, and how to ask it."""

    def __init__(self, folder, idle_s="600", kept_bytes=None):
        scripts = folder / "scripts"
        for part in (scripts, folder / "work"):
            part.mkdir(parents=True)
        for path in (load_job._AGENT, STREAM, PACED):
            (scripts / path.name).write_text(path.read_text())
        if kept_bytes:
            with (scripts / "agent.py").open("r+") as script:
                text, count = re.subn(
                    r"(?m)^KEPT_BYTES = .*", f"KEPT_BYTES = {kept_bytes}", script.read()
                )
                assert count == 1
                script.seek(0)
                script.write(text)
                script.truncate()
        with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as free:
            port = free.server_port
        self.process = subprocess.Popen(
            [
                sys.executable,
                str(scripts / "agent.py"),
                str(port),
                idle_s,
                hashlib.sha256(OWNER["Authorization"].encode()).hexdigest(),
            ],
            cwd=folder / "work",
            env={"OPENAI_API_KEY": "of-another-user", "HTTP_PROXY": "http://127.0.0.1:1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        address = f"http://127.0.0.1:{port}"
        self.client = httpx.Client(base_url=address, headers=OWNER, timeout=60.0, trust_env=False)

    def until_ready(self):
        while True:
            assert self.process.poll() is None
            try:
                if self.client.get("/ready").status_code == 200:
                    return self
            except httpx.ConnectError:
                pass
            time.sleep(0.05)

    def send(self, key, engine, *, salt="", metrics=METRICS, token=None, **what):
        assert self.client.post(
            f"/blocks/{key}", json=block(engine.address, salt, metrics, token, **what)
        ).is_success
        return self.client.get(f"/blocks/{key}?wait=30")

    def close(self):
        self.client.close()
        self.process.kill()
        self.process.wait()


@pytest.fixture
def agent(tmp_path):
    made = Agent(tmp_path).until_ready()
    yield made
    made.close()


def test_a_block_is_sent_once_however_often_it_is_asked_for(agent, engine):
    first = agent.send("one", engine, token="sk-1")
    assert texts_of(first) == ["a", "b"]
    assert (first.json()["before"], first.json()["after"]) == (
        "vllm:generation_tokens_total 1.0\n",
        "vllm:generation_tokens_total 2.0\n",
    )
    assert agent.send("one", engine, token="sk-1").json() == first.json()
    assert [key for key, _ in engine.sent] == ["Bearer sk-1"] * 2
    assert engine.looks == ["Bearer sk-1"] * 2


def test_a_command_that_continues_another_finds_its_block_though_its_salt_is_new(agent, engine):
    first = agent.send("one", engine, salt="s1").json()
    assert agent.send("one", engine, salt="s2").json() == first
    assert [body["cache_salt"] for _, body in engine.sent] == ["s1", "s1"]


FOREIGN = [{}, {"Authorization": "Bearer of eddie"}]


@pytest.mark.parametrize("headers", FOREIGN)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
@pytest.mark.parametrize("path", ["/ready", "/blocks/one", "/paced"])
def test_who_reaches_the_port_without_the_operators_secret_gets_nothing(
    agent, engine, headers, method, path
):
    """The attack: a block posted through kubectl port-forward, whose key anyone can compute."""
    address = str(agent.client.base_url.join(path))
    answer = httpx.request(
        method, address, headers=headers, json=block(engine.address), trust_env=False
    )
    assert answer.status_code == 403
    assert agent.client.get("/blocks/one").status_code == 404
    assert engine.sent == []


def test_a_known_key_with_another_body_is_refused_and_its_block_stays(agent, engine):
    first = agent.send("one", engine).json()
    other = block(engine.address, prompts=["other"])
    assert agent.client.post("/blocks/one", json=other).status_code == 409
    assert agent.client.get("/blocks/one").json() == first
    assert len(engine.sent) == 2


def test_a_token_is_of_its_own_block_only(agent, engine):
    agent.send("one", engine, token="sk-1")
    agent.send("two", engine)
    assert [key for key, _ in engine.sent] == ["Bearer sk-1"] * 2 + [None] * 2
    assert engine.looks[2:] == [None, None]


def test_what_goes_wrong_is_told_and_the_next_block_goes_on(agent, engine):
    failed = agent.send("one", engine, model="broken").json()["result"]["requests"]
    assert [request["error"].partition(":")[0] for request in failed] == ["HTTP 404"] * 2
    gone = SimpleNamespace(address="http://127.0.0.1:1")
    assert "http://127.0.0.1:1/metrics does not answer" in agent.send("two", gone).json()["error"]
    assert texts_of(agent.send("three", engine)) == ["a", "b"]


def test_every_finished_block_is_found_again(agent, engine):
    """A command that continues a killed one asks for all blocks whose records were not sealed."""
    first = [agent.send(str(number), engine).json() for number in range(12)]
    assert [agent.send(str(number), engine).json() for number in range(12)] == first
    assert len(engine.sent) == 24


def test_the_oldest_blocks_are_forgotten_where_memory_would_run_out(tmp_path, engine):
    made = Agent(tmp_path, kept_bytes=600_000).until_ready()
    rng = random.Random(1)
    for number in range(4):
        assert (
            made.send(str(number), engine, prompts=[rng.randbytes(150_000).hex()]).status_code
            == 200
        )
    assert [made.client.get(f"/blocks/{number}").status_code for number in range(4)] == [
        404,
        200,
        200,
        200,
    ]
    made.send("large", engine, prompts=[rng.randbytes(600_000).hex()])
    assert made.client.get("/blocks/large").status_code == 200
    assert made.client.get("/blocks/3").status_code == 404
    made.close()


def test_a_block_that_failed_is_sent_again_when_it_is_asked_for(agent, engine):
    assert "error" in agent.send("one", engine, metrics="/metrics:not-a-port", token="\n").json()
    assert texts_of(agent.send("one", engine)) == ["a", "b"]


def test_prompts_arrive_as_they_are(agent, engine):
    prompts = ["a\nb", "\u2028", "ä" * 300_000, '"']
    assert texts_of(agent.send("one", engine, prompts=prompts)) == prompts


def test_a_server_of_known_timing_beside_it(agent):
    pace = {"ttft_s": 0.01, "interval_s": 0.001, "chunks": 2, "per_chunk": 3}
    port = agent.client.post("/paced", json=pace).json()["port"]
    body = {"messages": [{"role": "user", "content": "request 7"}]}
    answer = httpx.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=body, trust_env=False)
    assert '"completion_tokens": 6' in answer.text
    (record,) = agent.client.get("/paced").json()
    assert record["number"] == 7.0
    agent.client.delete("/paced")
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://127.0.0.1:{port}/truth", trust_env=False)


def test_it_ends_when_nobody_asks(tmp_path):
    actual_agent = Agent(tmp_path, idle_s="0.5")
    assert actual_agent.process.wait(30) == 0
    actual_agent.close()


def test_it_ends_when_it_is_told_to(agent):
    agent.process.send_signal(signal.SIGTERM)
    assert agent.process.wait(10) == 0


@pytest.mark.parametrize("length", [str(2**40), "-1", "many", "²"])
def test_a_request_that_is_too_large_is_refused_unread(agent, length):
    with socket.create_connection(("127.0.0.1", agent.client.base_url.port), timeout=30) as raw:
        owner = b"Authorization: %s" % OWNER["Authorization"].encode()
        raw.sendall(
            b"POST /blocks/x HTTP/1.0\r\n%s\r\nContent-Length: %s\r\n\r\n"
            % (owner, length.encode("latin-1"))
        )
        assert b" 413 " in raw.recv(100)


@pytest.mark.parametrize("body", [b"{", b"[" * 100_000])
def test_a_request_that_is_no_json_is_refused(agent, body):
    assert agent.client.post("/blocks/x", content=body).status_code == 400


@pytest.fixture
def redirect(engine):
    """A server that sends whoever asks to the engine."""

    class Redirect(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(302)
            self.send_header("Location", engine.address + self.path)
            self.end_headers()

        do_POST = do_GET  # noqa: N815

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Redirect)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield SimpleNamespace(address=f"http://127.0.0.1:{server.server_port}")
    server.shutdown()
    server.server_close()


def test_the_key_follows_no_redirect(agent, engine, redirect):
    answer = agent.send("one", redirect, token="sk-1").json()
    assert "HTTP Error 302" in answer["error"]
    answer = agent.send("two", redirect, token="sk-1", metrics=None).json()
    assert {request["error"].partition(":")[0] for request in answer["result"]["requests"]} == {
        "HTTP 302"
    }
    assert (engine.looks, engine.sent) == ([], [])
