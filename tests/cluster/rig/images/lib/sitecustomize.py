"""A pod's loopback is its own: what listens there on a port of its choice listens on the pod's address, where the rig's
kubelet forwards to, and not where the same program of another pod would. A pod address that a pod connects to is where
that pod really listens, also for a program that uses no proxy."""

import _socket
import os
import socket


def bind(self, address):
    if isinstance(address, tuple) and address[0] in ("127.0.0.1", "localhost") and address[1]:
        address = (os.environ["RIG_ADDRESS"], *address[1:])
    return _socket.socket.bind(self, address)


def connect(self, address):
    if isinstance(address, tuple) and str(address[0]).startswith("100."):  # as processes.real
        address = ("127." + address[0].removeprefix("100."), *address[1:])
    return _socket.socket.connect(self, address)


socket.socket.bind = bind
socket.socket.connect = connect
