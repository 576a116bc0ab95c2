"""Sends requests to a load pod's agent through a port-forward of a user who does not know the operator's secret; prints
the statuses of the answers. A process, because a pod's end leaves streams open.

``python -m tests.cluster.forged_block KUBECONFIG NAMESPACE POD``
"""

import json
import sys

from mpctl.platform import http
from mpctl.platform.kubernetes.api.api_client import Client
from mpctl.platform.kubernetes.api.connection import connect
from mpctl.platform.kubernetes.api.port_forward import Forwards

kubeconfig, namespace, pod = sys.argv[1:]
BLOCK = {"arguments": [], "prompts": ["forged"], "token": None, "metrics": None, "held": False}
REQUESTS = (
    ("GET", "/ready"),
    ("POST", "/blocks/forged"),
    ("GET", "/blocks/forged"),
    ("DELETE", "/paced"),
)
forwards = Forwards(Client(connect(kubeconfig, None)), namespace)  # its sockets go with it
target = forwards.target(pod, 8765)


def status_of(method, path):
    body = BLOCK if method == "POST" else None
    return http.request(
        method, f"{target.url}{path}", json=body, socket=target.socket, decompressed=1000
    ).status


try:
    statuses = [status_of(*request) for request in REQUESTS]
except http.NoAnswer as error:  # it may still start
    sys.stderr.write(f"{error}\n")
    statuses = []
sys.stdout.write(json.dumps(statuses))
