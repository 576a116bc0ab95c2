"""Lengths, thinking and adapters as classes of traffic: what an engine serves, and what is refused before a change."""

import json
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from mpctl.app.option import Contexts, Names
from mpctl.app.planned_workload import read_workload
from mpctl.app.requests import MeasurementRequest
from mpctl.errors import InputError
from mpctl.experiment.prompt_files import body_of
from mpctl.lab.variants import adapters_named, with_variants
from mpctl.manifest.engine.engine_command import EngineCommand
from mpctl.rollout.ports import Endpoint


class Engine(BaseHTTPRequestHandler):
    """An engine that counts a token for each third of a character, and lists a model with two adapters."""

    context, template, tokenizes = 32_768, True, True

    def log_message(self, *_):
        pass

    def do_GET(self):
        adapters = [{"id": name, "parent": "base"} for name in ("sql", "law")]
        self.answer({"data": [{"id": "base", "max_model_len": self.context}, *adapters]})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = "".join(message["content"] for message in body["messages"])
        direct = (
            self.template and body.get("chat_template_kwargs", {}).get("enable_thinking") is False
        )
        tokens = [1] * (len(text) // 3 + 8) + [2] * 4 * direct
        self.answer({"tokens": tokens}, 200 if self.tokenizes and self.path == "/tokenize" else 404)

    def answer(self, record, status=200):
        text = json.dumps(record).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


@pytest.fixture
def serve():
    servers = []

    def start(**settings):
        handler = type("Engine", (Engine,), settings)
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return Endpoint(f"http://127.0.0.1:{server.server_port}", "base")

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def variants_of(request, *endpoints, **options):
    return with_variants(read_workload(request), request, endpoints, **options)


def test_lengths_thinking_and_adapters_are_classes_with_equal_shares(serve):
    asked = MeasurementRequest(contexts=(2048, 8192), thinking="both", prompts=("edits:3", "chat"))
    workload = variants_of(asked, serve())
    names = ["2k-thinking", "2k-direct", "8k-thinking", "8k-direct"]
    assert [kind.name for kind in workload.traffic] == [
        f"{of}-{n}" for of in ("edits", "chat") for n in names
    ]
    assert workload.shares["edits-8k-direct"] == pytest.approx(3 / 16)
    for kind in workload.traffic:
        tokens = [len(body_of(p)["messages"][0]["content"]) // 3 + 12 for p in kind.prompts]
        room = kind.variant.context - asked.max_tokens
        assert 0.9 * room <= min(tokens) <= max(tokens) <= room
    assert workload == variants_of(asked, serve())  # the same command continues


def test_all_adapters_are_the_model_and_each_adapter(serve):
    workload = variants_of(MeasurementRequest(adapters=("all",)), serve())
    assert [body_of(kind.prompts[0])["model"] for kind in workload.traffic] == [
        "base",
        "sql",
        "law",
    ]
    assert workload.repeats == 48
    assert workload.per_round == 3
    some = variants_of(MeasurementRequest(adapters=("sql",)), serve())
    assert [kind.name for kind in some.traffic] == ["edits-sql"]


@pytest.mark.parametrize(
    ("asked", "settings", "message", "hint"),
    [
        ({"contexts": (65_536,)}, {}, "65536 tokens are more than the 32768", None),
        ({"contexts": (2048,)}, {"context": None}, "does not tell how many tokens", "try again"),
        (
            {"contexts": (256,)},
            {},
            "leave no room for a prompt beside an answer of 384",
            "lower --max-tokens",
        ),
        (
            {"contexts": (512,)},
            {},
            "prompts of edits have up to",
            "shorter prompts such as --prompts fresh",
        ),
        (
            {"contexts": (131_072,)},
            {"context": 262_144},
            "without repeating a passage",
            "--prompts NAME=FILE",
        ),
        (
            {"contexts": (2048,)},
            {"tokenizes": False},
            "/tokenize does not answer, which contexts and thinking need",
            None,
        ),
        (
            {"thinking": "off"},
            {"template": False},
            "does not read enable_thinking",
            "leave out thinking",
        ),
        ({"adapters": ("tax",)}, {}, "adapter tax is not served", "served: base, sql, law"),
        (
            {"contexts": (2048, 4096), "thinking": "both", "adapters": ("all",)},
            {},
            "12 variants of a class leave each too few prompts",
            "name fewer",
        ),
        (
            {"contexts": (2048, 4096), "adapters": ("all",), "concurrency": (16,)},
            {},
            "6 variants in 8 rounds take 768 prompts",
            "lower --concurrency",
        ),
    ],
)
def test_what_is_not_served_is_refused_with_what_is(serve, asked, settings, message, hint):
    with pytest.raises(InputError, match=message) as refused:
        variants_of(MeasurementRequest(**asked), serve(**settings))
    assert hint is None or hint in refused.value.hint


def test_an_adapter_that_the_candidate_will_not_have_is_refused(serve):
    loaded_later = MeasurementRequest(adapters=("law",))
    with pytest.raises(InputError, match="adapter law is not served") as refused:
        variants_of(loaded_later, serve(), command=EngineCommand(("--lora-modules", "sql=/a")))
    assert refused.value.hint == "served: base, sql"
    plain = serve(do_GET=lambda self: self.answer({"data": [{"id": "base"}]}))
    with pytest.raises(InputError, match="serves no LoRA adapter that the candidate has"):
        variants_of(replace(loaded_later, adapters=("all",)), serve(), plain)


@pytest.mark.parametrize(
    "argv",
    [
        ("--lora-modules", "sql=/a", "law=/b=c", "--port", "1"),
        ("--lora-modules=sql=/a", "law=/b", "--port=1"),
        (
            "--port=1",
            "--lora-modules",
            '{"name": "sql", "path": "/a"}',
            '{"name": "law", "path": "/b"}',
        ),
    ],
)
def test_adapters_of_a_manifest(argv):
    assert adapters_named(EngineCommand(argv)) == {"sql", "law"}


def test_options_are_read_as_they_are_written():
    assert Contexts().parse("2k,8K,32768") == (2048, 8192, 32768)
    assert Names().parse("a, b") == ("a", "b")
    for kind, text in (
        (Contexts(), "2m"),
        (Contexts(), "32"),
        (Contexts(), "1k,1024"),
        (Names(), "a,,b"),
        (Names(), "a,a"),
    ):
        with pytest.raises(ValueError, match=text.rpartition(",")[2] or "no"):
            kind.parse(text)
