"""Measurements as files: written, read back, refused when damaged or in the way."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import pytest
from bench_samples import small_run

from mpctl.app.bench.recorded import choose_file, read_run, write_run
from mpctl.errors import InputError, MpctlError


@pytest.mark.parametrize("name", ["run.json", "run.json.gz"])
def test_a_run_comes_back_from_its_file(tmp_path, name):
    path = str(tmp_path / name)
    write_run(path, small_run())
    assert read_run(path) == small_run()
    assert [p.name for p in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a measurement"),
        (b"{", "not a measurement"),
        (b"\xff\xfe", "not a measurement"),
        (b"[]", "not a JSON object"),
        (b'{"kind": "Report"}', "kind: must be Run"),
        (gzip.compress(b"{}", mtime=0)[:-4], "not a measurement"),
        (b"\x1f\x8b", "not a measurement"),
        (b"\x1f\x8b" + b"x" * 40, "cannot be read|not a measurement"),
    ],
)
def test_what_is_no_run_is_named(tmp_path, content, message):
    path = tmp_path / "run"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        read_run(str(path))
    assert caught.value.file == str(path)


def test_a_run_with_an_unknown_limit_is_refused_by_name(tmp_path):
    path = str(tmp_path / "run.json")
    write_run(path, replace(small_run(), policy={"min_speedpu": 1.0}))
    with pytest.raises(InputError, match=r"run.json: min_speedpu: unknown; known are"):
        read_run(path)


def test_files_that_cannot_be_reached(tmp_path):
    with pytest.raises(InputError, match="cannot be read: No such file"):
        read_run(str(tmp_path / "nothing"))
    with pytest.raises(MpctlError, match="cannot be written"):
        write_run(str(tmp_path / "nowhere" / "run.json"), small_run())


def test_a_measurement_overwrites_nothing_but_itself(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("letter.txt").write_text("dear", encoding="utf-8")
    write_run("friday.json", small_run())
    for path in ("letter.txt", "friday.json"):
        with pytest.raises(InputError, match="exists already and is not this measurement"):
            choose_file(path, "bench-other-1")
    assert choose_file("friday.json", small_run().id) == "friday.json"
    assert choose_file(None, "bench-other-1") == "bench-other-1.json.gz"
