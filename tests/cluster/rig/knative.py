"""Knative Serving's own controller against the rig's API server, for InferenceServices in Knative mode.

Real: the definitions, the configuration and the controller's reconcilers of the release. They make Configurations,
Revisions, Routes and the Revisions' Deployments, and decide which Revision gets the traffic and when.

Ours, each a few lines: the autoscaler (a Revision that a Route leads to has as many pods as its min-scale, at least
one; any other has none, at once instead of after a minute without requests; it sees no requests, so it never scales up,
and not to zero while a Route leads there), and the ingress (a Route's Ingress is said to be programmed; nothing carries
requests). Left out: Knative's webhooks (nothing is defaulted or refused on writing), activator, queue-proxy (the pod
runner asks the engine's readiness probe in its place; nothing else of it is there), digests of images.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import aiohttp

from .api import ApiError
from .binaries import Program, Recipe, find

if TYPE_CHECKING:
    from .cluster import Cluster

NAMESPACE = "knative-serving"
CONTROLLER = "knative-controller"
SERVING = "knative.dev/serving"
RECIPE = Recipe(
    ("knative",),
    (Program(CONTROLLER, "knative", "./controller", build_s=125),),
    {
        "knative-crds": (SERVING, "config/core/300-resources"),
        "knative-config": (SERVING, "config/core/configmaps"),
        "knative-networking": ("knative.dev/networking", "config"),
        "knative-caching": ("knative.dev/caching", "config"),
    },
    "knative",
)
# Over the release's configuration: no registry is asked for a digest, and images are of the rig.
OURS = {
    "config-deployment": {
        "queue-sidecar-image": "queue-proxy:rig",
        "registries-skipping-tag-resolving": "index.docker.io",
    }
}
_AUTOSCALER = "autoscaling.internal.knative.dev/podautoscaler"
_INGRESS = "networking.internal.knative.dev/ingress"
_MIN_SCALE = "autoscaling.knative.dev/min-scale"


class Knative:
    """The controller of one cluster. It is there before KServe's manager, which looks for Knative when it starts."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._assets = find(RECIPE)
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Definitions, configuration, controller and our parts; returns when the controller runs."""
        cluster = self._cluster
        cluster.client.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        )
        documents = [d for name in RECIPE.definitions for d in self._assets.documents(name)]
        crds = [d for d in documents if d["kind"] == "CustomResourceDefinition"]
        cluster.run(self._create(crds))
        for crd in crds:
            name = crd["metadata"]["name"]
            cluster.client.wait(f"{name} is served", lambda n=name: self._established(n))
        for document in documents:
            if document["kind"] == "ConfigMap":
                self._configure(document)
        cluster.processes.start(
            CONTROLLER,
            [self._assets[CONTROLLER], "--kube-api-qps=200", "--kube-api-burst=400"],
            {
                "KUBECONFIG": str(cluster.kubeconfig),
                "POD_NAME": CONTROLLER,
                "SYSTEM_NAMESPACE": NAMESPACE,
                "CONFIG_LOGGING_NAME": "config-logging",
                "CONFIG_OBSERVABILITY_NAME": "config-observability",
                "PROFILING_PORT": str(cluster.slot.port(2)),
            },
        )
        cluster.run(self._start_own())

    async def stop(self) -> None:
        """End our parts; the controller ends with the cluster."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _create(self, crds: list[dict]) -> None:
        await asyncio.gather(*(self._cluster.api.create(crd) for crd in crds))

    def _established(self, name: str) -> bool:
        crd = self._cluster.client.get("crd", name)
        return any(
            c["type"] == "Established" and c["status"] == "True"
            for c in crd["status"].get("conditions") or ()
        )

    def _configure(self, document: dict) -> None:
        name = document["metadata"]["name"]
        data = {k: v for k, v in (document.get("data") or {}).items() if not k.startswith("_")}
        self._cluster.client.apply(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": name, "namespace": NAMESPACE},
                "data": data | OURS.get(name, {}),
            }
        )

    async def _start_own(self) -> None:
        self._tasks = [
            asyncio.create_task(self._follow(_AUTOSCALER, self._scale)),
            asyncio.create_task(self._follow_deployments()),
            asyncio.create_task(self._follow(_INGRESS, self._program)),
        ]

    async def _follow(self, kind: str, act: Any) -> None:
        async for event, item in self._cluster.api.watch(kind):
            if event != "DELETED":
                await self._try(act, item)

    async def _follow_deployments(self) -> None:
        """A pod that got ready may make its Revision's autoscaler ready."""
        async for event, item in self._cluster.api.watch("deployments"):
            revision = item["metadata"].get("labels", {}).get("serving.knative.dev/revision")
            if revision and event != "DELETED":
                await self._try(self._look_again, item["metadata"]["namespace"], revision)

    async def _try(self, act: Any, *what: Any) -> None:
        """What fails because somebody else was faster is tried at the next event, which that one made."""
        with suppress(ApiError, aiohttp.ClientError):
            await act(*what)

    async def _look_again(self, namespace: str, revision: str) -> None:
        await self._scale(await self._cluster.api.get(_AUTOSCALER, revision, namespace))

    async def _scale(self, scaler: dict) -> None:
        """Give a Revision the pods it should have, and say in its PodAutoscaler what there is."""
        api, meta = self._cluster.api, scaler["metadata"]
        least = int(meta.get("annotations", {}).get(_MIN_SCALE) or 0)
        reached = scaler["spec"].get("reachability") != "Unreachable"
        before = scaler.get("status", {})
        begun = _is_true(before, "ScaleTargetInitialized")
        # One that never was ready keeps its pods: Knative, too, only gives up after its progress deadline, 600 s.
        wanted = max(1, least) if reached or not begun else 0
        target = scaler["spec"]["scaleTargetRef"]["name"]
        deployment = await api.get("deployments", target, meta["namespace"])
        if deployment["spec"]["replicas"] != wanted:
            await api.patch(
                "deployments", target, {"spec": {"replicas": wanted}}, meta["namespace"]
            )
        ready = deployment.get("status", {}).get("readyReplicas", 0)
        enough = ready >= wanted > 0
        states = {
            "Active": ("True", "")
            if enough
            else ("Unknown", "Queued")
            if wanted
            else ("False", "NoTraffic"),
            "ScaleTargetInitialized": ("True", "") if begun or enough else ("Unknown", ""),
            "SKSReady": ("True", ""),
        }
        worst = next((s for s in states.values() if s[0] == "False"), None)
        worst = worst or next((s for s in states.values() if s[0] == "Unknown"), ("True", ""))
        status = {
            "observedGeneration": meta["generation"],
            "serviceName": meta["name"],
            "metricsServiceName": f"{meta['name']}-private",
            "desiredScale": wanted,
            "actualScale": ready,
            "conditions": _conditions(before, {**states, "Ready": worst}),
        }
        if status != before:
            await api.patch(
                _AUTOSCALER,
                meta["name"],
                {"status": status},
                meta["namespace"],
                subresource="status",
            )

    async def _program(self, ingress: dict) -> None:
        """Say that a Route's Ingress carries requests as it says."""
        meta, before = ingress["metadata"], ingress.get("status", {})
        where = {"ingress": [{"domainInternal": f"ingress.{NAMESPACE}.svc.cluster.local"}]}
        names = ("NetworkConfigured", "LoadBalancerReady", "Ready")
        status = {
            "observedGeneration": meta["generation"],
            "publicLoadBalancer": where,
            "privateLoadBalancer": where,
            "conditions": _conditions(before, dict.fromkeys(names, ("True", ""))),
        }
        if status != before:
            await self._cluster.api.patch(
                _INGRESS, meta["name"], {"status": status}, meta["namespace"], subresource="status"
            )


def _conditions(before: dict, states: dict[str, tuple[str, str]]) -> list[dict]:
    """Conditions of these states; the time of one that did not change stays."""
    import datetime

    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    old = {c["type"]: c for c in before.get("conditions") or ()}
    fields = []
    for name, (state, reason) in sorted(states.items()):
        had = old.get(name, {})
        time = had["lastTransitionTime"] if had.get("status") == state else now
        fields.append(
            {"type": name, "status": state, "lastTransitionTime": time}
            | ({"reason": reason} if reason else {})
        )
    return fields


def _is_true(status: dict, name: str) -> bool:
    return any(c["type"] == name and c["status"] == "True" for c in status.get("conditions") or ())
