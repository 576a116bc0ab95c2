"""Where alerts and metrics go, and how much Prometheus keeps."""

from __future__ import annotations

from dataclasses import dataclass

from mpctl.yaml_lines import Node

SECRET = {"pattern": r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", "what": "the name of a Secret"}


@dataclass(frozen=True)
class RemoteWrite:
    """A store that gets every sample; ``token_secret``: a Secret in the namespace monitoring with the key ``token``."""

    url: str
    token_secret: str | None


@dataclass(frozen=True)
class Monitoring:
    """``alertmanager_secret``: a Secret in the namespace monitoring with ``alertmanager.yaml``; without it no alert
    reaches anybody. ``storage_gb``: Prometheus' disk, whose last tenth it leaves free. ``logs``: on EKS the engines'
    logs go to CloudWatch.
    """

    alertmanager_secret: str | None
    storage_gb: int
    remote_write: tuple[RemoteWrite, ...]
    logs: bool


def read_monitoring(node: Node) -> Monitoring:
    """``monitoring`` of an environment, without its ``runbooks``."""
    stores = []
    for store in node.nodes("remote_write"):
        url = store.text("url", pattern=r"https?://\S+", what="an address")
        stores.append(RemoteWrite(url, store.maybe("token_secret", **SECRET)))
        store.done()
    return Monitoring(
        node.maybe("alertmanager_secret", **SECRET),
        node.number("storage_gb", 50, low=10, high=16_000),
        tuple(stores),
        node.value("logs", bool, False),
    )
