"""The test cluster's Prometheus scrapes pods with the labels that a PodMonitor gives."""

import json
import urllib.parse
import urllib.request

from tests.cluster.objects import CONTAINERS


def test_an_engines_counters_are_in_prometheus_under_its_namespace_and_pod(cluster, namespace):
    cluster.add("prometheus")
    namespace.deploy(CONTAINERS)
    (pod,) = (item["metadata"]["name"] for item in namespace.client.list("pods"))
    query = urllib.parse.quote(f'vllm:num_requests_running{{namespace="{namespace.name}"}}')
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def series():
        with opener.open(
            f"{cluster.prometheus.url}/api/v1/query?query={query}", timeout=5
        ) as answer:
            return [found["metric"] for found in json.load(answer)["data"]["result"]]

    namespace.client.wait("Prometheus has scraped the engine", series)
    (labels,) = series()
    assert (labels["pod"], labels["inference_service"]) == (pod, "demo")
