"""Services in a Kubernetes cluster, as KServe InferenceServices."""
