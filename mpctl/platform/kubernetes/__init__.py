"""Services that run in a Kubernetes cluster as KServe InferenceServices. docs/kubernetes.md tells how it works."""
