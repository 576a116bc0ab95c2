"""The load client's side in a pod, as a process with a bench client of a few lines."""

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

import httpx
import pytest

from mpctl.experiment.prompt_files import CHAT
from mpctl.platform.kubernetes.load_job import job_manifest as load_job
from mpctl.platform.load import PACED, WORKER

# A client that notes what it was asked, and answers with as many rows as there are prompts.
CLIENT = """
import asyncio, json, os
def add_cli_args(parser): pass
class Request:
    request_overrides = {"seed": 1}
    def __init__(self, line): self.prompt = json.loads(line)["prompt"]
async def get_request(lines):
    for line in lines: yield Request(line), 1.0
def main(words):
    given = dict(w[2:].partition("=")[::2] for w in words)
    lines = open(given["dataset-path"]).read().splitlines()
    if given.get("model") == "broken":
        raise ValueError("no such model")
    async def request():
        return [r.request_overrides async for r, _ in get_request(lines)]
    overrides = asyncio.run(request())
    with open("sent.jsonl", "a") as sent:
        sent.write(json.dumps([len(lines), os.environ.get("OPENAI_API_KEY")]) + "\\n")
    if given.get("model") != "mute":
        with open(given["result-filename"], "w") as result:
            prompts = [json.loads(line)["prompt"] for line in lines]
            json.dump({"prompts": prompts, **({"messages": overrides} if prompts[0][:1] == chr(30) else {})}, result)
"""
PARSER = """
from argparse import ArgumentParser
class FlexibleArgumentParser(ArgumentParser):
    def parse_args(self, words): return words
"""


@pytest.fixture
def engine():
    """An engine's /metrics: a counter that grows with every look."""
    looks = []

    class Metrics(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            looks.append(self.headers.get("Authorization"))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(f"vllm:generation_tokens_total {len(looks)}.0\n".encode())

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Metrics)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/metrics", looks
    server.shutdown()
    server.server_close()


OWNER = {"Authorization": "Bearer of the operator"}


class Agent:
    """The process, and how to ask it."""

    def __init__(self, folder, idle_s="600", kept_bytes=None):
        scripts = folder / "scripts"
        modules = folder / "modules" / "vllm"
        for part in (scripts, modules / "benchmarks", modules / "utils", folder / "work"):
            part.mkdir(parents=True)
        for path in (load_job._AGENT, WORKER, PACED):
            (scripts / path.name).write_text(path.read_text())
        if kept_bytes:
            with (scripts / "agent.py").open("r+") as script:
                text, count = re.subn(r"(?m)^KEPT_BYTES = .*", f"KEPT_BYTES = {kept_bytes}", script.read())
                assert count == 1
                script.seek(0)
                script.write(text)
                script.truncate()
        for name in ("__init__", "benchmarks/__init__", "utils/__init__"):
            (modules / f"{name}.py").write_text("")
        (modules / "benchmarks" / "serve.py").write_text(CLIENT)
        (modules / "utils" / "argparse_utils.py").write_text(PARSER)
        self.work = folder / "work"
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
            cwd=self.work,
            env={"PYTHONPATH": str(modules.parent), "OPENAI_API_KEY": "somebody-else"},
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

    def send(self, key, metrics, *, model="demo", prompts=("a", "b"), token=None, held=False):
        words = ["--dataset-path=prompts.jsonl", "--result-filename=result.json", f"--model={model}"]
        block = {"arguments": words, "prompts": list(prompts), "token": token, "metrics": metrics, "held": held}
        assert self.client.post(f"/blocks/{key}", json=block).status_code == 202
        if held:
            return self.client.get(f"/start/{key}?wait=30")
        return self.client.get(f"/blocks/{key}?wait=30")

    def sent(self):
        return [json.loads(line) for line in (self.work / "sent.jsonl").read_text().splitlines()]

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
    metrics, looks = engine
    first = agent.send("one", metrics, token="sk-1")
    assert first.json()["result"] == {"prompts": ["a", "b"]}
    assert (first.json()["before"], first.json()["after"]) == (
        "vllm:generation_tokens_total 1.0\n",
        "vllm:generation_tokens_total 2.0\n",
    )
    assert agent.send("one", metrics, token="sk-1").json() == first.json()
    assert agent.sent() == [[2, "sk-1"]]
    assert looks == ["Bearer sk-1"] * 2


FOREIGN = [{}, {"Authorization": "Bearer of eddie"}]


@pytest.mark.parametrize("headers", FOREIGN)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
@pytest.mark.parametrize("path", ["/ready", "/blocks/one", "/start/one", "/paced", "/clock"])
def test_who_reaches_the_port_without_the_operators_secret_gets_nothing(agent, headers, method, path):
    """The attack: a block posted through kubectl port-forward, whose key anyone can compute."""
    address = str(agent.client.base_url.join(path))
    body = {"arguments": ["--dataset-path=prompts.jsonl"], "prompts": ["hers"], "token": None, "metrics": None, "at": 0}
    answer = httpx.request(method, address, headers=headers, json=body, trust_env=False)
    assert answer.status_code == 403
    assert agent.client.get("/blocks/one").status_code == 404
    assert not (agent.work / "sent.jsonl").exists()


def test_a_known_key_with_another_body_is_refused_and_its_block_stays(agent):
    first = agent.send("one", None).json()
    block = {"arguments": [], "prompts": ["other"], "token": None, "metrics": None, "held": False}
    assert agent.client.post("/blocks/one", json=block).status_code == 409
    assert agent.client.get("/blocks/one").json() == first
    assert agent.sent() == [[2, None]]


def test_a_held_block_sends_nothing_before_its_moment(agent, engine):
    metrics, looks = engine
    assert agent.send("one", metrics, held=True).json() == {"started": False}
    assert len(looks) == 1  # loaded, and counted before the start
    assert agent.client.get("/blocks/one").status_code == 202
    clock = agent.client.get("/clock").json()["clock"] + 0.2
    agent.client.post("/start/one", json={"at": clock})
    agent.client.post("/start/one", json={"at": clock + 60})  # a second signal changes nothing
    assert agent.client.get("/start/one").json() == {"started": True}
    answer = agent.client.get("/blocks/one?wait=30").json()
    assert answer["began"] >= clock
    assert answer["waited"] > 0
    assert answer["result"] == {"prompts": ["a", "b"]}


def test_a_held_block_that_fails_is_told_at_the_barrier(agent):
    answer = agent.send("one", None, model="broken", held=True)
    assert answer.json() == {"error": "ValueError: no such model"}
    assert agent.client.get("/start/other").status_code == 404
    assert agent.client.post("/start/other", json={"at": 0.0}).status_code == 404


def test_a_key_is_of_its_own_block_only(agent, engine):
    metrics, looks = engine
    agent.send("one", metrics, token="sk-1")
    agent.send("two", metrics)
    assert agent.sent() == [[2, "sk-1"], [2, None]]
    assert looks[2:] == [None, None]


def test_what_goes_wrong_is_told_and_the_next_block_goes_on(agent, engine):
    metrics, _ = engine
    assert agent.send("one", metrics, model="broken").json() == {"error": "ValueError: no such model"}
    assert agent.send("two", metrics, model="mute").json() == {"error": "it ended without a result"}
    assert (
        "http://127.0.0.1:1/metrics does not answer"
        in agent.send("three", "http://127.0.0.1:1/metrics").json()["error"]
    )
    assert agent.send("four", metrics).status_code == 200
    assert agent.sent() == [[2, None]] * 2  # the mute one was sent, the others were not


def test_every_finished_block_is_found_again(agent):
    """A command that continues a killed one asks for all blocks whose records were not sealed."""
    first = [agent.send(str(number), None).json() for number in range(12)]
    assert [agent.send(str(number), None).json() for number in range(12)] == first
    assert len(agent.sent()) == 12


def test_the_oldest_blocks_are_forgotten_where_memory_would_run_out(tmp_path):
    made = Agent(tmp_path, kept_bytes=600_000).until_ready()
    rng = random.Random(1)
    for number in range(4):
        assert made.send(str(number), None, prompts=[rng.randbytes(150_000).hex()]).status_code == 200
    assert [made.client.get(f"/blocks/{number}").status_code for number in range(4)] == [404, 200, 200, 200]
    made.send("large", None, prompts=[rng.randbytes(600_000).hex()])
    assert made.client.get("/blocks/large").status_code == 200
    assert made.client.get("/blocks/3").status_code == 404
    made.close()


def test_a_block_that_failed_is_sent_again_when_it_is_asked_for(agent):
    assert "error" in agent.send("one", None, model="broken").json()
    assert agent.send("one", None).json()["result"] == {"prompts": ["a", "b"]}


def test_prompts_arrive_as_they_are(agent):
    prompts = ["a\nb", "\u2028", "ä" * 300_000, '"']
    assert agent.send("one", None, prompts=prompts).json()["result"] == {"prompts": prompts}


def test_a_conversation_is_sent_as_messages(agent):
    messages = [{"role": "user", "content": "hi"}]
    text = CHAT + json.dumps({"messages": messages, "tools": [1]})
    sent = agent.send("one", None, prompts=[text, "plain"]).json()["result"]["messages"]
    assert sent == [{"seed": 1, "messages": messages, "tools": [1]}, {"seed": 1}]


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
        raw.sendall(b"POST /blocks/x HTTP/1.0\r\n%s\r\nContent-Length: %s\r\n\r\n" % (owner, length.encode("latin-1")))
        assert b" 413 " in raw.recv(100)


@pytest.mark.parametrize("body", [b"{", b"[" * 100_000])
def test_a_request_that_is_no_json_is_refused(agent, body):
    assert agent.client.post("/blocks/x", content=body).status_code == 400


@pytest.fixture
def redirect(engine):
    """A server that sends whoever asks to the engine."""
    metrics, _ = engine

    class Redirect(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(302)
            self.send_header("Location", metrics)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Redirect)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/metrics"
    server.shutdown()
    server.server_close()


def test_the_key_follows_no_redirect(agent, engine, redirect):
    _, looks = engine
    answer = agent.send("one", redirect, token="sk-1").json()
    assert "HTTP Error 302" in answer["error"]
    assert looks == []
