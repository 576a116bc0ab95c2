"""Answers of an engine and its scores, as vLLM 0.32 sends them. All texts are made up here."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from mpctl.experiment.answers import Answer, Ask, Scored, ToolCall
from mpctl.platform import answers
from mpctl.rollout.ports import Endpoint
from tests.unit.support.limits import MOST_MIB, Peak

SECRET = "the user's own words"


@pytest.fixture
def engine():
    """Answers what ``respond`` makes of a body: a status and a text. ``bodies``: of the requests."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            server.bodies.append((self.path, body))
            status, text = server.respond(body)
            self.send_response(status)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.bodies = []
    server.endpoint = Endpoint(f"http://127.0.0.1:{server.server_port}", "svc", token="key")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def stream(*parts, end="data: [DONE]\n\n"):
    return "".join(f"data: {json.dumps(part)}\n\n" for part in parts) + end


def chunk(delta, ids=(), **more):
    return {"choices": [{"index": 0, "delta": delta, "token_ids": list(ids), **more}]}


def top(**logprobs):
    return [
        {"token": f"token_id:{token}", "logprob": logprob} for token, logprob in logprobs.items()
    ]


def ask_one(engine, respond, **changes):
    engine.respond = respond
    ask = Ask("own", {"messages": [{"role": "user", "content": SECRET}]}, 64, **changes)
    (answer,) = answers.ask(engine.endpoint, [ask], concurrency=1, salt="salt")
    return answer


def test_a_stream_is_joined_to_the_answer_that_it_renders(engine):
    def call(name=None, arguments=""):
        return {"tool_calls": [{"index": 1, "function": {"name": name, "arguments": arguments}}]}

    text = stream(
        {"prompt_token_ids": [7, 8], **chunk({"role": "assistant", "reasoning": "hm"}, [1])},
        chunk(
            {"content": "a"},
            [2],
            logprobs={
                "content": [{"logprob": -0.5, "top_logprobs": top(**{"2": -0.5, "9": -0.25})}]
            },
        ),
        chunk(
            {"tool_calls": [{"index": 0, "function": {"name": "first", "arguments": "{}"}}]}, [3]
        ),
        chunk(call("second", '{"a":'), [4]),
        chunk(call(arguments="1}"), [5], finish_reason="tool_calls"),
        {"choices": [], "usage": {}},
    )
    assert ask_one(engine, lambda _: (200, text), stream=True) == Answer(
        prompt_ids=(7, 8),
        ids=(1, 2, 3, 4, 5),
        text="a",
        reasoning="hm",
        tool_calls=(ToolCall("first", "{}"), ToolCall("second", '{"a":1}')),
        finish="tool_calls",
        logprobs=(-0.5,),
        best=(-0.25,),
    )


def test_an_answer_in_one_piece_is_the_same_as_its_stream(engine):
    message = {"content": None, "tool_calls": [{"function": {"name": "look", "arguments": "{}"}}]}
    whole = {
        "prompt_token_ids": [7],
        "choices": [{"message": message, "token_ids": [1], "finish_reason": "stop"}],
    }
    calls = [{"index": 0, "function": {"name": "look", "arguments": "{}"}}]
    parts = {"prompt_token_ids": [7], **chunk({"tool_calls": calls}, [1], finish_reason="stop")}
    assert ask_one(engine, lambda _: (200, json.dumps(whole))) == ask_one(
        engine, lambda _: (200, stream(parts)), stream=True
    )


def test_every_sampling_field_is_named_and_each_request_has_the_salt(engine):
    ask_one(engine, lambda _: (200, '{"choices": []}'), temperature=0.7, top_p=0.9)
    ((path, body),) = engine.bodies
    assert path == "/v1/chat/completions"
    wanted = {
        "model": "svc",
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "max_tokens": 64,
        "return_token_ids": True,
        "cache_salt": "salt",
        "stream": False,
    }
    assert wanted.items() <= body.items()


def test_a_token_that_is_none_of_those_it_was_chosen_from_is_an_answer_that_can_be_judged(engine):
    lost = {"token": "token_id:2", "logprob": -9999.0, "top_logprobs": []}
    choice = {"message": {"content": "a"}, "token_ids": [2], "logprobs": {"content": [lost]}}
    answer = ask_one(engine, lambda _: (200, json.dumps({"choices": [choice]})))
    assert (answer.error, answer.ids, answer.logprobs, answer.best) == (
        "",
        (2,),
        (-9999.0,),
        (-9999.0,),
    )


def test_an_endpoint_that_names_tokens_by_their_texts_gives_an_answer_without_ids_and_log_probabilities(
    engine,
):
    named = [
        {"token": "Paris", "logprob": -0.1, "top_logprobs": [{"token": "Paris", "logprob": -0.1}]}
    ]
    choice = {
        "index": 0,
        "message": {"content": "Paris"},
        "finish_reason": "stop",
        "logprobs": {"content": named},
    }
    answer = ask_one(engine, lambda _: (200, json.dumps({"choices": [choice]})))
    assert answer == Answer(text="Paris", finish="stop")


def test_an_arm_that_will_be_gone_brings_the_alternatives_of_its_tokens(engine):
    content = [{"logprob": -0.5, "top_logprobs": top(**{"2": -0.5, "9": -0.75, "4": -8.0})}]
    choice = {"message": {"content": "a"}, "token_ids": [2], "logprobs": {"content": content}}
    engine.respond = lambda body: (
        (200, json.dumps({"choices": [choice]})) if body["top_logprobs"] == 20 else (400, "")
    )
    (answer,) = answers.ask(
        engine.endpoint, [Ask("own", {}, 64)], concurrency=1, salt="s", alternatives=20
    )
    assert answer.alternatives == ({2: -0.5, 9: -0.75, 4: -8.0},)


@pytest.mark.parametrize(
    ("response", "error"),
    [
        ((500, json.dumps({"error": {"message": SECRET}})), "HTTP 500"),
        ((200, SECRET), "not an answer of the chat API"),
        ((200, "[]"), "not an answer of the chat API"),
        ((200, '{"choices": [{"message": {"content": 5}}]}'), "not an answer of the chat API"),
        ((200, stream(chunk({"content": SECRET}), end="")), "the stream was cut off"),
        ((200, stream({"error": {"message": SECRET}})), "an error within the stream"),
    ],
)
def test_a_failed_request_is_an_error_without_a_word_of_it(engine, response, error):
    assert ask_one(engine, lambda _: response, stream="data" in response[1]) == Answer(error=error)


def test_an_engine_that_is_gone_gives_errors(engine):
    gone = Endpoint("http://127.0.0.1:1", "svc")
    ask = Ask("own", {"messages": [{"role": "user", "content": SECRET}]}, 64)
    assert answers.ask(gone, [ask], concurrency=1, salt="s") == (
        Answer(error="no complete answer"),
    )
    assert answers.score(
        gone, [Answer(prompt_ids=(1,), ids=(2,))], alternatives=1, concurrency=1, salt="s"
    ) == (None,)


def test_scores_are_those_of_the_answers_own_tokens(engine):
    rows = [
        None,
        {"8": {"logprob": -3.0}},
        {"5": {"logprob": -2.0}, "6": {"logprob": -0.25}},
        {"9": {"logprob": 0.0}},
    ]
    engine.respond = lambda _: (200, json.dumps({"choices": [{"prompt_logprobs": rows}]}))
    answer = Answer(prompt_ids=(7, 8), ids=(5, 9))
    (scored,) = answers.score(
        engine.endpoint, [answer], alternatives=1, concurrency=1, salt="other"
    )
    assert scored == Scored((-2.0, 0.0), ((-0.25, -2.0), (0.0,)), (6, 9))
    assert scored.margins == (1.75, 0.0)
    ((path, body),) = engine.bodies
    assert path == "/v1/completions"
    wanted = {
        "prompt": [7, 8, 5, 9],
        "max_tokens": 1,
        "prompt_logprobs": 1,
        "cache_salt": "other",
        "temperature": 0.0,
    }
    assert wanted.items() <= body.items()


@pytest.mark.parametrize(
    "rows", [None, [None, {}], [None, {}, {"6": {"logprob": 0.0}}, {"9": {"logprob": 0.0}}]]
)
def test_rows_that_are_not_of_the_answer_are_no_score(engine, rows):
    engine.respond = lambda _: (200, json.dumps({"choices": [{"prompt_logprobs": rows}]}))
    answer = Answer(prompt_ids=(7, 8), ids=(5, 9))
    assert answers.score(engine.endpoint, [answer], alternatives=1, concurrency=1, salt="s") == (
        None,
    )


def test_answers_come_in_the_order_of_the_requests(engine):
    barrier = threading.Barrier(4, timeout=10)

    def respond(body):
        barrier.wait()  # as many at once as were asked for
        return 200, json.dumps(
            {"choices": [{"message": {"content": body["messages"][0]["content"]}}]}
        )

    engine.respond = respond
    asks = [Ask("own", {"messages": [{"role": "user", "content": str(n)}]}, 64) for n in range(8)]
    received = answers.ask(engine.endpoint, asks, concurrency=4, salt="s")
    assert [answer.text for answer in received] == [str(n) for n in range(8)]


def test_the_watch_asks_for_ids_in_users_part_of_the_cache_and_for_no_log_probability(engine):
    engine.respond = lambda body: (
        200,
        json.dumps({"choices": [{"message": {"content": "a"}, "token_ids": [1]}]}),
    )
    ask = Ask("sentinel", {"messages": [{"role": "user", "content": SECRET}]}, 48)
    (answer,) = answers.ask(engine.endpoint, [ask], concurrency=1, salt="", alternatives=0)
    ((_, body),) = engine.bodies
    assert not {"cache_salt", "logprobs", "top_logprobs", "return_tokens_as_token_ids"} & set(body)
    assert body["return_token_ids"] and answer == Answer(ids=(1,), text="a")


@pytest.mark.parametrize(("alternatives", "asked_for"), [(2, False), (20, True)])
def test_a_grammars_answer_has_log_probabilities_only_if_nothing_will_score_it(
    engine, alternatives, asked_for
):
    engine.respond = lambda body: (200, '{"choices": []}')
    body = {"messages": [], "response_format": {"type": "json_object"}}
    asks = [Ask("json", body, 64), Ask("own", {"messages": []}, 64)]
    answers.ask(engine.endpoint, asks, concurrency=1, salt="", alternatives=alternatives)
    assert ["logprobs" in sent for _, sent in engine.bodies] == [asked_for, True]


def test_texts_get_the_token_ids_of_their_engine(engine):
    """Reasoning and calls were rendered from tokens that no text tells."""
    engine.respond = lambda body: (
        200,
        json.dumps({"tokens": [1, 2] if "messages" in body else [5, 6]}),
    )
    ask = Ask(
        "own",
        {"messages": [{"role": "user", "content": SECRET}], "tools": [{"type": "function"}]},
        64,
    )
    rows = [
        Answer(text="a"),
        Answer(ids=(9,), text="a"),
        Answer(text="a", reasoning="hm"),
        Answer(error="HTTP 500"),
    ]
    first, *others = answers.tokenize(engine.endpoint, [ask] * 4, rows, concurrency=1)
    assert first == Answer(prompt_ids=(1, 2), ids=(5, 6), text="a", tokenized=True)
    assert others == rows[1:]
    assert [body for path, body in engine.bodies if path == "/tokenize"] == [
        {
            "model": "svc",
            "messages": ask.body["messages"],
            "tools": ask.body["tools"],
            "add_generation_prompt": True,
        },
        {"model": "svc", "prompt": "a", "add_special_tokens": False},
    ]


@pytest.mark.parametrize(
    "respond", [lambda _: (404, "{}"), lambda _: (200, "[]"), lambda _: (200, '{"tokens": ["a"]}')]
)
def test_an_engine_that_tokenizes_nothing_leaves_answers_as_they_are(engine, respond):
    engine.respond = respond
    ask = Ask("own", {"messages": [{"role": "user", "content": SECRET}]}, 64)
    assert answers.tokenize(engine.endpoint, [ask], [Answer(text="a")], concurrency=1) == (
        Answer(text="a"),
    )


def test_token_ids_beyond_those_that_were_asked_for_are_cut_and_counted(engine):
    ids = list(range(100))
    content = [
        {"token": f"token_id:{n}", "logprob": -0.1, "top_logprobs": top(**{str(n): -0.1})}
        for n in ids
    ]
    answer = ask_one(
        engine,
        lambda _: (
            200,
            json.dumps(
                {
                    "choices": [
                        {
                            "message": {"content": "text"},
                            "token_ids": ids,
                            "finish_reason": "length",
                            "logprobs": {"content": content},
                        }
                    ]
                }
            ),
        ),
    )
    assert (len(answer.ids), len(answer.logprobs), len(answer.best), answer.surplus) == (
        64,
        64,
        64,
        36,
    )


@pytest.mark.parametrize("streamed", [False, True])
def test_an_engine_that_answers_megabytes_takes_little_memory(engine, streamed):
    """16 MiB of token ids for 96 tokens, in 16 answers."""
    ids = "[" + "100000," * (16 * 2**20 // 7) + "1]"
    body = f'{{"choices": [{{"index": 0, "{"delta" if streamed else "message"}": {{}}, "token_ids": {ids}}}]}}'
    text = f"data: {body}\n\ndata: [DONE]\n\n" if streamed else body
    engine.respond = lambda _: (200, text)
    asks = [
        Ask("own", {"messages": [{"role": "user", "content": SECRET}]}, 96, stream=streamed)
    ] * 16
    peak = Peak()
    received = answers.ask(engine.endpoint, asks, concurrency=4, salt="salt")
    assert received == (Answer(error="no complete answer"),) * 16
    assert peak.mebibytes() < 170  # of which the server's four copies of the text have two thirds


@pytest.mark.parametrize(
    ("ids", "error"), [(8000, ""), (20_000, "more prompt tokens than the request has characters")]
)
def test_what_a_pass_keeps_of_the_largest_answers_has_a_bound(engine, ids, error):
    """An engine that fills each answer with token ids of the prompt, which Python does not share."""
    listed = "[" + "100000," * ids + "1]"
    engine.respond = lambda _: (
        200,
        f'{{"prompt_token_ids": {listed}, "choices": [{{"message": {{}}}}]}}',
    )
    asks = [Ask("own", {"messages": [{"role": "user", "content": SECRET}]}, 96)] * 189
    peak = Peak()
    received = answers.ask(engine.endpoint, asks, concurrency=4, salt="salt")
    assert {answer.error for answer in received} == {error}
    assert peak.mebibytes() < MOST_MIB / 4
