"""Where the load client runs: as asked, as it was planned, or as the platform has it."""

from contextlib import nullcontext
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from world import MemoryClock

from mpctl.app.change import Change
from mpctl.app.change.check import PreflightResult
from mpctl.app.change.resolve import Selection
from mpctl.app.operate import rollout, rollout_known
from mpctl.app.operate.outcome import OperationOutcome
from mpctl.app.requests import MeasurementRequest, RolloutRequest, SpeculationRequest
from mpctl.app.session.base import EngineCounters, choose_load_place
from mpctl.cli.main import run
from mpctl.errors import InputError
from mpctl.methods import Spec
from mpctl.rollout.context import Context
from mpctl.rollout.ledger import Entry, Event
from mpctl.rollout.operation import Operation
from mpctl.rollout.plan import Kind, Plan, Strategy
from mpctl.rollout.ports import Arm, Live
from mpctl.rollout.revision import Manifest, Revision

CHECKED, CHOSEN = PreflightResult((), ()), Selection(None, {})
OUTCOME = OperationOutcome("demo", "ns", "service ns/demo")


RECORDED = tuple(
    Revision(n, text, "2026-01-01", "ann", "as found", None, "x")
    for n, text in ((1, "old"), (2, "new"))
)


def operation(plan=None, **changes):
    old, new = Manifest.of("old", 1), Manifest.of("new", 2)
    of = plan or Plan(Kind.ROLLOUT, Strategy.SIDE_BY_SIDE, old, new, Spec("ngram"), **changes)
    return Operation("rollout-1", of, opened_at="2026-01-01T00:00:00+00:00", who="ann")


@pytest.mark.parametrize(
    ("asked", "platform", "unfinished", "where"),
    [
        ("auto", "kubernetes", None, "job"),
        ("auto", "local", None, "local"),
        ("auto", "kubernetes", operation(load="local"), "local"),
        ("local", "kubernetes", operation(load="job"), "local"),
        ("job", "kubernetes", operation(load="local"), "job"),
        ("auto", "kubernetes", operation(load="job").undo_plan(why=""), "job"),
        ("auto", "kubernetes", operation(load="local").undo_plan(why=""), "job"),
        ("auto", "local", operation(load="local").undo_plan(why=""), "local"),
    ],
)
def test_where(asked, platform, unfinished, where):
    found = operation(unfinished) if isinstance(unfinished, Plan) else unfinished
    assert choose_load_place(asked, platform, unfinished=found) == where


@pytest.mark.parametrize("asked", ["auto", "local"])
def test_an_automatic_rollback_continues_with_the_load_client_that_was_asked_for(
    asked, monkeypatch
):
    """The same rollout again, after its way back could not be finished."""
    data = {"plan": operation(load="job").undo_plan(why="", automatic=True).to_record()}
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    back = Entry.after(
        None, at=moment, operation="rollback-2", event=Event.OPENED, who="ann", data=data
    )
    session = SimpleNamespace(
        name="demo",
        namespace="ns",
        title="service ns/demo",
        load_place=None,
        ready_timeout_s=lambda asked: 600.0,
        console=SimpleNamespace(
            note=lambda text: None, warn=lambda text: None, confirm=lambda text: None, verbose=0
        ),
        holder=lambda: None,
        clock=MemoryClock(),
        counters=lambda: EngineCounters({}, {}, 1),
        store=SimpleNamespace(
            entries=lambda: (back,), revisions=lambda: RECORDED, lease=lambda purpose: nullcontext()
        ),
        platform=SimpleNamespace(
            name="kubernetes",
            live_text=lambda: None,
            read=lambda: Live("demo", "ns", "old", "v", Arm("old").id),
        ),
        context=lambda: nullcontext(Context(*[None] * 6)),
    )
    carried = []
    change = Change(None, "old", "new", Spec("ngram"), Spec("none"), None, CHECKED, None, CHOSEN)
    monkeypatch.setattr(rollout_known, "prepare", lambda *args: change)
    monkeypatch.setattr(rollout, "plan_rollout", lambda *args: operation().plan)
    monkeypatch.setattr(rollout, "explain_rollout", lambda *args: "")
    monkeypatch.setattr(
        rollout,
        "carry_out",
        lambda *args: carried.append((args[2].id, session.load_place)) or OUTCOME,
    )
    request = RolloutRequest(
        SpeculationRequest("ngram"), MeasurementRequest(load=asked), fidelity="quick"
    )
    assert rollout.run(session, request).exit_code == 0
    assert carried == [("rollback-2", "job" if asked == "auto" else "local")]


def test_no_job_without_a_cluster():
    with pytest.raises(InputError, match="MPCTL_LOAD: there is no cluster to run a Job in"):
        choose_load_place("job", "local")


def test_a_server_at_an_address_is_measured_from_here(capsys, monkeypatch):
    monkeypatch.setenv("MPCTL_LOAD", "job")
    assert run(["bench", "--url", "http://127.0.0.1:1"]) == 2
    assert "MPCTL_LOAD: there is no cluster to run a Job in" in capsys.readouterr().err
