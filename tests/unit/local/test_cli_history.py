"""What is recorded of a service, and what of that is lost."""

import re
from datetime import UTC, datetime, timedelta

import pytest

from mpctl.app.inspect.history import ServiceHistory
from mpctl.app.operate.rollback import decide
from mpctl.app.requests import RollbackRequest
from mpctl.cli.inspect.history_text import age, history_table
from mpctl.experiment.cell import Cell
from mpctl.gate.rule import Outcome, RuleResult
from mpctl.gate.verdict import CellVerdict, Verdict
from mpctl.local.desired import Desired, DesiredArm
from mpctl.local.session import LocalSession
from mpctl.methods import Spec
from mpctl.platform.file_store import FileStore
from mpctl.platform.state_files import service_dir, write_json
from mpctl.records import encode
from mpctl.rollout.ledger import Entry, Event
from mpctl.rollout.operation import Ending, Operation
from mpctl.rollout.plan import Kind, Plan, Strategy
from mpctl.rollout.revision import Manifest, Revision
from mpctl.rollout.steps.measure import JudgementResult

MANIFEST = """apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: demo}
spec:
  predictor:
    containers:
    - name: kserve-container
      image: vllm/vllm-openai:v0.11.0
      command: [vllm, serve, model]
"""


@pytest.fixture
def recorded(cli):
    """A service with one finished rollout that recorded revisions 1 and 2, at the latter."""
    live = MANIFEST + "# two\n"
    directory = service_dir("default", "demo")
    desired = Desired(
        "demo", "default", live, 8000, "/", "python", "arm-1", {"arm-1": DesiredArm(live, 8001)}
    )
    write_json(directory / "desired.json", desired.to_record())
    store = FileStore(directory, "ann@here")
    plan = Plan(
        Kind.ROLLOUT,
        Strategy.SIDE_BY_SIDE,
        Manifest.of(MANIFEST, 1),
        Manifest.of(live, 2),
        Spec("ngram"),
    )
    events = [
        (Event.OPENED, "", {"plan": plan.to_record()}),
        (Event.DONE, "record", {"revision": 1}),
        (Event.DONE, "promote", {"revision": 2}),
        (Event.CLOSED, "", {"ending": "promoted"}),
    ]
    last = None
    for event, step, data in events:
        now = datetime(2026, 1, 1, tzinfo=UTC)
        last = Entry.after(
            last, at=now, operation="rollout-1", event=event, who="ann@here", step=step, data=data
        )
        store.append(last)
    for number, text in enumerate((MANIFEST, live), start=1):
        store.add_revision(
            Revision(number, text, "2026-01-01", "ann@here", "as found", Spec("none"), "rollout-1")
        )
    return directory


def test_what_is_whole_has_no_gaps(cli, recorded):
    assert "lost" not in cli("history").err
    assert "lost" not in cli("status").out
    assert cli("rollback", "--dry-run=client").code == 0


@pytest.mark.parametrize("removed", [(1,), (1, 2)])
def test_a_lost_revision_is_told_and_never_passed_over(cli, recorded, removed):
    for number in removed:
        (recorded / "revisions" / f"000{number}.json").unlink()
    assert "warning: revision 1 is lost: the ledger names it" in cli("history").err
    assert "problem: revision 1 is lost: the ledger names it" in cli("status").out
    for arguments in ((), ("--to-revision", "1")):
        done = cli("rollback", "--yes", *arguments)
        assert done.code == 2
        assert "of service demo is lost" in done.err
        assert "restore it from a copy" in done.err


def test_an_emptied_ledger_is_told(cli, recorded):
    (recorded / "ledger.jsonl").write_text("")
    done = cli("history")
    assert "warning: the ledger has lost rollout-1, which recorded a revision" in done.err
    assert done.out.startswith("REVISION")
    assert "problem: the ledger has lost rollout-1" in cli("status").out


@pytest.mark.parametrize("asked", [None, 5.0])
def test_a_new_way_back_has_the_time_that_fits_the_service(recorded, asked):
    request = RollbackRequest(ready_timeout_s=asked)
    assert decide(LocalSession("default", "demo", None), request, 5.0).plan.ready_timeout_s == 5.0


SECRET = MANIFEST + "      env:\n      - name: HF_TOKEN\n        value: PLANTED\n"


@pytest.mark.parametrize("form", ["yaml", "json", "table"])
def test_a_revision_is_printed_without_its_secrets_unless_asked(cli, recorded, form):
    store = FileStore(recorded, "ann@here")
    store.add_revision(
        Revision(3, SECRET, "2026-01-01", "ann@here", "as found", Spec("none"), "rollout-1")
    )
    shown = cli("history", "--revision", "3", "-o", form)
    assert shown.code == 0
    assert "PLANTED" not in shown.out + shown.err
    assert "value: <hidden>" in shown.out
    assert "--show-secrets prints them" in shown.err
    exact = cli("history", "--revision", "3", "-o", form, "--show-secrets")
    assert "PLANTED" in exact.out
    assert exact.err == ""


def test_a_revision_without_secrets_is_printed_byte_for_byte(cli, recorded):
    shown = cli("history", "--revision", "1", "-o", "yaml")
    assert (shown.out, shown.err) == (MANIFEST, "")


def test_the_changed_manifest_of_a_running_service_is_printed_without_its_secrets(cli, recorded):
    desired = Desired(
        "demo", "default", SECRET, 8000, "/", "python", "arm-1", {"arm-1": DesiredArm(SECRET, 8001)}
    )
    write_json(recorded / "desired.json", desired.to_record())
    render = ("render", "demo", "--spec", "ngram")
    shown = cli(*render)
    assert shown.code == 0, shown.err
    assert "PLANTED" not in shown.out + shown.err
    assert "PLANTED" in cli(*render, "--show-secrets").out
    file = recorded / "mine.yaml"
    file.write_text(SECRET)
    assert "PLANTED" in cli("render", "-f", str(file), "--spec", "ngram").out


HISTORY = """\
REVISION   AGE   STATUS       SPEC   WHY
1          OLD   superseded   none   as found
2          OLD   live         none   as found

OPERATION   AGE   SPEC    ENDED      THROUGHPUT   TIME PER TOKEN   REASON
rollout-1   OLD   ngram   promoted   -            -                -
"""
STATUS = """\
NAMESPACE   NAME   STATE          SPEC   REVISION   URL
default     demo   Unsupervised   none   2          http://127.0.0.1:8000/v1
problem: the supervisor is gone, port 8000 does not answer: mpctl local up demo brings both back
"""


def test_the_whole_history(cli, recorded):
    days = age("2026-01-01", datetime.now(UTC))
    assert days.endswith("d")
    assert (
        re.sub(rf"\b{days} +", "OLD   ", cli("history").out).replace("AGE    ", "AGE   ") == HISTORY
    )


def test_names_carry_their_kind(cli, recorded):
    assert cli("history", "-o", "name").out == "revision/1\nrevision/2\n"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0s"), (59, "59s"), (119, "119s"), (720, "12m"), (18000, "5h"), (259200, "3d")],
)
def test_an_age_is_written_as_kubectl_writes_it(seconds, text):
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert age((now - timedelta(seconds=seconds)).isoformat(), now) == text
    assert age("once", now) == "?"


def test_the_history_shows_the_ratios_of_the_verdict_and_who_promoted_a_revision():
    rules = (RuleResult(Outcome.PASS, "", 0.56, rule="time per token"),)
    verdict = Verdict(
        Outcome.PROMOTE, (CellVerdict(Cell("edits", 1, 0.0), 1.0, Outcome.PROMOTE, rules, 1.83),)
    )
    plan = Plan(
        Kind.ROLLOUT, Strategy.SIDE_BY_SIDE, Manifest.of("a", 1), Manifest.of("b", 2), Spec("ngram")
    )
    operation = Operation(
        "rollout-1",
        plan,
        "2026-01-01",
        "ann",
        {"judge": encode(JudgementResult(verdict))},
        ending=Ending.PROMOTED,
        detail="ngram",
    )
    revisions = tuple(
        Revision(
            number,
            "text",
            "2026-01-01",
            "ann",
            f"candidate of rollout-{number - 1}",
            None,
            f"rollout-{number - 1}",
        )
        for number in (2, 3)
    )
    history = ServiceHistory(revisions, (operation,), 2, (), frozenset({2}))
    lines = history_table(history, datetime(2026, 1, 3, tzinfo=UTC), wide=False).splitlines()
    assert lines[1].endswith("promoted by rollout-1")
    assert lines[2].endswith("candidate of rollout-2")
    assert lines[-1].split() == ["rollout-1", "2d", "ngram", "promoted", "1.83x", "0.56x", "-"]
    assert history.to_record()["operations"][0]["ratios"][0] == {
        "rule": "throughput",
        "value": (1.83, 1.83),
        "cells": 1,
    }


def test_the_whole_status(cli, recorded):
    assert cli("status").out == STATUS


def files(directory):
    return sorted(str(p.relative_to(directory)) for p in directory.rglob("*") if p.is_file())


def test_a_purge_deletes_what_was_recorded_and_leaves_the_service(cli, recorded):
    FileStore(recorded, "ann@here").save("rollout-1", "workload", {"a": 1})
    (recorded / "arms").mkdir()
    for arm in ("arm-0", "arm-1"):
        (recorded / "arms" / f"{arm}.log").write_text("loaded")
    before = (recorded / "desired.json").read_bytes()
    done = cli("prune", "--all", "--yes")
    assert done.code == 0, done.err
    assert (
        "deleted 2 revisions, 4 ledger entries, 1 record of measurements, 1 lock or log of"
        in done.err
    )
    assert files(recorded) == ["arms/arm-1.log", "desired.json", "lease.lock"]
    assert (recorded / "desired.json").read_bytes() == before
    assert "nothing is recorded about service default/demo" in cli("prune", "--all").err
    assert cli("status").code == 0


def test_a_purge_asks_for_the_name_and_says_what_is_lost(cli, recorded, monkeypatch):
    texts = []
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setattr("click.prompt", lambda text, **_more: texts.append(text) or "yes")
    actual_files = files(recorded)
    done = cli("prune", "--all")
    assert done.code == 2
    assert (
        "Delete 2 revisions, 4 ledger entries of service default/demo (this machine)?" in done.err
    )
    assert "revision 1 cannot be restored afterwards" in done.err
    assert texts == ["Type demo to confirm"]
    assert files(recorded) == actual_files


def test_a_purge_without_a_terminal_needs_a_yes(cli, recorded):
    actual_files = files(recorded)
    assert cli("prune", "--all", "--no-input").code == 2
    assert files(recorded) == actual_files


def test_a_purge_is_refused_while_an_operation_is_unfinished(cli, recorded):
    store = FileStore(recorded, "ann@here")
    plan = Plan(
        Kind.ROLLOUT,
        Strategy.SIDE_BY_SIDE,
        Manifest.of(MANIFEST, 1),
        Manifest.of(MANIFEST, 1),
        Spec("ngram"),
    )
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    fields = {"event": Event.OPENED, "who": "ann@here", "data": {"plan": plan.to_record()}}
    store.append(Entry.after(store.entries()[-1], at=moment, operation="rollout-2", **fields))
    actual_files = files(recorded)
    done = cli("prune", "--all", "--yes", "--force")
    assert done.code == 3
    assert "rollout-2 of service default/demo is unfinished" in done.err
    assert files(recorded) == actual_files


def test_a_purge_of_a_history_that_cannot_be_read_needs_force(cli, recorded):
    (recorded / "revisions" / "0001.json").write_text("{")
    done = cli("prune", "--all", "--yes")
    assert done.code == 3
    assert "--all --force" in done.err
    assert cli("prune", "--all", "--yes", "--force").code == 0
    assert files(recorded) == ["desired.json", "lease.lock"]


def test_a_service_that_is_down_is_purged_by_name(cli, recorded):
    (recorded / "desired.json").unlink()
    assert cli("history", "demo").out.startswith("REVISION")
    assert cli("prune", "demo", "--all", "--yes").code == 0
    assert not recorded.exists()


def test_a_rejection_is_told_by_its_rules_and_its_rollback_by_the_operation(monkeypatch):
    rules = (RuleResult(Outcome.FAIL, "E2E 14.07x, 96.6% CI ...", 14.07, rule="E2E"),)
    verdict = Verdict(
        Outcome.REJECT, (CellVerdict(Cell("edits", 1, 0.0), 1.0, Outcome.REJECT, rules),)
    )
    plan = Plan(
        Kind.ROLLOUT, Strategy.SIDE_BY_SIDE, Manifest.of("a", 1), Manifest.of("b", 2), Spec("ngram")
    )
    judged = {"judge": encode(JudgementResult(verdict))}
    text = "E2E 14.07x, 96.6% CI ..."
    rejected = Operation(
        "rollout-1", plan, "2026-01-01", "ann", judged, ending=Ending.REJECTED, detail=text
    )
    undone = Operation(
        "rollback-2",
        rejected.undo_plan(why=f"rollout-1 rejected: {text}", automatic=True),
        "2026-01-01",
        "ann",
        ending=Ending.ROLLED_BACK,
        detail=f"rollout-1 rejected: {text}",
    )
    history, now = (
        ServiceHistory((), (rejected, undone), None, ()),
        datetime(2026, 1, 3, tzinfo=UTC),
    )
    short, wide = (history_table(history, now, wide=wide) for wide in (False, True))
    assert text not in short
    assert short.splitlines()[-2].endswith("E2E failed")
    assert short.splitlines()[-1].endswith("rollout-1 rejected")
    assert wide.count(text) == 2
