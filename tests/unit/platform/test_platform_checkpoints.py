"""Checkpoints from a directory, a listing and a hub; planted mismatches are each found before anything moves."""

from __future__ import annotations

import json
import shutil
import threading
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mpctl.errors import InputError
from mpctl.estimate import describe_model, facts_of, tokenizer_digests
from mpctl.manifest import load, select
from mpctl.methods import build
from mpctl.platform import checkpoints
from mpctl.platform.checkpoints import Directory, Listing, read_checkpoint
from tests.preflight import match, preflight_findings
from tests.unit.support.limits import within_limits

DEMO = Path(__file__).parents[3] / "scripts" / "demo_model" / "model"
# A busy machine is slow; that is no finding.
patient = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

TARGET = {
    "_name_or_path": "org/target-8b",
    "model_type": "qwen3",
    "architectures": ["Qwen3ForCausalLM"],
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 300,
    "max_position_embeddings": 4096,
    "rope_parameters": {"rope_theta": 1000000.0, "rope_type": "default"},
    "dtype": "bfloat16",
}
HEAD = {
    **TARGET,
    "model_type": "llama",
    "architectures": ["LlamaForCausalLMEagle3"],
    "num_hidden_layers": 1,
    "target_hidden_size": 64,
    "draft_vocab_size": 100,
    "speculators_config": {"verifier": {"name_or_path": "org/target-8b"}},
}
TOKENIZER = {
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": [["a", "b"]]},
    "added_tokens": [{"id": 2, "content": "<|end|>", "special": True}],
}
TEMPLATE = "{{ messages }}"


def checkpoint(directory, config, *, tokenizer=TOKENIZER, template=TEMPLATE, rows=100):
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config))
    if tokenizer is not None:
        (directory / "tokenizer.json").write_text(json.dumps(tokenizer))
    if template is not None:
        (directory / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    header = {
        "__metadata__": {"format": "pt"},
        "x": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]},
    }
    if rows:
        header["model.d2t"] = {"dtype": "I64", "shape": [rows], "data_offsets": [0, 4]}
    body = json.dumps(header).encode()
    (directory / "model.safetensors").write_bytes(
        len(body).to_bytes(8, "little") + body + b"\0" * 4
    )
    return directory


def service(target, *args):
    text = (
        "apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nmetadata: {name: s}\nspec:\n  predictor:\n"
        "    containers:\n    - name: kserve-container\n      image: vllm/vllm-openai:v0.30.0\n"
        f"      args: {json.dumps([f'--model={target}', *args])}\n"
    )
    return select(load(text), None)


def judged(tmp_path, *, head=None, args=(), **planted):
    """Findings and checks for a pair of directories with one thing planted in the head."""
    target = checkpoint(tmp_path / "target", TARGET, rows=0)
    draft = checkpoint(tmp_path / "draft", {**HEAD, **(head or {})}, **planted)
    spec, _ = build("eagle3", draft=str(draft))
    facts = facts_of(
        service(target, *args),
        target=read_checkpoint(Directory(target)),
        draft=read_checkpoint(Directory(draft)),
    )
    return {one.id: one for one in preflight_findings(spec, facts)}, {
        one.id: one for one in match(spec, facts)
    }


def test_a_pair_that_fits_is_ok_in_every_check_that_can_be_made(tmp_path):
    findings, checks = judged(tmp_path)
    assert not [one for one in findings.values() if one.severity == "refuse"]
    assert {one.id for one in checks.values() if one.verdict == "unknown"} == {"kv-dtype-mismatch"}
    assert {one.verdict for one in checks.values() if one.id != "kv-dtype-mismatch"} == {"ok"}


OTHER_WORDS = {**TOKENIZER, "model": {**TOKENIZER["model"], "vocab": {"a": 1, "b": 0}}}
OTHER_TOKENS = {**TOKENIZER, "added_tokens": [{"id": 2, "content": "<|eot|>", "special": True}]}


@pytest.mark.parametrize(
    ("planted", "check", "says"),
    [
        ({"tokenizer": OTHER_WORDS}, "tokenizer-mismatch", "is not the target's"),
        ({"tokenizer": OTHER_TOKENS}, "added-tokens-mismatch", "added tokens"),
        ({"head": {"target_hidden_size": 128}}, "hidden-size-mismatch", "128"),
        ({"head": {"vocab_size": 301}}, "vocabulary-mismatch", "301"),
        ({"head": {"max_position_embeddings": 2048}}, "draft-context", "2048"),
        (
            {"head": {"speculators_config": {"verifier": {"name_or_path": "org/target-70b"}}}},
            "wrong-target",
            "org/target-70b",
        ),
        ({"rows": 64}, "draft-vocabulary", "64 rows"),
        (
            {"head": {"architectures": ["Qwen3ForCausalLM"], "draft_vocab_size": None}},
            "draft-kind",
            "of kind model",
        ),
    ],
)
def test_a_planted_mismatch_refuses_and_says_why(tmp_path, planted, check, says):
    findings, checks = judged(tmp_path, **planted)
    assert findings[check].severity == "refuse"
    assert says in findings[check].reason
    assert checks[check].verdict == "mismatch"


@pytest.mark.parametrize(
    ("head", "warns"),
    [
        ({"rope_parameters": None, "rope_theta": 1000000}, False),
        ({"rope_parameters": None, "rope_theta": 10000.0}, True),  # where earlier libraries have it
        ({"rope_parameters": {"rope_theta": 10000.0}, "rope_theta": 1e6}, True),
        (
            {"transformer_layer_config": {"rope_parameters": {"rope_theta": 1e4}}},
            True,
        ),  # speculators' form
        (
            {"rope_parameters": {"full_attention": {"rope_theta": 10000.0}}},
            False,
        ),  # layers have several
    ],
)
def test_a_head_that_lost_the_base_of_its_positions_is_a_warning(tmp_path, head, warns):
    findings, _ = judged(tmp_path, head=head)
    assert ("rope-theta" in findings) == warns
    if warns:
        assert findings["rope-theta"].severity == "warn"
        assert "rope_theta is 10000, the target's 1e+06" in findings["rope-theta"].reason


def test_another_template_is_a_warning(tmp_path):
    findings, checks = judged(tmp_path, template="{{ other }}")
    assert findings["chat-template-mismatch"].severity == "warn"
    assert checks["chat-template-mismatch"].verdict == "warn"


def test_what_is_not_there_is_unknown_never_fine(tmp_path):
    _, checks = judged(
        tmp_path,
        tokenizer=None,
        template=None,
        rows=0,
        head={"speculators_config": None},
        args=("--kv-cache-dtype=fp8",),
    )
    for name in (
        "tokenizer-mismatch",
        "added-tokens-mismatch",
        "wrong-target",
        "chat-template-mismatch",
    ):
        assert checks[name].verdict == "unknown", name
        assert checks[name].text.startswith("not known:")
    assert checks["draft-vocabulary"].verdict == "unknown"  # the table's length is


def test_a_tokenizer_is_the_same_however_it_is_written():
    old = {**TOKENIZER, "model": {**TOKENIZER["model"], "merges": ["a b"]}}
    reordered = json.loads(json.dumps({**TOKENIZER, "version": "1.0"}, sort_keys=True))
    assert tokenizer_digests(old) == tokenizer_digests(TOKENIZER) == tokenizer_digests(reordered)
    assert tokenizer_digests({"model": {}}) is None


def test_a_head_of_speculators_and_of_the_first_generation():
    nested = {
        "speculators_model_type": "eagle3",
        "architectures": ["Eagle3Speculator"],
        "draft_vocab_size": 32000,
        "speculators_config": {"verifier": {"name_or_path": "Qwen/Qwen3-8B"}},
        "transformer_layer_config": {**TARGET, "hidden_size": 4096},
    }
    model = describe_model(nested)
    assert (model.draft_kind, model.expects_hidden, model.trained_for) == (
        "eagle3",
        4096,
        "Qwen/Qwen3-8B",
    )
    assert (model.draft_vocab, model.vocab, model.context) == (32000, 300, 4096)
    assert (
        describe_model(
            {**nested, "speculators_model_type": "peagle", "architectures": []}
        ).draft_kind
        == "eagle3"
    )
    assert describe_model(TARGET).expects_hidden is None


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("config.json", "{", "config.json"),
        ("config.json", "[]", "must be a JSON object"),
        ("tokenizer.json", "{", "tokenizer.json"),
        ("tokenizer_config.json", "\xff", "tokenizer_config.json"),
        ("model.safetensors", "version https://git-lfs.github.com/spec/v1\n", "git-lfs"),
    ],
)
def test_a_broken_file_is_named(tmp_path, name, content, says):
    directory = checkpoint(tmp_path, HEAD)
    (directory / name).write_bytes(content.encode("latin-1"))
    with pytest.raises(InputError) as caught:
        read_checkpoint(Directory(directory))
    assert says in f"{caught.value} {caught.value.hint}"
    assert name in str(caught.value.file)


def test_no_configuration_no_checkpoint(tmp_path):
    assert read_checkpoint(Directory(tmp_path)) is None


def listing(files):
    """What find and tail print in a directory with these small files."""
    lines = [f"{len(text)} ./{name}" for name, text in files.items()] + [
        "5000000 ./model.safetensors"
    ]
    return (
        "\n".join(lines)
        + "\n"
        + "\n".join(f"==> {name} <==\n{text}\n" for name, text in files.items())
    )


def test_a_listing_says_what_the_directory_says(tmp_path):
    directory = checkpoint(tmp_path, HEAD, rows=0)
    files = {path.name: path.read_text() for path in directory.glob("*.json")}
    text = listing(files)
    here, actual_checkpoint = (
        read_checkpoint(Directory(directory)),
        read_checkpoint(Listing(text, "listing.txt")),
    )
    assert actual_checkpoint.weight_bytes == 5000000
    assert (actual_checkpoint.tokenizer_digest, actual_checkpoint.trained_for) == (
        here.tokenizer_digest,
        here.trained_for,
    )
    assert actual_checkpoint.template_digest == here.template_digest
    assert actual_checkpoint.map_rows is None


@patient
@given(
    st.dictionaries(
        st.from_regex(r"[a-z]{1,8}\.json", fullmatch=True), st.text('{}[]ab": ,0\n', max_size=30)
    )
)
def test_any_small_files_come_back_from_a_listing(files):
    actual_listing = Listing(listing(files), "l")
    for name, text in files.items():
        assert actual_listing.text(name) == text.rstrip("\n")
        assert actual_listing.sizes()[name] == len(text)


def test_a_bad_listing_is_refused_with_its_line():
    with pytest.raises(InputError, match=r"l:2: is neither"):
        Listing("12 ./config.json\ntotal 5 of them\n", "l")
    with pytest.raises(InputError, match="lists no file"):
        Listing("\n\n", "l")


@contextmanager
def served(answers):
    """A hub on loopback; ``answers``: path to (status, body)."""
    rows = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            rows.append((self.path, self.headers.get("authorization")))
            status, body = answers.get(self.path, (404, b""))
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", rows
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(autouse=True)
def _no_settings_of_a_hub(monkeypatch):
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_TOKEN", "HF_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)


def test_a_hubs_metadata(monkeypatch):
    answers = {
        "/org/head/resolve/main/config.json": (200, json.dumps(HEAD).encode()),
        "/org/head/resolve/main/tokenizer.json": (200, json.dumps(TOKENIZER).encode()),
        "/api/models/org/head/revision/main?blobs=true": (
            200,
            json.dumps(
                {"siblings": [{"rfilename": "model.safetensors", "size": 4000}, {"rfilename": "x"}]}
            ).encode(),
        ),
    }
    with served(answers) as (endpoint, asked):
        monkeypatch.setenv("HF_ENDPOINT", endpoint)
        monkeypatch.setenv("HF_TOKEN", "secret-word")
        hub = checkpoints.read_hub("org/head")
    assert (hub.trained_for, hub.weight_bytes) == ("org/target-8b", 4000)
    assert hub.tokenizer_digest == tokenizer_digests(TOKENIZER).vocabulary
    assert {authorization for _, authorization in asked} == {"Bearer secret-word"}


@pytest.mark.parametrize("status", [401, 403, 404, 500])
def test_a_hub_that_refuses_is_a_reason_not_a_failure(monkeypatch, status):
    with served({"/org/head/resolve/main/config.json": (status, b"no")}) as (endpoint, _):
        monkeypatch.setenv("HF_ENDPOINT", endpoint)
        monkeypatch.setenv("HF_TOKEN", "secret-word")
        with pytest.raises(checkpoints.Unavailable) as caught:
            checkpoints.read_hub("org/head")
    assert "secret-word" not in str(caught.value)


def test_a_hub_that_never_ends_and_a_token_that_is_none(monkeypatch):
    with served({"/org/head/resolve/main/config.json": (200, b"{}")}) as (endpoint, asked):
        monkeypatch.setenv("HF_ENDPOINT", endpoint)
        monkeypatch.setattr(checkpoints, "WHOLE_S", -1.0)
        with pytest.raises(checkpoints.Unavailable, match="no complete answer in time"):
            checkpoints.read_hub("org/head")
        asked.clear()
        monkeypatch.setenv("HF_TOKEN", "gehe\u00efm")
        with pytest.raises(checkpoints.Unavailable, match="HF_TOKEN") as caught:
            checkpoints.read_hub("org/head")
    assert asked == []
    assert "gehe" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", {**HEAD, "quantization_config": ["fp8"]}),
        ("config.json", {**HEAD, "architectures": [1]}),
        ("config.json", {**HEAD, "speculators_config": "eagle"}),
        ("tokenizer.json", {**TOKENIZER, "added_tokens": [{"id": "two", "content": "x"}]}),
        ("tokenizer.json", {"model": {"vocab": {"a": 0}, "merges": [7]}}),
    ],
)
def test_json_of_another_form_is_an_error_with_its_place(tmp_path, name, content):
    directory = checkpoint(tmp_path / "head", HEAD)
    (directory / name).write_text(json.dumps(content))
    with pytest.raises(InputError) as caught:
        read_checkpoint(Directory(directory))
    assert str(directory) in str(caught.value)


def test_weights_that_a_repository_keeps_twice_count_once():
    lines = [
        "10 consolidated.safetensors",
        "4 model-00001.safetensors",
        "6 model-00002.safetensors",
        "10 onnx/x.safetensors",
    ]
    text = "\n".join([*lines, "==> config.json <==", json.dumps(TARGET)])
    assert read_checkpoint(Listing(text, "here")).weight_bytes == 10
    alone = "\n".join([lines[0], "==> config.json <==", json.dumps(TARGET)])
    assert read_checkpoint(Listing(alone, "here")).weight_bytes == 10


def test_a_hub_with_a_broken_file_or_nobody_there(monkeypatch):
    with served({"/org/head/resolve/main/config.json": (200, b"{")}) as (endpoint, _):
        monkeypatch.setenv("HF_ENDPOINT", endpoint)
        with pytest.raises(checkpoints.Unavailable, match="not JSON"):
            checkpoints.read_hub("org/head")
    with pytest.raises(checkpoints.Unavailable, match="ConnectError"):
        checkpoints.read_hub("org/head")  # the server is gone
    monkeypatch.setenv("HF_ENDPOINT", "no such thing")
    with pytest.raises(checkpoints.Unavailable):
        checkpoints.read_hub("org/head")


@pytest.mark.parametrize("name", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_offline_by_choice_is_respected(monkeypatch, name):
    with served({}) as (endpoint, asked):
        monkeypatch.setenv("HF_ENDPOINT", endpoint)
        monkeypatch.setenv(name, "1")
        with pytest.raises(checkpoints.Unavailable, match=name):
            checkpoints.read_hub("org/head")
        assert asked == []


def test_a_directory_that_cannot_be_listed(tmp_path):
    with pytest.raises(InputError, match="cannot be listed"):
        Directory(Path(tmp_path / "gone")).sizes()


# A hub and a tokenizer of an attacker


LISTINGS = {
    "endless numbers": '{"siblings": [{"rfilename": "model.safetensors", "size": Infinity}]}',
    "large exponents": '{"siblings": [{"rfilename": "model.safetensors", "size": 1e999}]}',
    "negative": '{"siblings": [{"rfilename": "model.safetensors", "size": -5}]}',
    "true": '{"siblings": [{"rfilename": "model.safetensors", "size": true}]}',
    "words": '{"siblings": [{"rfilename": "model.safetensors", "size": "4000"}]}',
    "other folders": '{"siblings": [{"rfilename": "../../model.safetensors", "size": 5}]}',
    "absolute paths": '{"siblings": [{"rfilename": "/etc/model.safetensors", "size": 5}]}',
    "no objects": '{"siblings": [5]}',
    "no list": '{"siblings": 5}',
    "deep": '{"siblings": ' + "[" * 100_000,
}


@pytest.mark.parametrize("listing", LISTINGS.values(), ids=LISTINGS)
def test_what_a_hub_lists_is_a_size_of_a_file_of_the_repository_or_nothing(
    monkeypatch, tmp_path, listing
):
    answers = {
        "/org/head/resolve/main/config.json": (200, json.dumps(HEAD).encode()),
        "/api/models/org/head/revision/main?blobs=true": (200, listing.encode()),
    }
    monkeypatch.chdir(tmp_path)
    with served(answers) as (endpoint, _):
        monkeypatch.setenv("HF_ENDPOINT", endpoint)
        assert checkpoints.read_hub("org/head").weight_bytes is None
    assert list(tmp_path.iterdir()) == []


def test_a_hub_that_redirects_elsewhere_takes_no_token_along(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "secret-word")
    with (
        served({"/config.json": (200, json.dumps(HEAD).encode())}) as (elsewhere, asked),
        redirecting(f"{elsewhere}/config.json") as endpoint,
    ):
        monkeypatch.setenv("HF_ENDPOINT", endpoint)
        with suppress(checkpoints.Unavailable):
            checkpoints.read_hub("org/head")
    assert asked
    assert {authorization for _, authorization in asked} == {None}


@contextmanager
def redirecting(location):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(302)
            self.send_header("location", location)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


HELLO = [([{"role": "user", "content": "hello"}], "hello")]
TEMPLATES = {
    "not closed": ("{% if %}", "Expected an expression"),
    "reads classes": ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "unsafe"),
    "runs a command": ("{{ cycler.__init__.__globals__.os.popen('touch ran').read() }}", "unsafe"),
    "reads a file": ("{% include '/etc/passwd' %}", "loader"),
    "unknown names": ("{{ nothing.there }}", "undefined"),
    "a long range": ("{% for i in range(10**9) %}x{% endfor %}", "Range too big"),
    "loops": (
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "longer than",
    ),
    "too much memory": ("{{ 'x' * 10**14 }}", "memory"),
    "a long text": ("{{ 'x' * 6000000000 }}", "memory"),
    "a wide text": ("{{ 'x'|center(5000000000) }}", "memory"),
    "a long list": ("{{ [0] * 1000000000 }}", "memory"),
    "doubling": (
        "{% set n = namespace(s='x') %}{% for i in range(40) %}{% set n.s = n.s ~ n.s %}{% endfor %}{{ n.s }}",
        "memory",
    ),
    "a wide format": ("{{ '{:>5000000000}'.format(1) }}", "memory"),
    "a wide percent format": ("{{ '%5000000000d'|format(1) }}", "memory"),
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_chat_template_of_an_attacker_runs_nothing_and_is_refused_by_name(
    monkeypatch, tmp_path, name
):
    pytest.importorskip("tokenizers", reason="comes with the local extra")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(checkpoints, "_TOKENS_S", 2.0)
    shutil.copy(DEMO / "tokenizer.json", tmp_path)
    template, why = TEMPLATES[name]
    (tmp_path / "chat_template.jinja").write_text(template)
    with (
        within_limits(),
        pytest.raises(
            InputError, match=f"{tmp_path}.* cannot be used for conversation 1: .*({why})"
        ),
    ):
        checkpoints.of_directory(tmp_path)(HELLO)
    assert not (tmp_path / "ran").exists()


def with_parts(**parts):
    """The demo's tokenizer with other parts."""
    return json.dumps({**json.loads((DEMO / "tokenizer.json").read_text()), **parts})


def replacing(times):
    return {"type": "Replace", "pattern": {"String": "e"}, "content": "e" * times}


TOKENIZERS = {
    "no JSON": ("x", "expected"),
    "empty": ("{}", "Model missing"),
    "deep": ('{"a":' * 100_000, "expected"),
    "another form": ('{"model": {"type": "BPE", "vocab": 5}}', "expected a map"),
    "replacements of replacements": (
        lambda: with_parts(normalizer={"type": "Sequence", "normalizers": [replacing(100)] * 5}),
        "longer than|512 MiB",
    ),
    "a regular expression without an end": (
        lambda: with_parts(
            pre_tokenizer={
                "type": "Split",
                "pattern": {"Regex": "(a|a?)+$"},
                "behavior": "Isolated",
                "invert": False,
            }
        ),
        "longer than|panic|retry|Onig|called",
    ),
}


@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_tokenizer_of_an_attacker_is_refused_by_name(monkeypatch, tmp_path, name):
    pytest.importorskip("tokenizers", reason="comes with the local extra")
    monkeypatch.setattr(checkpoints, "_TOKENS_S", 2.0)
    text, why = TOKENIZERS[name]
    (tmp_path / "tokenizer.json").write_text(text if isinstance(text, str) else text())
    conversations = [([{"role": "user", "content": "a" * 40 + "!"}], "hello")]
    with (
        within_limits(),
        pytest.raises(
            InputError, match=f"{tmp_path}.* cannot be used for conversation 1: .*({why})"
        ),
    ):
        checkpoints.of_directory(tmp_path)(conversations)


def test_a_tokenizer_of_any_size_is_not_read(tmp_path):
    pytest.importorskip("tokenizers", reason="comes with the local extra")
    with (tmp_path / "tokenizer.json").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(InputError, match="larger than 64 MiB"):
        checkpoints.of_directory(tmp_path)


def header_file(folder, header):
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)


@pytest.mark.parametrize(
    "entry", [b'"%d":{}', b'"%d":{"shape":[]}', b'"%d":[[],[],[],[],[],[],[],[],[],[],[],[]]']
)
def test_a_header_of_an_attacker_takes_little_time_and_memory(tmp_path, entry):
    """Just below and above the limit of a header."""
    header = b"{" + b",".join(entry % n for n in range(7 * 2**20 // (len(entry) + 5))) + b"}"
    header_file(tmp_path, header)
    with within_limits(), suppress(InputError):
        checkpoints.read_model(tmp_path)
    header_file(tmp_path, header + b" " * 2**21)
    with pytest.raises(
        InputError, match=r"model.safetensors: is no safetensors file: a header of \d+ bytes"
    ):
        checkpoints.read_model(tmp_path)


def test_headers_of_many_files_have_one_limit(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    for number in range(9):
        header = b"{}" + b" " * (4 * 2**20)
        (tmp_path / f"model-{number}.safetensors").write_bytes(
            len(header).to_bytes(8, "little") + header
        )
    with pytest.raises(InputError, match="with those of other files"):
        checkpoints.read_model(tmp_path)


def test_a_file_of_too_many_values_is_refused_before_it_is_parsed(tmp_path):
    (tmp_path / "config.json").write_text("[" + "[]," * 5_000_000 + "[]]")
    with (
        within_limits(),
        pytest.raises(InputError, match=r"config.json: has more than 4,000,000 values"),
    ):
        checkpoints.read_model(tmp_path)


def test_a_size_of_too_many_digits_is_refused_with_its_line():
    with pytest.raises(InputError, match=r"files.txt:2: a size of 5000 digits"):
        checkpoints.Listing(f"5 a\n{'9' * 5000} b\n", "files.txt")
