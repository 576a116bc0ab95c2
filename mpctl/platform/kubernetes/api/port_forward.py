"""A pod's port on this machine: a loopback listener with_transition_strategy to the API server's port-forward.

Every connection to the listener gets a stream of its own, as ``kubectl port-forward`` does; nothing listens beyond
loopback.
"""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mpctl.errors import MpctlError
from mpctl.platform.kubernetes.api.failure import Call, error_of
from mpctl.platform.kubernetes.api.kinds import POD

if TYPE_CHECKING:
    from mpctl.platform.kubernetes.api.client import Client

_CHUNK = 65536
_CONNECT_S = 30.0
_PROTOCOL = "v4.channel.k8s.io"


class Forwards:
    """The forwards of one command, each made when it is first asked for."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._open: dict[tuple[str, int], Forward] = {}

    def url(self, pod: str, port: int) -> str:
        """``http://127.0.0.1:PORT`` that leads to a pod's port."""
        key = (pod, port)
        if key not in self._open:
            self._open[key] = Forward(self._client, self._namespace, pod, port)
        return f"http://127.0.0.1:{self._open[key].port}"

    def refusal(self, pod: str, port: int) -> MpctlError | None:
        """Why the API server would not forward the last connection to a port; None when it did."""
        return self._open[pod, port].refusal if (pod, port) in self._open else None

    def close(self) -> None:
        """Close all listeners and their streams."""
        for forward in self._open.values():
            forward.close()
        self._open.clear()


class Forward:
    """One listener."""

    def __init__(self, client: Client, namespace: str, pod: str, port: int) -> None:
        self._client = client
        self._pod = namespace, pod
        self._path = POD.path(namespace, pod, "portforward")
        self._remote = port
        self._sockets: set[Any] = set()
        self.refusal: MpctlError | None = None
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name=f"mpctl forward {pod}", daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        self._sockets.add(connection)
        try:
            stream = self._stream()
        except (OSError, MpctlError) as error:
            self.refusal = error if isinstance(error, MpctlError) else None
            connection.close()  # whoever connected sees a refused request
            self._sockets.discard(connection)
            return
        self.refusal = None
        remote = stream.socket(self._remote)
        back = threading.Thread(target=_pump, args=(remote, connection), daemon=True)
        back.start()
        _pump(connection, remote)
        back.join()
        for end in (connection, remote):
            with suppress(OSError):
                end.close()
        stream.close()
        self._sockets.discard(connection)

    def _stream(self) -> Any:
        """Open one port-forward stream.

        Raises:
            MpctlError: the API server refuses it.
        """
        from importlib import import_module

        websocket: Any = import_module("websocket")
        ws_client: Any = import_module("kubernetes.stream.ws_client")
        configuration = self._client.configuration
        url = configuration.host.replace("http", "ws", 1) + f"{self._path}?ports={self._remote}"
        made = websocket.WebSocket(sslopt=_ssl_options(configuration), skip_utf8_validation=True)
        try:
            made.connect(
                url, timeout=_CONNECT_S, header=[*self._client.header_lines(), f"Sec-WebSocket-Protocol: {_PROTOCOL}"]
            )
        except websocket.WebSocketBadStatusException as error:
            body = error.resp_body or b""
            raise error_of(error.status_code, body, Call("create", POD, *self._pod, "portforward")) from error
        except websocket.WebSocketException as error:
            raise MpctlError(f"port {self._remote} of pod {self._pod[1]} cannot be forwarded: {error}") from error
        made.settimeout(None)
        return ws_client.PortForward(made, [self._remote])

    def close(self) -> None:
        """Stop listening and end open streams."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # a thread in accept() would keep a socket that is only closed
        self._listener.close()
        for connection in list(self._sockets):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


def _pump(source: Any, target: Any) -> None:
    with suppress(OSError):
        while data := source.recv(_CHUNK):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def _ssl_options(configuration: Any) -> dict[str, Any]:
    if not configuration.verify_ssl:
        options: dict[str, Any] = {"cert_reqs": ssl.CERT_NONE, "check_hostname": False}
    else:
        options = {"cert_reqs": ssl.CERT_REQUIRED}
        if configuration.ssl_ca_cert:
            options["ca_certs"] = configuration.ssl_ca_cert
    if configuration.cert_file:
        options |= {"certfile": configuration.cert_file, "keyfile": configuration.key_file}
    if configuration.tls_server_name:
        options["server_hostname"] = configuration.tls_server_name
    return options
