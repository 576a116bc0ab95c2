"""A pod's loopback is its own: what listens there on a port of its choice listens on the pod's address, where the rig's
kubelet forwards to, and not where the same program of another pod would."""

import _socket
import os
import socket


def bind(self, address):
    if isinstance(address, tuple) and address[0] in ("127.0.0.1", "localhost") and address[1]:
        address = (os.environ["RIG_ADDRESS"], *address[1:])
    return _socket.socket.bind(self, address)


socket.socket.bind = bind
