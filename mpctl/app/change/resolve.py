"""The first questions of a change: which target, which draft, which settings?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from mpctl import commands
from mpctl.app.files import read_file
from mpctl.app.requests import SpeculationRequest
from mpctl.app.session.base import Source
from mpctl.errors import InputError, Refused
from mpctl.estimate import ModelFacts, target_name_of
from mpctl.estimate.shape import model_shape
from mpctl.json_types import Json, JsonView
from mpctl.manifest import Service
from mpctl.manifest.engine.recognition import use_by_name
from mpctl.methods import METHODS, Finding, Spec, build, parse_config
from mpctl.methods.preflight.known_bad import KnownBad, read_known_bad, shipped_known_bad
from mpctl.methods.versions import ASCEND, engine_release, parse_version
from mpctl.platform.checkpoints import Listing, Unavailable, read_checkpoint, read_hub
from mpctl.staging.catalogue import Catalogue, Draft, choose
from mpctl.staging.catalogue_file import read_catalogue, shipped
from mpctl.staging.modes import REPOSITORY


def load_catalogue(path: str | None) -> Catalogue:
    """Return the shipped catalogue with the user's file merged over it.

    Raises:
        InputError: the file cannot be read or used; with file, line and field.
    """
    base = shipped()
    if path is None:
        return base
    return base.merged(
        read_catalogue(read_file(path, "the catalogue of drafts"), path, base.sources)
    )


def load_known_bad(path: str | None) -> KnownBad:
    """Return the combinations that are known to fail: the shipped rows, or those of the user's file.

    Raises:
        InputError: the file cannot be read or used; with file, line and field.
    """
    return (
        shipped_known_bad()
        if path is None
        else read_known_bad(read_file(path, "the list of combinations"), path)
    )


class Checkpoint(NamedTuple):
    """``facts`` of a target or a draft, or the reason why they are ``unread``; both None without a name. ``missing``:
    the engine reads the same files, and would not find them either."""

    facts: ModelFacts | None = None
    unread: str | None = None
    missing: bool = False


def read_facts(
    source: Source,
    name: str | None,
    *,
    listing: str | None,
    ask_hub: bool,
    revision: str | None = None,
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
        return Checkpoint(
            unread=f"{name} was not read: {source.paths}; a listing tells what a pod sees there",
            missing=source.shares_files,
        )
    if not ask_hub:
        return Checkpoint(
            unread=f"{repository} is not on this machine, and a file is judged without asking a hub"
        )
    try:
        return Checkpoint(read_hub(repository, revision or pinned or "main"))
    except Unavailable as error:
        return Checkpoint(unread=f"{repository} could not be read: {error}")


@dataclass(frozen=True)
class UnchangedService:
    """The service without the change. ``engine``: its version or image, None when unknown; ``kserve``: the cluster's
    release where a draft may have to be staged there."""

    service: Service
    engine: str | None
    checkpoint: Checkpoint
    kserve: str | None = None

    @property
    def model(self) -> str | None:
        """``organisation/model``, of the service or of what the checkpoint records; None where none of them says."""
        facts = self.checkpoint.facts
        return target_name_of(self.service, facts.name if facts else None)


def resolve_target(
    source: Source,
    *,
    listing: str | None,
    ask_hub: bool,
    kserve: str | None,
    release: str | None = None,
) -> UnchangedService:
    """Read the service and the checkpoint of its target: its argument, or the storage that is mounted at that path.
    ``release``: that of the engine, as the user says.

    Raises:
        InputError: the manifest or the listing cannot be read, or ``release`` is none.
    """
    service = source.service()
    model = source.target_of(service)
    if model is None or model.startswith("/"):
        mounted = (storage for storage in service.storage if storage.uri.startswith("hf://"))
        model = next(
            (s.uri for s in mounted if model is None or is_below(model, s.mount_path)), model
        )
    revision = service.whole_command.get("revision")
    checkpoint = read_facts(source, model, listing=listing, ask_hub=ask_hub, revision=revision)
    engine = (
        source.release(service)
        if release is None
        else _stated_engine(source.engine_version(service), release)
    )
    return UnchangedService(service, engine, checkpoint, kserve)


def _stated_engine(image: str | None, release: str) -> str | None:
    """The engine's release as the user says, whatever its image's tag."""
    engine = engine_release(ASCEND if ASCEND in (image or "") else None, [release])
    if parse_version(engine) is None:
        raise InputError(
            f"{release} is no release of vLLM",
            field="MPCTL_ENGINE_VERSION",
            hint="set it to a release, such as 0.32.0",
        )
    return engine


def is_below(path: str, mount: str) -> bool:
    """Return whether a path is a mount or inside of it."""
    return path == mount or path.startswith(mount.rstrip("/") + "/")


@dataclass(frozen=True)
class Selection:
    """The draft as it was named or chosen, None where the method loads none. ``settings``: those of its model card;
    ``reason`` of a choice, None when the user named the draft."""

    draft: str | None
    settings: JsonView
    entry: Draft | None = None
    reason: str | None = None


def select_draft(
    target: UnchangedService, request: SpeculationRequest, config: JsonView
) -> Selection:
    """The draft named by option or setting, else the catalogue's first for the service's target.

    Raises:
        InputError: the catalogue file cannot be used.
        Refused: the method needs a draft, and the catalogue has none that fits, which the message lists; or no engine
            runs the method.
    """
    method = METHODS.get(request.method)
    named = (
        request.draft
        or "model" in config
        or any(text.startswith("model=") for text in request.settings)
    )
    if method is None or not method.loads_weights or named:
        return Selection(request.draft, {})
    if not method.has_proposer:
        raise Refused(
            f"no vLLM runs {method.name}: it ended with the V0 engine",
            hint=f"use an eagle3 head; '{commands.line('drafts')}' lists the published ones",
        )
    catalogue = load_catalogue(request.catalogue)
    command, name = target.service.whole_command, target.model
    served = command.get("served-model-name")
    if name is None and served and (catalogue.key(served) or catalogue.native(served)):
        name = served  # it may be any, so it chooses a draft and proves nothing
    choice = choose(catalogue, name, method.name, engine_version=target.engine)
    if choice is None:
        return Selection(None, {})
    fp8 = "fp8" in (name or "").lower() or (command.get("quantization") or "").startswith("fp8")
    return Selection(
        choice.draft.repo, dict(choice.draft.settings(fp8_target=fp8)), choice.draft, choice.reason
    )


def with_published_facts(
    draft: Checkpoint, spec: Spec, target: UnchangedService, request: SpeculationRequest
) -> Checkpoint:
    """Return what is published about a draft whose files were not read: its target and the kind of checkpoint by the
    catalogue, a whole model's vocabulary and size by the table of models."""
    if draft.facts is not None or spec.draft is None:
        return draft
    published = load_catalogue(request.catalogue).published(spec.draft, target.model)
    method = METHODS.get(published.method) if published else spec.known
    small = method is not None and method.checkpoint == "model"
    shape, use = (model_shape(spec.draft), use_by_name(spec.draft)) if small else (None, None)
    if method is None or (published is None and shape is None and use is None):
        return draft
    facts = ModelFacts(
        trained_for=published.target if published else None,
        draft_kind=method.checkpoint,
        no_text=use,
    )
    if shape is not None:
        facts = replace(facts, vocab=shape.vocab, params_b=shape.params_b)
    return draft._replace(facts=facts)


def read_config(text: str | JsonView | None) -> Json:
    """The settings of ``--spec-config``: JSON, ``@FILE`` with it, or an object; empty without one.

    Raises:
        InputError: the text is not a JSON object, or the file cannot be read.
    """
    if not isinstance(text, str):
        return dict(text or {})
    file = text[1:] if text.startswith("@") else None
    return dict(parse_config(read_file(file, "--spec-config") if file else text, file=file))


def build_spec(
    request: SpeculationRequest, selection: Selection, config: JsonView
) -> tuple[Spec, tuple[Finding, ...]]:
    """The spec and notes on its settings. What the user wrote wins over what the draft's model card says.

    Raises:
        InputError: a setting is unknown or has a wrong value.
    """
    written = {key.replace("-", "_") for key in config}
    of_card = {key: value for key, value in selection.settings.items() if key not in written}
    spec, notes = build(
        request.method,
        draft=selection.draft,
        sets=request.settings,
        config={**of_card, **config} or None,
    )
    return spec, tuple(notes)
