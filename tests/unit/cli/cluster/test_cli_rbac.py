"""``mpctl rbac`` and ``mpctl doctor`` where no cluster is."""

import json

import pytest
import yaml

from mpctl.platform.kubernetes.access.calls import GROUPS, LLM, RUNTIMES, TABLE


@pytest.fixture
def alone(cli, tmp_path):
    """No kubeconfig anywhere."""
    cli.env(HOME=str(tmp_path), KUBECONFIG=str(tmp_path / "none"))
    return cli


def test_roles_as_yaml_and_json_say_the_same(alone):
    arguments = ("rbac", "reader", "-n", "chat", "--to", "group:ml")
    text, record = alone(*arguments), alone(*arguments, "-o", "json")
    assert text.code == record.code == 0
    assert list(yaml.safe_load_all(text.out)) == json.loads(record.out)["items"]
    assert text.err == ""


def test_everybody_named_is_bound(alone):
    done = alone(
        "rbac",
        "-n",
        "chat",
        "--to",
        "group:ml",
        "--to",
        "user:ann",
        "--to",
        "serviceaccount:ci/bot",
    )
    bindings = [d for d in yaml.safe_load_all(done.out) if d["kind"].endswith("Binding")]
    assert bindings
    assert [s["name"] for d in bindings for s in d["subjects"]] == ["ml", "ann", "bot"] * 3


def test_a_role_for_everyone_is_printed_with_a_warning(alone):
    done = alone("rbac", "-n", "chat", "--to", "group:system:authenticated")
    assert done.code == 0
    assert (
        "group system:authenticated is every user and service account of the cluster"
        in " ".join(done.err.split())
    )


@pytest.mark.parametrize("place", ["variable", "file"])
def test_a_format_that_is_set_for_all_commands_is_not_meant(alone, place):
    if place == "variable":
        alone.env(MPCTL_OUTPUT="wide")
    else:
        alone.project("output: wide\n")
    done = alone("rbac", "-n", "chat")
    assert done.code == 0, done.err
    assert list(yaml.safe_load_all(done.out))


def test_without_a_subject_there_are_no_bindings_and_that_is_said(alone):
    done = alone("rbac", "-A")
    assert [d["kind"] for d in yaml.safe_load_all(done.out)] == ["ClusterRole"]
    assert "--to" in done.err


def test_the_namespace_may_stand_before_the_command(alone):
    assert alone("-n", "chat", "rbac").out == alone("rbac", "-n", "chat").out


def test_calls_are_listed_with_their_commands(alone):
    lines = alone("rbac", "-o", "table").out.splitlines()
    assert lines[0].split() == ["CALL", "WHERE", "ROLE", "COMMANDS", "FOR"]
    assert len(lines) == len(TABLE) + len(LLM) + len(GROUPS) + len(RUNTIMES) + 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "--namespace: required"),
        (("-A", "-n", "chat"), "--all-namespaces: cannot be combined with -n"),
        (("-n", "chat", "--to", "ml"), "--to: 'ml' is not a subject"),
        (("readr", "-n", "chat"), "did you mean reader"),
        (("-n", "chat", "--secret", ""), "--secret: '' is not a valid object name"),
        (("-n", "chat", "--secret", "a/b"), "--secret: 'a/b' is not a valid object name"),
        (("-n", "BAD NAME!"), "--namespace: 'BAD NAME!' is not a valid object name"),
        (("-n", "a.b"), "--namespace: 'a.b' is not a valid object name"),
        (("-n", "chat", "--to", "serviceaccount:Ci/bot"), "--to: 'Ci' is not a valid object name"),
    ],
)
def test_bad_input(alone, arguments, said):
    done = alone("rbac", *arguments)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


@pytest.mark.needs("local")
def test_a_doctor_without_a_cluster_says_how_to_get_one(alone):
    done = alone("doctor")
    assert (done.code, done.out) == (2, "")
    assert "no cluster: KUBECONFIG=" in done.err and "does not exist" in done.err
    assert "correct or unset KUBECONFIG" in done.err
