"""The first question of a change: which model does the service run, on which engine?"""

from __future__ import annotations

from dataclasses import dataclass

from mpctl.app.change.checkpoint import Checkpoint, read_facts
from mpctl.app.change.source import Source
from mpctl.manifest import Service


@dataclass(frozen=True)
class Target:
    """The service without the change. ``engine``: its version or image, None when unknown; ``kserve``: the cluster's
    release where a draft may have to be staged there."""

    service: Service
    engine: str | None
    checkpoint: Checkpoint
    kserve: str | None = None

    @property
    def name(self) -> str | None:
        """The target's own name, as its checkpoint has it."""
        return self.checkpoint.facts.name if self.checkpoint.facts else None


def resolve_target(source: Source, *, listing: str | None, ask_hub: bool, kserve: str | None) -> Target:
    """Read the service and the checkpoint of its target.

    Raises:
        InputError: the manifest or the listing cannot be read.
    """
    service = source.service()
    checkpoint = read_facts(
        source,
        target_source(source, service),
        listing=listing,
        ask_hub=ask_hub,
        revision=service.command.get("revision"),
    )
    return Target(service, source.engine_version(service), checkpoint, kserve)


def target_source(source: Source, service: Service) -> str | None:
    """The path or repository that the target is read from: its own argument, or the storage mounted at that path."""
    named = source.target_of(service)
    if named is not None and not named.startswith("/"):
        return named
    mounted = (storage for storage in service.storage if storage.uri.startswith("hf://"))
    return next((s.uri for s in mounted if named is None or is_below(named, s.mount_path)), named)


def is_below(path: str, mount: str) -> bool:
    """Return whether a path is a mount or inside of it."""
    return path == mount or path.startswith(mount.rstrip("/") + "/")
