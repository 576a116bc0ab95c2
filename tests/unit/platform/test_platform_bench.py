"""The load client's own side, without the client."""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import io
import json
import os
import queue
import sys
from types import ModuleType, SimpleNamespace

import pytest

from mpctl.platform.load import WORKER


@pytest.fixture
def worker(monkeypatch):
    monkeypatch.syspath_prepend(str(WORKER.parent))
    spec = importlib.util.spec_from_file_location("engine_side_bench", WORKER)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_key_is_sent_to_its_own_server_alone(worker, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "of-the-caller")
    worker.use_key(None)
    assert "OPENAI_API_KEY" not in os.environ
    worker.use_key("of-this-server")
    assert os.environ["OPENAI_API_KEY"] == "of-this-server"
    worker.use_key("")
    assert "OPENAI_API_KEY" not in os.environ


@pytest.fixture
def client(monkeypatch):
    """The parts of vLLM 0.32's client that are known: it looks its backend up by name for each request, and reads a
    stream by a handler of the backend's module. A request's two chunks arrive among those of others."""
    endpoints = ModuleType("scripted_endpoints")

    class StreamedResponseHandler:
        def add_chunk(self, chunk_bytes):
            return chunk_bytes.decode().splitlines()

    async def send(request_func_input, pbar=None):
        handler = endpoints.StreamedResponseHandler()
        for chunk in request_func_input.chunks:
            await asyncio.sleep(0)
            handler.add_chunk(chunk)

    send.__module__ = endpoints.__name__
    endpoints.StreamedResponseHandler = StreamedResponseHandler
    monkeypatch.setitem(sys.modules, endpoints.__name__, endpoints)
    return SimpleNamespace(ASYNC_REQUEST_FUNCS={"openai-chat": send}, endpoints=endpoints)


def chunks(prompt_ids, *parts):
    events = [{"prompt_token_ids": prompt_ids, "choices": []}, *({"choices": [{"token_ids": ids}]} for ids in parts)]
    return [f"data: {json.dumps(event)}".encode() for event in events]


def sent(worker, client, requests, *, asked):
    tap = worker.TokenTap(client, asked=asked)

    async def every():
        send = client.ASYNC_REQUEST_FUNCS["openai-chat"]
        await send(SimpleNamespace(prompt="a", chunks=chunks([1], [99])))  # whether the engine answers
        await asyncio.gather(*(send(request) for request in reversed(requests)))

    tap.order.extend([*(request.prompt for request in requests), "never sent"])
    with tap():
        asyncio.run(every())
    return tap


def named(result):
    return SimpleNamespace(result_dir=str(result.parent), result_filename=result.name)


REQUESTS = [
    SimpleNamespace(prompt="a", chunks=chunks([1], [5, 6], [7])),
    SimpleNamespace(prompt="b", chunks=chunks([2], [8])),
]


def test_the_ids_of_each_answer_are_read_out_of_its_stream_when_nothing_is_timed(worker, client, tmp_path):
    before = client.ASYNC_REQUEST_FUNCS["openai-chat"], client.endpoints.StreamedResponseHandler
    result = tmp_path / "result.json"
    result.write_text('{"duration": 1.5}')
    sent(worker, client, REQUESTS, asked=True).add_to(named(result))
    assert json.loads(result.read_text()) == {"duration": 1.5, "token_ids": [[[1], [5, 6, 7]], [[2], [8]], [[], []]]}
    assert before == (client.ASYNC_REQUEST_FUNCS["openai-chat"], client.endpoints.StreamedResponseHandler)


def test_a_client_that_is_not_asked_for_ids_or_has_other_parts_is_left_alone(worker, client, tmp_path):
    result = tmp_path / "result.json"
    result.write_text("{}")
    sent(worker, client, REQUESTS, asked=False).add_to([])
    del client.endpoints.StreamedResponseHandler
    tap = worker.TokenTap(client, asked=True)
    with tap():
        pass
    tap.add_to([])
    worker.TokenTap(SimpleNamespace(), asked=True).add_to([])
    assert result.read_text() == "{}"


def test_the_tokenizer_is_read_once_for_all_blocks(worker, monkeypatch):
    read = []

    def get_tokenizer(name, *, trust_remote_code):
        read.append((name, trust_remote_code))

    def main(options):
        client.get_tokenizer(options.tokenizer, trust_remote_code=False)

    client = SimpleNamespace(
        get_tokenizer=get_tokenizer, main=main, add_cli_args=lambda parser: parser.add_argument("--tokenizer")
    )
    modules = {
        "vllm": {},
        "vllm.benchmarks": {"serve": client},
        "vllm.utils": {},
        "vllm.utils.argparse_utils": {"FlexibleArgumentParser": argparse.ArgumentParser},
    }
    for name, members in modules.items():
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
        vars(sys.modules[name]).update(members)
    asked = queue.Queue()
    for request in [{"arguments": ["--tokenizer=org/model"], "token": None}] * 3 + [{"end": "of input"}]:
        asked.put(request)
    answers = io.StringIO()
    with pytest.raises(KeyError, match="token"):
        worker.serve(asked, answers)
    assert [json.loads(line)["ok"] for line in answers.getvalue().splitlines()] == [True] * 3
    assert read == [("org/model", False)]
