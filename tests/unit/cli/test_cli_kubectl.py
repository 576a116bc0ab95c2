"""What ``kubectl_complete-mpctl`` answers."""

import pytest

from mpctl.cli.kubectl import complete, main


@pytest.mark.needs("local")
@pytest.mark.parametrize(
    ("words", "candidate"),
    [
        ([""], "rollout"),
        (["doc"], "doctor"),
        (["rollout", "--spec", "eag"], "eagle3"),
        (["rbac", "r"], "reader"),
        (["local", ""], "up"),
    ],
)
def test_candidates_then_the_directive(cli, words, candidate):
    lines = complete(words).split("\n")
    assert candidate in {line.partition("\t")[0] for line in lines}
    assert lines[-1] == ":4"


def test_commands_come_with_what_they_do(cli):
    lines = dict(line.split("\t") for line in complete(["do"]).split("\n")[:-1])
    assert set(lines) == {"doctor"}
    assert lines["doctor"]


def test_what_cannot_be_completed_is_left_to_nobody_and_silent(cli, capsys):
    assert complete(["no-such-command", "x"]) == ":4"
    assert complete([]).endswith(":4")
    assert capsys.readouterr() == ("", "")


def test_the_program_prints_it(cli, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["kubectl_complete-mpctl", "status", "--all-"])
    main()
    assert capsys.readouterr().out.startswith("--all-namespaces\t")
