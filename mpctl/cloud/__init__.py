"""Clouds: reach a cluster (EKS by boto3, GKE by google-cloud-container)."""
