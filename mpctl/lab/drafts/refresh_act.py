"""Carry out what the watch decided about a draft that went stale."""

from __future__ import annotations

import json
from contextlib import closing

from mpctl.app.operate import rollout
from mpctl.app.requests import RolloutRequest, SpeculationRequest, TrafficRequest
from mpctl.app.session.base import Session
from mpctl.app.watch.act import ending_text, promoted_measurement
from mpctl.app.watch.ledger_facts import WATCH, RefreshFacts, Trainings
from mpctl.experiment.prompt_files import body_of
from mpctl.lab.drafts import refresh
from mpctl.lab.drafts.card import prompt_digest
from mpctl.platform.state_files import state_root, write_text
from mpctl.rollout.operation import Operation
from mpctl.rollout.plan import Plan
from mpctl.watch.watch_policy import WatchPolicy


def advance_refresh(
    session: Session,
    policy: WatchPolicy,
    facts: RefreshFacts,
    reason: str,
    trainings: Trainings | None,
) -> str:
    """Advance a refresh: roll out the head that waits for its gate, else begin a training or continue the one that
    was begun."""
    assert policy.refresh is not None
    training = (trainings or refresh.open_training)(session, policy.refresh, facts.promotion)
    if training is None:
        return "nothing here can train"
    with closing(training):
        return _advance(session, facts, reason, training)


def _advance(session: Session, facts: RefreshFacts, reason: str, training: refresh.Training) -> str:
    if facts.offered is not None:
        return _roll_out_offered(session, facts.promotion, facts.offered, training)
    if not facts.unfinished:
        refresh.propose(session, training, draft=facts.stale.draft, cause=reason, by=WATCH)
    operation = refresh.advance(session, training)
    if operation is None:
        return "nothing to do"
    state = (
        f"waits for the {operation.begun}" if operation.ending is None else operation.ending.value
    )
    return f"{operation.id} {state}" + (f": {operation.detail}" if operation.detail else "")


def _roll_out_offered(
    session: Session, promotion: Plan, offered: Operation, training: refresh.Training
) -> str:
    """Roll out the head of a refresh with the settings of the one before, on prompts that it was not trained on. Their
    file stays where the rollout is interrupted, which reads it again."""
    spec, reserved = promotion.spec, refresh.reserved_of(offered)
    assert spec is not None
    trained = {*refresh.trained_order(training, offered).training}
    split = training.order(reserved.name, reserved.salt)[1]  # of files that may have grown since
    prompts = (*split.training, *split.holdout)
    holdout = [prompt for prompt in prompts if prompt_digest(prompt, reserved.salt) not in trained]
    file = state_root() / "holdouts" / f"{reserved.name}.jsonl"
    lines = (json.dumps(body_of(prompt)) for prompt in holdout)
    write_text(file, "\n".join(lines) + "\n")
    settings = {name: value for name, value in (spec.config() or {}).items() if name != "model"}
    request = RolloutRequest(
        SpeculationRequest(spec.method, config=settings, draft=training.draft(reserved.name)),
        promoted_measurement(session, promotion, (f"holdout={file}",)),
        TrafficRequest(keep_baseline=promotion.keep_baseline),
        by=WATCH,
        cause=offered.id,
    )
    outcome = rollout.run(session, request)
    file.unlink(missing_ok=True)
    return f"{reserved.name} was measured: {ending_text(outcome)}"
