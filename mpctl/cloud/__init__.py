"""Clouds: reach a cluster (EKS by boto3, GKE by google-cloud-container).

Client libraries are imported inside functions: `mpctl --help` must not pay for them.
"""
