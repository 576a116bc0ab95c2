"""Screens on a terminal: no line is wider than it. What goes to a pipe has a line per row."""


def too_wide(lines, columns):
    return [line for line in lines if len(line) > columns]


def test_no_line_of_any_screen_is_wider_than_the_terminal(mpctl):
    mpctl("local", "up", "-f", str(mpctl.manifest(script={"slow": 40})))
    own = ("--policy", mpctl.policy("{}"), "--requests", "4", "--max-tokens", "12")
    rejected = mpctl.on_terminal(80, "rollout", "--spec", "ngram", *own, code=5)
    assert any("rejected" in line for line in rejected)
    wide = {"rejected, 80 columns": too_wide(rejected, 80)}
    promoted = mpctl.on_terminal(100, "rollout", "--spec", "ngram")
    assert any("promoted:" in line for line in promoted)
    wide["promoted, 100 columns"] = too_wide(promoted, 100)
    for columns in (80, 120):
        watched = mpctl.on_terminal(columns, "watch", "--interval", "1s", seconds=6)
        assert any("demo" in line for line in watched)
        wide[f"watch, {columns} columns"] = too_wide(watched, columns)
    screens = {
        "already": ("rollout", "--spec", "ngram"),
        "status": ("status",),
        "history": ("history",),
        "methods": ("methods",),
        "drafts": ("drafts",),
        "preflight": ("preflight", "--spec", "ngram"),
        "plan": ("plan", "--spec", "all", "--gpu", "L4", "--traffic", "code"),
        "gate": ("gate", "explain"),
        "refusal": ("preflight", "--spec", "eagle3", "--draft", "/no/such/head"),
    }
    for name, command in screens.items():
        for columns in (80, 120):
            lines = mpctl.on_terminal(columns, *command, code=None if name == "refusal" else 0)
            wide[f"{name}, {columns} columns"] = too_wide(lines, columns)
    wide["rolled back"] = too_wide(mpctl.on_terminal(100, "rollback"), 100)
    assert not {name: lines for name, lines in wide.items() if lines}


def test_a_pipe_gets_a_line_per_row_whatever_the_terminal_was(up):
    for command in (("methods",), ("drafts",)):
        piped = up(*command).stdout
        assert len(piped.splitlines()) < len(up.on_terminal(80, *command))
        assert max(map(len, piped.splitlines())) > 120
