"""A deploy ends the gateway's proxies one after the other, and every answer comes to its end: real Envoys, with the
EnvoyProxy that the serving layer renders.

The answers last until so long after a proxy was told to end, whatever that takes on this machine: no clock decides.
"""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from mpctl.methods.preflight.drain import ANSWER_S
from stacks.services.gateway import gateway_documents
from stacks.settings.gateway import Gateway
from tests.autoscaling.conftest import rule_groups
from tests.contracts.envoys import Engine, Proxy, read

STREAMS = 20


def rendered(kind: str) -> dict[str, Any]:
    """The spec of the gateway's object of that kind; empty where it has none."""
    documents = gateway_documents(Gateway(), "gateway", "kserve", "inference", {}, ANSWER_S)
    return next((one["spec"] for one in documents if one["kind"] == kind), {})


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine()
    yield engine
    engine.close()


def restarted(
    folder: Path, engine: Engine, spec: Mapping[str, Any], length_s: float, faster: float
) -> tuple[list[str], list[str], str]:
    """End one of two proxies under streams that go on for *length_s* after it; how these ended, how requests of others
    did meanwhile, and why the proxy ended.
    """
    idle = rendered("ClientTrafficPolicy")["timeout"]["http"].get("idleTimeout", "3600s")
    idle = f"{float(idle[:-1]) / faster}s"
    old, other = (Proxy(folder, engine.address, spec, faster, idle=idle) for _ in range(2))
    began = [threading.Event() for _ in range(STREAMS)]
    others: list[str] = []
    try:
        # A client that keeps its connection for later requests.
        kept = socket.create_connection(("127.0.0.1", old.port))
        kept.sendall(b"GET /short HTTP/1.1\r\nHost: a\r\n\r\n")
        with ThreadPoolExecutor(STREAMS + 1) as pool:
            streams = [pool.submit(read, old, "/stream", event) for event in began]
            assert all(event.wait(60) for event in began)
            ending = pool.submit(old.end)
            until = time.monotonic() + length_s
            while old.ready():
                time.sleep(0.05)
            # Load balancers have not noticed yet.
            others.append(read(old, "/short"))
            while time.monotonic() < until and not ending.done():
                others.append(read(next(one for one in (old, other) if one.ready()), "/short"))
                time.sleep(0.2)
            engine.enough.set()
            return [stream.result() for stream in streams], others, ending.result()
    finally:
        kept.close()
        old.stop()
        other.stop()


@pytest.mark.parametrize(
    ("length_s", "faster"),
    [(20, 10), pytest.param(90, 1, marks=pytest.mark.nightly)],
    ids=["20 s, ten times as fast", "90 s"],
)
@pytest.mark.timeout(600)
def test_no_answer_is_cut_when_a_proxy_ends(
    tmp_path: Path, engine: Engine, length_s: float, faster: float
) -> None:
    streams, others, why = restarted(tmp_path, engine, rendered("EnvoyProxy"), length_s, faster)
    assert streams == ["whole"] * STREAMS
    assert set(others) == {"whole"}
    assert why == "drained"


@pytest.mark.timeout(300)
def test_with_the_controllers_own_drain_the_same_answers_are_cut(
    tmp_path: Path, engine: Engine
) -> None:
    streams, _, why = restarted(tmp_path, engine, {}, 20, 10)
    assert why == "timeout"
    assert all("cut" in each or "Incomplete" in each for each in streams)


def series(proxy: Proxy) -> dict[str, dict[str, float]]:
    """What Prometheus keeps of a scrape, by the rules of the PodMonitor: namespace/service -> series -> value."""
    (endpoint,) = rendered("PodMonitor")["podMetricsEndpoints"]
    found: dict[str, dict[str, float]] = {}
    text = proxy.ask("GET", endpoint["path"])[1]
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            # The parser adds the suffix that Envoy does not write.
            plain = sample.name.removesuffix("_total")
            labels = {**sample.labels, "__name__": plain, "namespace": "proxies"}
            dropped = False
            for rule in endpoint["metricRelabelings"]:
                joined = ";".join(labels.get(name, "") for name in rule["sourceLabels"])
                match = re.fullmatch(rule["regex"], joined)
                if rule.get("action") == "keep":
                    dropped = dropped or not match
                elif match:
                    labels[rule["targetLabel"]] = match.expand(
                        rule["replacement"].replace("$", "\\")
                    )
            if not dropped:
                place = f"{labels['namespace']}/{labels.get('inference_service')}"
                name = plain + labels.get("envoy_response_code_class", "")
                found.setdefault(place, {})[name] = sample.value
    return found


def test_what_rules_read_is_what_envoy_counts(tmp_path: Path, engine: Engine) -> None:
    proxy = Proxy(tmp_path, engine.address, rendered("EnvoyProxy"), timeout="0.5s")
    try:
        assert read(proxy, "/short") == "whole"
        assert read(proxy, "/overloaded") == "503"
        assert "Incomplete" in read(proxy, "/killed")
        assert read(proxy, "/stream") != "whole"  # by the route's timeout
        values = series(proxy)["inference/qwen3-8b"]
    finally:
        proxy.stop()
    prefix = "envoy_cluster_upstream_"
    assert values[f"{prefix}rq_xx5"] == 1
    assert values[f"{prefix}cx_destroy_remote_with_active_rq"] == 1
    assert values[f"{prefix}rq_timeout"] == 1
    read_by_rules = {
        name
        for group in rule_groups()
        for rule in group["rules"]
        for name in re.findall(r"envoy_\w+", rule["expr"])
        if not name.startswith("envoy_response")
    }
    assert read_by_rules
    assert read_by_rules <= {name.rstrip("0123456789") for name in values}
