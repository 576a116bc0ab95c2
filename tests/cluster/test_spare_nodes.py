"""Spare GPU nodes of the stacks, by the real scheduler: an engine takes one, and its pod waits for another."""

from stacks.services.spare import spare_nodes

from .objects import CONTAINERS

NAME = "spare-gpu-node"


def test_an_engine_takes_the_node_of_a_spare_pod(cluster, namespace):
    priority, deployment = spare_nodes(2, namespace.name, "registry.k8s.io/pause:3.10")
    del deployment["spec"]["template"]["spec"][
        "nodeSelector"
    ]  # a label that the stacks' pools have
    cluster.client.apply(priority)
    try:
        namespace.client.apply(deployment)
        namespace.client.wait("both nodes are held", lambda: len(placed(namespace)) == 2, 60)
        namespace.deploy(CONTAINERS)
        (engine,) = namespace.pods()
        assert engine["spec"]["nodeName"]
        namespace.client.wait(
            "its spare pod is gone", lambda: engine["spec"]["nodeName"] not in placed(namespace), 30
        )
    finally:
        cluster.client.delete("priorityclasses", NAME)


def placed(namespace):
    """Nodes that spare pods hold."""
    pods = [p for p in namespace.client.list("pods") if "deletionTimestamp" not in p["metadata"]]
    mine = [
        p for p in pods if p["metadata"].get("labels", {}).get("app.kubernetes.io/name") == NAME
    ]
    return {p["spec"]["nodeName"] for p in mine if p["spec"].get("nodeName")}
