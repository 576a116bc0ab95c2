"""A stale draft is made fresh by the watch over a service in memory: proposal, free methods first, one training, the
gate, and what ends it early. A command that dies at any boundary is continued without a second training."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from session import MemorySession
from trainer import MemoryTrainer, MemoryTraining
from watched import ACTS, QUICK, Service, rounds, watch
from world import Crash

from mpctl.app.inspect.history import read_history
from mpctl.app.operate import maintain, resume, rollback, rollout
from mpctl.app.planned_workload import prompts_of
from mpctl.app.requests import RollbackRequest, RolloutRequest, SpeculationRequest
from mpctl.app.watch import act
from mpctl.app.watch.ledger_facts import read_facts
from mpctl.errors import Conflict, MpctlError
from mpctl.lab.drafts import refresh
from mpctl.lab.drafts.card import prompt_digest
from mpctl.lab.drafts.order import TrainingPhase
from mpctl.lab.drafts.requests import DraftTrainRequest
from mpctl.lab.drafts.training import ServiceTraining, made_heads
from mpctl.rollout.operation import Ending
from mpctl.rollout.plan import Kind
from mpctl.watch.refresh import RefreshPolicy

MARKER = "planted-7f3a"


@pytest.fixture
def policy(tmp_path, monkeypatch):
    monkeypatch.setenv("MPCTL_STATE_DIR", str(tmp_path / "state"))
    file = tmp_path / "traffic.jsonl"
    file.write_text(
        "".join(json.dumps({"prompt": f"{MARKER} question {n}"}) + "\n" for n in range(300))
    )
    refreshes = RefreshPolicy({"chat": str(file)}, min_prompts=100, free_methods=(), apply=True)
    return replace(
        ACTS, refresh=refreshes, fleet_share=1.0, fleet_window_s=1.0, sentinel_s=0.0, restart=False
    )


@cache
def disk_with_a_head():
    session = MemorySession()
    request = RolloutRequest(SpeculationRequest("eagle3", draft="org/old"), QUICK)
    assert rollout.run(session, request).operation.ending is Ending.PROMOTED
    return session.memory.disk


def with_a_head(**more):
    session = Service(disk=disk_with_a_head().copy(), **more)
    session.memory.context.clock.sleep(3600.0)
    return session


def watched_by(session, policy, trainer):
    watcher, events = watch(session, policy=policy)
    watcher.trainings = lambda _session, refresh, _promotion: MemoryTraining(trainer, refresh)
    return watcher, events


def went_stale(policy, trainer, session=None):
    """A watch that fell back from a head that went stale, and its events."""
    session = session or with_a_head()
    watcher, events = watched_by(session, policy, trainer)
    rounds(watcher, 3)
    session.engine.accepts = 0.0
    rounds(watcher, 12)
    assert "FellBack" in [e.reason for e in events if e.kind == "action"], [e.line for e in events]
    session.engine.accepts, session.engine.speculates = 1.0, False
    return session, watcher, events


def kinds(session):
    return [
        (op.plan.kind.value, op.ending.value if op.ending else None)
        for op in session.memory.operations()
    ]


def test_a_stale_head_is_trained_anew_gated_and_promoted_without_a_person(policy):
    trainer = MemoryTrainer()
    session, watcher, events = went_stale(policy, trainer)
    rounds(watcher, 1)
    traffic = Path(policy.refresh.prompts["chat"])
    traffic.write_text(
        json.dumps({"prompt": f"{MARKER} older than all"}) + "\n" + traffic.read_text()
    )
    rounds(watcher, 20)
    assert kinds(session) == [
        ("rollout", "promoted"),
        ("rollback", "rolled back"),
        ("refresh", "offered"),
        ("rollout", "promoted"),
    ]
    assert trainer.trainings == 1
    training, gate = session.memory.operations()[2:]
    assert (gate.plan.cause, gate.plan.by) == (training.id, "watch")
    assert "tokens per step 3.40, the old head's 1.75" in training.detail
    (order,) = trainer.orders()
    asked = [prompt for _, prompt in session.memory.meter.sent]
    assert len(asked) > 10
    assert not {prompt_digest(prompt, order.salt) for prompt in asked} & {*order.training}
    assert [e.reason for e in events if e.kind == "action"] == [
        "FellBack",
        "Refreshed",
        "Refreshed",
    ]
    assert MARKER not in json.dumps([e.to_record() for e in events])
    assert MARKER not in repr(
        (session.memory.disk.ledger, session.memory.disk.records, session.console.lines)
    )


@pytest.mark.parametrize("change", [{"training": ()}, {"salt": "0"}, {"prompts": "0"}])
def test_an_order_that_is_not_the_ledgers_decides_no_prompts_of_a_measurement(policy, change):
    trainer, session, sent = MemoryTrainer(), with_a_head(), []
    orders = trainer.orders

    def changed():
        if kinds(session)[-1] != ("refresh", "offered"):
            return orders()
        sent.append(len(session.memory.meter.sent))
        return tuple(replace(order, **change) for order in orders())

    trainer.orders = changed
    _, watcher, events = went_stale(policy, trainer, session)
    rounds(watcher, 10)
    assert kinds(session)[-1] == ("refresh", "offered")
    assert len(session.memory.meter.sent) == sent[0]
    reported = " ".join(event.line for event in events)
    assert "the order of svc-1 is missing, or is not the one that refresh-3 recorded" in reported


def test_a_card_of_another_salt_than_the_ledgers_is_refused(policy):
    trainer = MemoryTrainer()
    card = trainer.card
    trainer.card = lambda uid: replace(card(uid), salt="0")
    session, watcher, _ = went_stale(policy, trainer)
    rounds(watcher, 20)
    ended = session.memory.operations()[-1]
    assert ended.ending is Ending.REFUSED
    assert ended.detail == "the card of svc-1 is not that of the order that refresh-3 recorded"


@pytest.mark.parametrize("begun", [False, True])
def test_a_job_that_another_user_prepared_ends_the_refresh_by_name(policy, begun):
    trainer = MemoryTrainer(phase=TrainingPhase.COLLECTING)
    submit = trainer.submit

    def prepared(order, prompts):
        if begun and trainer.trainings == 0:
            return submit(order, prompts)
        raise Conflict("Job ml/mpctl-draft-svc-1 is not what mpctl would create now")

    trainer.submit = prepared
    session, watcher, _ = went_stale(policy, trainer)
    rounds(watcher, 10)
    ended = session.memory.operations()[-1]
    assert ended.ending is Ending.REFUSED
    assert ended.detail.endswith("Job ml/mpctl-draft-svc-1 is not what mpctl would create now")
    assert bool(trainer.purged) is begun


def test_a_refresh_holds_no_lease_while_it_trains_and_blocks_no_other_operation(policy):
    trainer = MemoryTrainer(phase=TrainingPhase.TRAINING)
    session, watcher, _ = went_stale(policy, trainer)
    rounds(watcher, 10)
    assert kinds(session)[-1] == ("refresh", None)
    assert session.memory.unfinished() is None
    assert session.memory.operations()[-1].begun == "card"
    assert "refresh-3" in [op.id for op in read_history(session).operations]
    assert "carries refresh-3 on" in resume.run(session).note
    other = rollout.run(session, RolloutRequest(SpeculationRequest("ngram"), QUICK))
    assert other.operation.id == "rollout-4"
    assert other.operation.ending is Ending.PROMOTED
    trainer.phase = TrainingPhase.DONE
    rounds(watcher, 10)
    assert kinds(session)[2] == ("refresh", "offered")
    assert len(kinds(session)) == 4, "a person's choice is not replaced"
    assert trainer.trainings == 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"worse": True}, "no better: tokens per step 1.75, the old head's 3.40"),
        ({"trained_for": "d0"}, "overtaken: the head was trained for "),
        ({"phase": TrainingPhase.FAILED}, "not trained: failed: state"),
    ],
)
def test_what_ends_a_refresh_early_changes_nothing_that_serves(policy, change, reason):
    trainer = MemoryTrainer(**change)
    session, watcher, _ = went_stale(policy, trainer)
    before = session.memory.disk.text
    rounds(watcher, 20)
    ended = session.memory.operations()[-1]
    assert (ended.id, ended.ending) == ("refresh-3", Ending.REFUSED)
    assert ended.detail.startswith(reason)
    assert session.memory.disk.text == before
    assert trainer.trainings == 1
    assert bool(trainer.purged) == ("phase" in change)


def test_a_run_without_capacity_is_cancelled_at_its_deadline(policy):
    trainer = MemoryTrainer(phase=TrainingPhase.PENDING)
    session, watcher, _ = went_stale(policy, trainer)
    rounds(watcher, 10)
    assert kinds(session)[-1] == ("refresh", None)
    session.memory.context.clock.sleep(7 * 3600.0)
    rounds(watcher, 10)
    assert session.memory.operations()[-1].detail == "no capacity: pending: state"
    assert trainer.cancelled
    assert trainer.trainings == 1


def test_by_default_the_watch_only_proposes_the_command_once(policy):
    trainer = MemoryTrainer()
    proposes = replace(
        policy, refresh=replace(policy.refresh, apply=False, free_methods=("ngram",))
    )
    _, watcher, events = went_stale(proposes, trainer)
    rounds(watcher, 20)
    (event,) = [e for e in events if e.reason == "RefreshProposed"]
    assert event.command.startswith(
        "mpctl drafts train svc --spec eagle3 --from org/old --prompts chat="
    )
    assert "300 prompts, 2.0 GPU hours" in event.text
    assert "first try 'mpctl rollout svc --spec ngram" in event.text
    assert MARKER not in event.text
    assert trainer.trainings == 0


@pytest.mark.parametrize(
    "limit", [{"gpu_hours_per_week": 1.0}, {"attempts": 0}, {"min_prompts": 301}]
)
def test_over_a_limit_nothing_is_trained(policy, limit):
    trainer = MemoryTrainer()
    session, watcher, events = went_stale(
        replace(policy, refresh=replace(policy.refresh, **limit)), trainer
    )
    rounds(watcher, 20)
    assert [kind for kind, _ in kinds(session)] == ["rollout", "rollback"]
    assert (trainer.trainings, len(trainer.runs)) == (0, 0)
    assert [e.reason for e in events if e.kind == "action"] == ["FellBack"]


def test_attempts_are_bounded_and_a_day_lies_between_them(policy):
    trainer = MemoryTrainer(worse=True)
    session, watcher, _ = went_stale(policy, trainer)
    for _ in range(5):
        rounds(watcher, 20)
        rounds(watcher, 20)
        session.memory.context.clock.sleep(86_400.0)
    assert trainer.trainings == 2
    assert [kind for kind, _ in kinds(session)] == ["rollout", "rollback", "refresh", "refresh"]
    first, second = [op.opened_at for op in session.memory.operations()[2:]]
    assert first[:10] < second[:10]


def test_a_free_method_is_measured_before_anything_is_trained_and_a_small_gain_is_not_worth_a_training(
    policy,
):
    trainer = MemoryTrainer()
    session, watcher, _ = went_stale(
        replace(policy, refresh=replace(policy.refresh, free_methods=("ngram",))), trainer
    )
    rounds(watcher, 10)
    session.engine.speculates = True
    rounds(watcher, 10)
    rollouts = [op for op in session.memory.operations() if op.plan.kind is Kind.ROLLOUT]
    assert [(op.plan.spec.method, op.ending) for op in rollouts[1:]] == [("ngram", Ending.PROMOTED)]
    assert trainer.trainings == 0  # ngram is as fast as the head ever was
    facts = read_facts(session, watcher.policy, watcher.trainings)
    assert facts.refresh.stale.gain == pytest.approx(0.0, abs=0.01)


def test_an_undecided_gate_is_measured_once_more_and_its_training_counts_as_an_attempt(
    policy, monkeypatch
):
    limits = act._limits
    monkeypatch.setattr(
        act, "_limits", lambda promotion: {**limits(promotion), "max_failed_excess": 0.0}
    )
    trainer = MemoryTrainer()
    session, watcher, _ = went_stale(policy, trainer)
    text = session.memory.disk.text
    tried = [("refresh", "offered"), ("rollout", "undecided"), ("rollout", "undecided")]
    for attempt in (1, 2, 2):  # attempts: 2
        rounds(watcher, 40)
        assert [ended for ended in kinds(session)[2:] if ended[0] != "rollback"] == tried * attempt
        session.memory.context.clock.sleep(2 * 86400.0)
    assert trainer.trainings == 2
    assert session.memory.disk.text == text


def test_a_head_that_was_withdrawn_is_never_armed_again(policy):
    trainer = MemoryTrainer()
    session, watcher, _ = went_stale(policy, trainer)
    rounds(watcher, 20)
    assert made_heads(session, trainer)[0].state == "serving"
    session.engine.speculates = True
    rounds(watcher, 5)
    session.engine.accepts = 0.0
    rounds(watcher, 60)  # beyond the cool-down
    session.engine.accepts, session.engine.speculates = 1.0, False
    back = session.memory.operations()[-1]
    assert (back.plan.kind, back.plan.by) == (Kind.ROLLBACK, "watch")
    watcher.policy = replace(policy, re_arm=True, cool_down_s=0.0, refresh=None)
    before = len(kinds(session))
    rounds(watcher, 20)
    assert len(kinds(session)) == before
    facts = read_facts(session, replace(watcher.policy, ladder=("eagle3", "none")))
    assert facts.replaced_spec is None
    assert "made:" not in str(facts.rungs)
    assert made_heads(session, trainer)[0].state == "withdrawn"


def test_a_person_ends_a_training_and_the_history_is_kept_until_then(policy):
    trainer = MemoryTrainer(phase=TrainingPhase.TRAINING)
    session, watcher, _ = went_stale(policy, trainer)
    rounds(watcher, 5)
    text = session.memory.disk.text
    (ended,) = maintain.abandon(session)
    assert (ended.id, ended.ending) == ("refresh-3", Ending.ABANDONED)
    assert session.memory.disk.text == text
    rollback.run(session, RollbackRequest(to_revision=2))


def test_killed_at_any_boundary_a_refresh_is_continued_without_a_second_training(policy):
    stale, _, _ = went_stale(replace(policy, refresh=None), MemoryTrainer())
    survived, entries = 0, set()
    while True:
        survived += 1
        session, trainer = stale.later(), MemoryTrainer()
        session.memory.disk = stale.memory.disk.copy()
        trainer.boundary = session.memory.boundary
        watcher, _ = watched_by(session, policy, trainer)
        session.memory.die_at(survived)
        try:
            while kinds(session)[-1] != ("refresh", "offered"):
                rounds(watcher)
        except Crash:
            pass
        else:
            break
        entries.add(len(session.memory.disk.ledger))
        heir = session.later()
        trainer.boundary = lambda _where: None
        watcher, _ = watched_by(heir, policy, trainer)
        rounds(watcher, 10)
        trained = [op for op in heir.memory.operations() if op.plan.kind is Kind.REFRESH]
        assert [op.ending for op in trained] == [Ending.OFFERED], f"boundary {survived}"
        assert trainer.trainings == 1, f"boundary {survived}"
        heir.memory.check_ledger()
    assert len(entries) == 5, (
        "killed before the first entry, and after opened, reserve, train, and card with the end"
    )
    assert survived > 10


def test_a_run_that_waits_for_its_prompts_gets_them_again_unless_the_file_changed(policy):
    trainer = MemoryTrainer(phase=TrainingPhase.COLLECTING)
    _, watcher, _ = went_stale(policy, trainer)
    rounds(watcher, 10)
    sent = trainer.sent
    assert sent > 1
    with Path(policy.refresh.prompts["chat"]).open("a") as file:
        file.write(json.dumps({"prompt": "a new question"}) + "\n")
    rounds(watcher, 10)
    assert (trainer.sent, trainer.trainings) == (sent, 1)


def test_a_training_of_somebody_else_under_the_same_name_is_left_alone(policy):
    trainer = MemoryTrainer()
    training = MemoryTraining(trainer, policy.refresh)
    session = with_a_head()
    refresh.propose(session, training, draft="org/old", cause="stale", by="watch")
    other, _ = training.order("svc-1", "another salt")
    trainer.orders = iter([(), (other,)]).__next__  # submitted between the two readings
    ended = refresh.advance(session, training)
    assert (ended.ending, ended.detail) == (Ending.REFUSED, "another training took the name svc-1")
    assert (trainer.trainings, trainer.purged) == (0, [])


def test_prompts_that_changed_between_submission_and_its_entry_end_the_refresh_without_a_run(
    policy,
):
    trainer, session = MemoryTrainer(), with_a_head()
    training = MemoryTraining(trainer, policy.refresh)
    refresh.propose(session, training, draft="org/old", cause="stale", by="watch")
    trainer.boundary = lambda _where: session.memory.die_at(len(session.memory.trail) + 1)
    with pytest.raises(Crash):
        refresh.advance(session, training)
    assert session.memory.operations()[-1].begun == "train"
    trainer.boundary = lambda _where: None
    with Path(policy.refresh.prompts["chat"]).open("a") as file:
        file.write(json.dumps({"prompt": "a new question"}) + "\n")
    ended = refresh.advance(session.later(), training)
    assert (ended.ending, ended.detail) == (
        Ending.REFUSED,
        "the prompts changed before they were sent",
    )
    assert trainer.purged == [ended.result("reserve", refresh.Reserved).name]


_STAGES = """#!{python}
import json, pathlib, sys
folder, uid = pathlib.Path(sys.argv[2]), sys.argv[4]
with open(folder.parent / "runs", "a") as file:
    file.write("run\\n")
order = json.loads((folder / "order.json").read_text())
counts = [[dict(steps=10, accepted=[first - n % 2, 2, 1]) for n in range(8)] for first in (9, 4)]
card = dict(name=order["name"], method=order["method"], target=order["target"], head_digest="ab", salt=order["salt"],
            training_digests=order["training"], counts=dict(k=order["k"], new=counts[0], old=counts[1]))
(folder / "card.json").write_text(json.dumps(card))
(folder / ".state").write_text(json.dumps(dict(uid=uid, phase="done", message="")))
(folder / ".state").replace(folder / "state.json")
"""


def policy_training(session, policy, trainer, **settings):
    prompts = prompts_of(policy.refresh.prompts)
    request = DraftTrainRequest(
        "eagle3", prompts, start="org/old", command="true {start} {out}", **settings
    )
    service = ServiceTraining(trainer, lambda order: (order.to_record(),), lambda order: order)
    return refresh.PolicyTraining(session, request, 3, service)


def test_a_refresh_on_weights_without_a_known_licence_ends_before_anything_is_submitted(policy):
    trainer, session = MemoryTrainer(), with_a_head()
    training = policy_training(session, policy, trainer)
    refresh.propose(
        session, training, draft="org/old", cause="watch: WorseDraft: stale", by="watch"
    )
    ended = refresh.advance(session, training)
    assert (ended.ending, trainer.sent) == (Ending.REFUSED, 0)
    assert "[unknown-licence]" in ended.detail


def test_a_process_of_this_machine_trains_for_the_watch_once(policy, tmp_path):
    local = pytest.importorskip("mpctl.local.trainer")
    engine, session = tmp_path / "python", with_a_head()
    engine.write_text(_STAGES.format(python=sys.executable))
    engine.chmod(0o755)
    trainer = local.LocalTrainer(tmp_path / "service", str(engine), tmp_path)
    training = policy_training(session, policy, trainer, accepted=("unknown-licence",))
    refresh.propose(
        session, training, draft="org/old", cause="watch: WorseDraft: stale", by="watch"
    )
    for _ in range(600):
        ended = refresh.advance(session, training)
        if ended.ending is not None:
            break
        time.sleep(0.05)
    assert (ended.ending, ended.detail.partition(":")[0]) == (Ending.OFFERED, "svc-1")
    assert (tmp_path / "service" / "drafts" / "runs").read_text() == "run\n"
    assert MARKER not in repr((session.memory.disk.ledger, trainer.cards()))


def test_a_trainer_that_cannot_be_asked_is_reported_and_delays_no_fallback(policy):
    trainer = MemoryTrainer(phase=TrainingPhase.TRAINING)
    session, watcher, events = went_stale(policy, trainer)
    rounds(watcher, 5)
    assert (
        rollout.run(session, RolloutRequest(SpeculationRequest("ngram"), QUICK)).operation.id
        == "rollout-4"
    )

    def unreachable(_uid):
        raise MpctlError("the trainer is unreachable")

    trainer.status = unreachable
    session.engine.speculates, session.engine.accepts = True, 1.0
    session.memory.context.clock.sleep(3600.0)
    rounds(watcher, 6)
    session.engine.share = 0.0
    rounds(watcher, 6)
    assert "RefreshedFailed" in [e.reason for e in events]
    last = session.memory.operations()[-1]
    assert (last.plan.kind, last.plan.by, last.ending) == (
        Kind.ROLLBACK,
        "watch",
        Ending.ROLLED_BACK,
    )
