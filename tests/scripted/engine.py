"""A scripted engine: vLLM's command line, OpenAI API and metrics without a model. Serves tests/local and tests/cluster.

Real: the process, its arguments, its address, chat and plain completions (whole or streamed, with usage), /health,
/version, /v1/models, and vLLM's metric names with counters that add up. Left out: a model (the answer is the prompt,
word by word), batching (a request never slows another), KV memory, sampling, prefill, every flag but the few read here.
On SIGTERM it ends at once and cuts its answers, as vLLM does; with --shutdown-timeout it refuses new requests and
finishes those it has, for so many seconds. A token costs a fixed time. Under speculation a step drafts two tokens and
commits two, one of them accepted, for the price of one. Start-up takes a tenth of a second.

The environment variable SCRIPT changes it, as JSON:

- ``exit``: end at start-up with this code; ``only_speculating``: only when speculating; ``exit_after``: end after so
  many requests
- ``start_s``: seconds until it listens; ``mute``: a speculating engine starts and never gets ready
- ``token_s``: seconds of a token (0.002); ``slow``: a speculating engine takes so many times longer
- ``accept``: accepted share of drafted tokens, with as many drafted as ``num_speculative_tokens`` says
- ``novel``: the accepted share for prompts with the word "novel"; a synthetic acceptance length wins over ``accept``
- ``other``: a speculating engine answers something else, always or while a file of this name exists; ``other_to``: to
  prompts with this word; ``fail``: share of requests answered with 500
- ``silent``: a speculating engine hides its counters
- ``slots``: requests that run at once; the others wait, and ``vllm:request_queue_time_seconds`` says how long
- ``queue_ms``: every request waits so long before it runs
- ``prefill_ms``: the first token of a prompt that the prefix cache does not hold takes so much longer
- ``saltless``: that cache ignores the salt of a request
- ``finish``: the reason why a whole answer ends ("length"); a stream tells none
- ``idless``: it returns no token ids and scores none, as behind some gateways; "answers": only answers come without

A word is a token: with ``return_token_ids`` an answer has their ids, and ``prompt_logprobs`` finds every word of an
answer to a prompt it was asked before certain, and any other 12 nats less likely.

A script under the key ``speculating`` holds for a speculating engine only.
"""

import itertools
import json
import os
import signal
import ssl
import sys
import threading
import time
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

TOKEN_S = 0.002
VERSION = "0.32.0"


def value_of(arguments, flag):
    """The last value of a flag, in either of its forms; None when it is not given."""
    text = None
    for index, word in enumerate(arguments):
        if word == flag and index + 1 < len(arguments):
            text = arguments[index + 1]
        elif word.startswith(flag + "="):
            text = word.split("=", 1)[1]
    return text


def speculation(arguments):
    """The speculative setting, as JSON or as dotted flags; None without one. What is no JSON ends the engine."""
    prefix = "--speculative-config."
    dotted = {w[len(prefix) :].split("=", 1)[0]: w for w in arguments if w.startswith(prefix)}
    text = value_of(arguments, "--speculative-config")
    if text is None and not dotted:
        return None
    return {
        **json.loads(text or "{}"),
        **{key: value_of(arguments, prefix + key) for key in dotted},
    }


def ids_of(words):
    """The token ids of words."""
    return [zlib.crc32(word.encode()) % 100_000 for word in words]


def certain(words):
    """Log probabilities of words, with one alternative that is 12 nats less likely."""
    rows = [((f"token_id:{token}", 0.0), ("token_id:100000", -12.0)) for token in ids_of(words)]
    named = [[{"token": token, "logprob": logprob} for token, logprob in row] for row in rows]
    return {"logprobs": {"content": [{**row[0], "top_logprobs": row} for row in named]}}


class Model:
    """What the engine does: time and counters. ``arguments`` are those after ``vllm serve``."""

    def __init__(self, arguments, script):
        config = speculation(arguments)
        self.speculating = config is not None
        self.script = {**script, **(script.get("speculating", {}) if self.speculating else {})}
        self.drafted = 2
        if self.speculating and "accept" in self.script:
            self.drafted = int(config.get("num_speculative_tokens") or 2)
            if "synthetic_acceptance_length" in config:
                self.script["accept"] = (config["synthetic_acceptance_length"] - 1) / self.drafted
        model = value_of(arguments, "--model") or next(
            (w for w in arguments if not w.startswith("-")), "model"
        )
        self.names = (value_of(arguments, "--served-model-name") or model).split()
        self.lock = threading.Lock()
        self.slots = threading.Semaphore(int(self.script.get("slots", 10**6)))
        names = (
            "generated",
            "accepted",
            "drafts",
            "requests",
            "prompt",
            "running",
            "waiting",
            "queries",
            "hits",
            "later",
        )
        self.counts = dict.fromkeys(names, 0)
        self.per_position = [0] * self.drafted
        self.queued_s = self.first_token_s = self.per_token_s = self.between_s = self.whole_s = 0.0
        self.streams = 0  # answers of two tokens and more, which have a time per output token
        self.cache = set()
        self.asked = {}
        self.serial = itertools.count(1)
        self.failed = 0.0
        self.ending = False

    def end(self, seconds):
        """Finish the requests that run or wait, for so many seconds, and exit."""
        self.ending = True
        limit = time.monotonic() + seconds
        while time.monotonic() < limit and (self.counts["running"] or self.counts["waiting"]):
            time.sleep(0.02)
        os._exit(0)

    def admit(self):
        """Wait for a slot; the seconds it took."""
        arrived = time.perf_counter()
        with self.lock:
            self.counts["waiting"] += 1
        if self.script.get("queue_ms"):
            time.sleep(self.script["queue_ms"] / 1000)
        self.slots.acquire()
        waited = time.perf_counter() - arrived
        with self.lock:
            self.counts["waiting"] -= 1
            self.counts["running"] += 1
            self.queued_s += waited if "slots" in self.script or "queue_ms" in self.script else 0.0

    def prefill(self, prompt, salt):
        """Look the prompt up in the prefix cache, and take its time where it is not there."""
        entry = (prompt, "" if self.script.get("saltless") else salt)
        with self.lock:
            known = entry in self.cache
            self.cache.add(entry)
            self.counts["queries"] += len(prompt.split())
            self.counts["hits"] += len(prompt.split()) if known else 0
        if not known:
            time.sleep(self.script.get("prefill_ms", 0) / 1000)

    def score(self, ids):
        """Rows of ``prompt_logprobs``: of an answer to a prompt that was asked before."""
        known = next((n for n in range(len(ids), 0, -1) if tuple(ids[:n]) in self.asked), len(ids))
        expected = self.asked.get(tuple(ids[:known]), [])
        rows = [None, *({str(token): {"logprob": -0.1, "rank": 1}} for token in ids[1:known])]
        for token, right in itertools.zip_longest(ids[known:], expected[: len(ids) - known]):
            row = {
                str(token): {"logprob": -12.0, "rank": 2},
                "100000": {"logprob": -12.0, "rank": 2},
            }
            rows.append(
                {**row, str(right): {"logprob": 0.0, "rank": 1}} if right is not None else row
            )
        return rows

    def timed(self, seconds):
        """Observe an answer, of which the steps took so long."""
        with self.lock:
            self.first_token_s += seconds[0] if seconds else 0.0
            self.whole_s += sum(seconds)
            self.between_s += sum(seconds[1:])
            if len(seconds) > 1:
                self.streams += 1
                self.per_token_s += sum(seconds[1:]) / (len(seconds) - 1)

    def leave(self):
        """Give the slot back."""
        with self.lock:
            self.counts["running"] -= 1
            self.counts["requests"] += 1
        self.slots.release()

    def fails(self):
        """Whether this request is one of the failing share."""
        with self.lock:
            self.failed += self.script.get("fail", 0)
            if self.failed >= 1:
                self.failed -= 1
                return True
        return False

    def turned(self):
        """Whether this answer is another one."""
        other = self.script.get("other")
        return Path(other).exists() if isinstance(other, str) else other

    def steps(self, words):
        """Yield (seconds, words) of each step, counted; the caller waits."""
        cost = self.script.get("token_s", TOKEN_S)
        if self.speculating and "accept" not in self.script:
            cost = cost / 2 * self.script.get("slow", 1)
            size = len(words) // 2
            self.count(
                len(words),
                accepted=size,
                drafts=size,
                places=[size, 0],
                later=max(len(words) - size - 1, 0),
            )
            yield from ((cost, [word]) for word in words)
            return
        if self.speculating:
            cost *= self.script.get("slow", 1)
        pending, owed, first = list(words), 0.0, True
        share = self.script.get(
            "novel" if "novel" in words and "novel" in self.script else "accept", 0
        )
        while pending:
            taken = 0
            if self.speculating:
                owed += self.drafted * share
                taken = min(int(owed + 1e-9), self.drafted, len(pending) - 1)
                owed -= int(owed + 1e-9)
                self.count(
                    0,
                    accepted=taken,
                    drafts=1,
                    places=[int(i < taken) for i in range(self.drafted)],
                )
            step, pending = pending[: taken + 1], pending[taken + 1 :]
            self.count(len(step), later=int(not first))
            first = False
            yield cost, step

    def count(self, generated, accepted=0, drafts=0, places=(), later=0):
        """Add to the counters."""
        with self.lock:
            self.counts["generated"] += generated
            self.counts["accepted"] += accepted
            self.counts["drafts"] += drafts
            self.counts["later"] += later
            for position, value in enumerate(places):
                self.per_position[position] += value

    def metrics(self):
        """The page of /metrics."""
        with self.lock:
            counts, places, queued = dict(self.counts), list(self.per_position), self.queued_s
        names = {
            "vllm:generation_tokens_total": counts["generated"],
            "vllm:prompt_tokens_total": counts["prompt"],
            "vllm:num_preemptions_total": 0,
            "vllm:inter_token_latency_seconds_sum": self.between_s,
            "vllm:inter_token_latency_seconds_count": counts["later"],
            "vllm:prefix_cache_queries_total": counts["queries"],
            "vllm:prefix_cache_hits_total": counts["hits"],
            "vllm:num_requests_running": counts["running"],
            "vllm:num_requests_waiting": counts["waiting"],
            "vllm:time_to_first_token_seconds_sum": self.first_token_s,
            "vllm:time_to_first_token_seconds_count": counts["requests"],
            "vllm:request_time_per_output_token_seconds_sum": self.per_token_s,
            "vllm:request_time_per_output_token_seconds_count": self.streams,
            "vllm:e2e_request_latency_seconds_sum": self.whole_s,
            "vllm:e2e_request_latency_seconds_count": counts["requests"],
            "vllm:request_queue_time_seconds_sum": queued,
            "vllm:request_queue_time_seconds_count": counts["requests"],
        }
        if self.speculating and not self.script.get("silent"):
            names["vllm:spec_decode_num_drafts_total"] = counts["drafts"]
            names["vllm:spec_decode_num_draft_tokens_total"] = self.drafted * counts["drafts"]
            names["vllm:spec_decode_num_accepted_tokens_total"] = counts["accepted"]
        lines = [f'{name}{{engine="0"}} {value}' for name, value in names.items()]
        if self.speculating and not self.script.get("silent"):
            for position, value in enumerate(places):
                name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
                lines.append(f'{name}{{engine="0",position="{position}"}} {value}')
        return "\n".join(lines) + "\n"


class Handler(BaseHTTPRequestHandler):
    """The HTTP side; ``model`` is set on the subclass that serves."""

    disable_nagle_algorithm = (
        True  # as vLLM's server; else a kept connection waits 40 ms for each answer
    )
    protocol_version = "HTTP/1.1"
    model = None

    def log_message(self, *_):
        pass

    def do_GET(self):
        path = self.path.split("?")[0]
        mute = self.model.speculating and self.model.script.get("mute")
        if path in ("/health", "/v1/models") and mute:
            self.answer(503, b"")
        elif path == "/health":
            self.answer(200, b"")
        elif path == "/metrics":
            self.answer(200, self.model.metrics().encode(), "text/plain; version=0.0.4")
        elif path == "/version":
            self.json({"version": VERSION})
        elif path == "/v1/models":
            self.json(
                {"object": "list", "data": [{"id": n, "object": "model"} for n in self.model.names]}
            )
        else:
            self.answer(404, b"")

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        chat = "messages" in body
        prompt = body["messages"][-1]["content"] if chat else body["prompt"]
        scores = self.model.script.get("idless") in (None, "answers")
        if self.path == "/tokenize" and scores:
            self.json({"tokens": ids_of(prompt.split())})
            return
        if body.get("prompt_logprobs") and scores:
            choice = {
                "index": 0,
                "text": "",
                "finish_reason": "length",
                "prompt_logprobs": self.model.score(prompt),
            }
            self.json({**self.head(body, chat=False), "choices": [choice]})
            return
        if isinstance(prompt, list):
            prompt = " ".join(
                str(p.get("text", "")) if isinstance(p, dict) else str(p) for p in prompt
            )
        words = prompt.split()[
            : int(body.get("max_tokens") or body.get("max_completion_tokens") or 16)
        ]
        actual_ids, right = ids_of(prompt.split()), ids_of(words)
        with self.model.lock:
            self.model.asked[tuple(actual_ids)] = right
        if self.model.speculating and (
            self.model.turned() or self.model.script.get("other_to") in prompt.split()
        ):
            words = ["other", *words]
        if self.model.ending:
            self.json({"error": {"message": "the engine shuts down", "code": 503}}, 503)
            return
        if self.model.fails():
            self.json({"error": {"message": "scripted to fail", "code": 500}}, 500)
            return
        self.model.admit()
        try:
            with self.model.lock:
                self.model.counts["prompt"] += 1
            self.model.prefill(prompt, body.get("cache_salt", ""))
            usage = {
                "prompt_tokens": 1,
                "completion_tokens": len(words),
                "total_tokens": 1 + len(words),
            }
            if body.get("stream"):
                self.stream(body, words, usage, actual_ids, chat=chat)
            else:
                steps = list(self.model.steps(words))
                time.sleep(sum(seconds for seconds, _ in steps))
                self.model.timed([seconds for seconds, _ in steps])
                text = " ".join(word for _, step in steps for word in step)
                content = (
                    {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
                )
                ids = {"token_ids": ids_of(words), **certain(words)} if self.shows_ids(body) else {}
                choice = {
                    "index": 0,
                    "finish_reason": self.model.script.get("finish", "length"),
                    **content,
                    **ids,
                }
                asked_ids = {"prompt_token_ids": actual_ids} if ids else {}
                self.json(
                    {**self.head(body, chat=chat), "choices": [choice], "usage": usage, **asked_ids}
                )
        finally:
            self.model.leave()
        limit = self.model.script.get("exit_after")
        if limit and self.model.counts["requests"] >= limit:
            os._exit(1)

    def head(self, body, *, chat):
        kind = "chat.completion" if chat else "text_completion"
        return {
            "id": f"cmpl-{next(self.model.serial)}",
            "object": kind,
            "model": body.get("model", self.model.names[0]),
        }

    def shows_ids(self, body):
        return body.get("return_token_ids") and not self.model.script.get("idless")

    def stream(self, body, words, usage, asked, *, chat):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("Connection", "close" if self.close_connection else "keep-alive")
        self.end_headers()
        head = self.head(body, chat=chat)
        if chat:
            head["object"] = "chat.completion.chunk"
        first, slept = True, []
        for seconds, step in self.model.steps(words):
            time.sleep(seconds)
            slept.append(seconds)
            text = ("" if first else " ") + " ".join(step)
            content = {"delta": {"content": text}} if chat else {"text": text}
            ids = {"token_ids": ids_of(step), **certain(step)} if self.shows_ids(body) else {}
            asked_ids = {"prompt_token_ids": asked} if ids and first else {}
            first = False
            self.event({**head, "choices": [{"index": 0, **content, **ids}], **asked_ids})
        self.model.timed(slept)
        if (body.get("stream_options") or {}).get("include_usage"):
            self.event({**head, "choices": [], "usage": usage})
        self.chunk(b"data: [DONE]\n\n")
        self.chunk(b"")

    def event(self, record):
        self.chunk(b"data: " + json.dumps(record).encode() + b"\n\n")

    def chunk(self, data):
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def json(self, record, status=200):
        self.answer(status, json.dumps(record).encode(), "application/json")

    def answer(self, status, content, kind="text/plain"):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Connection", "close" if self.close_connection else "keep-alive")
        self.end_headers()
        self.wfile.write(content)


class Server(ThreadingHTTPServer):
    """As many connections at once as a test opens."""

    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, *_):
        pass  # a client that went away


def serve(arguments, host="127.0.0.1"):
    """Run until killed; ``arguments`` are those after ``vllm serve``, ``host`` wins over theirs."""
    model = Model(arguments, json.loads(os.environ.get("SCRIPT") or "{}"))
    if "exit" in model.script and (model.speculating or not model.script.get("only_speculating")):
        sys.stdout.write("ValueError: scripted to end at start-up\n")
        sys.exit(model.script["exit"])
    time.sleep(model.script.get("start_s", 0.1))
    port = int(value_of(arguments, "--port") or 8000)
    drain_s = float(value_of(arguments, "--shutdown-timeout") or 0)
    if drain_s:
        signal.signal(
            signal.SIGTERM, lambda *_: threading.Thread(target=model.end, args=(drain_s,)).start()
        )
    sys.stdout.write(f"INFO scripted engine {VERSION} on {host}:{port}: {' '.join(arguments)}\n")
    sys.stdout.flush()
    server = Server((host, port), type("Bound", (Handler,), {"model": model}))
    if certificate := value_of(arguments, "--ssl-certfile"):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, value_of(arguments, "--ssl-keyfile"))
        server.socket = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    server.serve_forever()
