"""Services that run in a Kubernetes cluster as KServe InferenceServices; see docs/how-to/kubernetes.md."""
