"""Prepare a change: its questions, asked in order. Nothing is changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mpctl.app.change.change import Change
from mpctl.app.change.check import Load, check, require_known, require_listed, with_refusals
from mpctl.app.change.checkpoint import read_facts
from mpctl.app.change.draft import select_draft, with_published_facts
from mpctl.app.change.source import Source
from mpctl.app.change.spec import build_spec, read_config
from mpctl.app.change.staging import Staged, check_request, stage_draft
from mpctl.app.change.target import Target, resolve_target
from mpctl.app.requests import SpeculationRequest
from mpctl.manifest import Service
from mpctl.methods import METHODS, Finding, Spec, asks_for, from_config

_UNKNOWN_LOAD = Load()


def prepare(source: Source, request: SpeculationRequest, load: Load = _UNKNOWN_LOAD) -> Change:
    """Select the draft, build the spec, edit the manifest, run the preflight.

    Raises:
        InputError: the request or the manifest cannot be used.
        Refused: the method needs a draft and none fits.
    """
    check_request(request.staging)
    require_listed(request.gpu)
    config = read_config(request.config)
    target = _target(source, request)
    selection = select_draft(target, request, config)
    spec, notes = build_spec(request, selection, config)
    draft = read_facts(
        source, spec.draft, listing=request.draft_listing, ask_hub=_asks_hub(source, request), revision=_revision(spec)
    )
    draft = with_published_facts(draft, spec, target, request)
    staged = Staged(spec)
    if source.stages:
        staged = stage_draft(source, target, spec, request.staging, draft=draft, selection=selection)
    notes = (*notes, *_of_runtime(target.service), *source.path_findings())
    gpu = request.gpu or (source.gpu() if spec.draft is not None or asks_for(spec, "gpu") else None)
    checked = check(target, staged, draft, notes, load, log=source.engine_log(), gpu=gpu)
    checked = replace(checked, findings=with_refusals(checked.findings, request.refused))
    require_known(request.ignored, checked.findings)
    before: dict[str, Any] | None = target.service.speculation()
    return Change(
        before=target.service,
        old_text=source.text(),
        new_text=source.with_speculation(staged.spec.config(), staged.edit),
        spec=staged.spec,
        old_spec=from_config(before),
        checked=checked,
        staging=staged.plan,
        selection=replace(selection, draft=spec.draft),
        ignored=request.ignored,
        draft_shape=draft.facts.shape if draft.facts else None,
    )


def _of_runtime(service: Service) -> tuple[Finding, ...]:
    """A warning for a runtime: every service that uses it changes. A note for a service's own copy of a runtime."""
    if service.copy_of is not None:
        return (
            Finding(
                "runtime-copy",
                "note",
                f"{service.name} uses {service.runtime}, its own copy of {service.copy_of}, which stays as it is",
                "later changes of the shared runtime do not reach the copy",
                "--spec none points the service at the shared runtime again and removes the copy",
            ),
        )
    if service.kind not in ("ServingRuntime", "ClusterServingRuntime"):
        return ()
    users = f"{', '.join(service.endpoints)} in this file" if service.endpoints else "none is in this file"
    where = "in any namespace" if service.kind == "ClusterServingRuntime" else "in its namespace"
    return (
        Finding(
            "shared-runtime",
            "warn",
            f"every InferenceService {where} that uses {service.kind} {service.name} changes and restarts: {users}",
            "KServe starts each service of a runtime with the runtime's arguments",
            "kubectl get inferenceservices -A -o wide lists services and runtimes",
        ),
    )


def _target(source: Source, request: SpeculationRequest) -> Target:
    kserve = request.staging.kserve_version or (source.kserve_version() if source.stages else None)
    return resolve_target(source, listing=request.target_listing, ask_hub=_asks_hub(source, request), kserve=kserve)


def _asks_hub(source: Source, request: SpeculationRequest) -> bool:
    return source.asks_hub and _loads_weights(request)


def _loads_weights(request: SpeculationRequest) -> bool:
    method = METHODS.get(request.method)
    return method is not None and method.loads_weights


def _revision(spec: Spec) -> str | None:
    pinned = spec.settings.get("revision")
    return pinned if isinstance(pinned, str) else None
