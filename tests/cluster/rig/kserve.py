"""KServe 0.20's own manager against the rig's API server: Standard mode (and Knative's, where it is), no Istio, no
cert-manager.

Its definitions, configuration, webhooks and runtime are those of the release, out of the same Go module as the binary.
Changed: the webhooks are called by address (``url``) instead of through a Service, and the ConfigMap says Standard mode
and where routes go. The ClusterServingRuntime is the release's vLLM one, with the image tag given here.
"""

from __future__ import annotations

import asyncio
import base64
import json
import socket
from typing import TYPE_CHECKING, Any

from .gateway import GATEWAY, GATEWAY_NAMESPACE
from .processes import free_port

if TYPE_CHECKING:
    from .cluster import Cluster

NAMESPACE = "kserve"
RUNTIME = "kserve-vllmserver"
IMAGE = "vllm/vllm-openai:v0.11.0"


class KServe:
    """The manager of one cluster."""

    def __init__(self, cluster: Cluster, *, gateway_api: bool) -> None:
        self._cluster = cluster
        self._gateway_api = gateway_api

    def start(self) -> None:
        """Definitions, configuration, manager, webhooks and runtime, in this order; returns when all is ready."""
        cluster = self._cluster
        cluster.client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        crds = self._documents("kserve-crds") + self._documents("kserve-storage-crds")
        cluster.run(self._create(crds))
        for crd in crds:
            cluster.client.wait(f"{crd['metadata']['name']} is served", lambda c=crd: self._established(c))
        self.configure({})
        self._start_manager()
        for document in self._documents("kserve-webhooks"):
            if document["kind"].endswith("WebhookConfiguration"):
                cluster.client.apply(self._webhooks(document))
        for document in self._documents("kserve-runtimes"):
            if document["metadata"]["name"] == RUNTIME:
                document["spec"]["containers"][0]["image"] = IMAGE
                cluster.client.wait("the runtime is accepted", lambda d=document: self._try_apply(d))

    async def _create(self, crds: list[dict]) -> None:
        await asyncio.gather(*(self._cluster.api.create(crd) for crd in crds))

    def configure(self, change: dict[str, dict[str, Any]]) -> None:
        """Write ``inferenceservice-config``: the release's, ours over it, ``change`` over both (per key).

        The manager reads most of it at every reconcile; ``deploy`` and ``ingress`` partly at its start only.
        """
        (config,) = self._documents("kserve-config")
        ours: dict[str, dict[str, Any]] = {
            "deploy": {"defaultDeploymentMode": "Standard"},
            "ingress": {
                "enableGatewayApi": self._gateway_api,
                "kserveIngressGateway": f"{GATEWAY_NAMESPACE}/{GATEWAY}",
                "disableIstioVirtualHost": self._cluster.settings.knative,
            },
        }
        data = {k: v for k, v in config["data"].items() if not k.startswith("_")}
        for layer in (ours, change):
            for key, values in layer.items():
                data[key] = json.dumps({**json.loads(data.get(key, "{}")), **values})
        self._cluster.client.apply({**config, "data": data})

    def restart(self) -> None:
        """As after an upgrade or an eviction; returns when its webhooks answer again."""
        processes = self._cluster.processes
        processes.stop("kserve-manager")
        self._start_manager(port=self._port)
        processes.wait("kserve-manager", self._hears)  # the port is open a moment after it calls itself ready

    def _hears(self) -> bool:
        try:
            socket.create_connection((self._cluster.slot.host, self._port), timeout=5).close()
        except OSError:
            return False
        return True

    def _start_manager(self, port: int | None = None) -> None:
        cluster = self._cluster
        host = cluster.slot.host
        self._port = port or free_port()  # the manager has no flag for the address: it listens on all of them
        scratch = cluster.folder / "kserve"
        serving = cluster.authority.sign("kserve-webhook", "kserve-webhook", addresses=[host])
        certificates = scratch / "k8s-webhook-server" / "serving-certs"
        certificates.mkdir(parents=True, exist_ok=True)
        (certificates / "tls.crt").write_bytes(serving.certificate.read_bytes())
        (certificates / "tls.key").write_bytes(serving.key.read_bytes())
        cluster.processes.start(
            "kserve-manager",
            [
                cluster.assets["kserve-manager"],
                f"--metrics-addr={host}:8080",
                f"--health-probe-addr={host}:8081",
                f"--webhook-port={self._port}",
                "--zap-log-level=info",
            ],
            {"KUBECONFIG": str(cluster.kubeconfig), "TMPDIR": str(scratch), "POD_NAMESPACE": NAMESPACE},
        )
        from .cluster import answers

        cluster.processes.wait("kserve-manager", lambda: answers(f"http://{host}:8081/readyz"))

    def _webhooks(self, document: dict) -> dict:
        bundle = base64.b64encode(self._cluster.authority.bundle.read_bytes()).decode()
        document["metadata"] = {"name": document["metadata"]["name"]}
        for webhook in document["webhooks"]:
            path = webhook["clientConfig"]["service"]["path"]
            url = f"https://{self._cluster.slot.host}:{self._port}{path}"
            webhook["clientConfig"] = {"url": url, "caBundle": bundle}
        return document

    def _try_apply(self, document: dict) -> bool:
        from .api import ApiError

        try:
            self._cluster.client.apply(document)
        except ApiError as error:
            if error.status == 500:  # the webhook's port is open a moment after the manager calls itself ready
                return False
            raise
        return True

    def _established(self, crd: dict) -> bool:
        """Whether a definition is served and listed: the manager reads the listing once, at its start."""
        client, spec = self._cluster.client, crd["spec"]
        conditions = client.get("crd", crd["metadata"]["name"])["status"].get("conditions") or ()
        if not any(c["type"] == "Established" and c["status"] == "True" for c in conditions):
            return False
        return all(self._listed(spec, version["name"]) for version in spec["versions"] if version.get("served"))

    def _listed(self, spec: dict, version: str) -> bool:
        from .api import ApiError

        try:
            found = self._cluster.client.request("GET", f"/apis/{spec['group']}/{version}")
        except ApiError as error:
            if error.status in (404, 503):
                return False
            raise
        return any(one["name"] == spec["names"]["plural"] for one in found.get("resources", ()))

    def _documents(self, name: str) -> list[dict]:
        return [d for d in self._cluster.assets.documents(name) if d["kind"] != "Kustomization"]
