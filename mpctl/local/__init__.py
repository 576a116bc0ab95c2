"""Services as real ``vllm serve`` processes on this machine: no cluster, no cloud account."""
