"""The engine's release of a running service: its image's tag, else the engine's own answer, else its labels."""

import pytest
from console import RecordingConsole
from fake_api import FakeApi

from mpctl.app.session.cluster import ClusterSession
from mpctl.errors import NotPermitted
from mpctl.manifest import load_one
from mpctl.platform import http
from mpctl.rollout.ports import Endpoint

SERVICE = """apiVersion: apps/v1
kind: Deployment
metadata: {name: chat, labels: {app.kubernetes.io/version: 0.27.0}}
spec:
  template:
    spec:
      containers:
      - {name: engine, image: 'vllm/vllm-openai:TAG', args: [--model=Qwen/Qwen3.6-27B]}
"""


@pytest.fixture
def session(monkeypatch):
    """A session of a service with one ready engine, which is vLLM 0.31.0."""
    session = ClusterSession(FakeApi(), "team", "chat", RecordingConsole())
    monkeypatch.setattr(
        session.platform, "address", lambda turn: Endpoint("http://127.0.0.1:1", "chat")
    )
    answer = http.HttpAnswer(200, b'{"version": "0.31.0"}')
    monkeypatch.setattr(http, "get", lambda url, **_: answer if url.endswith("/version") else None)
    return session


def test_a_running_engine_answers_its_release_where_the_tag_names_none(session):
    assert session.release(load_one(SERVICE.replace("TAG", "latest"), None)) == "0.31.0"
    tagged = load_one(SERVICE.replace("TAG", "v0.30.0"), None)
    assert session.release(tagged) == "vllm/vllm-openai:v0.30.0"


@pytest.mark.parametrize("problem", ["no engine", "no right"])
def test_the_label_counts_where_no_engine_answers(session, monkeypatch, problem):
    def address(turn):
        if problem == "no right":
            raise NotPermitted("pods/portforward: forbidden")

    monkeypatch.setattr(session.platform, "address", address)
    assert session.release(load_one(SERVICE.replace("TAG", "latest"), None)) == "0.27.0"
