"""GKE: network, cluster, node pools, identities."""
