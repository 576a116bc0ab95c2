"""The load client's own side, without the client."""

from __future__ import annotations

import importlib.util
import os

import pytest

from mpctl.platform.load import WORKER


@pytest.fixture
def worker(monkeypatch):
    monkeypatch.syspath_prepend(str(WORKER.parent))
    spec = importlib.util.spec_from_file_location("engine_side_bench", WORKER)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_key_is_sent_to_its_own_server_alone(worker, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "of-the-caller")
    worker.use_key(None)
    assert "OPENAI_API_KEY" not in os.environ
    worker.use_key("of-this-server")
    assert os.environ["OPENAI_API_KEY"] == "of-this-server"
    worker.use_key("")
    assert "OPENAI_API_KEY" not in os.environ
