"""What a command does, given the service and the ledger: truth tables."""

from __future__ import annotations

from dataclasses import replace

import pytest
from world import BASELINE_TEXT, CANDIDATE_TEXT, NGRAM, NONE, OTHER_TEXT, changed, plan

from mpctl.errors import Conflict, InputError
from mpctl.gate.policy import Policy
from mpctl.methods import Spec
from mpctl.rollout.decide import Act, History, accepting_downtime, decide_rollback, decide_rollout
from mpctl.rollout.operation import Ending, Operation
from mpctl.rollout.plan import Kind, Strategy
from mpctl.rollout.ports import Live
from mpctl.rollout.revision import Manifest, Revision, text_digest

RECORDED = {"baseline": Manifest.of(BASELINE_TEXT, 1), "goal": Manifest.of(CANDIDATE_TEXT, 2)}
ROLLOUT = plan(Strategy.SIDE_BY_SIDE, **RECORDED)


def live(text=BASELINE_TEXT):
    return Live("svc", "chat", text, text_digest(text), None)


def operation(of=ROLLOUT, name="rollout-1", **changes):
    return Operation(id=name, plan=of, opened_at="2026-01-01T00:00:00+00:00", who="x", **changes)


def revision(number, text, spec=NONE):
    return Revision(number, text, "2026-01-01", "x", "as found", spec, "rollout-1")


UNDONE = operation()
BY_HAND = operation(UNDONE.undo_plan(why="rollout-1 undone by hand"), "rollback-2")
BY_ITSELF = operation(UNDONE.undo_plan(why="rollout-1 rejected", automatic=True), "rollback-2")
ONE = revision(1, BASELINE_TEXT)
TWO = revision(2, CANDIDATE_TEXT, NGRAM)
THREE = revision(3, BASELINE_TEXT)


@pytest.mark.parametrize(
    ("text", "unfinished", "act"),
    [
        (BASELINE_TEXT, None, Act.OPEN),
        (OTHER_TEXT, None, Act.OPEN),
        (CANDIDATE_TEXT, None, Act.ALREADY),
        (BASELINE_TEXT, operation(), Act.RESUME),
        (CANDIDATE_TEXT, operation(), Act.RESUME),  # adopted, but not yet verified
        (
            CANDIDATE_TEXT,
            BY_ITSELF,
            Act.RESUME,
        ),  # its own way back, which is what that rollout does next
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
        operation(plan(Strategy.SIDE_BY_SIDE, goal=OTHER_TEXT, spec=Spec("eagle3")), "rollout-7"),
        operation(BY_HAND.plan, "rollback-7"),
        operation(plan(Strategy.IN_PLACE, kind=Kind.ROLLBACK), "rollback-7"),
        operation(
            operation(plan(Strategy.IN_PLACE, goal=OTHER_TEXT)).undo_plan(why="", automatic=True),
            "rollback-7",
        ),
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
    with pytest.raises(
        Conflict, match=rf"rollout-1 of svc .* was planned with another {named}$"
    ) as caught:
        decide_rollout(plan(**changes), live(text), operation())
    assert "mpctl resume" in caught.value.hint
    assert "mpctl rollback" in caught.value.hint


@pytest.mark.parametrize(
    ("changes", "text", "unfinished", "act"),
    [
        (
            {"ready_timeout_s": 7.0, "why": "again"},
            BASELINE_TEXT,
            operation(),
            Act.RESUME,
        ),  # no terms of the change
        (
            {"baseline": CANDIDATE_TEXT},
            CANDIDATE_TEXT,
            operation(),
            Act.RESUME,
        ),  # read after it was adopted
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


def ended(of, ending=Ending.ROLLED_BACK):
    return operation(of.plan, of.id, ending=ending)


PROMOTED = ended(UNDONE, Ending.PROMOTED)


def back(text, unfinished=None, last=PROMOTED, revisions=(ONE, TWO), to=None, lost=(), **options):
    return decide_rollback(live(text), History(unfinished, last, revisions, lost), to, **options)


@pytest.mark.parametrize(
    ("text", "last", "revisions", "to", "target"),
    [
        # without a number: the baseline of the last promotion, whatever was written since
        (CANDIDATE_TEXT, PROMOTED, (ONE, TWO), None, 1),
        (OTHER_TEXT, PROMOTED, (ONE, TWO), None, 1),
        (CANDIDATE_TEXT, PROMOTED, (ONE, TWO, revision(3, OTHER_TEXT)), None, 1),
        # after a rollback by hand: what it restored
        (CANDIDATE_TEXT, ended(BY_HAND), (ONE, TWO, THREE), None, 1),
        (OTHER_TEXT, ended(BY_HAND), (ONE, TWO, THREE), None, 1),
        # the revision that is named
        (CANDIDATE_TEXT, PROMOTED, (ONE, TWO), 1, 1),
        (BASELINE_TEXT, PROMOTED, (ONE, TWO, THREE), 2, 2),
        (CANDIDATE_TEXT, None, (ONE, TWO, THREE), 1, 1),
    ],
)
def test_rollback_opens_a_plan_to_a_revision(text, last, revisions, to, target):
    decision = back(
        text,
        last=last,
        revisions=revisions,
        to=to,
        serving=NGRAM if text != BASELINE_TEXT else NONE,
    )
    assert decision.act is Act.OPEN
    opened, wanted = decision.plan, revisions[target - 1]
    assert (opened.kind, opened.goal.number, opened.goal.text) == (
        Kind.ROLLBACK,
        target,
        wanted.text,
    )
    assert (
        opened.baseline.text,
        opened.spec,
        opened.rollback.undoes,
        opened.rollback.automatic,
    ) == (
        text,
        wanted.spec,
        None,
        False,
    )


@pytest.mark.parametrize("exact", [True, False])
def test_an_exact_rollback_overwrites(exact):
    assert back(OTHER_TEXT, exact=exact).plan.overwrites is exact


@pytest.mark.parametrize(
    ("text", "serving", "spec"),
    [(CANDIDATE_TEXT, None, NGRAM), (OTHER_TEXT, None, None), (OTHER_TEXT, NGRAM, NGRAM)],
)
def test_rollback_says_what_it_leaves(text, serving, spec):
    assert back(text, serving=serving).plan.baseline_spec == spec


@pytest.mark.parametrize(
    ("text", "last", "to"),
    [
        (BASELINE_TEXT, PROMOTED, None),  # somebody restored it with another tool
        (BASELINE_TEXT, ended(BY_HAND), None),
        (BASELINE_TEXT, ended(BY_HAND), 1),
        (BASELINE_TEXT, None, 3),
        (
            OTHER_TEXT,
            PROMOTED,
            None,
        ),  # another writer's change that leaves the speculation as it was
    ],
)
def test_already_so_when_the_live_engine_says_so(text, last, to):
    assert (
        back(text, last=last, revisions=(ONE, TWO, THREE), to=to, serving=NONE).act is Act.ALREADY
    )


@pytest.mark.parametrize("to", [None, 1])
def test_a_manifest_that_its_engine_does_not_follow_is_no_rollback(to):
    with pytest.raises(Conflict, match="has the manifest of revision 1, but its engine runs ngram"):
        back(BASELINE_TEXT, to=to, serving=NGRAM)
    with pytest.raises(
        Conflict, match="has the manifest of revision 1, but no engine is ready to confirm it"
    ):
        back(BASELINE_TEXT, to=to, serving=None)


@pytest.mark.parametrize("serving", [NGRAM, None])
def test_a_foreign_change_with_speculation_on_is_rolled_back(serving):
    assert back(OTHER_TEXT, serving=serving).act is Act.OPEN
    assert back(OTHER_TEXT, last=ended(BY_HAND), serving=serving).act is Act.OPEN


def test_a_rollback_after_an_automatic_restore_has_nothing_to_do_and_offers_no_candidate():
    assert back(BASELINE_TEXT, last=None, serving=NONE).act is Act.ALREADY
    with pytest.raises(InputError, match="was promoted"):  # something else turned it on
        back(CANDIDATE_TEXT, last=None, serving=NGRAM)
    with pytest.raises(InputError, match="has no recorded revision"):  # nothing was rolled out
        back(BASELINE_TEXT, last=None, revisions=(), serving=NONE)


def test_a_named_revision_is_restored_exactly():
    assert back(OTHER_TEXT, to=1, serving=NONE).act is Act.OPEN


@pytest.mark.parametrize(
    ("last", "revisions", "to", "message"),
    [
        (None, (), None, "service svc has no recorded revision"),
        (None, (), 1, "service svc has no recorded revision"),
        (None, (ONE,), None, "no rollout of service svc was promoted; there are revisions 1"),
        (PROMOTED, (ONE, TWO), 9, "--to-revision: service svc has no revision 9; there are 1, 2"),
    ],
)
def test_rollback_without_a_target_says_why(last, revisions, to, message):
    with pytest.raises(InputError, match=message):
        back(BASELINE_TEXT, last=last, revisions=revisions, to=to)


@pytest.mark.parametrize(
    ("last", "revisions", "to", "lost"),
    [(PROMOTED, (TWO,), None, (1,)), (None, (ONE,), 2, (2,)), (None, (), 1, (1, 2))],
)
def test_rollback_does_not_pass_over_a_lost_revision(last, revisions, to, lost):
    with pytest.raises(InputError, match="of service svc is lost; there are") as caught:
        back(CANDIDATE_TEXT, last=last, revisions=revisions, to=to, lost=lost)
    assert "--to-revision" in caught.value.hint


def test_another_revision_that_is_lost_stands_in_no_way():
    assert back(CANDIDATE_TEXT, revisions=(ONE, TWO), lost=(3,)).plan.goal.number == 1


@pytest.mark.parametrize("to", [None, 1])
def test_rollback_undoes_what_is_unfinished(to):
    unfinished = operation(plan(Strategy.IN_PLACE, ready_timeout_s=7.0, **RECORDED))
    decision = back(CANDIDATE_TEXT, unfinished, to=to)
    assert decision.act is Act.OPEN
    opened = decision.plan
    assert (opened.rollback.undoes, opened.strategy, opened.ready_timeout_s) == (
        "rollout-1",
        Strategy.IN_PLACE,
        7.0,
    )
    assert (opened.baseline, opened.goal) == (unfinished.plan.goal, unfinished.plan.baseline)
    assert (opened.goal.number, opened.spec, opened.baseline_spec, opened.rollback.automatic) == (
        1,
        NONE,
        NGRAM,
        False,
    )


@pytest.mark.parametrize("unfinished", [BY_HAND, BY_ITSELF])
@pytest.mark.parametrize("to", [None, 1])
def test_rollback_continues_an_unfinished_rollback(unfinished, to):
    decision = back(CANDIDATE_TEXT, unfinished, to=to)
    assert (decision.act, decision.operation) == (Act.RESUME, unfinished)


@pytest.mark.parametrize("unfinished", [UNDONE, BY_HAND])
def test_rollback_elsewhere_than_the_unfinished_operation_names_it(unfinished):
    with pytest.raises(Conflict, match=rf"{unfinished.id} .*unfinished"):
        back(CANDIDATE_TEXT, unfinished, to=2)


@pytest.mark.parametrize("unfinished", [UNDONE, BY_HAND])
def test_a_foreign_change_over_an_unfinished_operation_is_overwritten_by_an_exact_rollback_alone(
    unfinished,
):
    forced = back(OTHER_TEXT, unfinished, exact=True).plan
    assert (forced.overwrites, forced.baseline.text, forced.goal.number) == (True, OTHER_TEXT, 1)
    assert forced.rollback.undoes == unfinished.id
    again = back(OTHER_TEXT, unfinished)
    assert again.plan is None or not again.plan.overwrites


@pytest.mark.parametrize(
    ("asked", "last", "chosen"),
    [
        (None, PROMOTED, Strategy.SIDE_BY_SIDE),
        (
            None,
            operation(plan(Strategy.IN_PLACE, **RECORDED), ending=Ending.PROMOTED),
            Strategy.IN_PLACE,
        ),
        (
            Strategy.SIDE_BY_SIDE,
            operation(plan(Strategy.IN_PLACE, **RECORDED), ending=Ending.PROMOTED),
            Strategy.SIDE_BY_SIDE,
        ),
    ],
)
def test_rollback_takes_the_strategy_of_the_last_operation(asked, last, chosen):
    assert back(CANDIDATE_TEXT, last=last, strategy=asked).plan.strategy is chosen


def test_an_unfinished_rollback_is_planned_anew_when_downtime_is_accepted():
    for unfinished in (BY_HAND, BY_ITSELF):
        decision = accepting_downtime(back(BASELINE_TEXT, unfinished))
        assert decision.act is Act.OPEN
        assert (decision.plan.goal, decision.plan.downtime) == (unfinished.plan.goal, True)
        assert (decision.plan.rollback.undoes, decision.plan.rollback.automatic) == (
            unfinished.id,
            False,
        )
        again = operation(decision.plan, "rollback-3")
        assert accepting_downtime(back(BASELINE_TEXT, again)).act is Act.RESUME


@pytest.mark.parametrize(("done", "instant"), [({}, True), ({"unshift": {}}, False)])
def test_the_retained_baseline_gets_the_traffic_again_only_while_it_has_it(done, instant):
    going = replace(BY_HAND, plan=changed(BY_HAND.plan, uses_retained_baseline=True), done=done)
    assert (
        accepting_downtime(back(BASELINE_TEXT, going)).plan.rollback.uses_retained_baseline
        is instant
    )
