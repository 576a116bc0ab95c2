"""AMX that is announced and not executed: the trial is a process of its own, and its result reaches other processes."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from types import SimpleNamespace

import pytest

from mpctl.local.in_engine import serve


def ill():
    faulthandler.disable()  # the end of this process is wanted, and no page of traceback
    os.kill(os.getpid(), signal.SIGILL)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize(
    ("action", "broken"),
    [
        (lambda: None, False),
        (lambda: 1 / 0, False),
        (ill, True),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), False),
    ],
)
def test_only_an_illegal_instruction_shows_broken_tiles(action, broken):
    assert serve.dies(action) is broken


def test_a_processor_without_tiles_is_left_alone(tmp_path):
    file = tmp_path / "cpuinfo"
    file.write_text("flags : avx2 avx512f\n")
    assert not serve.announced(file)
    assert not serve.announced(tmp_path / "none")
    file.write_text("flags : avx2 amx_tile\n")
    assert serve.announced(file)


@pytest.mark.parametrize(
    ("environment", "broken", "left"),
    [
        ({}, False, {}),
        ({}, True, {serve.LIMIT: serve.WITHOUT}),
        ({serve.LIMIT: serve.WITHOUT}, False, {serve.LIMIT: serve.WITHOUT}),
        ({serve.LIMIT: "AVX2"}, True, {serve.LIMIT: "AVX2"}),
    ],
)
def test_tiles_are_avoided_where_they_are_broken_and_in_processes_that_are_told_so(
    monkeypatch, environment, broken, left
):
    torch = SimpleNamespace(cpu=SimpleNamespace(_is_amx_tile_supported=lambda: True))
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(serve, "announced", lambda: True)
    monkeypatch.setattr(serve, "dies", lambda action: broken)
    serve.avoid_broken_tiles(environment)
    assert environment == left
    assert torch.cpu._is_amx_tile_supported() is (left.get(serve.LIMIT) != serve.WITHOUT)
