"""The setting of a service from its object, parsed once for services that differ in their names."""

from __future__ import annotations

import pytest

from mpctl.errors import InputError
from mpctl.platform.kubernetes.service import running_engine
from mpctl.platform.kubernetes.service.running_engine import speculation_of

SETTING = {"method": "ngram", "num_speculative_tokens": 3}


def service(name, *args, **annotations):
    container = {
        "name": "kserve-container",
        "image": "vllm/vllm-openai:v0.32.0",
        "args": ["--model=m", *args],
    }
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": name, "namespace": "chat", "annotations": annotations},
        "spec": {"predictor": {"containers": [container]}},
    }


def test_services_of_one_spec_are_parsed_once(monkeypatch):
    running_engine._speculation_of.cache_clear()
    parsed, read = [], running_engine.read_service
    monkeypatch.setattr(
        running_engine, "read_service", lambda *objects: parsed.append(1) or read(*objects)
    )
    fast = '--speculative-config={"method": "ngram", "num_speculative_tokens": 3}'
    speculations = [speculation_of(service(f"llm-{n}", fast), None) for n in range(5)]
    assert speculations == [SETTING] * 5
    assert len(parsed) == 1
    speculations[0]["method"] = "changed by a caller"
    assert speculation_of(service("another", fast), None) == SETTING
    assert speculation_of(service("plain"), None) is None
    assert len(parsed) == 2


def test_a_service_without_an_engine_is_an_error_each_time():
    other = service("iris")
    other["spec"]["predictor"] = {"model": {"modelFormat": {"name": "sklearn"}}}
    for _ in range(2):
        with pytest.raises(InputError):
            speculation_of(other, None)
