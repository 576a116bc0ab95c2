"""A real Kubernetes control plane with real KServe, as plain processes on loopback, with nodes and kubelets of our own.

:class:`rig.cluster.Cluster` is the door. Real: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, KServe's
manager with its webhooks, every object definition. Ours: the nodes, the kubelets (``pods``, ``kubelet``), the gateway's
data plane (``gateway``), the metrics adapter (``metrics_api``), and the proxy that injects faults (``proxy``).
"""
