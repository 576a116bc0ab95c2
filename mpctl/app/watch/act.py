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
    """The rollout that tries the replaced spec again, behind the gate: measured, judged and with the same findings
    accepted as when it was promoted, on the policy's prompts where it names some."""
    assert facts.replaced_spec is not None
    config = facts.replaced_spec.config() or {}
    draft = str(config.get("model") or "") or None
    promotion = facts.promotion
    measurement = MeasurementRequest(prompts=prompts_of(policy.re_arm_prompts))
    if promotion is None:
        speculation = SpeculationRequest(facts.replaced_spec.method, config=config, draft=draft)
        return RolloutRequest(speculation, measurement, TrafficRequest(), by=WATCH)
    workload = _workload_of(session, promotion)
    if workload is not None:
        measurement = _as_promoted(promotion, workload, measurement.prompts)
    return RolloutRequest(
        SpeculationRequest(
            facts.replaced_spec.method,
            config=config,
            draft=draft,
            accepted=() if workload is None else workload.accepted,
        ),
        measurement,
        TrafficRequest(
            keep_baseline=promotion.keep_baseline,
            users_share_percent=promotion.users.share_percent or None,
        ),
        fidelity=promotion.fidelity,
        by=WATCH,
    )


_HINT = "name prompts in re_arm_prompts of the watch policy"


def _workload_of(session: Session, promotion: Plan) -> Workload | None:
    record = session.store.load(promotion.workload, "workload")
    if record is None:
        return None
    what = f"workload {promotion.workload}"
    return restored(what, Workload.from_record, record, hint=_HINT)


def _as_promoted(
    promotion: Plan, workload: Workload, prompts: tuple[str, ...]
) -> MeasurementRequest:
    """The measurement of a promotion, on other prompts where they are named."""
    names = tuple(f"{kind.name}:{kind.share:g}" for kind in workload.traffic)
    if not prompts and any(kind.name not in BUILT_IN for kind in workload.traffic):
        texts = ", ".join(kind.name for kind in workload.traffic)
        raise InputError(
            f"no record keeps the prompts of {texts}", field="re_arm_prompts", hint=_HINT
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
    """The limits of the promotion; none of them lets more of users' requests into the figures than the default."""
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
