"""What a change is asked of: a live service, or a manifest in a file. A file is read and nothing is contacted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from mpctl.app.files import read_file
from mpctl.app.session.open import open_session
from mpctl.cli.settings import Settings
from mpctl.manifest import Service, load, select

if TYPE_CHECKING:
    from mpctl.cli.terminal import Terminal
    from mpctl.estimate import ModelFacts


Edit = Callable[[Service], Service]


class Source(Protocol):
    """A service that can be read and edited; the methods of :class:`mpctl.cli.session.Session` that a change needs."""

    @property
    def paths(self) -> str:
        """Which paths of checkpoints can be read from here, in words."""

    def service(self) -> Service:
        """The service as a value."""

    def text(self) -> str:
        """The manifest."""

    def with_speculation(self, config: dict[str, Any] | None, edit: Edit | None = None) -> str:
        """The manifest with another speculative setting; ``edit`` changes its storage first."""

    def engine_version(self, service: Service) -> str | None:
        """The engine's version or image; None when nothing says."""

    def target_of(self, service: Service) -> str | None:
        """The model that the engine loads; None when nothing says."""

    def model_facts(self, name: str | None) -> ModelFacts | None:
        """What can be read of a checkpoint from here."""

    def engine_log(self) -> str | None:
        """What the serving engine said at its start; None where that cannot be read."""

    def kserve_version(self) -> str | None:
        """KServe's release; None where nothing says."""


class FileSource:
    """One service of a file, InferenceService or ModelDeployment. Relative paths in it start from its folder."""

    def __init__(self, path: str, name: str | None, terminal: Terminal) -> None:
        self._service = select(load(read_file(path, "the manifest"), file=path), name)
        self._folder = Path.cwd() if path == "-" else Path(path).resolve().parent
        self.name, self.namespace, self.terminal = self._service.name, self._service.namespace or "", terminal
        self.paths = f"a path from / is the pod's, any other starts from {self._folder} and needs a config.json"

    def service(self) -> Service:
        """The service as a value."""
        return self._service

    def text(self) -> str:
        """The whole file, byte for byte."""
        return self._service.to_yaml()

    def with_speculation(self, config: dict[str, Any] | None, edit: Edit | None = None) -> str:
        """The whole file with another setting: only the bytes of the setting, and of what ``edit`` changes, change."""
        service = self._service if edit is None else edit(self._service)
        return service.with_speculation(config).to_yaml()

    def engine_version(self, service: Service) -> str | None:
        """The image, whose tag is read as a version."""
        return service.image

    def target_of(self, service: Service) -> str | None:
        """Its own argument."""
        return service.model

    def model_facts(self, name: str | None) -> ModelFacts | None:
        """A folder beside the file; a path inside the container is not one."""
        from mpctl.platform.local.models import read_model

        return None if not name or name.startswith("/") else read_model(name, self._folder)

    def engine_log(self) -> str | None:
        """Nothing runs."""
        return None

    def kserve_version(self) -> str | None:
        """Nothing is asked."""
        return None


def open_source(settings: Settings, name: str | None, file: str | None) -> Any:
    """The service that the command line means.

    Raises:
        InputError: there is none, or several; the file cannot be read.
    """
    return (
        open_session(settings.place, settings.terminal, name)
        if file is None
        else FileSource(file, name, settings.terminal)
    )
