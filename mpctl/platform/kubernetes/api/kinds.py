"""The kinds of objects mpctl touches, and where the API server keeps them.

One table: the client makes paths from it, and the roles that ``mpctl rbac`` prints name the same groups and resources.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote


@dataclass(frozen=True)
class ObjectKind:
    """``plural`` is the resource's name in a path; ``group`` is empty for the core group."""

    group: str
    version: str
    name: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """``group/version``, or the version alone for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """``plural.group``, as kubectl and RBAC messages name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(
        self, namespace: str | None = None, name: str | None = None, subresource: str | None = None
    ) -> str:
        """The path of one object, or of the list when ``name`` is None; of all namespaces without ``namespace``."""
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if self.namespaced and namespace is not None:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        parts += [part for part in (name, subresource) if part is not None]
        return "/" + "/".join(quote(part, safe="") for part in parts)


SERVING = "serving.kserve.io"

INFERENCE_SERVICE = ObjectKind(SERVING, "v1beta1", "InferenceService", "inferenceservices")
LLM_INFERENCE_SERVICE = ObjectKind(
    SERVING, "v1alpha2", "LLMInferenceService", "llminferenceservices"
)
LLM_CONFIG = ObjectKind(
    SERVING, "v1alpha2", "LLMInferenceServiceConfig", "llminferenceserviceconfigs"
)
SERVING_RUNTIME = ObjectKind(SERVING, "v1alpha1", "ServingRuntime", "servingruntimes")
CLUSTER_SERVING_RUNTIME = ObjectKind(
    SERVING, "v1alpha1", "ClusterServingRuntime", "clusterservingruntimes", namespaced=False
)
LEADER_WORKER_SET = ObjectKind(
    "leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets"
)
VLLM_RUNTIME = ObjectKind("production-stack.vllm.ai", "v1alpha1", "VLLMRuntime", "vllmruntimes")
STATEFUL_SET = ObjectKind("apps", "v1", "StatefulSet", "statefulsets")
DEPLOYMENT = ObjectKind("apps", "v1", "Deployment", "deployments")
CONTROLLER_REVISION = ObjectKind("apps", "v1", "ControllerRevision", "controllerrevisions")
POD = ObjectKind("", "v1", "Pod", "pods")
EVENT = ObjectKind("", "v1", "Event", "events")
NAMESPACE = ObjectKind("", "v1", "Namespace", "namespaces", namespaced=False)
CONFIG_MAP = ObjectKind("", "v1", "ConfigMap", "configmaps")
CLAIM = ObjectKind("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")
SECRET = ObjectKind("", "v1", "Secret", "secrets")
RESOURCE_QUOTA = ObjectKind("", "v1", "ResourceQuota", "resourcequotas")
LIMIT_RANGE = ObjectKind("", "v1", "LimitRange", "limitranges")
NODE = ObjectKind("", "v1", "Node", "nodes", namespaced=False)
SPECULATION_STATUS = ObjectKind("mpctl.dev", "v1alpha1", "SpeculationStatus", "speculationstatuses")
LEASE = ObjectKind("coordination.k8s.io", "v1", "Lease", "leases")
HPA = ObjectKind("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers")
SCALED_OBJECT = ObjectKind("keda.sh", "v1alpha1", "ScaledObject", "scaledobjects")
DISRUPTION_BUDGET = ObjectKind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets")
SERVICE = ObjectKind("", "v1", "Service", "services")
JOB = ObjectKind("batch", "v1", "Job", "jobs")
HTTP_ROUTE = ObjectKind("gateway.networking.k8s.io", "v1", "HTTPRoute", "httproutes")
GATEWAY = ObjectKind("gateway.networking.k8s.io", "v1", "Gateway", "gateways")
GATEWAY_CLASS = ObjectKind(
    "gateway.networking.k8s.io", "v1", "GatewayClass", "gatewayclasses", namespaced=False
)
RESOURCE_CLAIM = ObjectKind("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims")
RESOURCE_CLAIM_TEMPLATE = ObjectKind(
    "resource.k8s.io", "v1", "ResourceClaimTemplate", "resourceclaimtemplates"
)
RESOURCE_SLICE = ObjectKind(
    "resource.k8s.io", "v1", "ResourceSlice", "resourceslices", namespaced=False
)
