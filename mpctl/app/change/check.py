"""The last question of a change: what speaks against it?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from mpctl.app.change.resolve import Checkpoint, UnchangedService, load_known_bad
from mpctl.app.change.staging import StagedDraft, staging_findings
from mpctl.app.requests import SpeculationRequest
from mpctl.errors import InputError
from mpctl.estimate import ModelFacts, facts_of
from mpctl.estimate.facts import loaded_gib, served_numbers
from mpctl.estimate.memory import (
    DraftMemory,
    Estimate,
    NotEstimated,
    default_sequences,
    estimate,
    memory_findings,
    read_log,
)
from mpctl.estimate.shape import gpu_gib, model_shape
from mpctl.experiment.users import USERS_LOAD
from mpctl.gate.arms import is_difference
from mpctl.methods import Finding
from mpctl.methods.preflight.checks import OF_PAIR, RULES
from mpctl.methods.preflight.known_bad import PREFIX
from mpctl.methods.preflight.preflight_rule import RuleResult, examine, ordered


@dataclass(frozen=True)
class Load:
    """The load a change has to carry. ``concurrency``: None when unknown."""

    concurrency: int | None = None
    temperature: float = 0.0


@dataclass(frozen=True)
class PreflightResult:
    """The preflight of a change: findings, what could not be checked, how the draft matches, and the KV pool."""

    findings: tuple[Finding, ...]
    unchecked: tuple[str, ...]
    checks: tuple[RuleResult, ...] = ()  # whether the draft fits its target
    memory: Estimate | None = None


class Conditions(NamedTuple):
    """The conditions that a change is checked under: its load, the serving engine's log, and the GPU."""

    load: Load = Load()
    log: str | None = None
    gpu: str | None = None


@dataclass(frozen=True)
class Preflight:
    """A staged change with everything that the rules read of it. ``notes``: findings of its spec."""

    request: SpeculationRequest
    target: UnchangedService
    staged: StagedDraft
    draft: Checkpoint
    notes: tuple[Finding, ...]
    conditions: Conditions

    def under_load(self, load: Load) -> Preflight:
        """The same change under another load."""
        return replace(self, conditions=self.conditions._replace(load=load))

    def check(self) -> PreflightResult:
        """Run every preflight rule; warnings that the request refuses are refusals.

        Raises:
            InputError: the request overrides an unknown finding; the hint lists the known ones.
        """
        request, target, draft, spec = self.request, self.target, self.draft, self.staged.spec
        memory, unestimated = None, []
        try:
            memory = estimate_memory(target, draft.facts, self.conditions)
        except NotEstimated as error:
            if spec.draft is not None:
                unestimated.append(f"kv-pool: not estimated: {error}")
        load = self.conditions.load
        facts = replace(
            facts_of(
                target.service,
                engine_version=target.engine,
                kserve_version=target.kserve,
                target=target.checkpoint.facts,
                draft=draft.facts,
                concurrency=load.concurrency,
                temperature=load.temperature,
                engine_log=self.conditions.log,
            ),
            gpu=self.conditions.gpu,
        )
        known_bad = load_known_bad(request.known_bad)
        results = examine(RULES, spec, facts)
        unchecked = (
            *(result.unchecked for result in results if result.missing),
            *known_bad.unchecked(spec, facts),
            *(f"files: {why}" for why in (target.checkpoint.unread, draft.unread) if why),
            *unestimated,
        )
        every = (
            *self.notes,
            *(result.finding for result in results if result.finding is not None),
            *known_bad.findings(spec, facts),
            *staging_findings(self.staged.plan),
            *(memory_findings(memory) if memory else ()),
        )
        findings = ordered(
            replace(finding, severity="refuse")
            if finding.id in request.refused and finding.severity == "warn"
            else finding
            for finding in every
        )
        # Accepting a finding that was not found does no harm, and scripts name the same ones for every service.
        known_ids = {
            *(finding.id for finding in findings),
            *(rule.id for rule in RULES),
            *(f"{PREFIX}{row.id}" for row in known_bad.rows),
            *_WITHOUT_RULE,
        }
        unknown = sorted(
            name for name in {*request.accepted} - known_ids if not is_difference(name)
        )
        if unknown:
            refusals = (
                ", ".join(f.id for f in findings if f.severity == "refuse")
                or "nothing that refuses"
            )
            raise InputError(
                f"unknown finding: {', '.join(unknown)}",
                field="--accept",
                hint=f"the preflight found {refusals}",
            )
        return PreflightResult(
            findings, unchecked, tuple(r for r in results if r.id in OF_PAIR), memory
        )


# Findings that no rule has, each with the module that makes it in mind: settings, staging, pool, request path.
_WITHOUT_RULE = frozenset((
    "answers-cut", "draft-missing", "draft-not-staged", "draft-staging", "draft-unmounted", "key-without-effect",
    "kv-pool", "kv-pool-too-small", "large-k", "liveness-before-start", "no-disruption-budget", "parallel-eagle3",
    "pods-left-alone", "requests-lost", "shared-runtime", "unknown-key",
    USERS_LOAD,
))  # fmt: skip


def estimate_memory(
    target: UnchangedService, draft: ModelFacts | None, conditions: Conditions
) -> Estimate:
    """The KV pool before and after. A GPU that is not in the table is as good as none.

    Raises:
        NotEstimated: dimensions or memory are unknown.
    """
    gpu, log, facts = conditions.gpu, conditions.log, target.checkpoint.facts
    gib = gpu_gib(gpu)
    shape = (facts.shape if facts else None) or model_shape(target.model)
    if shape is None:
        raise NotEstimated("the target's dimensions are not known")
    if draft is None or draft.shape is None or draft.weight_gib is None or draft.shape.hybrid:
        raise NotEstimated("what the draft takes is not known")
    served = replace(served_numbers(target.service, facts), gpu_gib=gib)
    if served.max_num_seqs is None and gpu is not None and gib is not None:
        served = replace(served, max_num_seqs=default_sequences(gpu, gib))
    joined = DraftMemory(
        draft.weight_gib / served.tensor_parallel,
        draft.shape.kv_bytes_per_token(
            tensor_parallel=served.tensor_parallel, element_bytes=served.element_bytes
        ),
    )
    logged = None if log is None else read_log(log)
    return estimate(
        shape, joined, served, log=logged, target_gib=loaded_gib(target.service, facts, shape)
    )
