"""The owner of a listener on this machine's loopback, as the kernel knows it. Imports nothing of mpctl.

The port of an engine is in its command line, which every user of the machine can read, and it is free while the engine
starts and after a crash: another user may listen there first. So nothing is sent to a port before the kernel says that
its listener belongs to this user, and that it was the same one before and after the connection was opened.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from pathlib import Path

_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, _LISTEN = 4, 20, 1, 10
_NLMSG_ERROR = 2
_ANSWER_S = 1.0
_LISTENS = f"{_LISTEN:02X}"  # proc_pid_net(5)
# Addresses that a connection to 127.0.0.1 reaches, the most specific first.
_LOOPBACK = "0100007F"
_REACHED = (
    ("tcp", _LOOPBACK),
    ("tcp6", f"0000000000000000FFFF0000{_LOOPBACK}"),
    ("tcp", "00000000"),
    ("tcp6", "0" * 32),
)


class NotThisUser(ConnectionRefusedError):
    """The listener of a port is not, or no longer, a process of this user."""


def listener_of(port: int) -> tuple[int, str] | None:
    """Return user id and inode of the socket that answers at 127.0.0.1:``port``; None where nothing does."""
    try:
        return _asked(port)
    except OSError:
        return _listed(port)


def _asked(port: int) -> tuple[int, str] | None:
    """The socket that the kernel would give a new connection to, by sock_diag(7), which takes 20 microseconds however
    many sockets there are; None where it knows none.

    Raises:
        OSError: the kernel does not offer it.
    """
    here = socket.inet_aton("127.0.0.1").ljust(16, b"\0")
    identity = (
        struct.pack("!HH", port, 0) + here + here + struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)
    )
    request = struct.pack("=BBBBI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF) + identity
    header = struct.pack("=IHHII", 16 + len(request), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
        kernel.settimeout(_ANSWER_S)
        kernel.send(header + request)
        answer = kernel.recv(4096)
    (kind,) = struct.unpack_from("=H", answer, 4)
    if kind == _NLMSG_ERROR and struct.unpack_from("=i", answer, 16) == (-errno.ENOENT,):
        return None
    if len(answer) < 16 + 72 or kind != _SOCK_DIAG_BY_FAMILY:
        raise OSError("the kernel does not offer sock_diag(7)")
    user, inode = struct.unpack_from("=II", answer, 16 + 64)
    return (user, str(inode)) if answer[17] == _LISTEN else None


def _listed(port: int) -> tuple[int, str] | None:
    tables = {name: _listeners(name, port) for name in ("tcp", "tcp6")}
    return next(
        (tables[name][address] for name, address in _REACHED if address in tables[name]), None
    )


def _listeners(table: str, port: int) -> dict[str, tuple[int, str]]:
    suffix = f":{port:04X}"
    try:
        lines = Path(f"/proc/net/{table}").read_text().splitlines()[1:]
    except OSError:
        return {}
    rows = (line.split() for line in lines if suffix in line)
    return {
        row[1].removesuffix(suffix): (int(row[7]), row[9])
        for row in rows
        if row[1].endswith(suffix) and row[3] == _LISTENS
    }


def require_this_user(port: int, before: str | None = None) -> str:
    """Return the inode of the listener at 127.0.0.1:``port``. ``before``: the one that it must still be.

    Raises:
        NotThisUser: it belongs to another user, is another one, or there is none.
    """
    listener = listener_of(port)
    if listener is None:
        raise NotThisUser(f"nothing listens on 127.0.0.1:{port}")
    user, inode = listener
    if user != os.geteuid():
        raise NotThisUser(f"127.0.0.1:{port} is listened on by another user (uid {user})")
    if before not in (None, inode):
        raise NotThisUser(f"the listener on 127.0.0.1:{port} changed while a connection was opened")
    return inode
