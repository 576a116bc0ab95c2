"""The service that a change is made to: a running one, or a manifest in a file."""

from __future__ import annotations

import json
from pathlib import Path

from mpctl import commands
from mpctl.app.files import read_file
from mpctl.app.session.base import Edit, Source
from mpctl.json_types import Json
from mpctl.manifest import Service, load_one, load_values, select
from mpctl.manifest.draft_storage import with_speculation
from mpctl.manifest.engine.engine_port import port_of
from mpctl.methods import Finding
from mpctl.methods.preflight.drain import SHORT_S, RouteLimit, path_findings

_STACK, _KAITO = (
    "https://github.com/vllm-project/production-stack",
    "https://github.com/kaito-project/kaito",
)
_CONFIG = ("KAITO restarts no pod when a ConfigMap changes", f"{_KAITO}, ComputeHash (2026-08)")
# Kinds whose controller leaves pods as they are when only their engine's arguments change: why, source, what replaces
# the pods.
_LEFT_ALONE = {
    "VLLMRuntime": (
        "its operator compares other fields, and writes changed arguments together with one of them alone",
        f"{_STACK}, deploymentNeedsUpdate (2026-08)",
        "delete deployment {}",
    ),
    "Workspace": (*_CONFIG, "rollout restart statefulset {}"),
    "InferenceSet": (*_CONFIG, "delete pods -l inferenceset.kaito.sh/created-by={}"),
}


class FileSource(Source):
    """A service of a file; nothing is contacted. Relative paths in it start from its folder."""

    asks_hub = False
    stages = True

    def __init__(
        self, path: str, name: str | None, *, runtimes: bool = False, service: Service | None = None
    ) -> None:
        """``runtimes``: read the runtime that services share; ``service``: what was read from the file already."""
        self._service = service or load_one(
            read_file(path, "the manifest"), name, file=path, runtimes=runtimes
        )
        self._folder = Path.cwd() if path == "-" else Path(path).resolve().parent
        self.name, self.namespace = self._service.name, self._service.namespace or ""

    @property
    def paths(self) -> str:
        """The paths of checkpoints that can be read from here, as text."""
        return f"a path from / is the pod's, any other starts from {self._folder} and needs a config.json"

    def service(self) -> Service:
        """The service as a value."""
        return self._service

    def text(self) -> str:
        """The whole file, byte for byte."""
        return self._service.to_yaml()

    def with_speculation(self, config: Json | None, edit: Edit | None = None) -> str:
        """The whole file with another setting: only the bytes of the setting, and of what ``edit`` changes, change."""
        service = self._service if edit is None else edit(self._service)
        return with_speculation(service, config).to_yaml()

    def engine_version(self, service: Service) -> str | None:
        """The image, whose tag is read as a version."""
        return service.image

    def target_of(self, service: Service) -> str | None:
        """The model that the engine loads, by its argument; None when unknown."""
        return service.model

    def folder(self, name: str | None) -> Path | None:
        """A folder next to the file; a path inside the container is none."""
        folder = (
            self._folder / Path(name).expanduser() if name and not name.startswith("/") else None
        )
        return folder if folder is not None and folder.is_dir() else None

    def path_findings(self) -> tuple[Finding, ...]:
        """Warnings of the manifest, where it has the whole pod. KServe writes its timeout into the route of a service
        that sets none."""
        read = self._service.pod_and_container()
        if read is None:
            kind = _LEFT_ALONE.get(self._service.kind)
            if kind is None:
                return ()
            reason, origin, words = kind
            todo = (
                f"'{commands.kubectl(*words.format(self.name).split(), namespace=self.namespace)}' "
                "once it is applied"
            )
            return (Finding("pods-left-alone", "warn", reason, origin, todo),)
        pod, container = read
        limits = []
        if self._service.kind == "InferenceService":
            timeout = pod.get("timeout")
            seconds = float(SHORT_S if timeout is None else timeout)
            limits = [RouteLimit(f"{self.name} of KServe", seconds, self._service.kind)]
        whole = None if "modelFormat" in container else pod  # a runtime may have the rest
        image, port = self._service.image, port_of(container)
        return path_findings(self._service.kind, limits, whole, container, image=image, port=port)


class UnservedModel(FileSource):
    """A service that nobody runs yet: vLLM with its defaults and a model of the hub, on ``gpus`` of tensor parallelism.
    It is called SERVICE, as printed commands name what the reader fills in, and no pod of it can lose a request."""

    def __init__(self, model: str, gpus: int = 1) -> None:
        arguments = ["--model", model, f"--tensor-parallel-size={gpus}"]
        engine = {"name": "vllm", "image": "vllm/vllm-openai", "args": arguments}
        manifest = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "SERVICE"},
            "spec": {"template": {"spec": {"containers": [engine]}}},
        }
        super().__init__(".", None, service=load_one(json.dumps(manifest), None, file=model))

    def path_findings(self) -> tuple[Finding, ...]:
        """Return none: there is no pod that a change would replace."""
        return ()


def open_values(path: str, name: str | None, key: str | None) -> FileSource:
    """An engine of a file of Helm values: the one called ``name``, or the only one.

    Raises:
        InputError: no engine or several match, or the file cannot be read.
    """
    engines = load_values(read_file(path, "the Helm values"), key, file=path)
    return FileSource(path, name, service=select(engines, name))
