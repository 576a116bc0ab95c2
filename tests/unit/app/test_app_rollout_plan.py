"""The plan of a rollout or rollback: strategy, HTTPRoute and retained baseline, fitted and explained."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from mpctl.app.change import Change
from mpctl.app.change.check import Load, PreflightResult
from mpctl.app.change.resolve import Checkpoint, Selection, UnchangedService
from mpctl.app.operate import rollback, rollout_known, rollout_place, rollout_plan
from mpctl.app.requests import RolloutRequest, SpeculationRequest, TrafficRequest
from mpctl.app.session.base import EngineCounters
from mpctl.errors import InputError, Refused
from mpctl.experiment.answer_sets import FULL, QUICK
from mpctl.experiment.prompt_files import Chat
from mpctl.experiment.users import UserLoad
from mpctl.experiment.workload import Traffic, Workload
from mpctl.gate.policy import Policy
from mpctl.methods import Finding, Spec
from mpctl.rollout.placement import PlacementWishes
from mpctl.rollout.plan import Kind, Plan, RollbackPlan, Strategy
from mpctl.rollout.ports import Arm, Fit, RetainedBaseline
from mpctl.rollout.revision import Manifest

ROUTE = {"name": "users", "spec": {}}


class Platform:
    """Room for all of it, or for nothing."""

    replaces_pods_itself = True

    def __init__(self, *, kept=None, room=True, route=ROUTE):
        self._kept, self._room, self._route = kept, room, route
        self.asked = []

    def retained_baseline(self):
        return self._kept

    def fits(self, *demands):
        return tuple(Fit.of(self.check, demand) for demand in demands)

    def check(self, demand):
        self.asked.append((demand.side_by_side, demand.downtime, demand.retain))
        if demand.side_by_side and not self._room:
            raise Refused("there is no GPU")
        return ("room",)

    def route(self, name, steps, *, mirror=0, force=False):
        if self._route is None:
            raise Refused("no HTTPRoute of yours")
        return self._route

    def scaling(self):
        return None


def session(**platform):
    return SimpleNamespace(
        platform=Platform(**platform),
        title="service ns/demo",
        start_time=lambda: "",
        ready_timeout_s=lambda asked: 600.0,
    )


SERVICE = SimpleNamespace(name="demo", model="org/model", storage=(), command={}, whole_command={})
CHANGE = Change(
    UnchangedService(SERVICE, None, Checkpoint()),
    "old",
    "new",
    Spec("ngram"),
    Spec("none"),
    None,
    PreflightResult((), ()),
    None,
    Selection(None, {}),
)
NO_COUNTERS = EngineCounters({}, {}, 1)
WORKLOAD = SimpleNamespace(digest=lambda: "0" * 64)


NOBODY = UserLoad(0.0, 1, seen=False, window_s=10.0)
USERS = replace(NOBODY, requests_per_s=1.0, seen=True)


def fitted(
    one,
    traffic=None,
    *,
    strategy=Strategy.SIDE_BY_SIDE,
    downtime=False,
    keep_baseline=False,
    users=USERS,
):
    wanted = TrafficRequest(**(traffic or {}), keep_baseline=keep_baseline)
    request = RolloutRequest(SpeculationRequest("ngram"), traffic=wanted)
    known = rollout_known.Known(
        request, CHANGE, Load(), WORKLOAD, Policy(), NO_COUNTERS, 0.0, "local"
    )
    place, _ = rollout_place.place_on_platform(
        one, known, rollout_place.Place(WORKLOAD, strategy, downtime), users, PlacementWishes()
    )
    return rollout_plan.plan_rollout(one, known, place), place.notes


TOOLS = Chat.of({"messages": [{"role": "user", "content": "hello"}], "tools": []})
KNOWN = Finding("known-bad-KB7", "warn", "known to fail", "a thread", "use another release")


@pytest.mark.parametrize(
    ("asked", "command", "findings", "prompt", "fidelity", "reason"),
    [
        (None, {}, (), "hello", QUICK, ""),
        (
            None,
            {"--tool-call-parser": "hermes"},
            (),
            "hello",
            FULL,
            "the engine has --tool-call-parser",
        ),
        (
            None,
            {"--reasoning-parser": "qwen3"},
            (),
            "hello",
            FULL,
            "the engine has --reasoning-parser",
        ),
        (None, {}, (KNOWN,), "hello", FULL, "the preflight found known-bad-KB7"),
        (None, {}, (replace(KNOWN, severity="note"),), "hello", QUICK, ""),
        (None, {}, (), TOOLS, FULL, "requests bring tools or several turns"),
        (QUICK, {"--tool-call-parser": "hermes"}, (KNOWN,), TOOLS, QUICK, ""),
    ],
)
def test_answers_are_compared_in_full_where_they_are_known_to_break(
    asked, command, findings, prompt, fidelity, reason
):
    service = SimpleNamespace(**{**vars(SERVICE), "whole_command": command})
    change = replace(
        CHANGE,
        target=UnchangedService(service, None, Checkpoint()),
        checked=PreflightResult(findings, ()),
    )
    request = RolloutRequest(SpeculationRequest("ngram"), fidelity=asked)
    workload = Workload(
        traffic=(Traffic("own", (prompt, "another")),), repeats=1, requests=2, warmup=0
    )
    risks = "" if asked else rollout_known.known_risks(change, workload)
    known = rollout_known.Known(
        request, change, Load(), workload, Policy(), NO_COUNTERS, 0.0, "local", risks
    )
    assert known.fidelity == fidelity
    assert known.fidelity_reason == (
        f"answers are compared in full (--fidelity full): {reason}" if reason else ""
    )


def test_without_steps_no_route_is_asked_for():
    chosen_fit, notes = fitted(session(route=None), {"bake_s": 0.0})
    assert (chosen_fit.route, chosen_fit.traffic.steps, notes) == (None, (), ("room",))
    assert rollout_plan.describe_traffic(chosen_fit) == ""


def test_steps_pin_the_route_and_are_explained():
    chosen_fit, _ = fitted(session(), {"steps_percent": (1, 10)})
    assert (chosen_fit.route, chosen_fit.traffic.steps, chosen_fit.traffic.step_duration_s) == (
        ROUTE,
        (1, 10),
        120.0,
    )
    assert "1, 10 % of the traffic of HTTPRoute users, 120 s each" in rollout_plan.describe_traffic(
        chosen_fit
    )


def test_a_mirror_pins_the_route_and_says_that_users_prompts_are_copied():
    chosen_fit, _ = fitted(session(), {"mirror_percent": 50})
    assert (chosen_fit.route, chosen_fit.traffic.mirror_percent, chosen_fit.traffic.steps) == (
        ROUTE,
        50,
        (),
    )
    text = rollout_plan.describe_traffic(chosen_fit)
    assert (
        "copies of 50 % of the requests of HTTPRoute users for 120 s, the prompts of your users among them"
        in text
    )


@pytest.mark.parametrize("way", [{"steps_percent": (10,)}, {}])
def test_in_place_there_is_nothing_to_share_with(way):
    with pytest.raises(InputError) as caught:
        fitted(session(), way, strategy=Strategy.IN_PLACE, keep_baseline=not way)
    assert caught.value.field == ("--traffic-steps" if way else "--keep-baseline")


def test_a_route_that_nothing_uses_is_a_mistake():
    with pytest.raises(
        InputError, match="only used by --mirror, --traffic-steps, --keep-baseline and --bake"
    ):
        fitted(session(), {"route": "users", "bake_s": 0.0})


def test_a_cluster_bakes_ten_minutes_with_the_baseline_retained_where_a_route_and_room_are():
    actual_session = session()
    chosen_fit, _ = fitted(actual_session)
    assert (chosen_fit.bake.seconds, chosen_fit.bake.restarts_baseline, chosen_fit.route) == (
        600.0,
        True,
        ROUTE,
    )
    assert (True, False, True) in actual_session.platform.asked
    text = rollout_plan.describe_rollback(actual_session, chosen_fit)
    assert text.startswith("one write, the baseline is retained for a bake of 600 s")
    assert "watched for 600 s and rolled back if it does not do well" in rollout_plan.describe_bake(
        chosen_fit
    )
    alone, notes = fitted(session(route=None), {"bake_s": 60.0})
    assert (alone.bake.seconds, alone.bake.restarts_baseline, alone.route) == (60.0, False, None)
    assert notes[-1] == "a rollback during the bake takes an engine start: no HTTPRoute of yours"
    assert fitted(session(), strategy=Strategy.IN_PLACE)[0].bake.seconds == 0.0


def test_the_bake_of_a_service_that_nobody_has_used_is_short_unless_a_time_is_named():
    assert fitted(session(), users=NOBODY)[0].bake.seconds == 120.0
    assert fitted(session(), users=replace(NOBODY, earlier_per_s=1.0))[0].bake.seconds == 600.0
    assert fitted(session(), {"bake_s": 300.0}, users=NOBODY)[0].bake.seconds == 300.0


def test_without_room_beside_steps_do_not_turn_into_a_change_in_place():
    chosen_fit, _ = fitted(session(room=False), downtime=True)
    assert chosen_fit.strategy is Strategy.IN_PLACE
    with pytest.raises(Refused, match="no GPU"):
        fitted(session(room=False), {"steps_percent": (10,)}, downtime=True)


def test_a_kept_arm_needs_its_room_and_an_older_one_ends_first():
    actual_session = session(kept=RetainedBaseline("arm-1", "2026-01-01T00:00:00Z", "users", 1, 1))
    chosen_fit, notes = fitted(actual_session, keep_baseline=True)
    assert (True, False, True) in actual_session.platform.asked
    assert chosen_fit.deletes_retained_baseline
    assert "the baseline that is retained since 2026-01-01T00:00:00Z ends first" in notes[0]
    assert (
        rollout_plan.describe_rollback(actual_session, chosen_fit)
        == "one write, the baseline is retained"
    )


def back(**changes):
    return Plan(
        Kind.ROLLBACK,
        Strategy.SIDE_BY_SIDE,
        Manifest.of("new"),
        Manifest.of("old"),
        Spec("none"),
        **changes,
    )


def kept(**changes):
    return RetainedBaseline(
        **{"arm": Arm("old").id, "since": "", "route": "users", "pods_ready": 2, "pods": 2}
        | changes
    )


def test_a_rollback_to_the_kept_arm_is_one_write():
    actual_session = session(kept=kept())
    restored_arm, notes = rollback.as_found(actual_session, back())
    assert (restored_arm.rollback.uses_retained_baseline, restored_arm.route, notes) == (
        True,
        ROUTE,
        (),
    )
    assert (
        "one write gives the retained baseline all traffic of HTTPRoute users"
        in rollback.explain_rollback(actual_session, restored_arm)
    )


@pytest.mark.parametrize(
    ("platform", "said"),
    [
        ({"kept": kept(arm="arm-other")}, "it is not what is restored"),
        ({"kept": kept(pods_ready=1)}, "1 of its pods are ready, the service has 2"),
        ({"kept": kept(), "route": None}, "no HTTPRoute of yours"),
    ],
)
def test_a_kept_arm_that_cannot_serve_is_said_and_not_used(platform, said):
    restored_arm, notes = rollback.as_found(session(**platform), back())
    assert (restored_arm.rollback.uses_retained_baseline, restored_arm.route) == (False, None)
    assert said in notes[0]


def test_what_undoes_an_operation_keeps_what_that_found():
    undo = back(rollback=RollbackPlan("rollout-1"), route=ROUTE)
    assert rollback.as_found(session(kept=kept()), undo) == (undo, ())
