"""What is written beside a measurement: the device, the model, and what the engine tells of itself."""

from __future__ import annotations

import stat

import pytest

from mpctl.experiment.cell import Cell
from mpctl.experiment.counters import CounterError
from mpctl.platform import http
from mpctl.platform.client import StreamClient
from mpctl.platform.load import block_of
from mpctl.platform.meter import HttpMeter, device, is_here, model_digest
from mpctl.rollout.ports import Endpoint, EngineFacts, LoadOrder

ENDPOINT = Endpoint("http://127.0.0.1:1", "svc", token="key")


def smi(tmp_path, monkeypatch, body):
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")


@pytest.mark.parametrize(
    ("lines", "name"),
    [
        (("NVIDIA L4",), "NVIDIA L4"),
        (("NVIDIA L4", "NVIDIA L4"), "2 x NVIDIA L4"),
        (("NVIDIA L4", "Tesla T4", "NVIDIA L4"), "2 x NVIDIA L4, Tesla T4"),
    ],
)
def test_gpus_by_the_drivers_names(tmp_path, monkeypatch, lines, name):
    smi(tmp_path, monkeypatch, "\n".join(f"echo '{line}'" for line in lines))
    assert device() == name


@pytest.mark.parametrize("body", ["exit 9", "true"])
def test_without_a_gpu_the_processor(tmp_path, monkeypatch, body):
    smi(tmp_path, monkeypatch, body)
    assert device().endswith(" cores")


def test_a_models_digest_is_of_names_sizes_and_content(tmp_path):
    def digest():
        return model_digest("model", str(tmp_path))

    (tmp_path / "model" / "sub").mkdir(parents=True)
    (tmp_path / "model" / "config.json").write_text("{}")
    first = digest()
    assert len(first) == 64
    assert digest() == first
    (tmp_path / "model" / "config.json").write_text("[]")
    second = digest()
    (tmp_path / "model" / "sub" / "x").write_text("")
    assert len({first, second, digest()}) == 3


def test_of_large_files_the_ends_are_read(tmp_path, monkeypatch):
    from mpctl.platform import meter

    monkeypatch.setattr(meter, "_WHOLE_BYTES", 100)
    monkeypatch.setattr(meter, "_PART_BYTES", 10)
    (tmp_path / "m").mkdir()
    digests = set()
    for content in (b"a" * 200, b"b" + b"a" * 199, b"a" * 199 + b"b", b"a" * 201):
        (tmp_path / "m" / "weights").write_bytes(content)
        digests.add(model_digest("m", str(tmp_path)))
    assert len(digests) == 4


def test_a_repository_is_told_by_the_commit_in_the_cache(tmp_path, monkeypatch):
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert model_digest("Qwen/Qwen3-0.6B", "/") == ""
    refs = tmp_path / "hub" / "models--Qwen--Qwen3-0.6B" / "refs"
    refs.mkdir(parents=True)
    (refs / "main").write_text("c0ffee\n")
    assert model_digest("Qwen/Qwen3-0.6B", "/") == "c0ffee"


METRICS = """\
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="128",engine="0",kv_cache_max_concurrency="9.1",kv_cache_size_tokens="1398016"} 1.0
"""


def served(monkeypatch, answers):
    """Answers by path; what is not there is a 404."""

    def get(url, *, headers, **_):
        assert headers == {"Authorization": "Bearer key"}
        path = url.removeprefix(ENDPOINT.base_url)
        return (
            http.HttpAnswer(200, answers[path].encode())
            if path in answers
            else http.HttpAnswer(404, b"")
        )

    monkeypatch.setattr(http, "get", get)


def test_an_engine_tells_its_version_model_and_room(monkeypatch, tmp_path):
    (tmp_path / "weights").mkdir()
    models = '{"data": [{"id": "svc", "root": "weights"}]}'
    served(
        monkeypatch,
        {"/version": '{"version": "0.32.0"}', "/v1/models": models, "/metrics": METRICS},
    )
    description = HttpMeter(StreamClient(), str(tmp_path)).describe(ENDPOINT)
    assert (description.engine_version, description.model, description.kv_pool_tokens) == (
        "0.32.0",
        "weights",
        1398016,
    )
    assert len(description.model_digest) == 64
    assert description.device


SPARSE = {"mamba_cache_mode": "align", "prefix_cache_retention_interval": "0"}


@pytest.mark.parametrize(
    ("labels", "kept"),
    [
        ({"prefix_cache_retention_interval": "0"}, (128, False)),
        (SPARSE, (128, True)),
        ({**SPARSE, "mamba_block_size": "528"}, (528, True)),
        ({**SPARSE, "prefix_cache_retention_interval": "None"}, (128, False)),
        ({**SPARSE, "prefix_match_unit": "32"}, (32, False)),
        ({"mamba_block_size": "528", "cache_hit_alignment_tokens": "1056"}, (1056, False)),
    ],
)
def test_what_the_prefix_cache_keeps_is_told_by_its_configuration(
    monkeypatch, tmp_path, labels, kept
):
    told = "".join(f',{name}="{value}"' for name, value in labels.items())
    served(monkeypatch, {"/metrics": METRICS.replace(',engine="0"', told)})
    facts = HttpMeter(StreamClient(), str(tmp_path)).describe(ENDPOINT)
    assert (facts.cache_unit, facts.cache_sparse) == kept


def test_of_a_forwarded_engine_this_machine_says_nothing(monkeypatch, tmp_path):
    (tmp_path / "weights").mkdir()
    served(
        monkeypatch,
        {"/v1/models": '{"data": [{"id": "svc", "root": "weights"}]}', "/metrics": METRICS},
    )
    description = HttpMeter(StreamClient(), str(tmp_path), forwarded=True).describe(ENDPOINT)
    assert description == EngineFacts(model="weights", kv_pool_tokens=1398016, cache_unit=128)


@pytest.mark.parametrize(
    ("seconds", "started"),
    [("1767225600.25", "2026-01-01T00:00:00+00:00"), ("0", ""), ("1e300", ""), ("-5", "")],
)
def test_an_engine_tells_when_it_started_where_that_is_possible(monkeypatch, seconds, started):
    text = f"# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds {seconds}\n"
    served(monkeypatch, {"/v1/models": "{}", "/metrics": text})
    assert HttpMeter(StreamClient(), "/").describe(ENDPOINT).started == started


@pytest.mark.parametrize(
    "broken", ["", "[]", '{"data": []}', '{"data": {}}', '{"data": [7]}', "<html>"]
)
def test_what_an_engine_does_not_tell_is_empty(monkeypatch, broken):
    served(monkeypatch, {"/version": "x", "/v1/models": broken, "/metrics": "# nothing\n"})
    description = HttpMeter(StreamClient(), "/").describe(
        Endpoint("http://127.0.0.1:1", "svc", token="key")
    )
    assert description == EngineFacts(model="svc", device=description.device)


def test_without_metrics_there_is_nothing_to_measure(monkeypatch):
    served(monkeypatch, {})
    with pytest.raises(CounterError, match="/metrics"):
        HttpMeter(StreamClient(), "/").describe(ENDPOINT)


@pytest.mark.parametrize(
    ("url", "here"),
    [
        ("http://127.0.0.1:8", True),
        ("http://localhost", True),
        ("http://[::1]:8", True),
        ("https://gpu.example", False),
    ],
)
def test_what_is_on_this_machine(url, here):
    assert is_here(Endpoint(url, "m")) is here


def load_of(cell, prompts=("a", "b"), **options):
    return block_of(LoadOrder(prompts, cell, 64, **options), "svc")


def test_a_closed_and_an_open_loop():
    closed, opened = load_of(Cell("edits", 8, 0.7)), load_of(Cell("edits", 256, rate=2.5))
    assert (closed["concurrency"], closed["rate"], closed["bodies"][0]["temperature"]) == (
        8,
        None,
        0.7,
    )
    assert (opened["concurrency"], opened["rate"]) == (256, 2.5)


def test_both_arms_see_the_same_arrivals_and_every_round_others():
    assert load_of(Cell("edits", 1))["seed"] == load_of(Cell("edits", 1))["seed"]
    assert load_of(Cell("edits", 1))["seed"] != load_of(Cell("edits", 1), ("c",))["seed"]


def test_a_request_has_the_limit_of_the_answer_and_asks_for_usage_and_for_ids_where_wanted():
    first, second = load_of(Cell("edits", 1))["bodies"]
    assert first == {
        "model": "svc",
        "messages": [{"role": "user", "content": "a"}],
        "temperature": 0.0,
        "max_completion_tokens": 64,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert second["messages"][0]["content"] == "b"
    assert load_of(Cell("edits", 1), salt="s1")["salt"] == "s1"
    assert all(
        body["return_token_ids"] for body in load_of(Cell("edits", 1), token_ids=True)["bodies"]
    )
