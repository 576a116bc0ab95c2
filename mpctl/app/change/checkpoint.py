"""The facts of a checkpoint, from a listing, a directory or a hub."""

from __future__ import annotations

from typing import NamedTuple

from mpctl.app.change.source import Source
from mpctl.app.files import read_file
from mpctl.estimate import ModelFacts
from mpctl.platform.checkpoints import Listing, read_checkpoint
from mpctl.staging.modes import REPOSITORY


class Checkpoint(NamedTuple):
    """``facts`` of a target or a draft, or the reason why they are ``unread``; both None without a name."""

    facts: ModelFacts | None = None
    unread: str | None = None


def read_facts(
    source: Source, name: str | None, *, listing: str | None, ask_hub: bool, revision: str | None = None
) -> Checkpoint:
    """Return the facts of a path, of a repository, or of ``hf://`` with a repository.

    A listing given by hand comes first, then a directory that is reachable from here, then the hub.

    Raises:
        InputError: the listing cannot be read.
    """
    if listing is not None:
        facts = read_checkpoint(Listing(read_file(listing, "the listing"), listing))
        return Checkpoint(facts, None if facts else f"{listing} holds no config.json")
    facts = source.model_facts(name)
    if facts is not None or not name:
        return Checkpoint(facts)
    repository, _, pinned = name.removeprefix("hf://").partition(":")
    if not REPOSITORY.fullmatch(repository):
        return Checkpoint(unread=f"{name} was not read: {source.paths}; a listing tells what a pod sees there")
    if not ask_hub:
        return Checkpoint(unread=f"{repository} is not on this machine, and a file is judged without asking a hub")
    from mpctl.platform.hub import Unavailable, read_hub

    try:
        return Checkpoint(read_hub(repository, revision or pinned or "main"))
    except Unavailable as error:
        return Checkpoint(unread=f"{repository} could not be read: {error}")
