"""``mpctl`` inside a pod of the rig: the product as it is, with what a container would make different for it.

Its service account is where the rig's kubelet mounted it (``RIG_SERVICE_ACCOUNT``), it listens on the pod's address
(``RIG_ADDRESS``), and names of Services lead to the rig's proxy. Its process ids mean nothing outside its container: a
holder of a Lease that was killed in another container is dead only once its heartbeat stands still.
"""

import _socket
import os
import secrets
import socket
import sys
from pathlib import Path
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parents[5]))

from kubernetes.config import incluster_config

from mpctl.cli.main import run
from mpctl.platform.kubernetes import lease
from mpctl.platform.kubernetes.api import connection


def bind(self, address):
    """As on a pod's own interface."""
    if isinstance(address, tuple) and address[0] == "0.0.0.0":
        address = (os.environ["RIG_ADDRESS"], *address[1:])
    return _socket.socket.bind(self, address)


resolve = socket.getaddrinfo


def resolve_service(host, port, *more, **named):
    """As the cluster's DNS; the proxy finds the Service by the Host of a request."""
    if str(host).endswith(".svc.cluster.local"):
        proxy = urlsplit(os.environ["http_proxy"])
        host, port = proxy.hostname, proxy.port
    return resolve(host, port, *more, **named)


account = Path(os.environ["RIG_SERVICE_ACCOUNT"])
connection.SERVICE_ACCOUNT = account
incluster_config.SERVICE_TOKEN_FILENAME = str(account / "token")
incluster_config.SERVICE_CERT_FILENAME = str(account / "ca.crt")
socket.socket.bind = bind
socket.getaddrinfo = resolve_service
container = secrets.token_hex(8)
lease._boot_id = lambda: container
sys.exit(run(sys.argv[1:]))
