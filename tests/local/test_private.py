"""Nothing private is left behind: secrets and prompts that are planted in every input are searched in every output."""

import json
import re
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import otlp
import pytest
from signed import write_keys

from tests.local.unchanged import wait_for

from .planted import (
    DATABASE,
    KEY,
    PROMPT,
    SECRETS,
    TOKEN,
    CommandLines,
    files_with_finds,
    finds,
    write_prompts,
)

QUICK = ("--requests", "4", "--repeats", "4", "--max-tokens", "8")
# Of a prompt with the word "novel", too few draft tokens are accepted to pay.
SCRIPT = {"accept": 0.4, "novel": 0.05, "speculating": {"slow": 1.3}}
# The manifest itself, which a rollback restores byte for byte: docs/privacy.md says so, the preflight warns.
MANIFESTS = ("desired.json", "revisions/")


@pytest.fixture
def planted(mpctl, tmp_path):
    """mpctl with a service whose manifest holds secrets in plain text, and a folder of its own for temporary files."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    mpctl.environment["TMPDIR"] = str(temporary)
    mpctl.environment["HF_TOKEN"] = TOKEN
    path = mpctl.manifest(script=SCRIPT)
    text = path.read_text().replace(
        "        args: [",
        f"          - name: HF_TOKEN\n            value: {TOKEN}\n"
        f"          - name: DATABASE\n            value: postgresql://user:{DATABASE}@db/x\n"
        f'        args: ["--api-key={KEY}", ',
    )
    path.write_text(text)
    with CommandLines() as lines:
        mpctl("local", "up", "-f", str(path))
        yield mpctl
    assert lines.found == set()


@pytest.fixture
def collector(mpctl):
    """A receiver of OTLP that every command finds in its environment."""
    with otlp.receiving() as received:
        mpctl.environment["OTEL_EXPORTER_OTLP_ENDPOINT"] = received.url
        yield received


def test_no_secret_and_no_prompt_is_left_behind(planted, tmp_path, collector):
    prompts = f"users={write_prompts(tmp_path / 'prompts.jsonl')}"
    write_keys(tmp_path)
    shown = []

    def run(*arguments, code=0):
        done = planted(*arguments, code=code)
        shown.append(f"{arguments}\n{done.stdout}\n{done.stderr}")
        return done

    run("preflight", "--spec", "ngram")
    run("render", "--spec", "ngram", "-vv")
    run("diff", "--spec", "ngram", code=1)
    planted.environment["MPCTL_SIGN_WITH"] = "key.pem"
    run("rollout", "--spec", "ngram", "--prompts", prompts, *QUICK, "-v", "-v", "--debug")
    run("report", "rollout-1", "-o", "attestation", "--output-file", "again.intoto.jsonl")
    run("diff", code=1)
    run("bench", "demo", "--prompts", prompts, *QUICK, "--run", "run.json.gz")
    for form in ("html", "json"):
        run("report", "rollout-1", "-o", form)
    run("rollback")
    run("status", "-o", "json")
    run("history", "-o", "json")
    for form in ("json", "yaml"):
        run("history", "--revision", "1", "-o", form)
    run("local", "logs")
    lines = [line for text in shown for line in (text.splitlines() or [""]) if finds(line.encode())]
    assert lines == []
    bundles = [path.read_bytes() for path in tmp_path.glob("*.intoto.jsonl")]
    assert len(bundles) == 2
    assert {"rollout", "rollback", "promote"} <= set(collector.spans())
    assert "mpctl.gate.throughput_ratio" in collector.gauges()
    assert finds(b"\n".join([*bundles, *collector.bodies])) == set()
    leaked = {
        p: f for p, f in files_with_finds(planted.service).items() if not p.startswith(MANIFESTS)
    }
    assert leaked == {}
    assert files_with_finds(planted.state, (PROMPT,)) == {}
    assert files_with_finds(planted.environment["TMPDIR"]) == {}
    assert set(files_with_finds(tmp_path)) - {"service.yaml", "prompts.jsonl"} <= {
        f"state/local/default/demo/{p}" for p in files_with_finds(planted.service, SECRETS)
    }
    run("prune", "--all", "--yes")
    assert set(files_with_finds(planted.service)) == {"desired.json"}


def test_a_watch_and_an_export_leave_no_secret_and_no_prompt_behind(planted, tmp_path):
    """Of an export the revisions are the user's manifest, secrets and all (docs/privacy.md)."""
    users = f"users={write_prompts(tmp_path / 'prompts.jsonl')}"
    planted("rollout", "--spec", "ngram", "--prompts", users, "--requests", "6", "--repeats", "3")
    (tmp_path / "watch.yaml").write_text("fall_back: true\nconfirm_s: 0\n")
    heard = []
    with (
        receiver(heard) as hook,
        watching(planted, "--webhook", hook, "--watch-policy", "watch.yaml") as watch,
    ):
        talk(planted, lambda: any(b"WorseDraft" in event for event in heard))
        metrics = watch.metrics()
    assert b"WorseDraft" in watch.written, watch.written.decode()
    assert b"mpctl_watch_actions" in metrics
    assert finds(b"".join([watch.written, metrics, *heard])) == set()
    assert {
        p: f for p, f in files_with_finds(planted.service).items() if not p.startswith(MANIFESTS)
    } == {}
    assert files_with_finds(planted.state, (PROMPT,)) == {}
    assert files_with_finds(planted.environment["TMPDIR"]) == {}


@contextmanager
def receiver(heard):
    """The URL of a server that keeps the body of every POST."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            heard.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_killed_rollout_leaves_no_prompt_behind(mpctl, tmp_path):
    mpctl("local", "up", "-f", str(mpctl.manifest(script={"token_s": 1.0})))
    prompts = f"users={write_prompts(tmp_path / 'prompts.jsonl')}"
    words = ["-m", "mpctl.cli.main", "rollout", "--spec", "ngram", "--prompts", prompts, *QUICK]
    with subprocess.Popen(
        [sys.executable, *words],
        cwd=mpctl.directory,
        env=mpctl.environment,
        stderr=subprocess.DEVNULL,
    ) as rollout:
        wait_for(lambda: mpctl.json("status")["items"][0]["status"]["step"] == "measure")
        rollout.kill()
    assert files_with_finds(mpctl.state, (PROMPT,)) == {}
    mpctl("rollback", "--yes")
    assert files_with_finds(mpctl.state, (PROMPT,)) == {}


class Watch:
    """``mpctl watch`` as a process; ``written``: both of its streams, once it has ended."""

    def __init__(self, mpctl, log, options):
        self.log, self.written = log, b""
        words = [
            "watch",
            "demo",
            "--interval",
            "0.25s",
            "--listen",
            "127.0.0.1:0",
            "-o",
            "json",
            *options,
        ]
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "mpctl.cli.main", *words],
                cwd=mpctl.directory,
                env=mpctl.environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def metrics(self):
        """What it answers on /metrics."""
        address = re.search(rb"127\.0\.0\.1:\d+", self.log.read_bytes())[0].decode()
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
            return answer.read()

    def end(self):
        self.process.terminate()
        try:
            assert self.process.wait(timeout=20) == 0
        finally:
            self.process.kill()
            self.written = self.log.read_bytes()


@contextmanager
def watching(mpctl, *options):
    """A watch that runs for the block."""
    watch = Watch(mpctl, mpctl.directory / "watch.log", options)
    try:
        yield watch
    finally:
        watch.end()


def talk(mpctl, until, seconds=20):
    """Users' requests to the service, of a kind that its drafts do not foresee, until something holds."""
    url = mpctl.json("status")["items"][0]["status"]["url"]
    body = json.dumps(
        {"model": "demo", "prompt": f"novel {PROMPT} " * 30, "max_tokens": 24}
    ).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
    last = time.monotonic() + seconds
    answered = 0
    while not until() and time.monotonic() < last:
        with suppress(OSError):  # while the router turns to the other engine
            request = urllib.request.Request(f"{url}/completions", body, headers)
            with urllib.request.urlopen(request, timeout=10) as answer:
                answered += PROMPT.encode() in answer.read()
    assert answered


def test_the_search_finds_what_is_there(tmp_path):
    """A search that finds nothing must be able to find something."""
    import base64
    import gzip
    import json

    packed = base64.b64encode(gzip.compress(json.dumps({"a": f"say {PROMPT} twice"}).encode()))
    (tmp_path / "object.json").write_bytes(
        json.dumps({"binaryData": {"record": packed.decode()}}).encode()
    )
    assert files_with_finds(tmp_path) == {"object.json": {PROMPT}}
