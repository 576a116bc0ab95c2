"""EKS: network, cluster, node pools, identities."""
