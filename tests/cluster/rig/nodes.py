"""Nodes as the clouds make them, without machines: Ready, heartbeating, with L4s published as NVIDIA's driver does.

Labels and taints are those of EKS g6 and GKE g2 nodes. The DeviceClass is that of the driver's chart; attribute names
are from the driver's ``deviceinfo.go`` and its page "ResourceSlice device attributes"; an L4 reports 23034 MiB.
"""

from __future__ import annotations

import asyncio
import datetime
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import aiohttp

from .api import STRATEGIC, Api, ApiError
from .processes import Slot

HEARTBEAT_S = 10.0
DRIVER = "gpu.nvidia.com"
KUBELET_PORT = 10250


@dataclass(frozen=True)
class Machine:
    """One node. ``gpus`` L4s; ``pods`` at most; labels and taints beside the usual ones."""

    gpus: int = 1
    cpu: str = "8"
    memory: str = "30Gi"
    cloud: str = "gke"
    type: str = "g2-standard-8"
    labels: dict[str, str] = field(default_factory=dict)
    taints: tuple[dict[str, str], ...] = ()
    name: str | None = None

    def with_gpus(self, gpus: int) -> Machine:
        """The same with another number of GPUs."""
        return replace(self, gpus=gpus)


L4 = Machine()
L4_EKS = Machine(cloud="eks", type="g6.2xlarge", memory="29Gi")
CPU = Machine(gpus=0, type="e2-standard-8")
GPU_TAINT = {
    "key": "nvidia.com/gpu",
    "value": "present",
    "effect": "NoSchedule",
}  # what GKE puts on GPU nodes


class Nodes:
    """The nodes of a cluster; :meth:`add` and :meth:`remove` at any time."""

    def __init__(self, api: Api, slot: Slot) -> None:
        self._api, self._slot = api, slot
        self.numbers: dict[str, int] = {}
        self._beat: asyncio.Task[None] | None = None
        self.added: Callable[[str], Awaitable[None]] | None = None  # told of every new node

    async def add(self, machine: Machine = L4) -> str:
        """Register a node with its GPUs; its name."""
        number = max(self.numbers.values(), default=0) + 1
        name = machine.name or f"l4-{number}" if machine.gpus else machine.name or f"cpu-{number}"
        await self._api.apply(self._node(name, number, machine))
        self.numbers[name] = number
        await self._ready(name, machine)
        await self._renew(name)
        if machine.gpus:
            await self._api.apply(DEVICE_CLASS)
            await self._api.apply(resource_slice(name, machine.gpus))
        if self.added:
            await self.added(name)
        if self._beat is None:
            self._beat = asyncio.create_task(self._heartbeat())
        return name

    async def remove(self, name: str) -> None:
        """Delete a node and its slices."""
        self.numbers.pop(name, None)
        await self._api.delete("resourceslices", f"{name}-{DRIVER}")
        await self._api.delete("nodes", name)

    async def set_gpus(self, name: str, gpus: int) -> None:
        """Publish another set of devices under the pool's next generation, as the driver does when one fails."""
        now = await self._api.get("resourceslices", f"{name}-{DRIVER}")
        await self._api.apply(resource_slice(name, gpus, now["spec"]["pool"]["generation"] + 1))

    async def stop(self) -> None:
        """End the heartbeat."""
        if self._beat:
            self._beat.cancel()
            await asyncio.gather(self._beat, return_exceptions=True)

    def address(self, name: str) -> str:
        """Where a node's kubelet is."""
        return self._slot.node(self.numbers[name])

    async def _heartbeat(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            for name in list(self.numbers):
                try:
                    await self._renew(name)
                except (ApiError, aiohttp.ClientError):  # the next beat comes
                    continue

    async def _renew(self, name: str) -> None:
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": name, "namespace": "kube-node-lease"},
            "spec": {
                "holderIdentity": name,
                "leaseDurationSeconds": 40,
                "renewTime": _now(micro=True),
            },
        }
        await self._api.apply(lease, manager="kubelet")

    async def _ready(self, name: str, machine: Machine) -> None:
        size = {
            "cpu": machine.cpu,
            "memory": machine.memory,
            "pods": "110",
            "ephemeral-storage": "200Gi",
        }
        system = (
            ("architecture", "amd64"),
            ("operatingSystem", "linux"),
            ("kubeletVersion", "v1.36.4"),
        )
        blank = [
            "kernelVersion",
            "bootID",
            "machineID",
            "systemUUID",
            "osImage",
            "containerRuntimeVersion",
            "kubeProxyVersion",
        ]
        conditions = [("Ready", "True", "KubeletReady", "kubelet is posting ready status")]
        conditions += [
            (f"{what}Pressure", "False", f"KubeletHasSufficient{what}", "enough")
            for what in ("Memory", "Disk", "PID")
        ]
        status = {
            "capacity": size,
            "allocatable": size,
            "addresses": [
                {"type": "InternalIP", "address": self._slot.node(self.numbers[name])},
                {"type": "Hostname", "address": name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": KUBELET_PORT}},
            "nodeInfo": {**dict(system), **dict.fromkeys(blank, "")},
            "conditions": [
                {
                    "type": t,
                    "status": s,
                    "reason": r,
                    "message": m,
                    "lastHeartbeatTime": _now(),
                    "lastTransitionTime": _now(),
                }
                for t, s, r, m in conditions
            ],
        }
        await self._api.patch(
            "nodes", name, {"status": status}, subresource="status", content=STRATEGIC
        )

    def _node(self, name: str, number: int, machine: Machine) -> dict[str, Any]:
        gpu = machine.gpus > 0
        actual_field = {
            "gke": {
                "cloud.google.com/gke-accelerator": "nvidia-l4",
                "cloud.google.com/gke-nodepool": "l4",
            },
            "eks": {
                "eks.amazonaws.com/nodegroup": "l4",
                "eks.amazonaws.com/capacityType": "ON_DEMAND",
            },
        }[machine.cloud]
        zone = {"gke": "us-central1-a", "eks": "us-west-2a"}[machine.cloud]
        labels = {
            "kubernetes.io/hostname": name,
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/os": "linux",
            "node.kubernetes.io/instance-type": machine.type,
            "topology.kubernetes.io/zone": zone,
            "topology.kubernetes.io/region": zone.rpartition("-")[0]
            if machine.cloud == "gke"
            else zone[:-1],
            **(actual_field if gpu else {}),
            **machine.labels,
        }
        provider = (
            f"gce://rig/{zone}/{name}"
            if machine.cloud == "gke"
            else f"aws:///{zone}/i-{number:017x}"
        )
        pods = f"{self._slot.pod(number, 0)}/24"
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "podCIDR": pods,
                "podCIDRs": [pods],
                "providerID": provider,
                "taints": list(machine.taints),
            },
        }


DEVICE_CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": DRIVER},
    "spec": {
        "selectors": [
            {
                "cel": {
                    "expression": f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'gpu'"
                }
            }
        ],
        "extendedResourceName": "nvidia.com/gpu",
    },
}


def resource_slice(node: str, gpus: int, generation: int = 1) -> dict[str, Any]:
    """What the driver publishes for a node with so many L4s."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-{DRIVER}"},
        "spec": {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": generation, "resourceSliceCount": 1},
            "devices": [_l4(node, minor) for minor in range(gpus)],
        },
    }


def _l4(node: str, minor: int) -> dict[str, Any]:
    return {
        "name": f"gpu-{minor}",
        "attributes": {
            "type": {"string": "gpu"},
            "uuid": {"string": f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{node}/{minor}')}"},
            "productName": {"string": "NVIDIA L4"},
            "brand": {"string": "Nvidia"},
            "architecture": {"string": "Ada Lovelace"},
            "cudaComputeCapability": {"version": "8.9.0"},
            "driverVersion": {"version": "580.126.20"},
            "cudaDriverVersion": {"version": "13.0.0"},
            "addressingMode": {"string": "HMM"},
            "resource.kubernetes.io/pciBusID": {"string": f"0000:00:{minor + 3:02x}.0"},
            "resource.kubernetes.io/pcieRoot": {"string": "pci0000:00"},
        },
        "capacity": {"memory": {"value": "23034Mi"}},
    }


def _now(*, micro: bool = False) -> str:
    now = datetime.datetime.now(datetime.UTC)
    return now.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")
