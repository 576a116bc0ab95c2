"""Settings: flag > environment > measurement file > project file > user file > default, and what is wrong with one."""

import time

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


def namespace_of(cli, *before, behind=()):
    done = cli(*before, "diff", *behind)
    assert done.code == 2
    return done.err.splitlines()[0].removeprefix("error: no service is up ")


@pytest.mark.needs("local")
def test_each_level_wins_over_the_next(cli):
    assert namespace_of(cli) == "on this machine"
    cli.user("namespace: from-user\n")
    assert namespace_of(cli) == "in namespace from-user"
    cli.project("namespace: from-project\n")
    assert namespace_of(cli) == "in namespace from-project"
    cli.env(MPCTL_NAMESPACE="from-environment")
    assert namespace_of(cli) == "in namespace from-environment"
    assert namespace_of(cli, "-n", "early") == "in namespace early"
    assert namespace_of(cli, behind=["-n", "late"]) == "in namespace late"
    assert namespace_of(cli, "-n", "early", behind=["-n", "late"]) == "in namespace late"


def test_each_level_wins_over_the_next_for_an_option_of_the_command(cli):
    def apiversion():
        done = cli("version")
        return "json" if done.out.startswith("{") else done.out.split()[0]

    assert apiversion() == "COMPONENT"
    cli.user("version:\n  output: json\n")
    assert apiversion() == "json"
    cli.project("version:\n  output: yaml\n")
    assert apiversion() == "apiVersion:"
    cli.env(MPCTL_OUTPUT="name")
    assert apiversion() == "mpctl"
    done = cli("version", "-o", "table")
    assert done.out.split()[0] == "COMPONENT"


@pytest.mark.needs("local")
def test_a_flag_that_is_not_given_does_not_hide_a_file(cli):
    """-q before the command, quiet in a file, and neither."""
    assert cli("status").err != ""
    assert cli("-q", "status").err == ""
    assert cli("status", "-q").err == ""
    cli.user("quiet: true\n")
    assert cli("status").err == ""


@pytest.mark.needs("local")
def test_below_the_command_is_stronger_than_the_top_of_the_same_file(cli):
    cli.project("namespace: everywhere\ndiff:\n  namespace: for-diff\n")
    assert namespace_of(cli) == "in namespace for-diff"
    assert "in namespace everywhere" in cli("rollback").err


@pytest.mark.needs("local")
def test_the_project_is_stronger_than_the_user_wherever_it_stands(cli):
    cli.user("diff:\n  namespace: from-user\n")
    cli.project("namespace: from-project\n")
    assert namespace_of(cli) == "in namespace from-project"


@pytest.mark.needs("local")
def test_commands_of_a_group_have_settings_too(cli):
    cli.project("namespace: top\nlocal:\n  namespace: group\n  down:\n    namespace: mine\n")
    assert "in namespace mine" in cli("local", "down").err
    assert "in namespace group" in cli("local", "logs").err


@pytest.mark.needs("local")
def test_the_nearest_project_file_counts(cli, monkeypatch):
    cli.project("namespace: above\n")
    (cli.directory / ".git").mkdir()
    below = cli.directory / "a" / "b"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert namespace_of(cli) == "in namespace above"
    (cli.directory / "a" / "mpctl.yaml").write_text("namespace: nearer\n")
    assert namespace_of(cli) == "in namespace nearer"


@pytest.mark.needs("local")
def test_dashes_and_underscores_are_the_same(cli):
    for key in ("no-input", "no_input"):
        cli.project(f"{key}: true\n")
        assert cli("status").code == 0


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("# x\nnamespce: a\n", ":2: namespce: unknown setting", "did you mean namespace"),
        (
            "concurrency: 8\n",
            ":1: concurrency: unknown setting",
            "it is an option of rollout, plan, bench run: write it below that name",
        ),
        (
            "zzz: 8\n",
            ":1: zzz: unknown setting",
            "run 'mpctl help config' for the format of the file",
        ),
        (
            "quiet: true\nrollback:\n\n  stratgy: in-place\n",
            ":4: stratgy: rollback has no option of this name",
            "did you mean strategy",
        ),
        ("rollback: 3\n", ":1: rollback: must be a mapping of the command's options", None),
        ("- a\n", ":1: must be a mapping of option names to values", None),
        ("quiet: [\n", ":2: not valid YAML: ", None),
        (
            "quiet: true\nquiet: false\n",
            ':2: quiet: key "quiet" is defined twice in one mapping',
            None,
        ),
        ("no-input: true\nno_input: true\n", ":2: no_input: is set twice", None),
        ("quiet: true\n---\nquiet: false\n", ":3: expected one document", None),
        ("a: 1\x00", ":1: not valid YAML: unprintable character", None),
        ("#" * 70_000, ": cannot be read: larger than 64 KiB", None),
    ],
)
def test_what_is_wrong_with_a_file_is_named_with_its_line(cli, text, message, hint):
    for path in (cli.project(text), cli.user(text)):
        done = cli("rollback")
        lines = done.err.splitlines()
        assert done.code == 2
        assert lines[0].startswith(f"error: {path}{message}")
        assert hint is None or lines[1:] == [f"hint: {hint}"]
        path.unlink()


def test_a_wrong_value_is_named_with_its_line(cli):
    path = cli.project("rollout:\n  requests: many\n")
    done = cli("rollout", "--spec", "ngram")
    assert done.code == 2
    assert (
        done.err.splitlines()[0]
        == f"error: {path}:2: requests: 'many' is not a valid integer range"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("quiet: [a]\n", ":1: quiet: 'a' is not a valid boolean"),
        ("rollout:\n  set: [[a]]\n", ":2: set: must be a value or a list of values"),
        (
            "rollout:\n  temperature: [[1], 2]\n",
            ":2: temperature: must be a value or a list of values",
        ),
        ("rollout:\n  temperature: [1, x]\n", ":2: temperature: 'x' in '1,x' is no number"),
    ],
)
def test_a_list_where_none_belongs_is_named_with_its_line(cli, text, message):
    path = cli.project(text)
    done = cli("rollout", "--spec", "ngram")
    assert done.code == 2
    assert done.err.startswith(f"error: {path}{message}")


def test_a_repeatable_option_takes_one_value_or_a_list(cli):
    for text in ("set: num_speculative_tokens=7", "set: [num_speculative_tokens=7]"):
        cli.project(f"methods: {{{text}}}\n")
        assert '"num_speculative_tokens": 7' in cli("methods", "ngram").out
    cli.project("methods: {set: }\n")
    assert '"num_speculative_tokens": 5' in cli("methods", "ngram").out


def test_a_wrong_value_of_a_variable_is_named(cli):
    cli.env(MPCTL_TIMEOUT="soon")
    assert cli("rollback").err.splitlines()[0] == (
        "error: environment variable MPCTL_TIMEOUT: 'soon' is no duration; write 90s, 10m, 1h30m or 2d"
    )


def test_help_works_whatever_the_files_say(cli):
    cli.project("nonsense: [\n")
    assert cli("rollback", "--help").code == 0
    assert cli("help", "config").code == 0
    assert cli("completion", "bash").code == 0
    assert cli("rollback").code == 2


DOUBLING = "rollout:\n  l0: &l0 [a, a]\n" + "".join(
    f"  l{n}: &l{n} [*l{n - 1}, *l{n - 1}]\n" for n in range(1, 26)
)
DEEP = "rollout:\n  spec: " + "[" * 3000 + "]" * 3000 + "\n"


@pytest.mark.parametrize(
    ("bomb", "message"),
    [
        (DOUBLING, "aliases make more than 1000000 values of this file"),
        ("rollout: &a {b: *a}\n", "alias *a has no anchor before it"),
        (DEEP, "the YAML is nested too deep"),
        (
            "rollout:\n  spec: " + "{a: " * 3000 + "1" + "}" * 3000 + "\n",
            "the YAML is nested too deep",
        ),
    ],
    ids=["doubling aliases", "an alias of itself", "3000 lists", "3000 mappings"],
)
def test_a_settings_file_exhausts_nothing(cli, bomb, message):
    started = time.process_time()
    for path in (cli.project(bomb), cli.user(bomb)):
        done = cli("version")
        assert done.code == 2
        assert done.err.startswith(f"error: {path}")
        assert message in done.err
        path.unlink()
    assert time.process_time() - started < 5


NAMES = [
    "rollout",
    "bench",
    "local",
    "up",
    "spec",
    "set",
    "namespace",
    "output",
    "quiet",
    "kubeconfig",
    "<<",
    "zzz",
    "",
]
SIGNS = [
    ":",
    ": ",
    "\n",
    "\n  ",
    "\n    ",
    "- ",
    "[",
    "]",
    "{",
    "}",
    ", ",
    "&a ",
    "*a",
    "!!int ",
    "? ",
    "|",
    "'",
    '"',
    "#",
    "---",
]
ODD = [
    "%YAML 9.9\n",
    "\t",
    "\x00",
    "\ufeff",
    "\u2028",
    "1e999",
    "0x" + "f" * 5000,
    "~",
    "2026-99-99",
    "no",
]
FRAGMENTS = st.sampled_from([*NAMES, *SIGNS, *ODD])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda below: (
        st.lists(below, max_size=4) | st.dictionaries(st.sampled_from(NAMES), below, max_size=4)
    ),
    max_leaves=12,
)
TEXTS = st.lists(FRAGMENTS, max_size=40).map("".join) | st.dictionaries(
    st.sampled_from(NAMES), VALUES
).map(yaml.dump)


@settings(
    max_examples=200, deadline=10_000, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(text=TEXTS, of_project=st.booleans())
def test_whatever_a_settings_file_holds_mpctl_reads_it_or_names_it(cli, text, of_project):
    path = (cli.project if of_project else cli.user)(text)
    try:
        for command in (
            ("methods",),
            ("rollout", "--spec", "ngram", "--platform", "local", "-n", "none"),
        ):
            done = cli(*command)
            assert done.code in (0, 2), done.err
            assert "Traceback" not in done.err
            assert "bug in mpctl" not in done.err
    finally:
        path.unlink()
