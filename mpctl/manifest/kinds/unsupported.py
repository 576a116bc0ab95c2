"""Kinds that serve vLLM and are not read, each with what can be done instead."""

from __future__ import annotations

_VALUES = "edit the setting where the operator takes engine arguments"
_RAY = "vLLM is started by the Python code of Ray Serve; set speculative_config there"

_SHARED = "it is shared by services; put the setting into the InferenceService, or name --shared-runtime"

UNSUPPORTED = {
    "ServingRuntime": _SHARED,
    "ClusterServingRuntime": _SHARED,
    "DynamoGraphDeployment": "its workers take the setting in extraPodSpec.mainContainer.args; change it there",
    "RayService": _RAY,
    "RayCluster": _RAY,
    "RayJob": _RAY,
    "Workspace": "KAITO takes vLLM's arguments from a ConfigMap (inference.config); change them there",
    "Model": f"{_VALUES} (KubeAI: spec.args), or render its Helm values with --values",
    "VLLMRuntime": f"{_VALUES} (spec.vllmConfig.extraArgs)",
    "StormService": f"{_VALUES} (spec.template.spec.roles)",
    "RoleBasedGroup": f"{_VALUES} (spec.roles)",
    "Playground": f"{_VALUES} (spec.backendRuntimeConfig.args)",
    "BackendRuntime": "its arguments are shared by every service that uses it; change them there",
    "TrainedModel": "it only loads a model into an InferenceService; change the InferenceService",
    "InferenceGraph": "it only routes to InferenceServices; change those",
    "InferencePool": "it only selects pods; change the workload that makes them",
    "Pod": "a Pod cannot be changed in place; put it into a Deployment",
    "ReplicaSet": "change the Deployment that makes it",
    "Job": "a Job serves no traffic",
    "DaemonSet": "one engine per node cannot be measured side by side; change its arguments by hand",
    "HelmRelease": "render its values with --values and --chart-key",
    "Application": "change the manifests or the Helm values of its source",
    "Template": "process the OpenShift Template first",
    "Kustomization": "build it first",
}
