"""KServe's second manager, ``llmisvc``: LLMInferenceServices on a cluster that runs KServe.

Its definitions (both versions, converted by its own webhook), webhooks and presets are those of the release, out of the
Go module that the first manager is built from. Not there, because no test needs them: LeaderWorkerSet, InferencePool,
KEDA; a service that asks for one of them is not reconciled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .binaries import Program, Recipe, find
from .kserve import KSERVE, NAMESPACE, Manager, documents

if TYPE_CHECKING:
    from .cluster import Cluster

RECIPE = Recipe(
    ("kserve",),
    (Program("llmisvc-manager", "kserve", f"{KSERVE}/cmd/llmisvc", build_s=30),),
    {
        "llmisvc-crds": (KSERVE, "config/crd/full/llmisvc"),
        "llmisvc-webhooks": (KSERVE, "config/webhook/llmisvc"),
        "llmisvc-presets": (KSERVE, "config/llmisvcconfig"),
    },
    "kserve",
)


class LlmServices:
    """The manager of one cluster; started by the first test that needs it."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._assets = find(RECIPE)
        self._manager = Manager(
            cluster,
            "llmisvc-manager",
            self._assets["llmisvc-manager"],
            1,
            metrics=8082,
            probes=8083,
        )

    def start(self) -> None:
        """Definitions, manager, webhooks and presets, in this order; returns when all is ready."""
        cluster = self._cluster
        crds = [
            d for d in documents(self._assets, "llmisvc-crds") if "versions" in d["spec"]
        ]  # without the patches
        for crd in crds:
            webhook = {
                "clientConfig": self._manager.client_config("/convert"),
                "conversionReviewVersions": ["v1"],
            }
            crd["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
        cluster.kserve.define(crds)
        self._manager.start("--metrics-secure=false")
        for document in documents(self._assets, "llmisvc-webhooks"):
            if document["kind"].endswith("WebhookConfiguration"):
                cluster.client.apply(self._manager.webhooks(document))
        for preset in documents(self._assets, "llmisvc-presets"):
            preset["metadata"]["namespace"] = NAMESPACE
            cluster.client.wait(
                "the preset is accepted", lambda d=preset: cluster.kserve.try_apply(d)
            )
