"""LeaderWorkerSet (``leaderworkerset.x-k8s.io/v1``): one engine over the pods of a group.

The leader's arguments are in ``leaderWorkerTemplate.leaderTemplate``; without one every pod of a group is made from
``workerTemplate``. Workers that only join a Ray cluster have no arguments of vLLM. Where the workers start vLLM
themselves, they need the same setting as the leader, so both are edited together. A change is rolled group by group,
by ``rolloutStrategy``, and undone by writing the recorded templates again.
"""

from __future__ import annotations

from mpctl.manifest.engine.locate import locate
from mpctl.manifest.kinds.adapter import Adapter, ManifestFile
from mpctl.manifest.kinds.containers import only_engine, service_of_pod, starts_vllm
from mpctl.manifest.service import Place, Service
from mpctl.manifest.text.view import View

API = "leaderworkerset.x-k8s.io/v1"


def read(root: View, file: ManifestFile, place: Place) -> Service:
    """The service of a LeaderWorkerSet.

    Raises:
        InputError: several containers of a pod start vLLM, or a command cannot be read.
    """
    template = root.need("spec").need("leaderWorkerTemplate")
    workers = template.need("workerTemplate").need("spec")
    leader = template.at("leaderTemplate", "spec")
    if leader is None:
        return service_of_pod(
            "LeaderWorkerSet", root, file.text, place, workers, only_engine(workers, "workerTemplate")
        )
    peers = (locate(only_engine(workers, "workerTemplate")),) if _starts(workers) else ()
    container = only_engine(leader, "leaderTemplate")
    return service_of_pod("LeaderWorkerSet", root, file.text, place, leader, container, peers=peers)


def serves(root: View) -> bool:
    """Return whether the leader, or without one the worker, starts vLLM."""
    template = root.at("spec", "leaderWorkerTemplate")
    pod = None if template is None else template.at("leaderTemplate", "spec") or template.at("workerTemplate", "spec")
    return pod is not None and _starts(pod)


def _starts(pod: View) -> bool:
    containers = pod.get("containers")
    return containers is not None and any(starts_vllm(container) for container in containers.items())


LEADER_WORKER_SET = Adapter("LeaderWorkerSet", (API,), read, serves)
