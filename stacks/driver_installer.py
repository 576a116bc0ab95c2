"""The GPU driver on GKE nodes, where automatic installation is off because of DRA.

GKE preloads an installer image on Container-Optimized OS GPU nodes; a pod has to run it once after each
boot, privileged and with the host's devices and root. Paths and the image name are those of GKE's
documented manual installation (container-engine-accelerators, nvidia-driver-installer/cos). The pause
container keeps the pod, so that the state is visible.
"""

from __future__ import annotations

from typing import Any

INSTALL_DIR = "/home/kubernetes/bin/nvidia"
# name: path on the node, path in the installer
PATHS = {
    "dev": ("/dev", "/dev"),
    "install-dir": (INSTALL_DIR, "/usr/local/nvidia"),
    "vulkan-icd": (f"{INSTALL_DIR}/vulkan/icd.d", "/etc/vulkan/icd.d"),
    "root": ("/", "/root"),
    "cos-tools": ("/var/lib/cos-tools", "/build/cos-tools"),
}
ENVIRONMENT = {
    "NVIDIA_INSTALL_DIR_HOST": INSTALL_DIR,
    "NVIDIA_INSTALL_DIR_CONTAINER": "/usr/local/nvidia",
    "VULKAN_ICD_DIR_HOST": f"{INSTALL_DIR}/vulkan/icd.d",
    "VULKAN_ICD_DIR_CONTAINER": "/etc/vulkan/icd.d",
    "ROOT_MOUNT_DIR": "/root",
    "COS_TOOLS_DIR_HOST": "/var/lib/cos-tools",
    "COS_TOOLS_DIR_CONTAINER": "/build/cos-tools",
}


def daemonset(pause_image: str, driver: str) -> dict[str, Any]:
    """One installer on each GPU node, before the DRA driver, whatever taints the pool has.

    *driver* is what ``cos-gpu-installer --version`` takes: ``default``, ``latest`` or a version of the node's image.
    Without it the installer takes ``default``, which may be older than the engine's CUDA needs."""
    labels = {"app.kubernetes.io/name": "nvidia-driver-installer"}
    installer = {
        "name": "install",
        # Preloaded on the node under this very name, hence never pulled and without a digest.
        "image": "cos-nvidia-installer:fixed",
        "imagePullPolicy": "Never",
        "command": ["/cos-gpu-installer", "install", f"--version={driver}"],
        "securityContext": {"privileged": True},
        "env": [{"name": name, "value": value} for name, value in ENVIRONMENT.items()],
        "resources": {
            "requests": {"cpu": "150m", "memory": "256Mi"},
            "limits": {"cpu": "1", "memory": "1Gi"},
        },
        "volumeMounts": [
            {"name": name, "mountPath": inside} for name, (_, inside) in PATHS.items()
        ],
    }
    pause = {
        "name": "pause",
        "image": pause_image,
        "resources": {
            "requests": {"cpu": "10m", "memory": "8Mi"},
            "limits": {"cpu": "50m", "memory": "16Mi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "runAsUser": 65535,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    managed = {"key": "cloud.google.com/gke-gpu-driver-version", "operator": "DoesNotExist"}
    gpu = {"key": "cloud.google.com/gke-accelerator", "operator": "Exists"}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [gpu, managed]}]}
    spec = {
        "priorityClassName": "system-node-critical",
        "automountServiceAccountToken": False,
        "hostNetwork": True,
        "hostPID": True,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}},
        "tolerations": [{"operator": "Exists"}],
        "initContainers": [installer],
        "containers": [pause],
        "volumes": [
            {"name": name, "hostPath": {"path": host}} for name, (host, _) in PATHS.items()
        ],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {
            "name": "nvidia-driver-installer",
            "namespace": "kube-system",
            "labels": labels,
        },
        "spec": {
            "selector": {"matchLabels": labels},
            "updateStrategy": {"type": "RollingUpdate"},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
