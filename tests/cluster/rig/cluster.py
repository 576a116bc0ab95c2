"""One cluster: a control plane of its own addresses, keys and data, with nodes, kubelets and KServe.

    with Cluster() as cluster:
        cluster.client.apply(text)
        cluster.kubectl("get", "pods", "-A")

It starts in some ten seconds and takes about 1 GiB. Any number run at once. Everything ends with the ``with``, or with
the process that opened it.
"""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
import shutil
import ssl
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import binaries
from .api import Api, Client, PatientApi
from .certificates import Authority, Pair
from .gateway import Gateway
from .knative import Knative
from .kserve import KServe
from .kubelet import Kubelet
from .llmisvc import LlmServices
from .lws import LeaderWorkerSets
from .metrics_api import MetricsApi
from .nodes import L4, Machine, Nodes
from .pods import Pods
from .processes import Processes, Slot
from .prometheus import Prometheus
from .proxy import Proxy

ADMIN = "kubernetes-admin"
ROUTING = ("GatewayClass", "Gateway", "HTTPRoute", "ReferenceGrant")


@dataclass(frozen=True)
class Settings:
    """What a cluster is made of. ``nodes`` are there from the start, more can be added.

    ``gateway_api``: whether KServe writes HTTPRoutes (True) or Ingresses; the definitions and the gateway are there
    either way. ``kserve``: False leaves KServe out. ``extras``: names of ``binaries.extras``, each another build.
    ``hpa_period_s``: how often the autoscaler looks (15 s by default in Kubernetes). ``hpa_settle_s``: its wait before
    it scales down (300 s by default).
    """

    nodes: Sequence[Machine] = (L4, L4)
    kserve: bool = True
    extras: frozenset[str] = frozenset()
    gateway_api: bool = False
    hpa_period_s: int = 2
    hpa_settle_s: int = 2
    runner: bool = True


@dataclass
class Timing:
    """Seconds from the start until each part was ready."""

    parts: dict[str, float] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)

    def mark(self, part: str) -> None:
        """The part is ready now."""
        self.parts[part] = round(time.monotonic() - self.began, 2)


class Cluster:
    """See the module. Attributes: ``client`` (as administrator), ``nodes``, ``pods``, ``metrics``, ``gateway``,
    ``proxy``, ``kserve``, ``processes``, ``timing``, ``kubeconfig`` (a path)."""

    def __init__(self, settings: Settings | None = None, *, folder: Path | None = None) -> None:
        self.settings = settings or Settings()
        self.assets = binaries.find()
        self.folder = folder or Path(tempfile.mkdtemp(prefix="mpctl-rig-"))
        self.timing = Timing()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="rig", daemon=True)
        self._apis: list[Api] = []

    def __enter__(self) -> Cluster:
        self.slot = Slot()
        self.processes = Processes(secrets.token_hex(8), self.folder, self.slot)
        self._thread.start()
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def run(self, work: Coroutine[Any, Any, Any], timeout_s: float | None = 300) -> Any:
        """Run something on the cluster's loop and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout_s)

    @property
    def server(self) -> str:
        """The API server's address."""
        return f"https://{self.slot.host}:6443"

    def _start(self) -> None:
        keys = self.folder / "pki"
        self.authority = Authority(keys, "ca")
        self.front = Authority(keys, "front-proxy-ca")
        self.admin = self.authority.sign("admin", ADMIN, groups=["system:masters"])
        self.kubeconfig = self.kubeconfig_for(self.admin, self.folder / "admin.kubeconfig")
        self._start_etcd()
        self._start_apiserver()
        self.api = self._api(self.admin)
        self.client = Client(self.api, self.run)
        self._start_controllers()
        patient = self._api(self.admin, PatientApi)
        self.nodes = Nodes(self.api, self.slot)
        self.pods = Pods(patient, self.slot, self.nodes, self.processes, self.folder)
        self.kubelet = Kubelet(self.pods, self.slot, self.nodes)
        self.metrics = MetricsApi(self.api, self.slot, self.pods)
        self.gateway = Gateway(patient, self.slot, self.pods)
        self.proxy = Proxy(self)
        self.pods.proxy_url, self.pods.api_server = self.gateway.proxy_url, self.proxy.url
        self.run(self._start_own())
        if "knative" in self.settings.extras:
            self.knative = Knative(self)
            self.knative.start()
            self.timing.mark("knative")
        if self.settings.kserve:
            self.kserve = KServe(self, gateway_api=self.settings.gateway_api)
            self.kserve.start()
            self.timing.mark("kserve")
        for name in sorted(self.settings.extras - {"knative"}):
            self.add(name)

    def add(self, name: str) -> None:
        """Start one of ``binaries.extras`` beside KServe; it ends with the cluster. Knative cannot be added: KServe's
        manager looks for it when it starts."""
        if name == "prometheus":
            self.prometheus = Prometheus(self)
            self.prometheus.start()
        else:
            {"llm": LlmServices, "lws": LeaderWorkerSets}[name](self).start()
        self.timing.mark(name)

    async def _start_own(self) -> None:
        serving = self.authority.sign(
            "kubelet",
            "system:node:rig",
            groups=["system:nodes"],
            addresses=[self.slot.node(i) for i in range(1, 33)],
        )
        self.kubelet.tls(self.server_context(serving))
        for machine in self.settings.nodes:
            await self.nodes.add(machine)
        crds = [
            d
            for d in self.assets.documents("gateway-crds")
            if d.get("spec", {}).get("names", {}).get("kind") in ROUTING
        ]
        await asyncio.gather(*(self.api.create(crd) for crd in crds))
        await self.kubelet.start()
        if self.settings.runner:
            await self.pods.start()
        await self.metrics.start(
            self.server_context(
                self.authority.sign("metrics", "metrics", addresses=[self.slot.host])
            )
        )
        await self.proxy.start()
        await self.gateway.start()
        self.timing.mark("nodes")

    def _start_etcd(self) -> None:
        url, peer = f"http://{self.slot.host}:2379", f"http://{self.slot.host}:2380"
        self.processes.start(
            "etcd",
            [
                self.assets["etcd"], "--data-dir", str(self.folder / "etcd"), "--unsafe-no-fsync",
                "--listen-client-urls", url, "--advertise-client-urls", url,
                "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                "--initial-cluster", f"default={peer}", "--log-level", "warn",
            ],
        )  # fmt: skip
        self.processes.wait("etcd", lambda: answers(f"{url}/health"))
        self.timing.mark("etcd")

    def _start_apiserver(self) -> None:
        host = self.slot.host
        names = [host, "localhost", "kubernetes", "kubernetes.default.svc", "10.96.0.1"]
        serving = self.authority.sign("apiserver", "kube-apiserver", addresses=names)
        kubelet = self.authority.sign(
            "apiserver-kubelet", "kube-apiserver-kubelet", groups=["system:masters"]
        )
        self.front_client = self.front.sign("front-proxy", "front-proxy")
        accounts = self.authority.sign("service-accounts", "service-accounts")
        self.processes.start(
            "kube-apiserver",
            [
                self.assets["kube-apiserver"],
                f"--etcd-servers=http://{host}:2379",
                f"--bind-address={host}", f"--advertise-address={host}", "--secure-port=6443",
                "--endpoint-reconciler-type=none", "--service-cluster-ip-range=10.96.0.0/16",
                f"--tls-cert-file={serving.certificate}", f"--tls-private-key-file={serving.key}",
                f"--client-ca-file={self.authority.bundle}", "--authorization-mode=Node,RBAC",
                f"--service-account-key-file={accounts.key}", f"--service-account-signing-key-file={accounts.key}",
                f"--service-account-issuer={self.server}",
                f"--kubelet-client-certificate={kubelet.certificate}", f"--kubelet-client-key={kubelet.key}",
                f"--kubelet-certificate-authority={self.authority.bundle}",
                "--kubelet-preferred-address-types=InternalIP",
                f"--requestheader-client-ca-file={self.front.bundle}", "--requestheader-allowed-names=front-proxy",
                "--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
                "--requestheader-extra-headers-prefix=X-Remote-Extra-",
                f"--proxy-client-cert-file={self.front_client.certificate}",
                f"--proxy-client-key-file={self.front_client.key}",
                "--allow-privileged=true", "--profiling=false", "--shutdown-delay-duration=0s",
            ],
        )  # fmt: skip
        self._context = self.client_context(self.admin)
        self.processes.wait(
            "kube-apiserver", lambda: answers(f"{self.server}/readyz", self._context)
        )
        self.timing.mark("kube-apiserver")

    def _start_controllers(self) -> None:
        host, config = self.slot.host, self.kubeconfig
        common = [
            f"--kubeconfig={config}",
            f"--bind-address={host}",
            "--leader-elect=false",
            "--profiling=false",
        ]
        period, settle = self.settings.hpa_period_s, self.settings.hpa_settle_s
        self.processes.start(
            "kube-controller-manager",
            [
                self.assets["kube-controller-manager"], *common,
                f"--authentication-kubeconfig={config}", f"--authorization-kubeconfig={config}",
                f"--root-ca-file={self.authority.bundle}",
                f"--service-account-private-key-file={self.folder / 'pki' / 'service-accounts.key'}",
                f"--cluster-signing-cert-file={self.authority.bundle}",
                f"--cluster-signing-key-file={self.authority.pair.key}",
                "--use-service-account-credentials=true", "--kube-api-qps=200", "--kube-api-burst=400",
                f"--horizontal-pod-autoscaler-sync-period={period}s",
                f"--horizontal-pod-autoscaler-downscale-stabilization={settle}s",
                # Our heartbeat shares a processor with the tests; a node is lost only when a test says so.
                "--node-monitor-grace-period=10m",
            ],
        )  # fmt: skip
        self.processes.start(
            "kube-scheduler",
            [
                self.assets["kube-scheduler"], *common,
                f"--authentication-kubeconfig={config}", f"--authorization-kubeconfig={config}",
                "--kube-api-qps=200", "--kube-api-burst=400",
            ],
        )  # fmt: skip
        for name, port in (("kube-controller-manager", 10257), ("kube-scheduler", 10259)):
            url = f"https://{host}:{port}/healthz"
            blind = ssl.create_default_context()
            blind.check_hostname, blind.verify_mode = (
                False,
                ssl.CERT_NONE,
            )  # they serve certificates of their own making
            self.processes.wait(name, lambda u=url, b=blind: answers(u, b))
            self.timing.mark(name)

    def stop(self) -> None:
        """End everything and remove the folder."""
        if self._thread.is_alive():
            for part in ("knative", "gateway", "proxy", "metrics", "kubelet", "pods", "nodes"):
                if hasattr(self, part):
                    self.run(getattr(self, part).stop(), 60)
            for api in self._apis:
                self.run(api.close())
            self.run(self._settle())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(30)
            self._loop.close()
        if hasattr(self, "processes"):
            self.processes.close()
        if hasattr(self, "slot"):
            self.slot.lock.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    async def _settle(self) -> None:
        """Let nothing be left on the loop that would complain when it is closed."""
        tasks = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._loop.shutdown_asyncgens()
        await asyncio.sleep(0.25)  # connections under TLS close a moment after they are told to

    def restart_etcd(self) -> None:
        """End etcd as a crash does, and start it on what it kept; returns when the API server reads from it again."""
        process = self.processes.started.pop("etcd")
        process.kill()
        process.wait(10)
        self._start_etcd()
        self.processes.wait(
            "kube-apiserver", lambda: answers(f"{self.server}/readyz", self._context)
        )

    def add_node(self, machine: Machine = L4) -> str:
        """Register a node with its GPUs; its name."""
        return str(self.run(self.nodes.add(machine)))

    def remove_node(self, name: str) -> None:
        """Delete a node and its slices."""
        self.run(self.nodes.remove(name))

    def set_gpus(self, name: str, gpus: int) -> None:
        """Publish another number of devices for a node, as the driver does when one fails."""
        self.run(self.nodes.set_gpus(name, gpus))

    def kubectl(
        self,
        *arguments: str,
        kubeconfig: Path | None = None,
        stdin: str | None = None,
        code: int | None = 0,
    ) -> str:
        """The real kubectl; its output, both streams where it fails as it should (``code``)."""
        done = subprocess.run(
            [self.assets["kubectl"], *arguments],
            env=self.processes.environment(
                {"KUBECONFIG": str(kubeconfig or self.kubeconfig), "HOME": str(self.folder)}
            ),
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        assert code is None or done.returncode == code, (
            f"kubectl {arguments} -> {done.returncode}\n{done.stderr}"
        )
        return done.stdout if done.returncode == 0 else done.stdout + done.stderr

    def user(self, name: str, *, groups: Sequence[str] = ()) -> Pair:
        """A certificate for a user who may nothing until RBAC says so."""
        return self.authority.sign(f"user-{name}-{secrets.token_hex(3)}", name, groups=groups)

    def client_for(self, user: Pair, namespace: str = "default") -> Client:
        """A client that acts as a user."""
        return Client(self._api(user), self.run, namespace)

    def kubeconfig_for(
        self,
        user: Pair,
        path: Path,
        *,
        namespace: str = "default",
        server: str | None = None,
        context: str = "rig",
    ) -> Path:
        """A kubeconfig file of a user, with everything inside; ``server`` may be the fault proxy's address."""
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "rig", "cluster": {"server": server or self.server,
                                            "certificate-authority-data": _inline(self.authority.bundle)}}
            ],
            "users": [
                {"name": "user", "user": {"client-certificate-data": _inline(user.certificate),
                                          "client-key-data": _inline(user.key)}}
            ],
            "contexts": [{"name": context, "context": {"cluster": "rig", "user": "user", "namespace": namespace}}],
            "current-context": context,
        }  # fmt: skip
        path.write_text(json.dumps(document, indent=1))
        path.chmod(0o600)
        return path

    def service_account_kubeconfig(self, namespace: str, name: str, path: Path) -> Path:
        """A kubeconfig file of a service account, with a token that the API server issued."""
        where = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": 3600},
        }
        token = self.client.request("POST", where, body)["status"]["token"]
        document = json.loads(
            self.kubeconfig_for(self.admin, path, namespace=namespace).read_text()
        )
        document["users"][0]["user"] = {"token": token}
        path.write_text(json.dumps(document, indent=1))
        return path

    def memory(self) -> dict[str, int]:
        """Resident megabytes of each process."""
        import psutil

        return {
            n: psutil.Process(p.pid).memory_info().rss // 2**20
            for n, p in self.processes.started.items()
        }

    def client_context(self, user: Pair, authority: Path | None = None) -> ssl.SSLContext:
        """TLS as a client with a certificate."""
        context = ssl.create_default_context(cafile=str(authority or self.authority.bundle))
        context.load_cert_chain(user.certificate, user.key)
        return context

    def server_context(self, serving: Pair, *, ask: bool = False) -> ssl.SSLContext:
        """TLS as a server; ``ask``: a client may show a certificate of this cluster."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(serving.certificate, serving.key)
        if ask:
            context.load_verify_locations(self.authority.bundle)
            context.verify_mode = ssl.CERT_OPTIONAL
        return context

    def _api(self, user: Pair, kind: type[Api] = Api) -> Api:
        api = kind(self.server, self.client_context(user))
        self._apis.append(api)
        return api


def _inline(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def answers(url: str, context: ssl.SSLContext | None = None) -> bool:
    """Whether a GET answers 200 now."""
    handlers: list[Any] = [urllib.request.ProxyHandler({})]
    if context:
        handlers.append(urllib.request.HTTPSHandler(context=context))
    try:
        with urllib.request.build_opener(*handlers).open(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False
