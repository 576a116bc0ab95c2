"""The values of a staging plan: the modes, the draft, the cluster, and what a service already mounts."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mpctl.errors import InputError
from mpctl.json_fields import mapping_at, value_at
from mpctl.json_types import Json
from mpctl.manifest import Service, Storage
from mpctl.manifest.text.view import text_of
from mpctl.manifest.text.yaml_tree import contents, data
from mpctl.staging.kserve_storage import Release, release

OPTION = "--staging"
REPOSITORY = re.compile(r"[\w-][\w.-]*/[\w.-]+")
DOWNLOADS = ("hf://", "s3://", "gs://")
# A claim's or a Secret's name: an RFC 1123 subdomain, as the API server takes it.
NAME = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
IMAGE = r"[\w.-]+(:\d+)?(/[\w.-]+)*(:[\w.-]+)?(@\w+:\w+)?"
_BUCKET = r"[^/\s]+(/.*)?"
_FORMS = {
    "hf": (REPOSITORY.pattern, "hf://ORGANISATION/MODEL or hf://ORGANISATION/MODEL:REVISION"),
    "pvc": (rf"{NAME}(/(?!\.\.(/|$))[^/]+)*/?", "pvc://CLAIM/FOLDER, the folder without '..'"),
    "oci": (IMAGE, "oci://REGISTRY/IMAGE:TAG"),
    "oci+native": (IMAGE, "oci+native://REGISTRY/IMAGE:TAG"),
    "s3": (_BUCKET, "s3://BUCKET/FOLDER"),
    "gs": (_BUCKET, "gs://BUCKET/FOLDER"),
}
_OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")


@dataclass(frozen=True)
class StagingFacts:
    """Facts about the cluster that runs a service, and about its draft; None is unknown."""

    kserve: str | None = None  # release, such as 0.20
    air_gapped: bool = False  # pods reach neither a hub nor a bucket
    node_disk_gib: float | None = None  # free on a GPU node
    claim: str | None = None  # volume claim that may hold the draft
    shared: bool | None = None  # whether pods of several nodes can mount that claim
    registry: str | None = None  # where images may be pushed, such as registry.example/models
    token_secret: str | None = None  # name of a Secret with HF_TOKEN for the download Job
    image: str | None = None  # of the download Job, or the base of the draft's image
    draft_size_gib: float | None = None  # of a draft that cannot be read
    mode: str | None = None  # staging mode to use; None: the best


@dataclass(frozen=True)
class DraftSource:
    """The draft as it was named: a repository, a URI or a path in the container. Sizes in GiB, None if unknown.

    ``revision``: main where neither it nor the name, as in ``hf://org/draft:rev``, says one; the name is kept without.
    ``here``: it is a directory beside the manifest, so a path although it may look like a repository.
    """

    name: str
    revision: str = ""
    size_gib: float | None = None
    target_gib: float | None = None
    here: bool = False

    def __post_init__(self) -> None:
        """Take the name apart. Raises :class:`InputError` for a URI that names nothing, or two revisions."""
        name, revision = self.name.strip(), self.revision
        if name.startswith("hf://"):
            repository, pinned = hub_name(name)
            if pinned and revision not in ("", pinned):
                raise InputError(
                    f"{name} names the revision {pinned}, and the settings {revision}",
                    field="--draft",
                    hint="name one of them",
                )
            name, revision = f"hf://{repository}", pinned or revision
        scheme, colon, path = name.partition("://")
        if colon and scheme in _FORMS and not re.fullmatch(_FORMS[scheme][0], path):
            raise InputError(
                f"{name!r} names no draft", field="--draft", hint=f"the form is {_FORMS[scheme][1]}"
            )
        if revision and (".." in revision or not re.fullmatch(r"\w[\w./+-]*", revision)):
            raise InputError(
                f"{revision!r} is no revision", field="--draft", hint="a branch, a tag or a commit"
            )
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "revision", revision or "main")

    @property
    def uri(self) -> str:
        """The name as a URI: a bare repository is one of Hugging Face."""
        return f"hf://{self.name}" if REPOSITORY.fullmatch(self.name) else self.name

    @property
    def fetched(self) -> str:
        """The URI with its revision, as KServe's initializer takes it."""
        if self.uri.startswith("hf://") and self.revision != "main":
            return f"{self.uri}:{self.revision}"
        return self.uri

    @property
    def is_path(self) -> bool:
        """True for a path in the container, False for a source."""
        if self.here or self.name.startswith(("/", "./", "../", "~")):
            return True
        return "://" not in self.name and not REPOSITORY.fullmatch(self.name)


def hub_name(uri: str) -> tuple[str, str]:
    """Repository and revision, '' where none is pinned, of ``hf://org/model:rev``, as KServe's initializer reads it."""
    repository, _, revision = uri.removeprefix("hf://").partition(":")
    return repository, revision


@dataclass(frozen=True)
class ModeCheck:
    """A staging mode and why it is unavailable; None when it is available."""

    mode: str
    unavailable: str | None


@dataclass(frozen=True)
class StagingPlan:
    """The staging mode and what follows from it.

    ``path``: what the engine's configuration names. ``service``: with the storage it needs. ``documents``: Kubernetes
    objects to create before. ``recipe``: a Containerfile to build before, as ``image``. ``steps``: for people, in
    order; ``by_hand``: the first of them is theirs, before the service is changed. ``removes``, ``leaves``: what a
    rollback takes away and what stays on disk. ``warnings``: what could not be checked or may go wrong.
    ``unmounted``: the draft is a path that nothing in the manifest mounts.
    """

    mode: str
    reason: str
    path: str
    service: Service
    checks: tuple[ModeCheck, ...] = ()
    documents: tuple[Json, ...] = ()
    recipe: str | None = None
    image: str | None = None
    steps: tuple[str, ...] = ()
    removes: tuple[str, ...] = ()
    leaves: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    by_hand: bool = False
    unmounted: bool = False

    @property
    def prepares(self) -> bool:
        """True when something must be made before the service can be changed."""
        return bool(self.documents or self.recipe or self.by_hand)


class StagingContext:
    """A service, a draft and a cluster, with what the rules of staging ask about."""

    def __init__(self, service: Service, draft: DraftSource, cluster: StagingFacts) -> None:
        self.service, self.draft, self.cluster = service, draft, cluster
        self.kserve: Release | None = release(cluster.kserve)
        spec = document_of(service)["spec"] if service.kind == "InferenceService" else {}
        predictor = mapping_at(spec, "predictor")
        self.canary = bool(spec.get("canary"))
        self.listed = bool(predictor.get("storageUris"))
        self.keyed = bool(value_at(predictor, "model", "storage"))  # a data connection: {key, path}
        self.storage: tuple[Storage, ...] = service.storage
        self.cache = cache_of(service) if service.kind == "InferenceService" else None
        mounts = None if service.source is None else service.source.engine.home.get("volumeMounts")
        self.mounts = (
            [text_of(mount.get("mountPath")) or "" for mount in mounts.items()] if mounts else []
        )
        self.env_storage = "STORAGE_URI" in dict(service.env)
        env = dict(service.env)
        self.offline = next(
            (
                name
                for name in _OFFLINE
                if (env.get(name) or "0").lower() in ("1", "true", "yes", "on")
            ),
            None,
        )

    @property
    def target(self) -> Storage | None:
        """The storage of the target: the entry that holds its path, or the only one."""
        model = self.service.model or ""
        for storage in self.storage:
            if model == storage.mount_path or model.startswith(
                storage.mount_path.rstrip("/") + "/"
            ):
                return storage
        return self.storage[0] if self.storage else None

    @property
    def target_claim(self) -> tuple[str, str] | None:
        """(claim, folder) where the target lies on a volume."""
        target = self.target
        if target is None or not target.uri.startswith("pvc://"):
            return None
        name, _, folder = target.uri.removeprefix("pvc://").partition("/")
        return name, folder.strip("/")

    @property
    def downloaded_gib(self) -> float | None:
        """GiB that a start of the pod downloads with target and draft; None where a size is unknown."""
        target, size = self.target, self.draft.size_gib
        again = target is not None and target.uri.startswith(DOWNLOADS)
        if size is None or (again and self.draft.target_gib is None):
            return None
        return size + (self.draft.target_gib or 0.0 if again else 0.0)

    @property
    def claim(self) -> str | None:
        """The claim to use: the one named, or the target's own."""
        return self.cluster.claim or (self.target_claim[0] if self.target_claim else None)


_CACHE_LABEL = "internal.serving.kserve.io/localmodel"
_CACHE_OFF = "serving.kserve.io/disable-localmodel"


def cache_of(service: Service) -> str | None:
    """The LocalModelCache that holds the target: by KServe's label, or in the same file by its URI. None without one.

    KServe looks at ``storageUri`` alone (v0.20.0, inference_service_defaults.go, setLocalModelLabel).
    """
    metadata = mapping_at(document_of(service), "metadata")
    labels, annotations = mapping_at(metadata, "labels"), mapping_at(metadata, "annotations")
    if str(annotations.get(_CACHE_OFF)).lower() == "true":
        return None
    if label := labels.get(_CACHE_LABEL):
        return f"LocalModelCache {label}"
    wanted = {storage.uri.rstrip("/") for storage in service.storage}
    for document in contents(service.text, service.file):
        kind = document.get("kind") if isinstance(document, dict) else None
        if kind not in ("LocalModelCache", "LocalModelNamespaceCache"):
            continue
        source = str(value_at(document, "spec", "sourceModelUri") or "").rstrip("/")
        if source and any(uri == source or uri.startswith(f"{source}/") for uri in wanted):
            return f"{kind} {(document.get('metadata') or {}).get('name')}"
    return None


def document_of(service: Service) -> Json:
    """The document of an InferenceService."""
    assert service.source is not None
    document: Json = data(service.source.origin.document.root)
    return document
