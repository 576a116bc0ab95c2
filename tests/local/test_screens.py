"""Screens on a terminal: no line is wider than it. What goes to a pipe has a line per row."""

import pytest


def too_wide(lines, columns):
    return [line for line in lines if len(line) > columns]


@pytest.mark.parametrize("columns", [80, 120])
def test_no_line_of_any_screen_is_wider_than_the_terminal(mpctl, columns):
    mpctl("local", "up", "-f", str(mpctl.manifest(script={"slow": 40})))
    own = ("--policy", mpctl.policy("{}"), "--requests", "4", "--max-tokens", "12")
    rejected = mpctl.on_terminal(columns, "rollout", "--spec", "ngram", *own, code=5)
    assert any("rejected" in line for line in rejected)
    promoted = mpctl.on_terminal(columns, "rollout", "--spec", "ngram")
    assert any("promoted:" in line for line in promoted)
    screens = {
        "rejected": rejected,
        "promoted": promoted,
        "already": mpctl.on_terminal(columns, "rollout", "--spec", "ngram"),
        "status": mpctl.on_terminal(columns, "status"),
        "history": mpctl.on_terminal(columns, "history"),
        "methods": mpctl.on_terminal(columns, "methods"),
        "drafts": mpctl.on_terminal(columns, "drafts"),
        "watch": mpctl.on_terminal(columns, "watch", "--interval", "1s", seconds=8),
        "preflight": mpctl.on_terminal(columns, "preflight", "--spec", "ngram"),
        "plan": mpctl.on_terminal(columns, "plan", "--spec", "all", "--gpu", "L4", "--traffic", "code"),
        "gate": mpctl.on_terminal(columns, "gate", "explain"),
        "refusal": mpctl.on_terminal(columns, "preflight", "--spec", "eagle3", "--draft", "/no/such/head", code=None),
    }
    wide = {name: too_wide(lines, columns) for name, lines in screens.items()}
    assert not {name: lines for name, lines in wide.items() if lines}


def test_a_pipe_gets_a_line_per_row_whatever_the_terminal_was(up):
    for command in (("methods",), ("drafts",)):
        piped = up(*command).stdout
        assert len(piped.splitlines()) < len(up.on_terminal(80, *command))
        assert max(map(len, piped.splitlines())) > 120
