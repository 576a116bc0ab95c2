"""Command lines that cannot be used: the whole message, and the exit code."""

import re
from pathlib import Path

import click
import pytest

from mpctl.cli.project_file import MEASUREMENT
from mpctl.cli.registry import every_command
from mpctl.cli.usage import REPLACED

CASES = [
    (["stauts"], "unknown command mpctl stauts", "did you mean mpctl status"),
    (["xyzzy"], "unknown command mpctl xyzzy", "run 'mpctl --help' to list commands"),
    (["local", "donw"], "unknown command mpctl local donw", "did you mean mpctl local down"),
    (["rollout", "--sepc", "ngram"], "unknown option --sepc", "did you mean --spec"),
    (
        ["local", "down", "demo", "-y"],
        "unknown option -y",
        "use the command without it: it asks nothing",
    ),
    (
        ["rollout", "--rate", "4"],
        "unknown option --rate",
        "set MPCTL_RATE, or rate in a file for --measurement FILE",
    ),
    (
        ["bench", "--reuse-prompts"],
        "unknown option --reuse-prompts",
        "set MPCTL_REUSE_PROMPTS, or reuse_prompts in a file for --measurement FILE",
    ),
    (
        ["rbac", "--purge"],
        "unknown option --purge",
        "use mpctl prune --all, or mpctl rbac --allow purge",
    ),
    (["status", "--zzz"], "unknown option --zzz", "run 'mpctl status --help' for the options"),
    (["rollout"], "--spec is required", "run 'mpctl rollout --help' for the options"),
    (
        ["local", "up"],
        "no service is up on this machine",
        "run 'mpctl local up -f MANIFEST' to start one",
    ),
    (
        ["status", "a", "b"],
        "got unexpected extra argument (b)",
        "run 'mpctl status --help' for the options",
    ),
    (
        ["rollout", "--spec", "ngram", "--strategy", "in-plac"],
        "--strategy: 'in-plac' is not one of auto, side-by-side, in-place; did you mean in-place",
        "run 'mpctl rollout --help' for the options",
    ),
    (
        ["rollout", "--spec", "ngram", "--requests", "0"],
        "--requests: 0 is not in the range x>=1",
        "run 'mpctl rollout --help' for the options",
    ),
    (
        ["rollback", "--timeout", "soon"],
        "--timeout: 'soon' is no duration; write 90s, 10m, 1h30m or 2d",
        "run 'mpctl rollback --help' for the options",
    ),
    (
        ["status", "-o", "jsn"],
        "--output: 'jsn' is not one of table, wide, json, yaml, name; did you mean json",
        "run 'mpctl status --help' for the options",
    ),
    (
        ["help", "exit-code"],
        "unknown command mpctl exit-code",
        "run 'mpctl --help' to list commands",
    ),
    (
        ["help", "local", "upp"],
        "unknown command mpctl local upp",
        "did you mean mpctl local up",
    ),
    (
        ["completion", "bsh"],
        "SHELL: 'bsh' is not one of bash, zsh, fish; did you mean bash",
        "run 'mpctl completion --help' for the options",
    ),
    (["status", "demo"], "service demo: not found on this machine", None),
    (
        ["rollback"],
        "no service is up on this machine",
        "run 'mpctl local up -f MANIFEST' to start one",
    ),
    (
        ["-n", "team", "diff"],
        "no service is up in namespace team",
        "run 'mpctl local up -f MANIFEST' to start one",
    ),
    (
        ["rollout", "--spec", "ngram", "--dry-run", "server"],
        "--dry-run: the local platform has no server to ask",
        "--dry-run=client makes the same checks",
    ),
    (
        ["watch", "--once", "--listen", "127.0.0.1:0"],
        "--listen: cannot be combined with --once, which ends after one judgement",
        None,
    ),
    (
        ["watch", "--once", "--lease", "ml"],
        "--lease: cannot be combined with --once, which ends after one judgement",
        None,
    ),
    (
        ["watch", "--once", "--interval", "0.2s"],
        "no service to watch is up",
        "run 'mpctl status -A' to list services",
    ),
    (
        ["local", "up", "-f", "none.yaml"],
        "none.yaml: the manifest cannot be read: No such file or directory",
        "name an existing file, or - for standard input",
    ),
    (
        ["status", "meta-llama/Llama-3.1-8B-Instruct"],
        "service meta-llama/Llama-3.1-8B-Instruct: not found on this machine",
        "a model without a service is planned by mpctl plan meta-llama/Llama-3.1-8B-Instruct --spec all --gpu L4 "
        "--traffic chat",
    ),
]


@pytest.mark.needs("local")
@pytest.mark.parametrize(
    ("arguments", "message", "hint"), CASES, ids=[" ".join(c[0]) for c in CASES]
)
def test_what_is_wrong_and_what_to_type(cli, arguments, message, hint):
    done = cli(*arguments)
    assert done.code == 2
    assert done.out == ""
    lines = done.err.splitlines()
    assert lines[0] == f"error: {message}"
    if hint is not None:
        assert lines[1:] == [f"hint: {hint}"]
    assert not cli.state.exists()


@pytest.mark.needs("local")
def test_the_printed_plan_of_a_model_without_a_service_can_be_pasted(cli):
    hint = cli("status", "meta-llama/Llama-3.1-8B-Instruct").err.splitlines()[1]
    words = hint.removeprefix("hint: a model without a service is planned by mpctl ").split()
    assert "RATIO AT 1" in cli(*words).out


@pytest.mark.parametrize(
    ("name", "hint"),
    [("srvice.yaml", "did you mean service.yaml"), ("none/service.yaml", "create the directory ")],
)
def test_the_hint_for_a_file_that_does_not_exist_names_what_is_near(cli, name, hint):
    Path("service.yaml").touch()
    assert f"hint: {hint}" in cli("preflight", "--spec", "ngram", "-f", name).err


@pytest.mark.needs("local")
@pytest.mark.parametrize("arguments", [[], ["local"]])
def test_a_group_without_a_command_prints_its_help_as_an_error(cli, arguments):
    done = cli(*arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"Usage: {' '.join(['mpctl', *arguments])} [OPTIONS] COMMAND")


@pytest.mark.parametrize(
    "command", ["status", "rollout --spec ngram", "rollback", "diff", "history", "unlock"]
)
@pytest.mark.parametrize("place", ["before", "behind", "environment", "file"])
def test_a_cluster_is_asked_for_where_none_is_named(cli, command, place):
    words = command.split()
    cli.env(KUBECONFIG="none")
    match place:
        case "before":
            done = cli("--platform", "kubernetes", *words)
        case "behind":
            done = cli(*words, "--platform", "kubernetes")
        case "environment":
            cli.env(MPCTL_PLATFORM="kubernetes")
            done = cli(*words)
        case _:
            cli.user("platform: kubernetes\n")
            done = cli(*words)
    assert done.code == 2
    assert done.err == (
        "error: no cluster: KUBECONFIG=none does not exist\n"
        "hint: 'mpctl connect CLUSTER' prints one for an EKS or GKE cluster\n"
    )
    assert not cli.state.exists()


def test_a_cluster_that_is_named_is_meant(cli):
    cli.env(KUBECONFIG="none")
    assert "KUBECONFIG=none does not exist" in cli("status", "--context", "prod").err


@pytest.mark.needs("local")
def test_a_service_that_is_not_on_this_machine_may_be_in_the_cluster(cli):
    Path("config").write_text("current-context: prod\n")
    cli.env(KUBECONFIG="config")
    result = cli("status", "demo", "--platform", "local")
    assert "service demo: not found on this machine" in result.err
    assert "use --platform kubernetes for the cluster of the kubeconfig" in result.err
    cli.env(KUBECONFIG="none")
    assert "--platform kubernetes" not in cli("status", "demo", "--platform", "local").err


@pytest.mark.needs("local")
def test_flags_of_a_cluster_are_said_to_mean_nothing_here(cli):
    done = cli("status", "--platform", "local", "--context", "prod")
    assert done.code == 0
    assert "warning: --context has no effect on the local platform\n" in done.err


@pytest.mark.needs("local")
def test_a_fault_of_ours_is_one_line_without_a_stack_trace(cli, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("planted")

    monkeypatch.setattr("mpctl.local.session.known_services", broken)
    done = cli("status")
    assert done.code == 1
    assert done.err == (
        "error: ZeroDivisionError: planted\nhint: this is a bug in mpctl: run again with --debug and report it\n"
    )
    for arguments in (["--debug", "status"], ["status", "--debug"]):
        traced = cli(*arguments)
        assert traced.code == 1
        assert "Traceback" in traced.err
        assert traced.err.endswith(done.err)
    cli.env(MPCTL_DEBUG="1")
    assert "Traceback" in cli("status").err


@pytest.mark.needs("local")
@pytest.mark.parametrize("raised", [KeyboardInterrupt, EOFError, click.Abort])
def test_ctrl_c_outside_a_change_is_a_plain_end(cli, monkeypatch, raised):
    def stop(*_):
        raise raised

    monkeypatch.setattr("mpctl.local.session.known_services", stop)
    done = cli("status")
    assert (done.code, done.err) == (
        2,
        "error: interrupted\nhint: run 'mpctl status -A' to see unfinished operations\n",
    )


@pytest.mark.needs("local")
def test_nothing_up_is_no_error_for_status_and_down_all(cli):
    done = cli("status")
    assert (done.code, done.out) == (0, "")
    assert done.err == "no service is up on this machine\nnext: mpctl local up -f MANIFEST\n"
    assert cli("-q", "status").err == ""
    done = cli("local", "down", "--all")
    assert (done.code, done.err) == (0, "no service is up\n")


def test_no_line_of_any_help_is_wider_than_80_columns(cli):
    cli.env(COLUMNS="80")
    paths = [path for path, _ in every_command()]
    for path in sorted({*paths, *(path[:1] for path in paths)}):
        wide = [line for line in cli(*path, "--help").out.splitlines() if len(line) > 80]
        assert not wide, path


@pytest.mark.parametrize(("group", "flag"), [("watch", "--once"), ("bench", "--spec")])
def test_a_group_with_a_default_command_lists_the_options_of_it(cli, group, flag):
    text = cli(group, "--help").out
    assert f"Without a command, mpctl {group} means mpctl {group} run:" in text
    assert flag in text


DAILY = ("bench", "diff", "plan", "preflight", "render", "rollout", "watch")


@pytest.mark.parametrize("name", DAILY)
def test_the_help_of_a_daily_command_fits_40_lines_and_names_the_whole_list(cli, name):
    cli.env(COLUMNS="80")
    short = cli(name, "--help").out
    assert len(short.splitlines()) <= 40
    every = cli(name, "--help-all").out
    listed = set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", every, re.MULTILINE))
    common = re.findall(
        r"^  (?:-\w, )?(--[\w-]+)", short.partition("Common options:")[2], re.MULTILINE
    )
    assert common
    assert set(common) < listed
    (count,) = re.findall(r"^mpctl .* --help-all lists all (\d+) options\.$", short, re.MULTILINE)
    assert int(count) == len(listed)


def test_the_short_help_of_rollout_has_the_options_of_a_day(cli):
    listed = re.findall(r"^  (?:-\w, )?--([\w-]+)", cli("rollout", "--help").out, re.MULTILINE)
    assert " ".join(listed) == (
        "spec set draft prompts concurrency measure-on users-share bake strategy dry-run policy yes"
    )


def test_no_help_cuts_a_line_inside_a_word(cli):
    cli.env(COLUMNS="80")
    for path, _ in every_command():
        for flag in ("--help", "--help-all"):
            cut = re.findall(r"^.*\w-$", cli(*path, flag).out, re.MULTILINE)
            assert not cut, path


def test_options_stay_few():
    """A fact of a cluster goes into a file, what is chosen once into a setting, a second word for an option nowhere."""
    options = {path: long_options(command) for path, command in every_command()}
    assert len(options["rollout",]) <= 45
    everywhere = (names for path, names in options.items() if path[0] not in ("local", "drafts"))
    assert len(set().union(*everywhere)) <= 96


SETTINGS = [
    (path, name.removeprefix("MPCTL_"))
    for path, command in every_command()
    for param in command.params
    for name in param.opts
    if name.startswith("MPCTL_")
]


@pytest.mark.parametrize(("path", "name"), SETTINGS, ids=str)
def test_the_flag_of_a_setting_is_answered_by_its_variable_and_its_file(cli, path, name):
    done = cli(*path, f"--{name.lower().replace('_', '-')}", "x")
    key, command = name.lower(), " ".join(path)
    file = (
        "in a file for --measurement FILE"
        if key in MEASUREMENT.split(", ") and path != ("plan",)
        else f"below {command} in {cli.directory}/xdg/mpctl/config.yaml"
    )
    assert f"hint: set MPCTL_{name}, or {key} {file}\n" in done.err


def test_a_replaced_option_is_answered_by_one_that_exists(cli):
    flags = set().union(*(p.opts for _, command in every_command() for p in command.params))
    for old, new in REPLACED.items():
        words = new.split()
        assert words[0] in {*flags, "the"} or (words[1],) in dict(every_command()), new
        for name in old.split():
            done = cli("status", f"--{name}", "x")
            assert done.err == f"error: unknown option --{name}\nhint: use {new}\n"


def long_options(command):
    return {name for param in command.params for name in param.opts if name.startswith("--")}
