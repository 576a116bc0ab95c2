"""Carry out what the watch decided, by the operations that a person would run."""

from __future__ import annotations

from mpctl.app.operate import maintain, resume, rollback, rollout
from mpctl.app.operate.outcome import OperationOutcome
from mpctl.app.planned_workload import prompts_of
from mpctl.app.requests import (
    MeasurementRequest,
    RollbackRequest,
    RolloutRequest,
    SpeculationRequest,
    TrafficRequest,
)
from mpctl.app.session.base import Session
from mpctl.app.watch.ledger_facts import WATCH, LedgerFacts
from mpctl.errors import InputError
from mpctl.experiment.prompt_files import BUILT_IN
from mpctl.experiment.workload import Workload
from mpctl.gate.policy import Policy
from mpctl.records import restored
from mpctl.rollout.operation import Ending
from mpctl.rollout.plan import Plan
from mpctl.watch.decision import WatchAct, WatchDecision
from mpctl.watch.watch_policy import WatchPolicy


def carry_out_decision(
    session: Session,
    policy: WatchPolicy,
    facts: LedgerFacts,
    decision: WatchDecision,
) -> str:
    """Carry out a decision, and return what was done, in words.

    Raises:
        MpctlError: it failed; what was begun is in the ledger, and the next reading continues it.
    """
    if decision.act is WatchAct.RESUME:
        outcome = resume.run(session, prompts_of(policy.re_arm_prompts))
        return f"{facts.interrupted} was continued: {ending_text(outcome)}"
    if decision.act is WatchAct.RE_ARM:
        assert facts.replaced_spec is not None
        outcome = rollout.run(session, re_arm_request(session, policy, facts))
        return f"{facts.replaced_spec.describe()} was measured again: {ending_text(outcome)}"
    why = f"{WATCH}: {decision.reason}"
    if decision.act is WatchAct.RESTART:
        outcome = maintain.restart(session, why=why, by=WATCH)
        return f"restarted the engines of {outcome.plan.spec_text}: {ending_text(outcome)}"
    assert decision.rung is not None
    request = RollbackRequest(to_revision=decision.rung.revision, why=why, by=WATCH)
    outcome = rollback.run(session, request)
    return f"fell back to {decision.rung.spec}, revision {decision.rung.revision}: {ending_text(outcome)}"


def re_arm_request(session: Session, policy: WatchPolicy, facts: LedgerFacts) -> RolloutRequest:
    """The rollout that tries the replaced spec again, behind the gate: measured and judged as when it was promoted, on
    the policy's prompts where it names some."""
    assert facts.replaced_spec is not None
    config = facts.replaced_spec.config() or {}
    draft = str(config.get("model") or "") or None
    promotion = facts.promotion
    return RolloutRequest(
        SpeculationRequest(facts.replaced_spec.method, config=config, draft=draft),
        _promoted_measurement(session, promotion, prompts_of(policy.re_arm_prompts)),
        TrafficRequest(
            keep_baseline=promotion is not None and promotion.keep_baseline,
            users_share_percent=(promotion.users.share_percent or None)
            if promotion is not None
            else None,
        ),
        by=WATCH,
    )


def _promoted_measurement(
    session: Session, promotion: Plan | None, prompts: tuple[str, ...]
) -> MeasurementRequest:
    record = None if promotion is None else session.store.load(promotion.workload, "workload")
    if promotion is None or record is None:
        return MeasurementRequest(prompts=prompts)
    hint = "name prompts in re_arm_prompts of the watch policy"
    what = f"workload {promotion.workload}"
    workload = restored(what, Workload.from_record, record, hint=hint)
    names = tuple(f"{kind.name}:{kind.share:g}" for kind in workload.traffic)
    if not prompts and any(kind.name not in BUILT_IN for kind in workload.traffic):
        texts = ", ".join(kind.name for kind in workload.traffic)
        raise InputError(
            f"no record keeps the prompts of {texts}", field="re_arm_prompts", hint=hint
        )
    return MeasurementRequest(
        prompts=prompts or names,
        requests=workload.requests,
        rounds=None if prompts else workload.repeats,
        time_limit_s=workload.max_time_s,
        concurrency=workload.concurrency,
        requests_per_s=workload.rates,
        temperatures=workload.temperatures,
        max_tokens=workload.max_tokens,
        reuse_prompts=workload.reuse,
        limits=_limits(promotion),
    )


def _limits(promotion: Plan) -> dict[str, object]:
    """The limits of the promotion, without those that would let users' requests into the figures."""
    defaults = Policy().to_record()
    strict = ("max_token_gap", "max_cache_gap")
    return {
        name: min(value, defaults[name]) if name in strict else value
        for name, value in promotion.policy.to_record().items()
    }


def ending_text(outcome: OperationOutcome) -> str:
    """Return in words how the operation ended.

    Raises:
        MpctlError: it failed.
    """
    operation = outcome.operation
    if operation is None or operation.ending is None:
        return "nothing to do"
    if operation.ending is Ending.FAILED and outcome.error is not None:
        raise outcome.error
    return f"{operation.id} {operation.ending.value}"
