"""The second question of a change: which draft?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mpctl import commands
from mpctl.app.change.catalogue import load_catalogue
from mpctl.app.change.checkpoint import Checkpoint
from mpctl.app.change.target import Target
from mpctl.app.requests import SpeculationRequest
from mpctl.errors import Refused
from mpctl.estimate import ModelFacts, target_name_of
from mpctl.manifest import Service
from mpctl.methods import METHODS, Spec
from mpctl.staging.catalogue import Catalogue, Draft, choose


@dataclass(frozen=True)
class Selection:
    """The draft as it was named or chosen, None where the method loads none. ``settings``: those of its model card;
    ``reason`` of a choice, None when the user named the draft."""

    draft: str | None
    settings: Mapping[str, Any]
    entry: Draft | None = None
    reason: str | None = None


def select_draft(target: Target, request: SpeculationRequest, config: Mapping[str, Any]) -> Selection:
    """The draft named by option or setting, else the catalogue's first for the service's target.

    Raises:
        InputError: the catalogue file cannot be used.
        Refused: the method needs a draft, and the catalogue has none that fits, which the message lists; or no engine
            runs the method.
    """
    method = METHODS.get(request.method)
    named = request.draft or "model" in config or any(text.startswith("model=") for text in request.settings)
    if method is None or not method.loads_weights or named:
        return Selection(request.draft, {})
    if not method.has_proposer:
        raise Refused(
            f"no vLLM runs {method.name}: it ended with the V0 engine",
            hint=f"use an eagle3 head; '{commands.line('drafts')}' lists the published ones",
        )
    catalogue = load_catalogue(request.catalogue)
    name = target_name_of(target.service, target.name) or _served_as(target.service, catalogue)
    choice = choose(catalogue, name, method.name, engine_version=target.engine)
    if choice is None:
        return Selection(None, {})
    fp8 = "fp8" in (name or "").lower() or (target.service.command.get("quantization") or "").startswith("fp8")
    return Selection(choice.draft.repo, dict(choice.draft.settings(fp8_target=fp8)), choice.draft, choice.reason)


def with_published_facts(draft: Checkpoint, spec: Spec, target: Target, request: SpeculationRequest) -> Checkpoint:
    """Return the catalogue's facts about a draft whose files were not read: its target and the kind of checkpoint."""
    if draft.facts is not None or spec.draft is None:
        return draft
    name = target_name_of(target.service, target.name)
    published = load_catalogue(request.catalogue).published(spec.draft, name)
    method = METHODS.get(published.method) if published else None
    if published is None or method is None:
        return draft
    return draft._replace(facts=ModelFacts(trained_for=published.target, draft_kind=method.checkpoint))


def _served_as(service: Service, catalogue: Catalogue) -> str | None:
    """The served name where the catalogue knows it. It may be any, so it chooses a draft and proves nothing."""
    served = service.command.get("served-model-name")
    return served if served and (catalogue.key(served) or catalogue.native(served)) else None
