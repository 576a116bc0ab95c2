"""A service as the platform sees it: image, GPUs by CEL selector, and the artifacts it loads.

What a rollout changes is not here: after its creation, the KServe object belongs to `mpctl rollout`.
"""

from __future__ import annotations

from dataclasses import dataclass

from mpctl.methods.preflight.drain import ANSWER_S, MARGIN_S, PRE_STOP_S, pod_end
from mpctl.platform.kubernetes.api.names import CANDIDATE_SUFFIX, COPY_SUFFIX
from mpctl.yaml_lines import FilePosition, Node
from stacks.services.autoscaling import Autoscaling, read_autoscaling

# Ways in which the files reach the pod. storageUris: KServe's own initializer, at every start. pvc: a Job once, then
# a volume. oci: an image that holds the model, mounted by the container runtime or beside the server.
STAGING = ("storageUris", "pvc", "oci")
SLOTS = 256  # vLLM 0.32's max_num_seqs on an L4 (EngineArgs.get_batch_defaults)
# Without a tag a node runs whatever it pulled last.
IMAGE = r"\S+(:[\w][\w.-]*|@sha256:[0-9a-f]{64})"
SCHEMES = {
    "storageUris": ("hf", "s3", "gs"),
    "pvc": ("hf", "s3", "gs"),
    "oci": ("oci", "oci+native"),
}
VOLUME = "/mnt/models"  # where a server mounts the shared volume, whole
OURS = (CANDIDATE_SUFFIX, COPY_SUFFIX)
NAME = r"[a-z]([a-z0-9-]{0,48}[a-z0-9])?"


@dataclass(frozen=True)
class Artifact:
    """One model on disk. ``role`` is target or draft; ``mount`` is where KServe puts it."""

    role: str
    uri: str
    revision: str
    size_gib: int
    mount: str

    @property
    def scheme(self) -> str:
        return self.uri.split("://", 1)[0]

    @property
    def folder(self) -> str:
        """The folder on a shared volume; the revision keeps two versions apart."""
        return (
            f"{self.uri.split('://', 1)[1].strip('/').replace('/', '--')}@{self.revision}".lower()
        )


@dataclass(frozen=True)
class Service:
    """One served model and what it needs from the cluster. ``timeout_s``: the longest answer; ``drain_s``: how long a
    pod that stops may finish what it serves. ``cpus`` and ``memory_gib``: limits of the engine; None: three quarters of
    what its GPUs' share of the node has. ``create``: the serving layer makes its first InferenceService.
    """

    name: str
    image: str
    gpus: int
    device_class: str
    selectors: tuple[str, ...]
    staging: str
    target: Artifact
    draft: Artifact | None
    args: tuple[str, ...]
    slots: int
    timeout_s: int
    drain_s: int
    autoscaling: Autoscaling
    cpus: int | None
    memory_gib: int | None
    token_secret: str | None
    service_account: str
    create: bool
    place: FilePosition

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        return (self.target,) if self.draft is None else (self.target, self.draft)

    def path(self, artifact: Artifact) -> str:
        """Return the engine's path of *artifact*: its folder of the shared volume, or its own mount."""
        return f"{VOLUME}/{artifact.folder}" if self.staging == "pvc" else artifact.mount


def read_service(node: Node) -> Service:
    """A service from the ``serving.services`` list of an environment."""
    staging = node.choice("staging", STAGING, "storageUris")
    name = node.text("name", pattern=NAME, what="a lower-case name of at most 50 characters")
    if name.endswith(OURS):
        raise node.error(
            "name",
            f"{name} ends like what mpctl names itself during a rollout ({', '.join(OURS)})",
            "choose another name",
        )
    target = read_artifact(node, "target", staging)
    draft = read_artifact(node, "draft", staging) if node.has("draft") else None
    if (
        draft
        and all(a.scheme == "oci" for a in (target, draft))
        and parent(target.mount) == parent(draft.mount)
    ):
        raise node.node("draft").error(
            "mount",
            f"{draft.mount} and {target.mount} are in one folder, where one Modelcar would hide the other",
            "give each a folder of its own, as /mnt/target/model and /mnt/draft/model",
        )
    # A volume and a Modelcar stay on the node or beside it; storageUris are downloaded by every pod.
    download_gib = sum(a.size_gib for a in (target, draft) if a and staging == "storageUris")
    args = node.texts("args")
    timeout_s = node.number("timeout_s", ANSWER_S, low=1, high=24 * 3600)
    drain_s = node.number("drain_s", drain_of(args) or timeout_s, low=1, high=24 * 3600)
    result = Service(
        name=name,
        image=node.text(
            "image",
            pattern=IMAGE,
            what="an image with a tag or a digest, such as vllm/vllm-openai:v0.32.0",
        ),
        gpus=node.number("gpus", 1, low=1, high=16),
        device_class=node.text("device_class", "gpu.nvidia.com"),
        selectors=tuple(text.strip() for text in node.texts("selectors")),
        staging=staging,
        target=target,
        draft=draft,
        args=args,
        slots=node.number("slots", slots_of(args), low=1, high=4096),
        timeout_s=timeout_s,
        drain_s=drain_s,
        autoscaling=read_autoscaling(node.node("autoscaling"), download_gib),
        cpus=node.number("cpus", low=1, high=1024) if node.has("cpus") else None,
        memory_gib=node.number("memory_gib", low=1, high=8192) if node.has("memory_gib") else None,
        token_secret=node.maybe("token_secret"),
        service_account=node.text("service_account", name, pattern=NAME, what="a lower-case name"),
        create=node.value("create", bool, True),
        place=node.place,
    )
    node.done()
    return result


def end_s(service: Service) -> int:
    """How long a pod of the service may take to end; Kubernetes kills it then."""
    return PRE_STOP_S + service.drain_s + MARGIN_S


def slots_of(args: tuple[str, ...]) -> int:
    """Requests that one pod runs at once, by ``--max-num-seqs`` in its arguments, else vLLM's default."""
    for index, argument in enumerate(args):
        name, equals, value = argument.partition("=")
        if name == "--max-num-seqs":
            value = value if equals else args[index + 1] if index + 1 < len(args) else ""
            return int(value) if value.isdigit() else SLOTS
    return SLOTS


def drain_of(args: tuple[str, ...]) -> int:
    """Seconds that the engine's own arguments give running requests when its pod stops; 0 without them."""
    return int(pod_end({}, {"args": args}).shutdown_s)


def parent(mount: str) -> str:
    return mount.rstrip("/").rpartition("/")[0]


def read_artifact(owner: Node, role: str, staging: str) -> Artifact:
    node = owner.node(role)
    uri = node.text("uri", pattern=r"[a-z+0-9]+://\S+", what="a URI such as hf://Qwen/Qwen3-8B")
    allowed = SCHEMES[staging]
    scheme = uri.split("://", 1)[0]
    if scheme not in allowed:
        raise node.error("uri", f"{staging} reads {', '.join(allowed)}, not {uri}")
    if staging == "pvc" and node.has("mount"):
        raise node.error(
            "mount",
            f"with staging: pvc the whole volume is at {VOLUME}, each model in its own folder",
        )
    # One parent for both: KServe wants non-PVC paths of storageUris under a common parent other than /. A Modelcar
    # takes the folder above its path for itself.
    mount = f"/mnt/{role}/model" if scheme == "oci" else f"{VOLUME}/{role}"
    result = Artifact(
        role=role,
        uri=uri,
        revision=node.text("revision", "main", pattern=r"[\w.-]+", what="a branch, tag or commit"),
        size_gib=node.number("size_gib", low=1, high=4096),
        mount=node.text("mount", mount, pattern=r"/[\w./-]+", what="an absolute path"),
    )
    node.done()
    return result
