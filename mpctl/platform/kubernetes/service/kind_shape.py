"""The knowledge of a kind of service that a change needs, and what kinds do alike. Pure but for the reads of layers.

Each kind is a :class:`KindShape`: ``kserve`` has the InferenceService and its Knative mode, ``llm`` the
LLMInferenceService, ``shapes`` the Deployment and the LeaderWorkerSet without KServe, and the table of all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mpctl.errors import Refused
from mpctl.json_fields import annotations_of, labels_of, list_at, mapping_at, name_of
from mpctl.json_types import Json, JsonView
from mpctl.methods.preflight.drain import selected_services
from mpctl.platform.kubernetes.api.api_client import Client
from mpctl.platform.kubernetes.api.kinds import DEPLOYMENT, ObjectKind
from mpctl.platform.kubernetes.service.container import (
    ExpectedContainer,
    engine_container,
    expected,
)

Pod = JsonView

_REVISION = "deployment.kubernetes.io/revision"  # written by the Deployment's controller
_LONGEST_NAME, _DIGEST = 63, 32  # of a label's value; of an MD5 in hex


@dataclass(frozen=True)
class KindShape:
    """A kind of service, or a mode of one. Paths are below ``spec``."""

    resource: ObjectKind
    pod: tuple[str, ...]  # of the mapping with the containers
    annotations: tuple[str, ...]  # of those that its pods get
    strategy: tuple[str, ...] = ()  # of the rolling update's limits; empty where they cannot be set
    otherwise: tuple[str, ...] = ()  # of the mapping with the containers where ``pod`` is absent
    workload: ObjectKind = DEPLOYMENT  # the kind that counts the pods that serve
    replicas: tuple[str, ...] = ()  # of their number where it belongs to whoever scales the service
    labels_pods: bool = (
        False  # its labels become those of its pods, by which users' requests find them
    )
    labels_stay: bool = False  # no label or annotation of the object itself reaches a pod
    layered: bool = False  # KServe merges configs below it
    is_watchable: bool = True  # its pods get ready without another workload
    autoscaled: str | None = (
        DEPLOYMENT.name
    )  # the kind that its autoscaler names; None: it cannot be pinned
    no_route: str = (
        ""  # why its traffic cannot be split, behind the title of the service; empty where it can
    )

    def mode_of(self, record: JsonView) -> KindShape:
        """The shape of an object of this kind in the mode in which it runs."""
        return self

    def prefill_of(self, record: JsonView) -> KindShape | None:
        """The shape of further pods, which fill prompts for those of this one; None without any."""
        return None

    # The object's fields

    def pod_of(self, record: JsonView) -> Json:
        """The mapping that holds containers, volumes and claims; empty where the service leaves it to presets."""
        return _at(record["spec"], self.pod) or _at(record["spec"], self.otherwise or self.pod)

    def strategy_of(self, record: JsonView) -> Any:
        """The limits of a rolling update; None without any."""
        return (
            _at(record["spec"], self.strategy[:-1]).get(self.strategy[-1])
            if self.strategy
            else None
        )

    def set_strategy(self, record: Json, value: Any) -> None:
        """Set the limits of a rolling update; None removes them."""
        home = _at(record["spec"], self.strategy[:-1])
        if value is None:
            home.pop(self.strategy[-1], None)
        else:
            home[self.strategy[-1]] = value

    def annotate_pods(self, record: Json, name: str, value: str) -> None:
        """Set an annotation of the pods, which replaces them."""
        home, path = record["spec"], self.annotations
        if self.otherwise and not _at(home, self.pod):
            path = (*self.otherwise[:-1], "metadata", "annotations")
        for key in path:
            home[key] = home.get(key) or {}
            home = home[key]
        home[name] = value

    def recorded(self, record: Json) -> Json:
        """The object without the fields that others write all the time."""
        if not self.replicas:
            return record
        spec = _replaced(record["spec"], self.replicas, None)
        annotations = {k: v for k, v in annotations_of(record).items() if k != _REVISION}
        return {
            **record,
            "spec": spec,
            "metadata": {**record["metadata"], "annotations": annotations},
        }

    def to_write(self, record: Json, live: JsonView) -> Json:
        """The object with those fields as they are now."""
        if not self.replicas:
            return record
        metadata = dict(record["metadata"])
        pods = _at(live["spec"], self.replicas[:-1]).get(self.replicas[-1])
        spec = record["spec"] if pods is None else _replaced(record["spec"], self.replicas, pods)
        revision = annotations_of(live).get(_REVISION)
        if revision is not None:
            metadata["annotations"] = {**mapping_at(metadata, "annotations"), _REVISION: revision}
        return {**record, "spec": spec, "metadata": metadata}

    # Its pods

    def is_service(self, record: JsonView) -> bool:
        """Return whether an object of this kind is a service."""
        return True

    def workload_name(self, record: JsonView) -> str:
        """Name of the workload that counts the pods."""
        return name_of(record)

    def pod_selector(self, record: JsonView) -> str:
        """The label selector of the pods that serve."""
        raise NotImplementedError

    def serving(self, pods: Sequence[Json]) -> list[Json]:
        """Return those of the selected pods that serve."""
        return [pod for pod in pods if labels_of(pod).get("component", "predictor") == "predictor"]

    def newest(self, record: JsonView, pods: Sequence[Pod]) -> list[Pod]:
        """Return the pods of the newest revision."""
        return list(pods)

    def desired_pods(self, record: JsonView) -> int:
        """Number of pods that the object asks for."""
        return int(_at(record["spec"], self.replicas[:-1]).get("replicas", 1))

    def obstacle(self, record: JsonView, ready: Sequence[Pod]) -> str:
        """Reason why the newest pods do not serve alone although they are ready; empty when they do. ``ready``: all
        ready pods of the service."""
        return ""

    def expected(self, record: JsonView, layers: JsonView | None) -> ExpectedContainer:
        """The container start that the object specifies. ``layers``: its ServingRuntime, or its configs."""
        return expected(engine_container(list_at(self.pod_of(record), "containers")))

    def read_layers(self, client: Client, record: JsonView, namespace: str) -> Json | None:
        """Read what KServe merges below the object: a ServingRuntime, or a List of configs; None without any."""
        return None

    def config_texts(self, record: JsonView, layers: JsonView | None) -> tuple[str, ...]:
        """The merged configs as a revision records them."""
        return ()

    # A change

    def deliver(self, client: Client, record: JsonView, namespace: str) -> None:
        """Make its controller write the pods of an object that was changed, where it does not by itself. May be called
        again.

        Raises:
            Stale: another write came first.
        """

    def require_changeable(
        self,
        record: JsonView,
        title: str,
        *,
        side_by_side: bool,
        downtime: bool,
        pods: int,
    ) -> None:
        """Refuse a change that fails with this kind. ``pods``: their current number.

        Raises:
            Refused: with the reason and the remedy.
        """

    def require_candidate(self, title: str) -> None:
        """Refuse a second object of this kind side by side.

        Raises:
            Refused: with the reason and the remedy.
        """

    def require_route(self, title: str) -> None:
        """Refuse to split or mirror the traffic where that cannot be done.

        Raises:
            Refused: with the reason and the remedy.
        """
        if self.no_route:
            raise Refused(
                f"{title}{self.no_route}",
                hint="leave out --traffic-steps, --mirror and --keep-baseline; the candidate is measured without them",
            )

    def additional_pods(self, record: JsonView, *, side_by_side: bool) -> tuple[int, str, str]:
        """Number of additional pods at most, their purpose, and the hint's end when there is no capacity."""
        if side_by_side:
            return (
                1,
                "a candidate side by side",
                "; without users on the service, --strategy in-place --accept-downtime needs no second engine",
            )
        return (
            1,
            "the new pod before the old one stops",
            "; without users on the service, --accept-downtime stops the old pod first",
        )

    def deleted_hpa(self, record: JsonView) -> str | None:
        """Name of a foreign HPA that KServe deletes when it finds one."""
        return None

    def candidate_annotations(self) -> Mapping[str, str]:
        """Further annotations of a candidate."""
        return {}

    def candidate_spec(self, record: JsonView, pods: int, marks: Mapping[str, str]) -> Json:
        """The spec of a candidate with that number of pods, of which nothing else finds any. ``marks``: labels for
        pods that need a selector."""
        raise NotImplementedError

    def candidate_services(
        self, documents: Iterable[Json], record: Json, candidate: Json
    ) -> list[Json]:
        """The Services that lead to a candidate, made of those in ``documents`` that lead to the service."""
        return []

    def backends(
        self, name: str, services: Callable[[], Iterable[Json]], labels: Mapping[str, str]
    ) -> frozenset[str]:
        """Names of the Services that lead to pods with these labels. ``services``: reads those of the namespace."""
        return selected_services(services(), labels)


class GroupsShape(KindShape):
    """A kind whose engines are groups of pods, each replaced as a whole by its own controller."""

    def require_candidate(self, title: str) -> None:
        raise Refused(
            f"{title} runs in groups of pods (LeaderWorkerSet): a candidate would need a second group of nodes",
            hint="use --strategy in-place --accept-downtime, which replaces group by group",
        )

    def require_changeable(
        self,
        record: JsonView,
        title: str,
        *,
        side_by_side: bool,
        downtime: bool,
        pods: int,
    ) -> None:
        if side_by_side:
            self.require_candidate(title)
        if not downtime and self.desired_pods(record) < 2:
            raise Refused(
                f"{title} has one group of pods, which its controller stops before it starts it anew",
                hint="use --accept-downtime, or run two groups or more",
            )

    def additional_pods(self, record: JsonView, *, side_by_side: bool) -> tuple[int, str, str]:
        _, purpose, hint = super().additional_pods(record, side_by_side=side_by_side)
        return 0, purpose, hint


def child_name(parent: str, suffix: str) -> str:
    """Name of an object that a controller makes for another one, shortened like Knative's kmeta.ChildName."""
    if len(parent) <= _LONGEST_NAME - len(suffix):
        return parent + suffix
    digest = hashlib.md5(parent.encode(), usedforsecurity=False).hexdigest()
    return f"{parent[: _LONGEST_NAME - _DIGEST - len(suffix)]}{digest}{suffix}"


def _at(home: JsonView, path: tuple[str, ...]) -> Json:
    for key in path:
        home = home.get(key) or {}
    return home  # type: ignore[return-value]


def _replaced(home: JsonView, path: tuple[str, ...], value: Any) -> Json:
    """A mapping with another value at a path; None removes it."""
    key, *below = path
    if below:
        return {**home, key: _replaced(home.get(key) or {}, tuple(below), value)}
    others = {k: v for k, v in home.items() if k != key}
    return others if value is None else {**others, key: value}
