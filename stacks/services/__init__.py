"""Services of an environment: read from its settings, and the Kubernetes objects that must exist beside them."""

from stacks.services.objects import inference_service, service_documents
from stacks.services.values import Artifact, Service, read_service

__all__ = ["Artifact", "Service", "inference_service", "read_service", "service_documents"]
