"""A service's object with what its controller made of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from mpctl.json_fields import name_of
from mpctl.json_types import Json
from mpctl.platform.kubernetes.service.conditions import cold_start_s, is_ready
from mpctl.platform.kubernetes.service.container import engine_container


@dataclass(frozen=True)
class ServiceWorkload:
    """An arm's service object with its Deployment (or the StatefulSet of its leaders), pods and ServingRuntime or
    configs (None without one)."""

    isvc: Json
    deployment: Json | None
    pods: list[Json] = field(default_factory=list)
    runtime: Json | None = None

    @property
    def name(self) -> str:
        """Name of the InferenceService."""
        return name_of(self.isvc)

    @property
    def ready(self) -> list[Json]:
        """Pods that Kubernetes sends requests to."""
        return [pod for pod in self.pods if is_ready(pod)]

    @property
    def nodes(self) -> set[str]:
        """Names of the nodes that run the pods."""
        return {str(name) for pod in self.pods if (name := pod["spec"].get("nodeName"))}

    @property
    def engine_image(self) -> str | None:
        """Image of the engine in a pod; None without one."""
        containers = [
            engine_container(pod["spec"]["containers"])
            for pod in self.pods
            if pod["spec"].get("containers")
        ]
        return next(
            (str(container["image"]) for container in containers if container.get("image")), None
        )

    @property
    def cold_start_s(self) -> float | None:
        """Longest time a ready pod took to become ready."""
        times = [t for p in self.pods if (t := cold_start_s(p)) is not None]
        return max(times) if times else None
