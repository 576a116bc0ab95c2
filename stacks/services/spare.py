"""Warm GPU nodes: pods that hold a node for the next replica, and leave it when a service needs it.

A replica that needs a new node starts after 10 to 14 minutes, longer than any target of the autoscaler allows for. A
spare pod asks for no GPU: the scheduler preempts no pod for its claim. It keeps away from engines and from its like
instead, so each has a node of its own, for which the cluster's autoscaler makes one. An engine outranks it, so the
scheduler removes it from the node, and the autoscaler makes the next.
"""

from __future__ import annotations

from stacks.services.documents import Document, written


def spare_nodes(count: int, namespace: str, image: str) -> list[Document]:
    """Return the priority and the pods; none for *count* 0."""
    if not count:
        return []
    pods = written("spare_pods", count=count, namespace=namespace, image=image)
    return [written("spare_priority"), pods]
