"""The lines of a running operation: phases, rounds, figures; at any width, around notes, questions and Ctrl-C."""

from __future__ import annotations

import io
import sys
from dataclasses import replace
from threading import Event
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from screen import shown

from mpctl.cli.live_screen import LiveScreen, LiveView
from mpctl.cli.terminal import Terminal
from mpctl.rollout.ports import PhaseProgress, PhaseState, RoundProgress

ENGINES = PhaseProgress("engines", PhaseState.DONE, 94.0, 90.0)
ROUNDS = PhaseProgress("rounds", PhaseState.RUNNING, 130.0, 300.0)
PROMOTION = PhaseProgress("promotion", PhaseState.WAITING, 0.0, 4.0)
PHASES = (ENGINES, ROUNDS, PROMOTION)
KEEP_TIME = LiveScreen._keep_time
THROUGHPUT = ("throughput ratio", "2.59x", "2.10x to 3.30x")
TIME = ("time-per-token ratio", "0.39x", "0.30x to 0.48x")


def progress(number, *figures, open_rules=(), users=""):
    return RoundProgress(number, 48, 130.0, 180.0, figures, open_rules, users)


def measuring(**changes):
    view = LiveView(PHASES, 100.0, detail="block 17 of at most 96: baseline")
    rounds = {"rounds": progress(8, THROUGHPUT, TIME, open_rules=("TTFT", "errors"))}
    return replace(view, **{"rounds": rounds, **changes})


def test_the_phases_with_their_times_and_the_ratios_with_their_intervals():
    assert list(measuring().lines(105.0, 79)) == [
        "ok engines    94 s      usually 90 s",
        ">  rounds     2.2 min   usually 5 min",
        "     block 17 of at most 96: baseline",
        "     round 8 of at most 48, at most 3 min left",
        "     throughput ratio 2.59x (2.10x to 3.30x)",
        "     time-per-token ratio 0.39x (0.30x to 0.48x)",
        "     still open: TTFT, errors",
        "   promotion            usually 4 s",
    ]


def test_a_first_rollout_expects_nothing():
    engines = PhaseProgress("engines", PhaseState.RUNNING)
    view = LiveView((engines, PhaseProgress("bake", PhaseState.WAITING)), detail="loading")
    assert list(view.lines(12.4, 79)) == [">  engines  12 s", "     loading", "   bake"]


def test_the_end_of_a_rollout_keeps_the_figures():
    rounds = PhaseProgress("rounds", PhaseState.DONE, 200.0, 300.0)
    assert list(measuring(phases=(ENGINES, rounds)).lines(999.0, 79)) == [
        "ok engines  94 s      usually 90 s",
        "ok rounds   3.3 min   usually 5 min",
        "     throughput ratio 2.59x (2.10x to 3.30x)",
        "     time-per-token ratio 0.39x (0.30x to 0.48x)",
    ]


def test_work_without_phases_has_a_line_and_its_rounds():
    view = LiveView(step="measure  ", detail="block 3", rounds={"": progress(8, THROUGHPUT)})
    assert list(view.lines(0.0, 79)) == [
        "measure  block 3",
        "     round 8 of at most 48, at most 3 min left",
        "     throughput ratio 2.59x (2.10x to 3.30x)",
    ]


def test_users_requests_have_a_line():
    view = measuring(rounds={"rounds": progress(2, TIME, users="3 requests lost")})
    assert "     users: 3 requests lost" in list(view.lines(0.0, 79))


@given(
    columns=st.integers(40, 120),
    name=st.text("abc -,", min_size=1, max_size=60),
    rules=st.lists(st.text("abc ", min_size=1, max_size=30), max_size=6),
    detail=st.text("abc ", max_size=200),
)
def test_no_line_is_too_wide_and_no_interval_is_cut(columns, name, rules, detail):
    figures = ((name, "12.59x", "10.10x to 13.30x"), THROUGHPUT)
    rounds = {"rounds": progress(8, *figures, open_rules=tuple(rules))}
    lines = list(measuring(detail=detail, rounds=rounds).lines(5.0, columns))
    assert max(map(len, lines)) <= columns
    assert sum("12.59x (10.10x to 13.30x)" in line for line in lines) == 1
    assert sum("2.59x (2.10x to 3.30x)" in line for line in lines) == 1


class Screen(io.StringIO):
    """A stream that is a terminal; ``COLUMNS`` is its width."""

    def isatty(self):
        return True

    def fileno(self):
        raise OSError


@pytest.fixture
def attach(monkeypatch):
    """Return a live terminal of 80 columns; pytest replaces the streams before the test, so the test calls it."""
    for variable in ("CI", "NO_COLOR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("mpctl.cli.live_screen.time.monotonic", lambda: 0.0)
    monkeypatch.setattr(LiveScreen, "_keep_time", lambda self, phases: None)

    def attach():
        for stream in ("stderr", "stdout", "stdin"):
            monkeypatch.setattr(sys, stream, Screen())
        return Terminal.of_environment("never")

    return attach


def on_screen(columns=80):
    return shown(sys.stderr.getvalue(), columns)


def test_the_block_is_redrawn_in_place_below_notes_and_stays_when_the_operation_ended(attach):
    terminal = attach()
    terminal.step("users", "two readings")
    terminal.phases(PHASES)
    terminal.step("measure", "block 1")
    terminal.note("a note")
    terminal.round(progress(8, THROUGHPUT))
    terminal.warn("careful")
    terminal.phases((ENGINES, PhaseProgress("rounds", PhaseState.DONE, 9.0), PROMOTION))
    terminal.note("promoted")
    assert on_screen() == [
        "users           two readings",
        "a note",
        "warning: careful",
        "ok engines    94 s      usually 90 s",
        "ok rounds     9 s",
        "     throughput ratio 2.59x (2.10x to 3.30x)",
        "   promotion            usually 4 s",
        "promoted",
    ]


def test_another_operation_has_a_block_of_its_own(attach):
    terminal = attach()
    terminal.phases((PhaseProgress("rounds", PhaseState.RUNNING),))
    terminal.phases((PhaseProgress("rounds", PhaseState.FAILED, 3.0),))
    terminal.note("step measure failed: the service is restored")
    terminal.phases((PhaseProgress("restoration", PhaseState.RUNNING),))
    assert on_screen() == [
        "NO rounds  3 s",
        "step measure failed: the service is restored",
        ">  restoration  0 s",
    ]


def test_a_question_and_an_error_are_below_the_block(attach, monkeypatch):
    terminal = attach()
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda prompt: "y")
    terminal.phases((ENGINES, ROUNDS))
    terminal.confirm("Continue?")
    terminal.phases((ENGINES, ROUNDS))
    terminal.error("it broke", None)
    block = ["ok engines  94 s      usually 90 s", ">  rounds   2.2 min   usually 5 min"]
    assert on_screen() == [*block, *block, "error: it broke"]


def test_a_terminal_that_becomes_narrower_loses_no_line_and_no_interval(attach, monkeypatch):
    terminal = attach()
    terminal.note("a note from before")
    terminal.phases(PHASES)
    terminal.round(progress(3, ("throughput ratio", "2.40x", "1.50x to 4.20x")))
    terminal.round(progress(8, THROUGHPUT))
    monkeypatch.setenv("COLUMNS", "60")
    terminal.round(progress(9, THROUGHPUT))
    terminal.round(progress(10, THROUGHPUT))
    lines = on_screen(60)
    assert lines[0] == "a note from before"
    assert lines[-5:] == [
        "ok engines    94 s      usually 90 s",
        ">  rounds     2.2 min   usually 5 min",
        "     round 10 of at most 48, at most 3 min left",
        "     throughput ratio 2.59x (2.10x to 3.30x)",
        "   promotion            usually 4 s",
    ]
    assert sum("round 9 " in line for line in lines) == 0, "redrawn in place again"


def test_a_terminal_of_few_lines_shows_as_many_as_it_has(attach, monkeypatch):
    terminal = attach()
    monkeypatch.setattr("mpctl.cli.live_screen.height", lambda: 3)
    terminal.phases(PHASES)
    terminal.update("loading")
    assert on_screen() == [
        "ok engines    94 s      usually 90 s",
        ">  rounds     2.2 min   usually 5 min",
    ]


def test_the_time_goes_on_while_nothing_is_reported(attach, monkeypatch):
    terminal, clock, ended = attach(), SimpleNamespace(now=0.0), Event()

    def sleep(seconds):
        clock.now += seconds
        if clock.now > 2:
            terminal.error("it broke", None)
            ended.set()

    monkeypatch.setattr(LiveScreen, "_keep_time", KEEP_TIME)
    monkeypatch.setattr("mpctl.cli.live_screen.time.monotonic", lambda: clock.now)
    monkeypatch.setattr("mpctl.cli.live_screen.time.sleep", sleep)
    terminal.phases((PhaseProgress("engines", PhaseState.RUNNING),))
    ended.wait(10)
    assert on_screen() == [">  engines  2 s", "error: it broke"]


@pytest.mark.parametrize("settings", [{"quiet": True, "live": True}, {"live": False}])
def test_elsewhere_there_are_no_phases(capsys, settings):
    terminal = Terminal(color=False, **settings)
    terminal.phases(PHASES)
    terminal.step("ready", "waiting")
    expected = "" if settings.get("quiet") else "ready           waiting\n"
    assert capsys.readouterr() == ("", expected)
