"""Target and draft into the pod: what a served model needs on disk, and the Kubernetes objects that put
it there.
"""

from mpctl.staging.documents import inference_service, service_documents
from mpctl.staging.values import Artifact, Service, read_service

__all__ = ["Artifact", "Service", "inference_service", "read_service", "service_documents"]
