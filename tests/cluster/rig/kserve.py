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

if TYPE_CHECKING:
    from .binaries import Assets
    from .cluster import Cluster

KSERVE = "github.com/kserve/kserve"
NAMESPACE = "kserve"
RUNTIME = "kserve-vllmserver"
IMAGE = "vllm/vllm-openai:v0.11.0"


def documents(assets: Assets, name: str) -> list[dict]:
    """The objects of one entry of a recipe's definitions."""
    return [d for d in assets.documents(name) if d["kind"] != "Kustomization"]


class Manager:
    """A manager of KServe's as a process; its webhooks have an address of their own. ``metrics``, ``probes``: ports;
    ``number``: which manager of the cluster it is."""

    def __init__(
        self, cluster: Cluster, name: str, program: str, number: int, *, metrics: int, probes: int
    ) -> None:
        self._cluster, self.name, self._program = cluster, name, program
        self._metrics, self._probes = metrics, probes
        self._port = cluster.slot.port(
            number
        )  # it has no flag for the address: it listens on all of them

    def start(self, *flags: str) -> None:
        """Start it, also again; returns when it calls itself ready."""
        cluster, host = self._cluster, self._cluster.slot.host
        scratch = cluster.folder / self.name
        serving = cluster.authority.sign(
            f"{self.name}-webhook", f"{self.name}-webhook", addresses=[host]
        )
        certificates = scratch / "k8s-webhook-server" / "serving-certs"
        certificates.mkdir(parents=True, exist_ok=True)
        (certificates / "tls.crt").write_bytes(serving.certificate.read_bytes())
        (certificates / "tls.key").write_bytes(serving.key.read_bytes())
        cluster.processes.start(
            self.name,
            [
                self._program,
                f"--metrics-addr={host}:{self._metrics}",
                f"--health-probe-addr={host}:{self._probes}",
                f"--webhook-port={self._port}",
                "--zap-log-level=info",
                *flags,
            ],
            {
                "KUBECONFIG": str(cluster.kubeconfig),
                "TMPDIR": str(scratch),
                "POD_NAMESPACE": NAMESPACE,
            },
        )
        from .cluster import answers

        cluster.processes.wait(self.name, lambda: answers(f"http://{host}:{self._probes}/readyz"))

    def restart(self) -> None:
        """As after an upgrade or an eviction; returns when its webhooks answer again."""
        processes = self._cluster.processes
        processes.stop(self.name)
        self.start()
        processes.wait(
            self.name, self._hears
        )  # the port is open a moment after it calls itself ready

    def _hears(self) -> bool:
        try:
            socket.create_connection((self._cluster.slot.host, self._port), timeout=5).close()
        except OSError:
            return False
        return True

    def client_config(self, path: str) -> dict:
        """Where the API server calls a webhook."""
        bundle = base64.b64encode(self._cluster.authority.bundle.read_bytes()).decode()
        return {"url": f"https://{self._cluster.slot.host}:{self._port}{path}", "caBundle": bundle}

    def webhooks(self, document: dict) -> dict:
        """A webhook configuration of the release, called by address."""
        document["metadata"] = {"name": document["metadata"]["name"]}
        for webhook in document["webhooks"]:
            webhook["clientConfig"] = self.client_config(webhook["clientConfig"]["service"]["path"])
        return document


class KServe:
    """The manager of one cluster."""

    def __init__(self, cluster: Cluster, *, gateway_api: bool) -> None:
        self._cluster = cluster
        self._gateway_api = gateway_api
        self._manager = Manager(
            cluster,
            "kserve-manager",
            cluster.assets["kserve-manager"],
            0,
            metrics=8080,
            probes=8081,
        )

    def start(self) -> None:
        """Definitions, configuration, manager, webhooks and runtime, in this order; returns when all is ready."""
        cluster = self._cluster
        cluster.client.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        )
        self.define(self._documents("kserve-crds") + self._documents("kserve-storage-crds"))
        self.configure({})
        self._manager.start()
        for document in self._documents("kserve-webhooks"):
            if document["kind"].endswith("WebhookConfiguration"):
                cluster.client.apply(self._manager.webhooks(document))
        for document in self._documents("kserve-runtimes"):
            if document["metadata"]["name"] == RUNTIME:
                document["spec"]["containers"][0]["image"] = IMAGE
                cluster.client.wait("the runtime is accepted", lambda d=document: self.try_apply(d))

    def define(self, crds: list[dict]) -> None:
        """Create definitions; returns when all are served."""
        self._cluster.run(self._create(crds))
        for crd in crds:
            self._cluster.client.wait(
                f"{crd['metadata']['name']} is served", lambda c=crd: self._established(c)
            )

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
                "disableIstioVirtualHost": "knative" in self._cluster.settings.extras,
            },
        }
        data = {k: v for k, v in config["data"].items() if not k.startswith("_")}
        for layer in (ours, change):
            for key, values in layer.items():
                data[key] = json.dumps({**json.loads(data.get(key, "{}")), **values})
        self._cluster.client.apply({**config, "data": data})

    def restart(self) -> None:
        """As after an upgrade or an eviction; returns when its webhooks answer again."""
        self._manager.restart()

    def try_apply(self, document: dict) -> bool:
        """Apply an object; False while the manager's webhooks do not answer yet."""
        from .api import ApiError

        try:
            self._cluster.client.apply(document)
        except ApiError as error:
            if (
                error.status == 500
            ):  # the webhook's port is open a moment after the manager calls itself ready
                return False
            raise
        return True

    def _established(self, crd: dict) -> bool:
        """Whether a definition is served and listed: the manager reads the listing once, at its start."""
        client, spec = self._cluster.client, crd["spec"]
        conditions = client.get("crd", crd["metadata"]["name"])["status"].get("conditions") or ()
        if not any(c["type"] == "Established" and c["status"] == "True" for c in conditions):
            return False
        return all(
            self._listed(spec, version["name"])
            for version in spec["versions"]
            if version.get("served")
        )

    def _listed(self, spec: dict, version: str) -> bool:
        from .api import ApiError

        try:
            listing = self._cluster.client.request("GET", f"/apis/{spec['group']}/{version}")
        except ApiError as error:
            if error.status in (404, 503):
                return False
            raise
        return any(
            resource["name"] == spec["names"]["plural"] for resource in listing.get("resources", ())
        )

    def _documents(self, name: str) -> list[dict]:
        return documents(self._cluster.assets, name)
