"""The load client's process and its answers, without an engine: what goes wrong is an MpctlError that says what."""

from __future__ import annotations

import json
import sys

import pytest

from mpctl.errors import MpctlError
from mpctl.experiment.cell import Cell
from mpctl.platform import http
from mpctl.platform.load import limit_s
from mpctl.platform.local import client as bench
from mpctl.platform.local.client import BenchClient
from mpctl.platform.local.meter import LocalMeter
from mpctl.rollout.ports import Endpoint, LoadOrder

ENDPOINT = Endpoint("http://127.0.0.1:1", "svc", "tokenizer")
CELL = Cell("edits", 1)
HEAD = """
import json, sys
for line in sys.stdin:
    arguments = dict(a[2:].split("=", 1) for a in json.loads(line)["arguments"] if "=" in a)
    result = arguments["result-dir"] + "/" + arguments["result-filename"]
"""


def meter_of(python, cwd):
    return LocalMeter(BenchClient(python, cwd), cwd)


@pytest.fixture
def client(tmp_path, monkeypatch):
    """A meter whose client runs this body for each request."""
    meters = []

    def make(body, *, head=HEAD):
        script = tmp_path / "client.py"
        script.write_text(head + "".join(f"    {line}\n" for line in body.splitlines()))
        monkeypatch.setattr(bench, "WORKER", script)
        monkeypatch.setenv("MPCTL_STATE_DIR", str(tmp_path))
        meters.append(meter_of(sys.executable, str(tmp_path)))
        return meters[-1]

    yield make
    for meter in meters:
        meter.close()


OK = "print(json.dumps({'ok': True}), flush=True)"


def test_the_clients_result_is_read(client):
    actual_client = client(f"open(result, 'w').write('{{\"duration\": 1}}')\n{OK}")
    assert actual_client.client.run(ENDPOINT, LoadOrder(("a", "b"), CELL, 256)) == {"duration": 1}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("print('warning: not json', flush=True)", "it answered what is not JSON: warning: not json"),
        ("print('[1]', flush=True)", r"it answered \[1\]"),
        ("print(json.dumps({'error': 'ValueError: x'}), flush=True)", "failed: ValueError: x"),
        ("sys.exit(3)", "it ended, or gave no answer in 856 s"),
        (OK, "ended without a result"),
        (f"open(result, 'w').write('{{')\n{OK}", "result is not JSON"),
        (f"open(result, 'w').write('[]')\n{OK}", "no JSON object but a list"),
    ],
)
def test_an_unusable_answer_is_an_error_that_says_so(client, body, message):
    with pytest.raises(MpctlError, match=message):
        client(body).client.run(ENDPOINT, LoadOrder(("a", "b"), CELL, 256))


def test_no_room_for_the_prompts(client, monkeypatch):
    def full():
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(bench, "private_folder", full)
    with pytest.raises(MpctlError, match="No space left on device"):
        client(OK).client.run(ENDPOINT, LoadOrder(("a",), CELL, 256))


def test_a_client_that_cannot_be_started(tmp_path):
    with pytest.raises(MpctlError, match="the load client cannot be started"):
        meter_of(str(tmp_path / "python"), str(tmp_path)).prepare()


@pytest.mark.parametrize(
    ("count", "max_tokens", "cell", "seconds"),
    [
        (2, 256, Cell("edits", 1), 856.0),
        (2, 256, Cell("edits", 4), 664.0),
        (8, 4096, Cell("edits", 1), 600.0 + 8 * 2048),
        (100, 256, Cell("edits", 256, rate=0.1), 600.0 + 50 + 1000),
    ],
)
def test_more_work_may_take_longer(count, max_tokens, cell, seconds):
    assert limit_s(LoadOrder(("a",) * count, cell, max_tokens)) == seconds


def test_closed_the_client_has_ended_and_nothing_is_left_open(client):
    actual_client = client(OK)
    actual_client.prepare()
    process = actual_client.client._worker._process
    actual_client.close()
    assert process.returncode == 0
    assert all(stream.closed for stream in (process.stdin, process.stdout, process.stderr))


def test_a_client_that_talks_without_end_is_closed_too(client):
    """Its error output has to be read until it ends."""
    actual_client = client(
        "", head="import sys\nfor _ in sys.stdin:\n    pass\nsys.stderr.write('x' * 1_000_000)\nif 1:\n    pass\n"
    )
    actual_client.prepare()
    process = actual_client.client._worker._process
    actual_client.close()
    assert process.returncode == 0


def test_the_real_client_ends_with_its_input_while_it_still_loads(tmp_path, monkeypatch):
    package = tmp_path / "vllm"
    package.mkdir()
    (package / "__init__.py").write_text("import time\ntime.sleep(60)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("MPCTL_STATE_DIR", str(tmp_path / "state"))
    meter = meter_of(sys.executable, str(tmp_path))
    meter.prepare()
    process = meter.client._worker._process
    meter.close()  # kills after five seconds
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"<html>", "the answer is not JSON: <html>"),
        (b"\xff", "the answer is not JSON"),
        (b"[]", "without a single token"),
        (b'{"usage": null}', "without a single token"),
        (b'{"usage": {"completion_tokens": 0}}', "without a single token"),
    ],
)
def test_a_completion_that_is_none(monkeypatch, body, message):
    monkeypatch.setattr(http, "request", lambda method, url, **_: http.HttpAnswer(200, body))
    with pytest.raises(MpctlError, match=message):
        meter_of("python", ".").complete(ENDPOINT)


def test_a_completion(monkeypatch):
    body = json.dumps({"usage": {"completion_tokens": 4}}).encode()
    monkeypatch.setattr(http, "request", lambda method, url, **_: http.HttpAnswer(200, body))
    meter_of("python", ".").complete(ENDPOINT)
