"""LeaderWorkerSet's own controller against the rig's API server: definitions, webhooks and controller of the release.

Its module pins the versions that KServe is built with, so that what KServe compiled is not compiled again. The webhooks
are called by address; certificates are the rig's. Not there: gang scheduling.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

from .binaries import Program, Recipe, find
from .kserve import documents

if TYPE_CHECKING:
    from .cluster import Cluster

LWS = "sigs.k8s.io/lws"
_NAME = "lws-manager"
_SYSTEM = "lws-system"
_OF_A_SET = {
    "matchExpressions": [{"key": "leaderworkerset.sigs.k8s.io/name", "operator": "Exists"}]
}
RECIPE = Recipe(
    ("lws",),
    (Program(_NAME, "lws", f"{LWS}/cmd", build_s=10),),
    {"lws-crds": (LWS, "config/crd/bases"), "lws-webhooks": (LWS, "config/webhook")},
    "lws",
)


_WEBHOOKS, _PROBES = 9444, 8084  # of the control plane's address


class LeaderWorkerSets:
    """The controller of one cluster; started by the first test that needs it."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._assets = find(RECIPE)

    def start(self) -> None:
        """Definition, controller and webhooks, in this order; returns when all is ready."""
        cluster, host = self._cluster, self._cluster.slot.host
        cluster.client.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _SYSTEM}}
        )
        cluster.kserve.define(documents(self._assets, "lws-crds"))
        scratch = cluster.folder / _NAME
        scratch.mkdir(parents=True, exist_ok=True)
        serving = cluster.authority.sign(f"{_NAME}-webhook", f"{_NAME}-webhook", addresses=[host])
        (scratch / "tls.crt").write_bytes(serving.certificate.read_bytes())
        (scratch / "tls.key").write_bytes(serving.key.read_bytes())
        settings = {
            "apiVersion": "config.lws.x-k8s.io/v1alpha1",
            "kind": "Configuration",
            "webhook": {"host": host, "port": _WEBHOOKS, "certDir": str(scratch)},
            "metrics": {"bindAddress": "0"},
            "health": {"healthProbeBindAddress": f"{host}:{_PROBES}"},
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": False},
        }
        (scratch / "configuration.yaml").write_text(json.dumps(settings))
        cluster.processes.start(
            _NAME,
            [self._assets[_NAME], f"--config={scratch / 'configuration.yaml'}"],
            {"KUBECONFIG": str(cluster.kubeconfig), "POD_NAMESPACE": _SYSTEM},
        )
        from .cluster import answers

        cluster.processes.wait(_NAME, lambda: answers(f"http://{host}:{_PROBES}/readyz"))
        for document in documents(self._assets, "lws-webhooks"):
            if document["kind"].endswith("WebhookConfiguration"):
                cluster.client.apply(self._by_address(document))

    def _by_address(self, document: dict) -> dict:
        """A webhook configuration of the release, called by address; of all pods it asks about those of a set."""
        host, bundle = (
            self._cluster.slot.host,
            base64.b64encode(self._cluster.authority.bundle.read_bytes()).decode(),
        )
        document["metadata"] = {"name": f"lws-{document['metadata']['name']}"}
        for webhook in document["webhooks"]:
            path = webhook["clientConfig"]["service"]["path"]
            webhook["clientConfig"] = {
                "url": f"https://{host}:{_WEBHOOKS}{path}",
                "caBundle": bundle,
            }
            if webhook["rules"][0]["resources"] == ["pods"]:
                webhook["objectSelector"] = _OF_A_SET
        return document
