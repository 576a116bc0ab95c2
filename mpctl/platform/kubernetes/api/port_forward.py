"""A pod's port on this machine: a private listener bridged to the API server's port-forward.

Every connection to the listener gets its own stream, as with ``kubectl port-forward``. The listener is a unix socket
that only this user may open: other users of a shared machine could reach a loopback port.

Where an engine answers over HTTPS, the bridge speaks TLS with it, and HTTP with this machine. Its certificate is not
verified: the API server leads to the pod itself, and only the Secret with the certificate's key would name its issuer.
"""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import tempfile
import threading
import weakref
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mpctl.errors import MpctlError
from mpctl.json_types import Json
from mpctl.platform.kubernetes.api.kinds import POD
from mpctl.platform.kubernetes.api.replies import Call, error_of

if TYPE_CHECKING:
    from mpctl.platform.kubernetes.api.api_client import Client

_CHUNK = 65536
_CONNECT_S = 30.0
_BACKLOG = 128
_LONGEST_PATH = 90  # of a directory for unix sockets, whose path may have 107 bytes (unix(7))
_PROTOCOL = "v4.channel.k8s.io"


class ForwardTarget(NamedTuple):
    """``url`` of a pod's port for this machine, and the unix ``socket`` that leads there."""

    url: str
    socket: str | None = None


class Forwards:
    """The forwards of one command, each made when it is first asked for."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._open: dict[tuple[str, int], Forward] = {}
        self._directory: Path | None = None

    def target(self, pod: str, port: int, *, tls: bool = False) -> ForwardTarget:
        """Return where this machine reaches a pod's port over HTTP. ``tls``: the pod answers over HTTPS there."""
        key = (pod, port)
        if key not in self._open:
            listener = self._private_listener()
            self._open[key] = Forward(self._client, self._namespace, pod, port, listener, tls=tls)
        return self._open[key].target

    def _private_listener(self) -> socket.socket:
        """Return a unix socket in a directory of its own, both for this user alone."""
        if self._directory is None:
            # The default directory of temporary files, if paths in it fit a unix socket.
            fits = len(tempfile.gettempdir()) < _LONGEST_PATH - len("/mpctl-12345678")
            folder = tempfile.mkdtemp(prefix="mpctl-", dir=None if fits else "/tmp")
            self._directory = Path(folder)
            # A command that only reads ends without closing; its sockets go with the process.
            weakref.finalize(self, shutil.rmtree, self._directory, ignore_errors=True)
        path = self._directory / str(len(self._open))
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(_BACKLOG)
        return listener

    def refusal(self, pod: str, port: int) -> MpctlError | None:
        """Return the reason that the API server refused the last connection to a port; None if it forwarded it."""
        return self._open[pod, port].refusal if (pod, port) in self._open else None

    def close(self) -> None:
        """Close all listeners and their streams."""
        for forward in self._open.values():
            forward.close()
        self._open.clear()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None


class Forward:
    """A listener."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        pod: str,
        port: int,
        listener: socket.socket,
        *,
        tls: bool = False,
    ) -> None:
        self._client, self._tls = client, tls
        self._pod = namespace, pod
        self._path = POD.path(namespace, pod, "portforward")
        self._remote = port
        self._sockets: set[Any] = set()
        self.refusal: MpctlError | None = None
        self._listener = listener
        self.target = ForwardTarget(f"http://{pod}:{port}", listener.getsockname())
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
        if self._tls:
            _bridge_tls(connection, socket.socket(fileno=os.dup(remote.fileno())))
        else:
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
        websocket: Any = import_module("websocket")
        ws_client: Any = import_module("kubernetes.stream.ws_client")
        configuration = self._client.configuration
        url = configuration.host.replace("http", "ws", 1) + f"{self._path}?ports={self._remote}"
        web_socket = websocket.WebSocket(
            sslopt=_ssl_options(configuration), skip_utf8_validation=True
        )
        try:
            web_socket.connect(
                url,
                timeout=_CONNECT_S,
                header=[*self._client.header_lines(), f"Sec-WebSocket-Protocol: {_PROTOCOL}"],
                redirect_limit=0,  # the headers hold the user's token
            )
        except websocket.WebSocketBadStatusException as error:
            body = error.resp_body or b""
            raise error_of(
                error.status_code, body, Call("create", POD, *self._pod, "portforward")
            ) from error
        except websocket.WebSocketException as error:
            raise MpctlError(
                f"port {self._remote} of pod {self._pod[1]} cannot be forwarded: {error}"
            ) from error
        web_socket.settimeout(None)
        return ws_client.PortForward(web_socket, [self._remote])

    def close(self) -> None:
        """Stop listening and end open streams."""
        with suppress(OSError):
            self._listener.shutdown(
                socket.SHUT_RDWR
            )  # a thread in accept() would keep a socket that is only closed
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


def _bridge_tls(plain: socket.socket, raw: socket.socket) -> None:
    """Pass on what both ends send until one of them ends; the second speaks TLS."""
    import asyncio

    async def passed_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(_CHUNK):
            target.write(data)
            await target.drain()

    async def bridge() -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        near, far = await asyncio.open_connection(sock=plain), None
        with suppress(OSError):
            far = await asyncio.open_connection(sock=raw, ssl=context, server_hostname="localhost")
            ways = [
                asyncio.create_task(passed_on(*way))
                for way in ((near[0], far[1]), (far[0], near[1]))
            ]
            _, unended = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in unended:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
        for end in (near, far):
            with suppress(OSError):
                if end is not None:
                    end[1].close()
                    await end[1].wait_closed()

    asyncio.run(bridge())


def _ssl_options(configuration: Any) -> Json:
    if not configuration.verify_ssl:
        options: Json = {"cert_reqs": ssl.CERT_NONE, "check_hostname": False}
    else:
        options = {"cert_reqs": ssl.CERT_REQUIRED}
        if configuration.ssl_ca_cert:
            options["ca_certs"] = configuration.ssl_ca_cert
    if configuration.cert_file:
        options |= {"certfile": configuration.cert_file, "keyfile": configuration.key_file}
    if configuration.tls_server_name:
        options["server_hostname"] = configuration.tls_server_name
    return options
