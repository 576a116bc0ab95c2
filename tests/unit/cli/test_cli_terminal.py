"""What is printed where: colour, redrawn lines, questions, the alternate screen, characters a locale lacks."""

import io
import shlex
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from screen import shown

from mpctl.cli.printer import Result, columns, document, page, render
from mpctl.cli.terminal import Terminal, as_called
from mpctl.errors import Cancelled, InputError
from mpctl.rollout.ports import RoundProgress


class Screen(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self):
        return True

    def fileno(self):
        raise OSError


@pytest.mark.parametrize(
    ("pages", "lines", "on_terminal", "paged"),
    [
        (True, 500, True, True),
        (True, 2, True, False),  # fits
        (True, 500, False, False),  # goes to a pipe
        (False, 500, True, False),
    ],
)
def test_a_long_result_on_a_terminal_goes_through_the_pager(
    tty, monkeypatch, pages, lines, on_terminal, paged
):
    shown = []
    monkeypatch.setattr("click.echo_via_pager", shown.append)
    if on_terminal:
        tty()
    terminal = Terminal(color=False, live=False)
    terminal.pages = pages
    text = "row\n" * lines
    terminal.result(text)
    assert shown == ([f"{text}\n"] if paged else [])


@pytest.fixture
def tty(monkeypatch):
    """Call it in the test: standard error and output are terminals from then on."""
    for name in ("NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "CI", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")

    def attach():
        for name in ("stderr", "stdout", "stdin"):
            monkeypatch.setattr(sys, name, Screen())
        return sys

    return attach


@pytest.mark.parametrize(
    ("flag", "variables", "on_terminal", "in_pipe"),
    [
        ("auto", {}, True, False),
        ("auto", {"NO_COLOR": "1"}, False, False),
        ("auto", {"NO_COLOR": ""}, True, False),
        ("auto", {"CLICOLOR": "0"}, False, False),
        ("auto", {"CLICOLOR_FORCE": "1"}, True, True),
        ("auto", {"CLICOLOR_FORCE": "0"}, True, False),
        ("auto", {"CLICOLOR_FORCE": "1", "NO_COLOR": "1"}, False, False),
        ("auto", {"TERM": "dumb"}, False, False),
        ("always", {"NO_COLOR": "1"}, True, True),
        ("never", {"CLICOLOR_FORCE": "1"}, False, False),
    ],
)
def test_colour(tty, monkeypatch, flag, variables, on_terminal, in_pipe):
    tty = tty()
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert Terminal.of_environment(flag).color is on_terminal
    monkeypatch.setattr("sys.stderr", io.StringIO())
    assert Terminal.of_environment(flag).color is in_pipe


def test_colour_carries_no_meaning_alone(capsys):
    for color in (True, False):
        Terminal(color=color, live=False).error("it broke", "mend it")
    assert capsys.readouterr().err.splitlines() == [
        *("\x1b[31merror:\x1b[0m it broke", "\x1b[36mhint:\x1b[0m mend it"),
        *("error: it broke", "hint: mend it"),
    ]


def test_the_flag_colours_errors_too(cli):
    assert "\x1b[31merror:" in cli("--color", "always", "rollback").err
    assert "\x1b[31merror:" in cli("rollback", "--color=always").err
    assert "\x1b" not in cli("rollback").err


def test_a_redrawn_line_keeps_its_step_and_is_finished_before_anything_else(tty):
    tty = tty()
    terminal = Terminal.of_environment("never")
    terminal.step("ready", "waiting")
    terminal._screen.drawn_at = 0.0
    terminal.update("loading")
    terminal.update("dropped: it comes at once")
    terminal.note("done")
    assert shown(tty.stderr.getvalue(), 80) == [f"{'ready':<16}loading", "done"]


def test_elsewhere_steps_are_lines_and_updates_only_with_v(capsys):
    for verbose in (0, 1):
        terminal = Terminal(color=False, live=False, verbose=verbose)
        terminal.step("ready", "waiting")
        terminal.update("loading")
    assert capsys.readouterr().err.splitlines() == [
        f"{'ready':<16}waiting",
        f"{'ready':<16}waiting",
        f"{'':<16}loading",
    ]


PROGRESS = RoundProgress(3, 12, 40.0, 120.0, (("throughput ratio", "1.31x", "1.20 to 1.45"),))
LINE = (
    "round 3 of at most 12, 40 s spent, at most 2 min left: throughput ratio 1.31x (1.20 to 1.45)"
)


def test_a_round_is_a_line_without_a_terminal_and_its_blocks_are_not(capsys):
    for verbose in (0, 1):
        terminal = Terminal(color=False, live=False, verbose=verbose)
        terminal.step("measure", "block 1 of 24")
        terminal.step("measure", "block 2 of 24")
        terminal.round(PROGRESS)
        assert capsys.readouterr().err.splitlines() == [
            f"{'measure':<16}block 1 of 24",
            *([f"{'':<16}block 2 of 24"] * verbose),
            f"{'measure':<16}{LINE}",
        ]


def test_the_rules_that_are_open_are_named_on_the_line():
    figures = (*PROGRESS.figures, ("time-per-token ratio", "0.76x", "0.69 to 0.83"))
    progress = replace(PROGRESS, figures=figures, open=("TTFT", "E2E"))
    assert (
        progress.describe() == f"{LINE}, time-per-token ratio 0.76x (0.69 to 0.83); open: TTFT, E2E"
    )


def test_on_a_terminal_a_round_stays_below_the_line_of_its_blocks(tty):
    stream = tty().stderr
    terminal = Terminal.of_environment("never")
    terminal.step("measure", "block 1")
    terminal.round(PROGRESS)
    terminal._screen.drawn_at = 0.0
    terminal.step("measure", "block 3")
    assert shown(stream.getvalue(), 80) == [
        f"{'measure':<16}block 3",
        "     round 3 of at most 12, at most 2 min left",
        "     throughput ratio 1.31x (1.20 to 1.45)",
    ]


def test_twice_verbose_has_the_time_before_each_line(capsys):
    Terminal(color=False, live=False, verbose=2).note("done")
    stamp, text = capsys.readouterr().err.split(" ")
    assert text == "done\n"
    assert len(stamp) == len("2025-01-01T00:00:00+0000")


def test_quiet_keeps_warnings_errors_and_results(capsys):
    terminal = Terminal(color=False, live=False, quiet=True)
    terminal.step("a", "b")
    terminal.update("c")
    terminal.note("d")
    terminal.next_command("e")
    terminal.warn("careful")
    terminal.error("broken", None)
    terminal.result("42")
    assert capsys.readouterr() == ("42\n", "warning: careful\nerror: broken\n")


def test_nobody_is_asked_without_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    Terminal(color=False, live=False, yes=True).confirm("Continue?")
    terminal = Terminal(color=False, live=False)
    with pytest.raises(InputError, match="no terminal to prompt on") as caught:
        terminal.confirm("Continue?")
    assert caught.value.hint == "confirm beforehand with -y"
    assert capsys.readouterr() == ("", "")


def test_no_input_forbids_to_ask_even_on_a_terminal(tty):
    tty = tty()
    with pytest.raises(InputError, match="--no-input is set and a confirmation is needed"):
        Terminal(color=False, live=True, asks=False).confirm("Continue?")
    assert tty.stderr.getvalue() == ""


@pytest.mark.parametrize(
    ("answer", "agreed"), [("y", True), ("n", False), ("", False), (None, False)]
)
def test_the_answer_counts_and_ctrl_c_is_a_no(tty, monkeypatch, answer, agreed):
    tty = tty()

    def reply(_prompt):
        if answer is None:
            raise KeyboardInterrupt
        return answer

    monkeypatch.setattr("click.termui.visible_prompt_func", reply)
    terminal = Terminal.of_environment("never")
    if agreed:
        terminal.confirm("Continue?")
        return
    with pytest.raises(Cancelled, match="cancelled; nothing was changed"):
        terminal.confirm("Continue?")


def test_watching_a_terminal_uses_the_alternate_screen_and_leaves_the_last_state(tty):
    tty = tty()
    with Terminal.of_environment("never").screen() as show:
        show("first")
        show("\n".join(f"line {n}" for n in range(100)))
        raise KeyboardInterrupt
    text = tty.stdout.getvalue()
    assert text.startswith("\x1b[?1049h\x1b[?25l\x1b[H\x1b[Jfirst\x1b[H\x1b[Jline 0\n")
    on_screen, left = text.split("\x1b[?25h\x1b[?1049l")
    assert "line 22" in on_screen
    assert "line 23" not in on_screen, "24 lines are the height"
    assert left.splitlines()[99] == "line 99"


def test_an_error_while_watching_leaves_the_alternate_screen(tty):
    tty = tty()
    with pytest.raises(InputError), Terminal.of_environment("never").screen() as show:
        show("first")
        raise InputError("gone")
    assert tty.stdout.getvalue().endswith("\x1b[?25h\x1b[?1049lfirst\n")


def test_watching_elsewhere_prints_when_something_changed(capsys):
    with Terminal(color=False, live=False).screen() as show:
        for text in ("a", "a", "b", "b", "a"):
            show(text)
        raise KeyboardInterrupt
    assert capsys.readouterr() == ("a\nb\na\n", "")


def test_columns_are_left_aligned_and_end_without_blanks():
    assert columns([["NAME", "STATE", "WHY"], ["a", "Ready", ""], ["longer", "x", "because"]]) == (
        "NAME     STATE   WHY\na        Ready\nlonger   x       because"
    )


TABLE = [
    ["NAME", "STATE", "WHY"],
    ["a", "Ready", "nothing is wrong with it"],
    ["longer", "x", "because " * 4],
]


def test_a_table_is_as_wide_as_its_page_and_a_pipe_has_a_line_per_row():
    plain = columns(TABLE)
    assert max(map(len, plain.splitlines())) > 40
    with page(40):
        fitted = columns(TABLE)
    assert fitted.splitlines() == [
        "NAME     STATE   WHY",
        "a        Ready   nothing is wrong with",
        "                 it",
        "longer   x       because because because",
        "                 because",
    ]
    with page(200):
        assert columns(TABLE) == plain


def test_a_table_that_would_be_hard_to_read_becomes_a_block_per_row():
    with page(22):
        assert columns(TABLE).splitlines()[:5] == [
            "NAME    a",
            "STATE   Ready",
            "WHY     nothing is",
            "        wrong with it",
            "",
        ]


@given(
    st.lists(
        st.lists(st.text("ab -/", max_size=60), min_size=4, max_size=4), min_size=2, max_size=6
    ),
    st.integers(40, 130),
)
def test_no_line_of_a_table_is_longer_than_its_page(rows, width):
    with page(width):
        assert (
            max(map(len, columns([["A", "B", "C", "D"], *rows]).splitlines()), default=0) <= width
        )


def test_wide_output_keeps_a_line_per_row_on_a_terminal():
    result = Result("K", dict, list, lambda _wide: columns(TABLE))
    assert render("wide", result, 30) == columns(TABLE)
    assert render("table", result, 30) != columns(TABLE)


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_messages_on_a_terminal_are_no_wider_than_it(tty, monkeypatch, columns):
    stream = tty().stderr
    monkeypatch.setenv("COLUMNS", str(columns))
    terminal = Terminal(color=False, live=False)
    terminal.step("measure", "the candidate answers prompts " * 6)
    terminal.note("a note of many words " * 9)
    terminal.warn("careful " * 30)
    terminal.error(
        "it broke in " * 20,
        "run 'mpctl rollback qwen -n team-a --context production-europe' and then look",
    )
    terminal.next_command(
        "rollback qwen -n team-a --context production-europe --kubeconfig /etc/kube/conf   # restores"
    )
    assert max(map(len, stream.getvalue().splitlines())) <= columns


def test_a_wrapped_command_can_be_pasted(tty, monkeypatch):
    stream = tty().stderr
    monkeypatch.setenv("COLUMNS", "60")
    command = (
        "mpctl rollback qwen -n team-a --context production-europe --kubeconfig /etc/kube/config"
    )
    Terminal(color=False, live=False).error("it broke", f"run '{command}' to restore it")
    quoted = stream.getvalue().partition("'")[2].partition("'")[0]
    assert shlex.split(quoted.replace("\\\n", "")) == command.split()
    assert "\n" in quoted
    Terminal(color=False, live=False).next_command(command)
    pasted = stream.getvalue().rpartition("next: ")[2].replace("\\\n", "")
    assert shlex.split(pasted) == command.split()


def test_documents_have_a_kind_and_keep_their_characters():
    assert (
        document("K", {"a": "é"}, "json")
        == '{\n  "apiVersion": "mpctl.dev/v1alpha1",\n  "kind": "K",\n  "a": "é"\n}'
    )
    assert (
        document("K", {"b": 1, "a": "é"}, "yaml")
        == "apiVersion: mpctl.dev/v1alpha1\nkind: K\nb: 1\na: é"
    )


def test_our_name_in_hints():
    assert as_called("mpctl resume goes on, mpctl rollback undoes", "kubectl mpctl") == (
        "kubectl mpctl resume goes on, kubectl mpctl rollback undoes"
    )
    assert (
        as_called("did you mean kubectl mpctl rollout", "kubectl mpctl")
        == "did you mean kubectl mpctl rollout"
    )
    assert as_called("pip install 'mpctl[local]'", "kubectl mpctl") == "pip install 'mpctl[local]'"


def test_exact_is_utf8_and_keeps_line_ends(capsysbinary):
    Terminal(color=False, live=False).exact("a: é\r\nb: 1")
    assert capsysbinary.readouterr().out == "a: é\r\nb: 1".encode()


def test_the_first_word_of_a_note_may_have_a_colour(capsys):
    for color in (True, False):
        Terminal(color=color, live=False).note("promoted: service a/b runs ngram", color="green")
    assert capsys.readouterr().err.splitlines() == [
        "\x1b[32mpromoted:\x1b[0m service a/b runs ngram",
        "promoted: service a/b runs ngram",
    ]


def test_what_was_agreed_to_beforehand_is_told_all_the_same(capsys):
    """In a pipeline nobody is asked, and its log is where users' load, engines and minutes are looked for."""
    question = "Users send 2.1 requests/s to 3 pods. 2 more engines, about 9 min.\nContinue (here)?"
    Terminal(color=False, live=False, yes=True).confirm(question)
    assert (
        capsys.readouterr().err
        == "Users send 2.1 requests/s to 3 pods. 2 more engines, about 9 min.\n"
    )
    Terminal(color=False, live=False, yes=True, quiet=True).confirm(question)
    assert capsys.readouterr().err == ""
