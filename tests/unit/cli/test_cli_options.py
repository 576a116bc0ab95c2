"""Options declared once: durations, words, variables and defaults in every help."""

import click
import pytest

from mpctl.app import option as options
from mpctl.app import requests
from mpctl.cli.registry import every_command
from mpctl.cli.settings_files import COMMON, options_of
from mpctl.experiment import answer_sets
from mpctl.platform.kubernetes.lease import DURATION_S
from mpctl.rollout.plan import Strategy
from mpctl.stats.sequential import MOST_LOOKS

COMMANDS = list(every_command())
# A variable of the shell must never delete anything, nor permit it, nor change the rights of a role.
TYPED = {
    ("prune", "--all"),
    ("prune", "--force"),
    ("rbac", "--all-namespaces"),
    ("rbac", "--allow"),
    ("rbac", "--without"),
    *(
        (verb, flag)
        for verb in ("rollout", "rollback", "plan", "bench", "status", "watch")
        for flag in ("--selector", "--all", "--keep-going")
    ),
}
OWN_FORMATS = {("report", "--output"), ("rbac", "--output")}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90.0),
        ("90s", 90.0),
        ("1.5s", 1.5),
        ("10m", 600.0),
        ("1h", 3600.0),
        ("1h30m", 5400.0),
        ("2d", 172800.0),
        ("1h2m3s", 3723.0),
        (" 5m ", 300.0),
        (20, 20.0),
        (0.5, 0.5),
    ],
)
def test_a_duration(text, seconds):
    assert options.Duration().parse(text) == seconds


@pytest.mark.parametrize(
    ("text", "steps"), [("1,10,50", (1, 10, 50)), ("5", (5,)), ([1, 100], (1, 100))]
)
def test_percentages(text, steps):
    assert options.Percentages().parse(text) == steps


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0,10", "must be at least 1"),
        ("10,5", "must rise from step to step"),
        ("10,10", "names a number twice"),
        ("10,101", "more than 100 percent"),
        ("1.5", "is no whole number"),
        ("1,,2", "is no whole number"),
    ],
)
def test_no_percentages(text, said):
    with pytest.raises(ValueError, match=said):
        options.Percentages().parse(text)


@pytest.mark.parametrize("text", ["0", "0s", "0m", "0h0m0s", 0])
def test_a_duration_of_nothing(text):
    with pytest.raises(ValueError, match="must be above 0"):
        options.Duration().parse(text)


def test_files_complete_wherever_an_option_is_a_file():
    rows = [
        (path, param)
        for path, command in COMMANDS
        for param in command.params
        if isinstance(param, click.Option)
        and "FILE" in (param.metavar or "")
        and "@FILE" not in param.metavar
    ]
    assert len(rows) > 8
    for path, param in rows:
        (item,) = param.type.shell_complete(click.Context(click.Command("x")), param, "se")
        assert item.type == "file", (path, param.opts)


def test_a_manifest_is_named_by_the_same_option_everywhere():
    named = {tuple(p.opts) for _, command in COMMANDS for p in command.params if "-f" in p.opts}
    assert named == {("-f", "--file")}


@pytest.mark.parametrize(
    "text", ["", "m", "soon", "-5s", "10 m", "1w", "5m1h", "1.5h", "10ms", True]
)
def test_no_duration(text):
    with pytest.raises(ValueError, match="is no duration; write 90s, 10m, 1h30m or 2d"):
        options.Duration().parse(text)


def test_values_that_requests_repeat_are_those_of_their_modules():
    assert [s.value for s in Strategy] == list(requests.STRATEGIES)
    assert answer_sets.FIDELITIES == requests.FIDELITIES
    assert requests.MOST_ROUNDS == MOST_LOOKS


@pytest.mark.parametrize(("path", "command"), COMMANDS, ids=[" ".join(p) for p, _ in COMMANDS])
def test_every_flag_names_its_variable_and_its_help(path, command):
    assert command.help, "the command explains itself"
    for param in command.params:
        if isinstance(param, click.Option):
            long = max(param.opts, key=len)
            assert param.help, long
            assert not param.help.endswith(" ")
            own = (path[0], long) in OWN_FORMATS | TYPED
            assert param.envvar == (
                None
                if own
                else f"MPCTL_{long.removeprefix('MPCTL_').strip('-').upper().replace('-', '_')}"
            ), long


@pytest.mark.parametrize("path", [path for path, _ in COMMANDS], ids=" ".join)
def test_every_command_prints_its_help(cli, path):
    done = cli(*path, "--help")
    assert done.code == 0, done.err
    assert f"mpctl {' '.join(path)}" in done.out


def test_every_command_takes_the_shared_options():
    for path, command in COMMANDS:
        names = options_of(command)
        if path[0] in ("help", "completion"):  # they print text alone
            assert names == {}
            continue
        if command.hidden:  # called by other programs
            continue
        assert {
            "platform",
            "namespace",
            "context",
            "kubeconfig",
            "color",
            "verbose",
            "quiet",
            "debug",
        } <= set(names)


def test_common_names_are_options_of_several_commands():
    for name in COMMON:
        assert sum(name in options_of(command) for _, command in COMMANDS) > 1, name


def test_unlock_names_the_time_after_which_a_hold_ends():
    (command,) = [command for path, command in COMMANDS if path == ("unlock",)]
    assert f"does not change for {DURATION_S} s" in " ".join(command.help.split())
