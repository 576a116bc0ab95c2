"""What a command does, given the service and the ledger: truth tables."""

from __future__ import annotations

from dataclasses import replace

import pytest
from world import BASELINE_TEXT, CANDIDATE_TEXT, OTHER_TEXT, plan

from mpctl.errors import Conflict, InputError
from mpctl.gate.policy import Policy
from mpctl.rollout.decide import Act, accepting_downtime, decide_rollback, decide_rollout
from mpctl.rollout.operation import Ending, Operation
from mpctl.rollout.plan import Kind, Strategy
from mpctl.rollout.ports import Live
from mpctl.rollout.revision import Revision, text_digest

ROLLOUT = plan(Strategy.SIDE_BY_SIDE)


def live(text=BASELINE_TEXT):
    return Live("svc", "chat", text, text_digest(text), None)


def operation(of=ROLLOUT, name="rollout-1", **changes):
    return Operation(id=name, plan=of, opened_at="2026-01-01T00:00:00+00:00", who="x", **changes)


def revision(number, text, spec="none"):
    return Revision(number, text, "2026-01-01", "x", "as found", spec, "rollout-1")


UNDONE = operation(done={"record": {"revision": 1}})
BY_HAND = operation(UNDONE.undo_plan(why="rollout-1 undone by hand"), "rollback-2")
BY_ITSELF = operation(UNDONE.undo_plan(why="rollout-1 rejected", automatic=True), "rollback-2")
ONE = revision(1, BASELINE_TEXT)
TWO = revision(2, CANDIDATE_TEXT, "ngram")
THREE = revision(3, BASELINE_TEXT)


@pytest.mark.parametrize(
    ("text", "unfinished", "act"),
    [
        (BASELINE_TEXT, None, Act.OPEN),
        (OTHER_TEXT, None, Act.OPEN),
        (CANDIDATE_TEXT, None, Act.ALREADY),
        (BASELINE_TEXT, operation(), Act.RESUME),
        (CANDIDATE_TEXT, operation(), Act.RESUME),  # adopted, but not yet verified
        (CANDIDATE_TEXT, BY_ITSELF, Act.RESUME),  # its own way back, which is what that rollout does next
    ],
)
def test_rollout(text, unfinished, act):
    decision = decide_rollout(ROLLOUT, live(text), unfinished)
    assert decision.act is act
    assert decision.operation == (unfinished if act is Act.RESUME else None)
    assert decision.plan == (ROLLOUT if act is Act.OPEN else None)


@pytest.mark.parametrize(
    "unfinished",
    [
        operation(plan(Strategy.SIDE_BY_SIDE, text=OTHER_TEXT, spec="eagle3"), "rollout-7"),
        operation(BY_HAND.plan, "rollback-7"),
        operation(plan(Strategy.IN_PLACE, kind=Kind.ROLLBACK), "rollback-7"),
        operation(operation(plan(Strategy.IN_PLACE, text=OTHER_TEXT)).undo_plan(why="", automatic=True), "rollback-7"),
    ],
)
def test_a_rollout_beside_another_unfinished_operation_names_it(unfinished):
    with pytest.raises(Conflict, match=rf"{unfinished.id} of svc is unfinished") as caught:
        decide_rollout(ROLLOUT, live(), unfinished)
    assert "mpctl resume" in caught.value.hint


OTHERWISE = {
    "strategy": Strategy.IN_PLACE,
    "policy": Policy(max_time_per_token_ratio=0.8),
    "workload": "workload-2",
    "keep_baseline": True,
}


@pytest.mark.parametrize("text", [BASELINE_TEXT, CANDIDATE_TEXT])
@pytest.mark.parametrize(
    ("terms", "named"),
    [
        (("strategy",), "strategy"),
        (("policy",), "policy"),
        (("workload",), "workload"),
        (("keep_baseline",), "keep baseline"),
        (("keep_baseline", "strategy"), "strategy, keep baseline"),
        (tuple(OTHERWISE), "strategy, policy, workload, keep baseline"),
    ],
)
def test_an_unfinished_rollout_does_not_go_on_under_other_terms(text, terms, named):
    changes = {"strategy": Strategy.SIDE_BY_SIDE, **{term: OTHERWISE[term] for term in terms}}
    with pytest.raises(Conflict, match=rf"rollout-1 of svc .* was planned with another {named}$") as caught:
        decide_rollout(plan(**changes), live(text), operation())
    assert "mpctl resume" in caught.value.hint
    assert "mpctl rollback" in caught.value.hint


@pytest.mark.parametrize(
    ("changes", "text", "unfinished", "act"),
    [
        ({"ready_timeout_s": 7.0, "why": "again"}, BASELINE_TEXT, operation(), Act.RESUME),  # no terms of the change
        ({"baseline": CANDIDATE_TEXT}, CANDIDATE_TEXT, operation(), Act.RESUME),  # read after it was adopted
        (OTHERWISE, CANDIDATE_TEXT, BY_ITSELF, Act.RESUME),  # a way back has no terms
        (OTHERWISE, CANDIDATE_TEXT, None, Act.ALREADY),
        (OTHERWISE, BASELINE_TEXT, None, Act.OPEN),
    ],
)
def test_terms_count_only_for_an_unfinished_rollout(changes, text, unfinished, act):
    request = plan(**{"strategy": Strategy.SIDE_BY_SIDE, **changes})
    decision = decide_rollout(request, live(text), unfinished)
    assert (decision.act, decision.operation) == (act, unfinished)
    assert decision.plan == (request if act is Act.OPEN else None)


def back(text, unfinished=None, last=None, revisions=(ONE, TWO), to=None, **options):
    return decide_rollback(live(text), unfinished, last, revisions, to, **options)


@pytest.mark.parametrize(
    ("text", "revisions", "to", "target"),
    [
        (CANDIDATE_TEXT, (ONE, TWO), None, 1),
        (CANDIDATE_TEXT, (ONE, TWO), 1, 1),
        (BASELINE_TEXT, (ONE, TWO, THREE), None, 2),  # the one before the present state
        (BASELINE_TEXT, (ONE, TWO, THREE), 2, 2),
        (OTHER_TEXT, (ONE, TWO), None, 2),  # changed by hand: back to the newest one recorded
        (CANDIDATE_TEXT, (ONE, TWO, THREE), 1, 1),
    ],
)
def test_rollback_opens_a_plan_to_a_revision(text, revisions, to, target):
    decision = back(text, revisions=revisions, to=to)
    assert decision.act is Act.OPEN
    opened = decision.plan
    wanted = revisions[target - 1]
    assert (opened.kind, opened.baseline, opened.text, opened.target) == (Kind.ROLLBACK, text, wanted.text, target)
    assert opened.spec == wanted.spec
    assert opened.undoes is None
    assert not opened.automatic


@pytest.mark.parametrize(
    ("text", "revisions", "spec"),
    [(CANDIDATE_TEXT, (ONE, TWO), "ngram"), (OTHER_TEXT, (ONE, TWO), "as found")],
)
def test_rollback_says_what_it_leaves(text, revisions, spec):
    assert back(text, revisions=revisions).plan.baseline_spec == spec


@pytest.mark.parametrize("to", [1, 3])
def test_rollback_to_what_is_live_is_already_so(to):
    assert back(BASELINE_TEXT, revisions=(ONE, TWO, THREE), to=to).act is Act.ALREADY


@pytest.mark.parametrize(
    ("revisions", "to", "message"),
    [
        ((), None, "service svc has no recorded revision"),
        ((), 1, "service svc has no recorded revision"),
        ((ONE,), None, "no other revision than the present one"),
        ((ONE, THREE), None, "no other revision than the present one"),
        ((ONE, TWO), 9, "--to-revision: service svc has no revision 9; there are 1, 2"),
    ],
)
def test_rollback_without_a_target_says_why(revisions, to, message):
    with pytest.raises(InputError, match=message):
        back(BASELINE_TEXT, revisions=revisions, to=to)


@pytest.mark.parametrize(
    ("revisions", "to", "lost"),
    [((), None, (1,)), ((ONE,), 2, (2,)), ((ONE, THREE), None, (2,)), ((THREE,), 1, (1, 2))],
)
def test_rollback_does_not_pass_over_a_lost_revision(revisions, to, lost):
    with pytest.raises(InputError, match="service svc has lost what was recorded as revision") as caught:
        decide_rollback(live(), None, None, revisions, to, lost=lost)
    assert "--to-revision" in caught.value.hint


def test_a_lost_revision_that_is_older_stands_in_no_way():
    assert decide_rollback(live(), None, None, (TWO, THREE), None, lost=(1,)).plan.target == 2


@pytest.mark.parametrize("to", [None, 1])
def test_rollback_undoes_what_is_unfinished(to):
    unfinished = operation(plan(Strategy.IN_PLACE, ready_timeout_s=7.0), done={"record": {"revision": 1}})
    decision = back(CANDIDATE_TEXT, unfinished, unfinished, to=to)
    assert decision.act is Act.OPEN
    opened = decision.plan
    assert (opened.undoes, opened.strategy, opened.text) == ("rollout-1", Strategy.IN_PLACE, BASELINE_TEXT)
    assert (opened.baseline, opened.target, opened.ready_timeout_s) == (CANDIDATE_TEXT, 1, 7.0)
    assert (opened.spec, opened.baseline_spec) == ("none", "ngram")
    assert not opened.automatic


@pytest.mark.parametrize("unfinished", [BY_HAND, BY_ITSELF])
@pytest.mark.parametrize("to", [None, 1])
def test_rollback_goes_on_with_an_unfinished_rollback(unfinished, to):
    decision = back(CANDIDATE_TEXT, unfinished, unfinished, to=to)
    assert (decision.act, decision.operation) == (Act.RESUME, unfinished)


@pytest.mark.parametrize("unfinished", [UNDONE, BY_HAND])
def test_rollback_elsewhere_than_the_unfinished_operation_names_it(unfinished):
    with pytest.raises(Conflict, match=rf"{unfinished.id} .*unfinished"):
        back(CANDIDATE_TEXT, unfinished, unfinished, to=2)


def test_an_undone_rollout_that_recorded_nothing_has_no_target():
    assert back(BASELINE_TEXT, operation(), revisions=()).plan.target is None


@pytest.mark.parametrize(
    ("asked", "last", "chosen"),
    [
        (None, None, Strategy.SIDE_BY_SIDE),
        (None, operation(plan(Strategy.IN_PLACE)), Strategy.IN_PLACE),
        (Strategy.SIDE_BY_SIDE, operation(plan(Strategy.IN_PLACE)), Strategy.SIDE_BY_SIDE),
    ],
)
def test_rollback_takes_the_strategy_of_the_last_operation(asked, last, chosen):
    assert back(CANDIDATE_TEXT, last=last, strategy=asked).plan.strategy is chosen


def ended(of, ending=Ending.ROLLED_BACK):
    return operation(of.plan, of.id, ending=ending)


TO_ONE = operation(back(CANDIDATE_TEXT, to=1).plan, "rollback-2")
BACK_ON_TOP = (ONE, TWO, THREE)


@pytest.mark.parametrize(
    ("text", "last", "revisions", "to", "target"),
    [
        # repeated after a way back by hand: stays
        (BASELINE_TEXT, ended(BY_HAND), BACK_ON_TOP, None, None),
        (BASELINE_TEXT, ended(BY_HAND), (ONE,), None, None),  # nothing had been promoted
        (BASELINE_TEXT, ended(TO_ONE), BACK_ON_TOP, None, None),
        (BASELINE_TEXT, ended(TO_ONE), BACK_ON_TOP, 1, None),
        # unless another revision is named
        (BASELINE_TEXT, ended(BY_HAND), BACK_ON_TOP, 2, 2),
        (BASELINE_TEXT, ended(TO_ONE), BACK_ON_TOP, 2, 2),
        # or the service is no longer what the way back left
        (OTHER_TEXT, ended(BY_HAND), BACK_ON_TOP, None, 3),
        (CANDIDATE_TEXT, ended(TO_ONE), BACK_ON_TOP, None, 3),
        # after a way back that the rollout itself took: the revision before
        (BASELINE_TEXT, ended(BY_ITSELF), BACK_ON_TOP, None, 2),
        (BASELINE_TEXT, ended(BY_ITSELF), BACK_ON_TOP, 2, 2),
        (BASELINE_TEXT, ended(BY_ITSELF), BACK_ON_TOP, 3, None),
        # after a rollout, however it ended
        (CANDIDATE_TEXT, ended(UNDONE, Ending.PROMOTED), (ONE, TWO), None, 1),
        (BASELINE_TEXT, ended(UNDONE, Ending.FAILED), BACK_ON_TOP, None, 2),
    ],
)
def test_rollback_again(text, last, revisions, to, target):
    decision = back(text, last=last, revisions=revisions, to=to)
    assert decision.act is (Act.ALREADY if target is None else Act.OPEN)
    assert (decision.plan.target if decision.plan else None) == target
    assert decision.operation is None


def test_rollback_after_a_refused_first_rollout_has_nowhere_to_go():
    with pytest.raises(InputError, match="no other revision than the present one"):
        back(BASELINE_TEXT, last=ended(BY_ITSELF), revisions=(ONE,))


def test_an_unfinished_rollback_is_planned_anew_when_downtime_is_accepted():
    for unfinished in (BY_HAND, BY_ITSELF):
        decision = accepting_downtime(decide_rollback(live(), unfinished, None, (ONE, TWO), None))
        assert decision.act is Act.OPEN
        assert (decision.plan.text, decision.plan.downtime) == (unfinished.plan.text, True)
        assert (decision.plan.undoes, decision.plan.automatic) == (unfinished.id, False)
        again = operation(decision.plan, "rollback-3")
        assert accepting_downtime(decide_rollback(live(), again, None, (ONE, TWO), None)).act is Act.RESUME


@pytest.mark.parametrize(("done", "instant"), [({}, True), ({"unshift": {}}, False)])
def test_the_kept_arm_gets_the_traffic_again_only_while_it_has_it(done, instant):
    going = replace(BY_HAND, plan=replace(BY_HAND.plan, instant=True), done=done)
    assert accepting_downtime(decide_rollback(live(), going, None, (ONE, TWO), None)).plan.instant is instant
