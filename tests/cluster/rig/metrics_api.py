"""``custom.metrics.k8s.io`` for the real autoscaler, where a cluster would run prometheus-adapter.

The APIService's Service is of type ExternalName and leads to this process; the aggregator of the API server does the
rest. A metric's value per pod is what a test set (:meth:`MetricsApi.set`), or is read from the pod's own ``/metrics``
as the recording rules do, without their windows. The rig's Prometheus (``prometheus.py``) learns its targets here.
"""

from __future__ import annotations

import datetime
import ssl
from typing import Any

import aiohttp
from aiohttp import web

from .api import Api
from .pod import Pod
from .pods import Pods
from .processes import Slot

GROUP, VERSION = "custom.metrics.k8s.io", "v1beta2"
PORT = 6444
WAIT, BUSY, HOLD = READ = ("queue_wait_ms", "engine_busy_ratio", "engine_hold_ratio")
TARGETS = "/targets"  # where the rig's Prometheus asks which pods there are
MOST_HELD = 0.6  # as in manifests/monitoring/prometheusrule-queue-wait.yaml
SUM, COUNT = "vllm:request_queue_time_seconds_sum", "vllm:request_queue_time_seconds_count"


class MetricsApi:
    """The adapter of a cluster. ``available`` False: it answers 503, as when Prometheus is gone."""

    def __init__(self, api: Api, slot: Slot, pods: Pods) -> None:
        self._api, self._slot, self._pods = api, slot, pods
        self._values: dict[str, float] = {}
        self._before: dict[str, tuple[float, float, float]] = {}
        self._runner: web.AppRunner | None = None
        self.available = True
        self.asked = 0

    def set(self, metric: str, value: float | None) -> None:
        """Every pod's value from now on; None: one of READ comes from the pods' own metrics again, any other metric is
        unknown."""
        if value is None:
            self._values.pop(metric, None)
        else:
            self._values[metric] = value

    def clear(self) -> None:
        """As at the start."""
        self._values.clear()
        self.available = True

    async def start(self, context: ssl.SSLContext) -> None:
        """Listen, and register with the API server."""
        app = web.Application()
        app.router.add_get(TARGETS, self._targets)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._slot.host, PORT, ssl_context=context).start()
        await self._api.apply(
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": "custom-metrics", "namespace": "kube-system"},
                "spec": {
                    "type": "ExternalName",
                    "externalName": self._slot.host,
                    "ports": [{"port": PORT}],
                },
            }
        )
        await self._api.apply(
            {
                "apiVersion": "apiregistration.k8s.io/v1",
                "kind": "APIService",
                "metadata": {"name": f"{VERSION}.{GROUP}"},
                "spec": {
                    "group": GROUP,
                    "version": VERSION,
                    "groupPriorityMinimum": 100,
                    "versionPriority": 100,
                    "insecureSkipTLSVerify": True,
                    "service": {"name": "custom-metrics", "namespace": "kube-system", "port": PORT},
                },
            }
        )

    async def stop(self) -> None:
        """Stop listening."""
        if self._runner:
            await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        root = f"/apis/{GROUP}/{VERSION}"
        if not self.available:
            return web.json_response({"error": "no Prometheus"}, status=503)
        if request.path.rstrip("/") == root:
            names = sorted({*READ, *self._values})
            resource = {
                "namespaced": True,
                "kind": "MetricValueList",
                "singularName": "",
                "verbs": ["get"],
            }
            listed = [{"name": f"pods/{name}", **resource} for name in names]
            return web.json_response(
                {
                    "kind": "APIResourceList",
                    "apiVersion": "v1",
                    "groupVersion": f"{GROUP}/{VERSION}",
                    "resources": listed,
                }
            )
        words = request.path.removeprefix(root).strip("/").split("/")
        if len(words) == 5 and words[0] == "namespaces" and words[2] == "pods":
            return await self._values_of(request, namespace=words[1], pod=words[3], metric=words[4])
        return web.json_response(
            {"kind": "Status", "code": 404}, status=404
        )  # not dropped, or discovery never ends

    async def _targets(self, _: web.Request) -> web.Response:
        """Every pod that runs, with the labels that a PodMonitor gives."""
        pods = [pod for pod in self._pods.running.values() if pod.address and not pod.job]
        return web.json_response(
            [{"targets": [_target(pod)], "labels": _labels(pod)} for pod in pods]
        )

    async def _values_of(
        self, request: web.Request, *, namespace: str, pod: str, metric: str
    ) -> web.Response:
        self.asked += 1
        query = (
            {"labelSelector": request.query["labelSelector"]}
            if "labelSelector" in request.query
            else {}
        )
        listed = await self._api.request("GET", f"/api/v1/namespaces/{namespace}/pods", **query)
        names = [
            item["metadata"]["name"]
            for item in listed["items"]
            if pod in ("*", item["metadata"]["name"])
        ]
        held = metric == HOLD and metric not in self._values
        read = [
            (name, await self._value(namespace, name, BUSY if held else metric)) for name in names
        ]
        values = {name: value for name, value in read if value is not None}
        if held and values:
            values = dict.fromkeys(values, min(sum(values.values()) / len(values), MOST_HELD))
        items = [_item(namespace, name, metric, value) for name, value in values.items()]
        if not items and metric not in (*READ, *self._values):
            return web.json_response(
                {"kind": "Status", "code": 404, "message": f"no metric {metric}"}, status=404
            )
        return web.json_response(
            {
                "kind": "MetricValueList",
                "apiVersion": f"{GROUP}/{VERSION}",
                "metadata": {},
                "items": items,
            }
        )

    async def _value(self, namespace: str, name: str, metric: str) -> float | None:
        if metric in self._values:
            return self._values[metric]
        pod = self._pods.named(namespace, name)
        if pod is None or metric not in READ:
            return None
        return await (self._queue_wait_ms(pod) if metric == WAIT else _busy_ratio(pod))

    async def _queue_wait_ms(self, pod: Pod) -> float | None:
        """Milliseconds a request queued, on average since the last question, as the recording rule has it."""
        text = await scrape(pod)
        if text is None:
            return None
        values = {
            line.split("{")[0].split(" ")[0]: float(line.split()[-1])
            for line in text.splitlines()
            if line.startswith((SUM, COUNT))
        }
        total, count = values.get(SUM, 0.0), values.get(COUNT, 0.0)
        last_total, last_count, last = self._before.get(pod.uid, (0.0, 0.0, 0.0))
        if count > last_count:
            last = 1000 * (total - last_total) / (count - last_count)
        elif count == last_count:
            last = 0.0
        self._before[pod.uid] = total, count, last
        return last


async def _busy_ratio(pod: Pod) -> float | None:
    """Requests that run and wait per slot; None for an engine that answers nothing or names no slots."""
    text, slots = await scrape(pod), argument(pod, "--max-num-seqs")
    if text is None or slots is None:
        return None
    names = ("vllm:num_requests_running", "vllm:num_requests_waiting")
    return sum(
        float(line.split()[-1]) for line in text.splitlines() if line.startswith(names)
    ) / int(slots)


async def scrape(pod: Pod, path: str = "/metrics") -> str | None:
    """A pod's page on the first port that its container declares or its arguments name."""
    port = port_of(pod)
    try:
        timeout = aiohttp.ClientTimeout(total=5)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(f"http://{pod.real_address}:{port}{path}") as answer,
        ):
            return await answer.text() if answer.status == 200 else None
    except (OSError, aiohttp.ClientError, TimeoutError):
        return None


def port_of(pod: Pod) -> int:
    """The engine's port: declared, else ``--port``, else vLLM's default."""
    spec: dict[str, Any] = pod.units[0].spec
    if spec.get("ports"):
        return int(spec["ports"][0]["containerPort"])
    return int(argument(pod, "--port") or 8000)


def argument(pod: Pod, name: str) -> str | None:
    """The value of an engine's argument."""
    spec: dict[str, Any] = pod.units[0].spec
    words = [*spec.get("command", ()), *spec.get("args", ())]
    for index, word in enumerate(words):
        if word.startswith(f"{name}="):
            return str(word.partition("=")[2])
        if word == name:
            return str(words[index + 1])
    return None


def _target(pod: Pod) -> str:
    return f"{pod.real_address}:{port_of(pod)}"


def _labels(pod: Pod) -> dict[str, str]:
    service = pod.object["metadata"].get("labels", {}).get("serving.kserve.io/inferenceservice")
    return {
        "namespace": pod.namespace,
        "pod": pod.name,
        **({"inference_service": service} if service else {}),
    }


def _item(namespace: str, name: str, metric: str, value: float) -> dict[str, Any]:
    return {
        "describedObject": {
            "kind": "Pod",
            "namespace": namespace,
            "name": name,
            "apiVersion": "/v1",
        },
        "metric": {"name": metric, "selector": None},
        "timestamp": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "value": f"{round(value * 1000)}m",
    }
