"""The last question of a change: what speaks against it?"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mpctl.app.change.resolve import Checkpoint, Target
from mpctl.app.change.staging import Staged, staging_findings
from mpctl.errors import InputError
from mpctl.estimate import ModelFacts, facts_of, target_name_of
from mpctl.estimate.facts import loaded_gib, served_numbers
from mpctl.estimate.memory import (
    DraftMemory,
    Estimate,
    NotEstimated,
    Served,
    default_sequences,
    estimate,
    kv_bytes_of,
    memory_findings,
    read_log,
)
from mpctl.estimate.table import gpu_gib, gpus, model_shape
from mpctl.manifest import Service
from mpctl.methods import Finding, preflight_findings, unknowns
from mpctl.methods.preflight.checks import Check, match
from mpctl.methods.preflight.rule import ordered


@dataclass(frozen=True)
class Load:
    """The load a change has to carry. ``concurrency``: None when unknown."""

    concurrency: int | None = None
    temperature: float = 0.0


@dataclass(frozen=True)
class Checked:
    """The preflight of a change: findings, what could not be checked, how the draft matches, and the KV pool."""

    findings: tuple[Finding, ...]
    unchecked: tuple[str, ...]
    checks: tuple[Check, ...] = ()
    memory: Estimate | None = None


def check(
    target: Target,
    staged: Staged,
    draft: Checkpoint,
    notes: tuple[Finding, ...],
    load: Load,
    *,
    log: str | None,
    gpu: str | None,
) -> Checked:
    """Run every preflight rule. ``notes``: of the spec; ``log``: the serving engine's."""
    spec = staged.spec
    facts = facts_of(
        target.service,
        engine_version=target.engine,
        kserve_version=target.kserve,
        target=target.checkpoint.facts,
        draft=draft.facts,
        concurrency=load.concurrency,
        temperature=load.temperature,
        engine_log=log,
    )
    facts = replace(facts, gpu=gpu)
    memory, no_memory = None, ""
    try:
        memory = estimate_memory(target, draft.facts, gpu=gpu, log=log, concurrency=load.concurrency)
    except NotEstimated as error:
        no_memory = str(error) if spec.draft is not None else ""
    of_memory = memory_findings(memory) if memory else ()
    unread = (reason for reason in (target.checkpoint.unread, draft.unread) if reason)
    return Checked(
        ordered((*notes, *preflight_findings(spec, facts), *staging_findings(staged.plan), *of_memory)),
        (
            *unknowns(spec, facts),
            *(f"files: {reason}" for reason in unread),
            *((f"kv-pool: not estimated: {no_memory}",) if no_memory else ()),
        ),
        match(spec, facts),
        memory,
    )


def with_refusals(findings: tuple[Finding, ...], refused: tuple[str, ...]) -> tuple[Finding, ...]:
    """The findings with some warnings as refusals."""
    return ordered(replace(f, severity="refuse") if f.id in refused and f.severity == "warn" else f for f in findings)


def require_listed(gpu: str | None) -> None:
    """Refuse a GPU of --gpu that is not in the table.

    Raises:
        InputError: it is not; the hint lists those that are.
    """
    if gpu is not None and gpu_gib(gpu) is None:
        raise InputError(f"{gpu!r} is not in the table", field="--gpu", hint=f"known: {', '.join(gpus())}")


def require_known(ignored: tuple[str, ...], findings: tuple[Finding, ...]) -> None:
    """Refuse to override an unknown finding.

    Raises:
        InputError: a finding is unknown; the message lists the known ones.
    """
    unknown = sorted(set(ignored) - {f.id for f in findings})
    if unknown:
        refusals = ", ".join(f.id for f in findings if f.severity == "refuse") or "nothing that refuses"
        raise InputError(
            f"unknown finding: {', '.join(unknown)}", field="--ignore", hint=f"the preflight found {refusals}"
        )


def estimate_memory(
    target: Target,
    draft: ModelFacts | None,
    *,
    gpu: str | None = None,
    log: str | None = None,
    concurrency: int | None = None,
) -> Estimate:
    """The KV pool before and after. A ``gpu`` that is not in the table is as good as none.

    Raises:
        NotEstimated: dimensions or memory are unknown.
    """
    gib = gpu_gib(gpu)
    facts = target.checkpoint.facts
    name = target_name_of(target.service, target.name)
    shape = (facts.shape if facts else None) or model_shape(name)
    if shape is None:
        raise NotEstimated("the target's dimensions are not known")
    if draft is None or draft.shape is None or draft.weight_gib is None or draft.shape.hybrid:
        raise NotEstimated("what the draft takes is not known")
    served = _served(target.service, facts, gpu, gib, concurrency)
    joined = DraftMemory(draft.weight_gib / served.tensor_parallel, kv_bytes_of(draft.shape, served))
    logged = None if log is None else read_log(log)
    return estimate(shape, joined, served, log=logged, target_gib=loaded_gib(target.service, facts, shape))


def _served(
    service: Service, target: ModelFacts | None, gpu: str | None, gib: float | None, concurrency: int | None
) -> Served:
    numbers = served_numbers(service, target)
    if numbers.max_model_len is None:
        raise NotEstimated("the longest request is not known; --max-model-len names it")
    return Served(
        numbers.max_model_len,
        gib,
        numbers.utilisation,
        numbers.max_num_seqs or (None if gpu is None or gib is None else default_sequences(gpu, gib)),
        numbers.tensor_parallel,
        numbers.kv_element_bytes,
        concurrency,
    )
