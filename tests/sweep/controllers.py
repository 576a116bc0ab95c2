"""The controllers of a cluster in memory: KServe in Standard mode, Deployments, Jobs, a gateway, the garbage collector.

A turn of :meth:`Controllers.turn` takes each object one stage further, so that a change of a service passes the stages
that a command waits for: the Deployment is written, observed, a pod is made, is ready, and the old one ends.

Left out: scheduling (every pod gets a node), images, failures of pods, ReplicaSets (a pod belongs to its Deployment),
Services and KServe's own HTTPRoutes, KServe's defaults and runtimes, an HPA that scales, Jobs that lose a pod.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from mpctl.platform.kubernetes.api.kinds import DEPLOYMENT, HTTP_ROUTE, INFERENCE_SERVICE, JOB, POD
from tests.sweep.api_server import FOREGROUND, KINDS, ApiServer, Json

ISVC_LABEL = "serving.kserve.io/inferenceservice"
HASH_LABEL = "pod-template-hash"
_KINDS_BY_NAME = {kind.name: kind for kind in KINDS.values()}


class Controllers:
    """``unserved``: moments at which a service that had a ready pod had none."""

    def __init__(self, server: ApiServer):
        self._server = server
        self._served = False
        self._quiet_at = -1  # the number of changes after a turn that changed nothing
        self.unserved = 0

    def turn(self) -> None:
        """Let every controller act once; those at the end of a chain first."""
        before = len(self._server.changes)
        if before == self._quiet_at:
            return
        self._collect()
        self._pods()
        for job in self._server.of(JOB):
            self._job(job)
        for deployment in self._server.of(DEPLOYMENT):
            self._deployment(deployment)
        for service in self._server.of(INFERENCE_SERVICE):
            self._service(service)
        for route in self._server.of(HTTP_ROUTE):
            self._route(route)
        ready = [pod for pod in self.pods(f"{ISVC_LABEL}=demo") if is_ready(pod)]
        self.unserved += self._served and not ready
        self._served = self._served or bool(ready)
        self._quiet_at = before if before == len(self._server.changes) else -1

    def settle(self) -> None:
        """Let them act until nothing changes."""
        before = -1
        while before != len(self._server.changes):
            before = len(self._server.changes)
            self.turn()

    def end_idle_jobs(self) -> None:
        """End the load Jobs that no command asks any more: their agent ends, and the time to live deletes them."""
        for job in self._server.of(JOB):
            if "ttlSecondsAfterFinished" in job["spec"]:
                self._server.remove(JOB, job["metadata"]["name"])
        self.settle()

    def pods(self, selector: str) -> list[Json]:
        """Pods with a label that do not end."""
        name, _, value = selector.partition("=")
        every = [
            pod
            for pod in self._server.of(POD)
            if (pod["metadata"].get("labels") or {}).get(name) == value
        ]
        return [pod for pod in every if "deletionTimestamp" not in pod["metadata"]]

    # The garbage collector

    def _collect(self) -> None:
        server = self._server
        uids = {item["metadata"]["uid"] for item in server.objects.values()}
        for (kind, name), item in list(server.objects.items()):
            owners = item["metadata"].get("ownerReferences") or []
            ended = "deletionTimestamp" in item["metadata"]
            # An owner of a kind that the cluster does not know is never found absent.
            orphaned = owners and not any(
                o["uid"] in uids or o["kind"] not in _KINDS_BY_NAME for o in owners
            )
            foreground = ended and FOREGROUND in item["metadata"]["finalizers"]
            dependents = self._dependents(item["metadata"]["uid"]) if foreground else []
            for dependent in dependents:
                self._end(dependent)
            if orphaned and not ended:
                self._end(item)
            elif ended and not dependents:
                server.remove(_KINDS_BY_NAME[kind], name)

    def _dependents(self, uid: str) -> list[Json]:
        owned = (
            item["metadata"].get("ownerReferences") or [] for item in self._server.objects.values()
        )
        pairs = zip(self._server.objects.values(), owned, strict=True)
        return [item for item, owners in pairs if any(owner["uid"] == uid for owner in owners)]

    def _end(self, item: Json) -> None:
        finalizers = [] if item["kind"] == POD.name else [FOREGROUND]
        self._server.mark_deleted(
            _KINDS_BY_NAME[item["kind"]], item["metadata"]["name"], finalizers
        )

    # Pods

    def _pods(self) -> None:
        for pod in self._server.of(POD):
            if not is_ready(pod) and "deletionTimestamp" not in pod["metadata"]:
                pod["status"] |= {
                    "phase": "Running",
                    "conditions": [_true("PodScheduled"), _true("Ready")],
                }
                self._server.put(POD, pod, "kubelet")

    def _start(self, name: str, template: Json, owner: Json, labels: dict[str, str]) -> None:
        metadata = {
            **(template.get("metadata") or {}),
            "name": name,
            "ownerReferences": [_reference(owner)],
        }
        metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
        address = f"10.0.{len(self._server.changes) // 250}.{len(self._server.changes) % 250 + 1}"
        status = {"phase": "Pending", "podIP": address, "conditions": [_true("PodScheduled")]}
        spec = {**template["spec"], "nodeName": "gpu-1"}
        self._server.put(
            POD, {"metadata": metadata, "spec": spec, "status": status}, "kube-controller-manager"
        )

    def _job(self, job: Json) -> None:
        if "deletionTimestamp" in job["metadata"]:
            return
        if not self.pods(f"batch.kubernetes.io/controller-uid={job['metadata']['uid']}"):
            for index in range(job["spec"].get("parallelism") or 1):
                labels = {"batch.kubernetes.io/job-completion-index": str(index)}
                self._start(
                    f"{job['metadata']['name']}-{index}", job["spec"]["template"], job, labels
                )

    def _deployment(self, deployment: Json) -> None:
        metadata, spec = deployment["metadata"], deployment["spec"]
        if "deletionTimestamp" in metadata:
            return
        digest = hashlib.sha256(json.dumps(spec["template"], sort_keys=True).encode()).hexdigest()[
            :8
        ]
        selector = next(iter(spec["selector"]["matchLabels"].items()))
        alive = self.pods("=".join(selector))
        new = [pod for pod in alive if pod["metadata"]["labels"][HASH_LABEL] == digest]
        old = [pod for pod in alive if pod not in new]
        rolling = (spec.get("strategy") or {}).get("rollingUpdate") or {}
        surge, unavailable = (_whole(rolling.get(key), default) for key, default in _LIMITS)
        wanted, ready = int(spec.get("replicas", 1)), sum(map(is_ready, alive))
        for pod in sorted(old, key=is_ready) + new[wanted:]:
            if not is_ready(pod) or ready > wanted - unavailable:
                ready -= is_ready(pod)
                self._server.mark_deleted(POD, pod["metadata"]["name"])
        for number in range(len(new), min(wanted, wanted + surge - len(old))):
            name = f"{metadata['name']}-{digest}-{len(self._server.changes)}{number}"
            self._start(name, spec["template"], deployment, {HASH_LABEL: digest})
        alive = self.pods("=".join(selector))
        updated = [pod for pod in alive if pod["metadata"]["labels"][HASH_LABEL] == digest]
        counts = {"replicas": len(alive), "updatedReplicas": len(updated)}
        available = dict.fromkeys(("readyReplicas", "availableReplicas"), sum(map(is_ready, alive)))
        status = {"observedGeneration": metadata["generation"], **counts, **available}
        self._server.put(DEPLOYMENT, {**deployment, "status": status}, "kube-controller-manager")

    # KServe and the gateway

    def _service(self, service: Json) -> None:
        metadata, predictor = service["metadata"], service["spec"]["predictor"]
        if "deletionTimestamp" in metadata:
            return
        name = f"{metadata['name']}-predictor"
        present = self._server.find(DEPLOYMENT, name)
        minimum = int(predictor.get("minReplicas") or 1)
        replicas = max(present["spec"]["replicas"], minimum) if present else minimum
        labels = {ISVC_LABEL: metadata["name"], "app": f"isvc.{name}"}
        template = {"metadata": {"labels": labels}, "spec": {"containers": predictor["containers"]}}
        spec = {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": labels["app"]}},
            "template": template,
        }
        if "deploymentStrategy" in predictor:
            spec["strategy"] = predictor["deploymentStrategy"]
        body = {
            **(present or {"metadata": {"name": name, "ownerReferences": [_reference(service)]}}),
            "spec": spec,
        }
        self._server.put(DEPLOYMENT, body, "manager")
        url = f"http://{metadata['name']}.example.com"
        status = {
            "url": url,
            "observedGeneration": metadata["generation"],
            "conditions": [_true("Ready")],
        }
        self._server.put(INFERENCE_SERVICE, {**service, "status": status}, "manager")

    def _route(self, route: Json) -> None:
        generation = route["metadata"]["generation"]
        conditions = [
            {**_true(kind), "observedGeneration": generation}
            for kind in ("Accepted", "ResolvedRefs")
        ]
        parents = [
            {"parentRef": parent, "conditions": conditions}
            for parent in route["spec"]["parentRefs"]
        ]
        self._server.put(HTTP_ROUTE, {**route, "status": {"parents": parents}}, "gateway")


_LIMITS = (("maxSurge", 1), ("maxUnavailable", 0))


def _whole(value: Any, default: int) -> int:
    return value if isinstance(value, int) else default


def is_ready(pod: Json) -> bool:
    """Whether a pod's condition Ready holds."""
    return any(
        item["type"] == "Ready" and item["status"] == "True"
        for item in pod["status"].get("conditions") or ()
    )


def _true(kind: str) -> Json:
    return {"type": kind, "status": "True"}


def _reference(owner: Json) -> Json:
    named = {key: owner["metadata"][key] for key in ("name", "uid")}
    return {"apiVersion": owner["apiVersion"], "kind": owner["kind"], **named, "controller": True}
