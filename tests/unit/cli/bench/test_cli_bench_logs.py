"""Users' logs through ``mpctl bench``: what the engine receives, what is left out, and why a request failed."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

from mpctl.experiment.run import Calibration

METRICS = Path(__file__).parents[3] / "data/vllm/metrics_ngram_after_load.txt"
ANSWER = (
    b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n'
    b'data: {"choices": [{"delta": {"content": "b"}}]}\n\n'
    b'data: {"choices": [], "usage": {"completion_tokens": 2}}\n\ndata: [DONE]\n\n'
)


@contextmanager
def engine(refuses=lambda body: None):
    """A server that streams two tokens for each request, or answers 400 with what ``refuses`` returns."""
    received = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *arguments):
            pass

        def do_GET(self):
            page = {
                "/metrics": METRICS.read_bytes(),
                "/v1/models": b'{"data": [{"id": "demo"}]}',
            }.get(self.path, b"{}")
            self.reply(200, page)

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            received.append(body)
            why = refuses(body)
            self.reply(400, why.encode()) if why else self.reply(200, ANSWER)

        def reply(self, status, data):
            self.send_response(status)
            self.end_headers()
            self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield SimpleNamespace(url=f"http://127.0.0.1:{server.server_port}", received=received)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def measure(cli, monkeypatch):
    """Measure with a file of prompts, without the time of a calibration; return the command's result."""
    known = Calibration(p50_ms=0.1, p99_ms=0.2, requests=12, concurrency=1)
    monkeypatch.setattr("mpctl.platform.meter.HttpMeter.calibrate", lambda *arguments: known)

    def run(url, content, *options, name="log.jsonl"):
        (cli.directory / name).write_bytes(
            content if isinstance(content, bytes) else content.encode()
        )
        return cli(
            "bench", "--url", url, "--prompts", name, "--requests", "2", "--repeats", "1", *options
        )

    return run


def lines(*records):
    return "".join(json.dumps(record) + "\n" for record in records)


def settings_of(bodies):
    """The bodies of requests without what mpctl sets."""
    own = (
        "messages",
        "model",
        "stream",
        "stream_options",
        "return_token_ids",
        "temperature",
        "max_completion_tokens",
        "cache_salt",
    )
    return [{name: value for name, value in body.items() if name not in own} for body in bodies]


SETTINGS = {
    "chat_template_kwargs": {"enable_thinking": False},
    "reasoning_effort": "low",
    "tool_choice": "none",
    "tools": [{"type": "function", "function": {"name": "look"}}],
    "response_format": {"type": "json_object"},
    "structured_outputs": {"regex": "[0-9]+"},
    "guided_choice": ["yes", "no"],
    "top_p": 0.9,
    "top_k": 20,
    "min_p": 0.05,
    "presence_penalty": 0.5,
    "repetition_penalty": 1.1,
    "stop": ["END"],
}


def test_the_settings_and_the_earlier_reasoning_of_a_logged_request_are_sent(measure):
    def record(number):
        said = {"role": "assistant", "content": "7", "reasoning_content": "three and four"}
        messages = [
            {"role": "user", "content": f"3+{number}?"},
            said,
            {"role": "user", "content": "and one more?"},
        ]
        unsent = {
            "temperature": 0.6,
            "max_tokens": 64,
            "seed": 5,
            "stream": True,
            "logprobs": True,
            "model": "other",
        }
        return {"messages": messages, **SETTINGS, **unsent}

    with engine() as server:
        done = measure(server.url, lines(*map(record, range(8))), "--max-tokens", "96")
    assert done.code == 0, done.err
    assert settings_of(server.received) == [SETTINGS] * len(server.received)
    assert all(
        body["messages"][1]["reasoning_content"] == "three and four" for body in server.received
    )
    assert {(body["model"], body["temperature"]) for body in server.received} == {("demo", 0.0)}
    assert {body["max_completion_tokens"] for body in server.received} == {96}
    (note,) = [line for line in done.err.splitlines() if "not sent" in line]
    for name in ("temperature", "max_tokens", "seed", "stream", "logprobs"):
        assert f"{name} in 8 requests" in note


@pytest.mark.parametrize(
    "setting",
    [
        {"guided_json": {"type": "object"}},
        {"guided_regex": "a+"},
        {"extra_body": {"guided_grammar": "root ::= 'a'"}},
        {"extra_body": {"chat_template_kwargs": {"thinking": True}}},
        {"include_reasoning": False},
        {"thinking_token_budget": 128},
        {"frequency_penalty": 0},
        {"stop_token_ids": [2]},
        {"logit_bias": {"5": -100}},
    ],
    ids=str,
)
def test_further_settings_are_sent_as_they_are_written(measure, setting):
    wanted = setting.get("extra_body", setting)
    with engine() as server:
        done = measure(server.url, lines(*({"prompt": f"p {n}", **setting} for n in range(8))))
    assert done.code == 0, done.err
    assert settings_of(server.received) == [wanted] * len(server.received)
    assert "not sent" not in done.err


@pytest.mark.parametrize(
    "name", ["continue_final_message", "n", "functions", "min_tokens", "provider"]
)
def test_a_setting_that_is_not_sent_is_counted_by_its_name(measure, name):
    with engine() as server:
        requests = [
            {"body": {"messages": [{"role": "user", "content": f"q {n}"}], name: [1]}}
            for n in range(8)
        ]
        done = measure(server.url, lines(*requests))
    assert done.code == 0, done.err
    assert settings_of(server.received) == [{}] * len(server.received)
    assert f"prompts of log: not sent: {name} in 8 requests\n" in done.err


def test_settings_of_other_servers_are_counted_by_their_names(measure):
    with engine() as server:
        records = [
            {"prompt": f"p {n}", "parameters": {"top_p": 0.9}, "thinking": {"type": "enabled"}}
            for n in range(8)
        ]
        done = measure(server.url, lines(*records))
    assert (
        "prompts of log: not sent: parameters in 8 requests, thinking in 8 requests\n" in done.err
    )


def sharegpt(*turns):
    return {"conversations": [{"from": role, "value": text} for role, text in turns]}


HALF = b'{"prompt": "cut here \\ud83d number %d"}\n'
ASKED = [sharegpt(("human", f"question {n}"), ("gpt", "answer")) for n in range(8)]
IMAGE = {"type": "image_url", "image_url": {"url": "data:,"}}


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (sharegpt(), "conversations: no question of a user"),
        (sharegpt(("gpt", "only an answer")), "conversations: no question of a user"),
        (sharegpt(("human", " "), ("gpt", "yes?")), "conversations: no question of a user"),
        (
            {"messages": [{"role": "system", "content": "Be brief"}]},
            "messages: no question of a user",
        ),
        ({"messages": [{"role": "user", "content": None}]}, "messages: no question of a user"),
        (
            {"messages": [{"role": "user", "content": [IMAGE]}]},
            "messages: a part of type 'image_url' cannot be sent",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]},
            "type 'input_audio' cannot be sent",
        ),
        (
            {**sharegpt(("human", "<image> What?"), ("gpt", "A cat")), "image": "cat.jpg"},
            "image: cannot be sent",
        ),
        ({"prompt": "<video> What?", "videos": ["cat.mp4"]}, "videos: cannot be sent"),
        (
            sharegpt(("human", "compare"), ("bing", "an answer"), ("human", "more")),
            "not the role 'bing'",
        ),
        (sharegpt(("human", "compare"), ("bard", "an answer")), "not the role 'bard'"),
        ({"prompt": ""}, "prompt: needs a non-empty string"),
        ({"question": "how many?", "answer": "3"}, "instruction; its fields: question, answer"),
    ],
)
def test_a_record_without_a_request_is_left_out_and_counted_and_alone_refuses_the_file(
    measure, record, reason
):
    with engine() as server:
        done = measure(server.url, lines(record, *ASKED, record))
        assert done.code == 0, done.err
        assert "prompts of log: left out 2 of 10 records: " in done.err
        assert f"{reason} (2, first in line 1)" in done.err
        received = len(server.received)
        alone = measure(server.url, lines(record))
    assert alone.code == 2
    assert alone.err.startswith("error: log.jsonl:1: ")
    assert reason in alone.err
    assert len(server.received) == received, "nothing is sent of a file that is refused"


def test_roles_and_calls_of_trainers_are_sent_as_those_of_the_api(measure):
    call = json.dumps({"name": "weather", "arguments": {"town": 1}})
    turns = (
        ("function_call", call),
        ("observation", '{"t": 3}'),
        ("gpt", "3 degrees"),
        ("human", "and tomorrow?"),
    )
    tools = json.dumps([{"name": "weather", "parameters": {}}])
    with engine() as server:
        records = [
            {**sharegpt(("human", f"weather {n}?"), *turns), "tools": tools, "system": "Be brief"}
            for n in range(2)
        ]
        done = measure(server.url, lines(*records), "--requests", "4")
    assert done.code == 0, done.err
    longest = max((body["messages"] for body in server.received), key=len)
    assert [message["role"] for message in longest][:5] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    (sent_call,) = longest[2]["tool_calls"]
    assert sent_call["function"] == {"name": "weather", "arguments": '{"town": 1}'}
    assert sent_call["id"] == longest[3]["tool_call_id"]
    assert server.received[0]["tools"] == [
        {"type": "function", "function": {"name": "weather", "parameters": {}}}
    ]


@pytest.mark.parametrize("value", ["{}", "look it up", '{"name": 5}'])
def test_a_call_that_no_engine_can_take_is_refused_with_its_line(measure, value):
    record = sharegpt(
        ("human", "weather?"), ("function_call", value), ("observation", "3"), ("gpt", "3 degrees")
    )
    with engine() as server:
        done = measure(server.url, lines(record, record))
    assert done.code == 2
    assert "log.jsonl:1: conversations: needs a function_call with a name and arguments" in done.err
    assert server.received == []


@pytest.mark.parametrize("role", ["prompter", "User", "HUMAN"])
@pytest.mark.parametrize("answers", ["model", "ai", "chatgpt", "Assistant"])
def test_names_for_the_user_and_the_model_become_those_of_the_api(measure, role, answers):
    with engine() as server:
        done = measure(
            server.url,
            lines(*(sharegpt((role, f"a {n}"), (answers, "b"), (role, "c")) for n in range(2))),
        )
    assert done.code == 0, done.err
    assert {message["role"] for body in server.received for message in body["messages"]} == {
        "user",
        "assistant",
    }


@pytest.mark.parametrize(
    "content",
    [
        b'\xef\xbb\xbf{"prompt": "p 0"}\r\n'
        + b"".join(b'{"prompt": "p %d"}\r\n' % n for n in range(1, 8)),
        b"\xef\xbb\xbf" + json.dumps([{"prompt": f"p {n}"} for n in range(8)], indent=1).encode(),
        b"".join(b'{"prompt": "p %d"}\n\n' % n for n in range(8)).rstrip(),
    ],
    ids=["mark and CRLF", "mark before a list", "empty lines"],
)
def test_a_byte_order_mark_and_other_line_ends_change_nothing(measure, content):
    with engine() as server:
        done = measure(server.url, content)
    assert done.code == 0, done.err
    assert {body["messages"][0]["content"] for body in server.received} <= {
        f"p {n}" for n in range(8)
    }


@pytest.mark.parametrize(
    "line",
    [
        HALF,
        HALF.replace(b"\\ud83d", b"\\uDE00"),
        HALF.replace(
            b'"prompt": ', b'"tools": [{"type": "function", "function": {"name": "f"}}], "prompt": '
        ),
        b'{"request_body": "{\\"messages\\": [{\\"role\\": \\"user\\", \\"content\\": \\"\\\\ud83d %d\\"}]}"}\n',
    ],
)
def test_half_a_surrogate_pair_is_replaced_and_counted(measure, line):
    with engine() as server:
        done = measure(server.url, b"".join(line % n for n in range(8)))
    assert done.code == 0, done.err
    assert all("\ufffd" in body["messages"][0]["content"] for body in server.received)
    assert "replaced half a surrogate pair by U+FFFD in 8 records" in done.err


@pytest.mark.parametrize(
    ("record", "messages"),
    [
        ({"question_id": 1, "turns": ["first {}", "then?"]}, [("user", "first {}")]),
        (
            {
                "conversation": [
                    {"role": "user", "content": "q {}"},
                    {"role": "assistant", "content": "a"},
                ],
                "model": "m",
            },
            [("user", "q {}")],
        ),
        ({"instruction": "Sort {}", "input": "b a", "output": "a b"}, [("user", "Sort {}\n\nb a")]),
        (
            {"instruction": "now {}", "input": "", "system": "Be brief"},
            [("system", "Be brief"), ("user", "now {}")],
        ),
    ],
    ids=["questions", "conversation", "instruction", "instruction with system"],
)
def test_formats_that_people_have_are_read(measure, record, messages):
    with engine() as server:
        done = measure(
            server.url, "".join(json.dumps(record).replace("{}", str(n)) + "\n" for n in range(8))
        )
    assert done.code == 0, done.err
    sent = [
        [(message["role"], message["content"]) for message in body["messages"]]
        for body in server.received
    ]
    assert [(role, text.replace("{}", "0")) for role, text in messages] in sent
    assert ("later questions without an answer in 8 requests" in done.err) == ("turns" in record)


def test_too_few_prompts_names_the_records_that_were_left_out(measure):
    with engine() as server:
        done = measure(server.url, lines(ASKED[0], sharegpt(), sharegpt()))
    assert done.code == 2
    assert "1 distinct prompts of log are too few" in done.err
    assert "left out 2 of 3 records" in done.err


REFUSED = '{"error": {"message": "Unexpected message role \x1b[2Jfunction_call\\n", "code": 400}}'


@pytest.mark.parametrize("candidate", [False, True])
def test_a_block_without_an_answer_ends_the_measurement_with_the_engines_reason(measure, candidate):
    prompts = lines(*({"prompt": f"prompt number {n}"} for n in range(80)))
    with engine(refuses=lambda body: REFUSED) as server, engine() as good:
        urls = ("--candidate", server.url) if candidate else ()
        done = measure(good.url if candidate else server.url, prompts, *urls)
    assert done.code == 1
    assert "requests failed, the first with HTTP 400: " in done.err
    assert "Unexpected message role \\u001b[2Jfunction_call" in done.err
    assert "\x1b" not in done.err
    assert "run the same command again" not in done.err


def test_the_reason_of_a_failed_request_never_quotes_its_prompt(measure):
    secret = "the password of the north gate is rosebud, number "
    with engine(refuses=lambda body: f"cannot read: {body['messages'][0]['content']}") as server:
        done = measure(server.url, lines(*({"prompt": f"{secret}{n}"} for n in range(8))))
    assert done.code == 1
    assert "rosebud" not in done.err
    assert "HTTP 400" not in done.err or "left out" in done.err


@pytest.mark.parametrize("parts", [False, True])
def test_the_reason_quotes_no_short_message_of_a_conversation(measure, parts):
    def record(number):
        text = f"my pin is 471{number}"
        asked = {"role": "user", "content": [{"type": "text", "text": text}] if parts else text}
        return {"messages": [{"role": "system", "content": "Be brief"}, asked]}

    with engine(refuses=lambda body: f"cannot read {body['messages'][1]['content']}") as server:
        done = measure(server.url, lines(*map(record, range(8))))
    assert done.code == 1
    assert "the engine's message repeats the prompt and is left out" in done.err
    assert "pin" not in done.err


def test_the_first_reason_is_shown_where_some_requests_are_answered(measure):
    with engine(
        refuses=lambda body: "too long" if "2" in body["messages"][0]["content"] else None
    ) as server:
        done = measure(server.url, lines(*({"prompt": f"prompt {n}"} for n in range(8))))
    assert done.code == 0, done.err
    assert "a request failed with HTTP 400: too long" in done.err
