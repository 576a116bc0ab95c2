"""Warm GPU nodes: pods that hold a node for the next replica, and leave it when a service needs it.

A replica that needs a new node starts after 10 to 14 minutes, longer than any target of the autoscaler allows for. A
spare pod asks for no GPU: the scheduler preempts no pod for its claim. It keeps away from engines and from its like
instead, so each has a node of its own, for which the cluster's autoscaler makes one. An engine outranks it, so the
scheduler removes it from the node, and the autoscaler makes the next.
"""

from __future__ import annotations

from stacks.services.documents import CONTAINER_SECURITY, named
from stacks.services.objects import GPU_TAINT, POD_SECURITY, Document

NAME = "spare-gpu-node"
ENGINE = "predictor"  # KServe's label "component" on the pods of engines
# Below every pod without a class, above what cluster-autoscaler takes for expendable (its default: below -10).
PRIORITY = -5


def spare_nodes(count: int, namespace: str, image: str) -> list[Document]:
    """Return the priority and the pods; none for *count* 0."""
    if not count:
        return []
    labels = {"app.kubernetes.io/name": NAME}
    # One term: after a preemption, the scheduler tries a pod again at once only if the pod matches every term of the
    # removed pod (kubernetes 1.36, interpodaffinity.isSchedulableAfterPodChange). Otherwise it waits for 5 minutes.
    engines_and_spares = {
        "matchExpressions": [{"key": "component", "operator": "In", "values": [ENGINE, NAME]}]
    }
    apart = [{"topologyKey": "kubernetes.io/hostname", "labelSelector": engines_and_spares}]
    pod: Document = {
        "priorityClassName": NAME,
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "nodeSelector": {"nvidia.com/gpu.present": "true"},
        "tolerations": [GPU_TAINT],
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": apart}},
        "securityContext": POD_SECURITY,
        "containers": [
            {
                "name": "pause",
                "image": image,
                "resources": {
                    "requests": {"cpu": "10m", "memory": "16Mi"},
                    "limits": {"memory": "16Mi"},
                },
                "securityContext": CONTAINER_SECURITY,
            }
        ],
    }
    spec = {"replicas": count, "selector": {"matchLabels": labels}}
    spec["template"] = {"metadata": {"labels": {**labels, "component": NAME}}, "spec": pod}
    priority = named(
        "PriorityClass",
        "scheduling.k8s.io/v1",
        NAME,
        None,
        value=PRIORITY,
        preemptionPolicy="Never",
    )
    return [priority, named("Deployment", "apps/v1", NAME, namespace, spec=spec)]
