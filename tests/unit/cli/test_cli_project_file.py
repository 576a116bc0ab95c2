"""A project file of another user runs nothing, and no project file chooses where, as whom or with what mpctl acts."""

import os
import stat
from pathlib import Path

import pytest
import yaml

from mpctl.cli import project_file
from mpctl.cli.project_file import ALLOWED, Account, distrust, folders_to_search
from mpctl.cli.registry import every_command
from mpctl.cli.settings_files import options_of

OTHER = 65534
KSERVE = Path(__file__).parents[2] / "data" / "manifests" / "kserve-args.yaml"
COMMANDS = [["status"], ["history"], ["doctor"], ["plan", "qwen", "--gpu", "L4"]]
# Options that only a flag, a variable or the user file sets: where and as whom; with which image, Secret, program or
# policy; consent to use users' requests; what is started, kept, shown or written.
_REFUSED = """
platform context kubeconfig as all all_namespaces selector url candidate home shared_home
lease load queue engine route service port listen prometheus role to profile model
target
image vllm secret key public_key sign_with webhook
webhook_secret watch_policy policy known_bad accept cluster_id accept_downtime
admission_policy drafts draft_listing target_listing dataset tokenizer file fidelity bake max_age
offline force yes exact allow_from engine_version
measure_on measure_limit measurement mirror traffic_steps step_duration users_share users_window
apply arm bundle cell deadline disk dry_run history keep lifeline made_with measure once orphans
output_file open publish revision run shared shared_runtime show_secrets staging steps storage_class tail
to_revision watch without from
"""
REFUSED = frozenset(_REFUSED.split())


@pytest.fixture
def attack(cli):
    """A project file that names a kubeconfig whose credential plugin leaves a trace."""
    trace = cli.directory / "PWNED"
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "sh",
        "args": ["-c", f"id > {trace}; exit 1"],
    }
    kubeconfig = cli.directory / "evil.kubeconfig"
    kubeconfig.write_text(
        yaml.safe_dump(
            {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:9"}}],
                "users": [{"name": "u", "user": {"exec": plugin | {"interactiveMode": "Never"}}}],
            }
        )
    )
    cli.trace, cli.attack = trace, f"kubeconfig: {kubeconfig}\nplatform: kubernetes\n"
    return cli


def give_away(path, monkeypatch):
    """Make a file another user's; who is not root becomes that other user instead."""
    if os.geteuid() == 0:
        os.chown(path, OTHER, OTHER)
    else:
        monkeypatch.setattr(
            project_file, "current_account", lambda: Account(os.geteuid() + 1, None)
        )


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: words[0])
def test_below_a_project_file_of_another_user_nothing_of_it_runs(attack, monkeypatch, command):
    attack.env(KUBECONFIG="none")
    expected = attack(*command)
    path = attack.project(attack.attack)
    (attack.directory / ".git").mkdir()
    give_away(path, monkeypatch)
    for folder in (attack.directory, attack.directory / "work" / "deep"):
        folder.mkdir(parents=True, exist_ok=True)
        monkeypatch.chdir(folder)
        done = attack(*command)
        warning, *others = done.err.splitlines(keepends=True)
        assert warning.startswith(f"warning: {path} is ignored: {path} belongs to uid ")
        assert "copy the settings to " in warning
        assert (done.code, done.out, "".join(others)) == (expected.code, expected.out, expected.err)
    assert not attack.trace.exists()


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: words[0])
def test_a_cloned_project_file_cannot_name_a_kubeconfig(attack, command):
    path = attack.project(attack.attack)
    done = attack(*command)
    assert done.code == 2
    assert done.err.splitlines() == [
        f"error: {path}:1: kubeconfig: a project file may not set this: "
        "it is part of where, as whom or with what mpctl acts",
        f"hint: put it into the user file, {attack.directory}/xdg/mpctl/config.yaml",
    ]
    assert not attack.trace.exists()


@pytest.mark.parametrize("finding", ["known-bad-kb01", "users-load", "device", "--enforce-eager"])
def test_a_project_file_accepts_no_finding(cli, service, finding):
    """A folder must not weaken a check that protects whoever works in it."""
    path = cli.project(f"preflight:\n  accept: [{finding}]\n")
    done = cli("preflight", "-f", service, "--spec", "ngram")
    assert done.code == 2
    assert f"{path}:2: accept: a project file may not set this" in done.err
    path.unlink()
    cli.user(f"preflight:\n  accept: [{finding}]\n")
    assert cli("preflight", "-f", service, "--spec", "ngram").code == 0


def test_a_project_file_may_refuse_a_warning(cli):
    """It makes a check stricter, which the option of whoever works there cannot undo."""
    cli.project("preflight:\n  refuse: [answers-cut]\n")
    command = ("preflight", "qwen3-8b", "-f", str(KSERVE), "--spec", "ngram")
    assert cli(*command).code == 9
    assert cli(*command, "--accept", "answers-cut").code == 0


def test_the_same_settings_in_the_user_file_do_run_the_plugin(attack):
    """Otherwise the two tests above would prove nothing."""
    attack.user(attack.attack)
    attack("status")
    assert attack.trace.exists()


@pytest.mark.needs("local")
@pytest.mark.parametrize("part", ["mpctl.yaml", "folder", "repository"])
def test_a_file_or_a_folder_up_to_the_repository_that_others_may_write_is_ignored(
    cli, monkeypatch, part
):
    (cli.directory / ".git").mkdir()
    folder = cli.directory / "folder"
    folder.mkdir()
    file = folder / "mpctl.yaml"
    file.write_text("namespace: theirs\n")
    monkeypatch.chdir(folder)
    assert "in namespace theirs" in cli("diff").err
    open_part = {"mpctl.yaml": file, "folder": folder, "repository": cli.directory}[part]
    open_part.chmod(open_part.stat().st_mode | stat.S_IWOTH)
    done = cli("diff")
    assert f"warning: {file} is ignored: {open_part} can be written by every user" in done.err
    assert "theirs" not in done.err.splitlines()[1]


def test_a_symbolic_link_or_a_pipe_is_no_project_file(cli):
    path = cli.directory / "mpctl.yaml"
    (cli.directory / "other.yaml").write_text("quiet: true\n")
    path.symlink_to("other.yaml")
    done = cli("status")
    assert (done.code, done.err.splitlines()[1]) == (
        2,
        "hint: replace the symbolic link by the file",
    )
    path.unlink()
    os.mkfifo(path)
    done = cli("status")
    assert (done.code, done.err) == (2, f"error: {path}: cannot be read: not a regular file\n")


def test_a_file_that_is_exchanged_after_the_check_is_judged_by_what_was_opened(cli, monkeypatch):
    path = cli.project("namespace: theirs\n")
    give_away(path, monkeypatch)
    mine = os.stat_result((0o100600, 0, 0, 1, project_file.current_account().uid, 0, 0, 0, 0, 0))
    monkeypatch.setattr(project_file.os, "lstat", lambda _: mine)  # as it was at the check
    assert cli("diff").err.startswith(f"warning: {path} is ignored: {path} belongs to")


def test_without_settings_files_none_is_read(attack):
    path = attack.project(attack.attack)
    attack.user("namespace: from-user\n")
    attack.env(MPCTL_SETTINGS="none", KUBECONFIG="none")
    assert str(path) not in attack("status").err
    assert "from-user" not in attack("diff").err
    attack.env(MPCTL_SETTINGS="some")
    done = attack("status")
    assert (done.code, done.err.splitlines()[0]) == (
        2,
        "error: environment variable MPCTL_SETTINGS: 'some' is not none",
    )


@pytest.mark.needs("local")
def test_each_option_of_each_command_is_allowed_in_a_project_file_or_refused():
    """A new option fails here until it is decided: what chooses where, as whom or with what mpctl acts is refused."""
    names = {name for _, command in every_command() for name in options_of(command)}
    assert not ALLOWED & REFUSED
    assert names - ALLOWED - REFUSED == set()
    assert names >= ALLOWED


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_refused_option_is_refused_at_the_top_or_below_each_of_its_commands(cli, name):
    for path, command in every_command():
        if name in options_of(command):
            text = name + ": 1\n"
            for word in reversed(path):
                text = f"{word}:\n" + "".join(f"  {line}\n" for line in text.splitlines())
            file = cli.project(text)
            done = cli("status")
            assert done.code == 2
            assert done.err.startswith(
                f"error: {file}:{len(path) + 1}: {name}: a project file may not set this"
            )


@pytest.mark.parametrize(
    ("uid", "gid", "mode", "reason"),
    [
        (1000, 1000, 0o100644, None),
        (0, 0, 0o100644, None),
        (1001, 1000, 0o100644, "belongs to uid 1001"),
        (OTHER, OTHER, 0o041777, f"belongs to uid {OTHER}"),
        (1000, 1000, 0o100664, None),  # the user's own group
        (1000, 1000, 0o040775, None),
        (1000, 50, 0o100664, "can be written by group 50"),
        (0, 0, 0o040775, "can be written by group 0"),
        (1000, 1000, 0o100666, "can be written by every user"),
        (0, 0, 0o040777, "can be written by every user"),
        (
            0,
            0,
            0o041777,
            None,
        ),  # a folder such as /tmp: who does not own a file there cannot replace it
        (0, 0, 0o101777, "can be written by every user"),  # a file: the sticky bit means nothing
        (1000, 1000, 0o041777, "can be written by every user"),
        (1000, 1000, 0o120777, None),  # a symbolic link has no mode; it is not followed
        (1001, 1000, 0o120777, "belongs to uid 1001"),
    ],
)
def test_who_may_have_written_a_file(uid, gid, mode, reason):
    assert distrust(uid, gid, mode, Account(1000, 1000)) == reason


def test_a_group_with_other_members_is_no_private_one():
    assert distrust(1000, 1000, 0o100664, Account(1000, None)) == "can be written by group 1000"


def test_nothing_above_the_repository_or_the_home_directory_is_searched(tmp_path):
    home = tmp_path / "home"
    deep = home / "repository" / "a" / "b"
    deep.mkdir(parents=True)
    outside = tmp_path / "shared" / "x"
    outside.mkdir(parents=True)
    assert folders_to_search(deep, home) == [deep, *deep.parents[:3]]
    (home / "repository" / ".git").write_text("gitdir: elsewhere\n")  # as in a submodule
    assert folders_to_search(deep, home) == [deep, *deep.parents[:2]]
    assert folders_to_search(outside, home) == [outside]
    (tmp_path / ".git").mkdir()
    assert folders_to_search(outside, home) == [outside, outside.parent, tmp_path]
    assert folders_to_search(home / "other", home) == [home / "other", home]
