"""Every command that a message prints comes from ``mpctl.commands`` and can be pasted as it stands."""

import ast
import re

import click
import pytest

from mpctl import commands
from mpctl.cli.registry import COMMANDS
from mpctl.cli.root import cli
from mpctl.platform.kubernetes.api.connection import namespace_of
from tests.printed import modules, templates

# "mpctl rollback ..." in a text of the program. Help texts and docstrings show examples and are not printed as advice.
KUBECTL = "apply|auth|create|delete|describe|edit|get|label|logs|patch|replace|rollout|scale|wait"
PRINTED = re.compile(rf"\bmpctl (?:{'|'.join(COMMANDS)})\b|\bkubectl (?:-n \S+ )?(?:{KUBECTL})\b")
HELP = {"help", "epilog", "short_help"}
BUILDERS = {"line", "command", "_command"}


def exempt(tree):
    """Docstrings, and texts of the command line's help."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                yield from ast.walk(first)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value  # behind a field
        if isinstance(node, ast.keyword) and node.arg in HELP:
            yield from ast.walk(node)


def test_no_text_holds_a_command_that_the_helper_did_not_build():
    bypassing = []
    for name, tree in modules():
        free = set(map(id, exempt(tree)))
        bypassing += [
            f"{name}:{node.lineno}: {node.value}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in free
            if PRINTED.search(node.value)
        ]
    assert bypassing == []


def test_what_is_suggested_next_is_a_command_of_the_helper():
    suggested = [
        f"{name}:{call.lineno}"
        for name, tree in modules()
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and getattr(call.func, "attr", "") == "next_command"
        if not (isinstance(call.args[0], ast.Call) and call.args[0].func.attr in BUILDERS)
    ]
    assert suggested == []


@pytest.mark.needs("local")
@pytest.mark.parametrize("option", [("--context", "prod"), ("--platform", "local")])
@pytest.mark.parametrize("words", [pytest.param(words, id=where) for where, words in templates()])
def test_every_command_of_a_message_is_one_that_the_program_takes(words, option, monkeypatch):
    monkeypatch.setattr(commands, "_reader", commands.Reader(find_options=lambda: (option,)))
    program, *line = commands.line(*words, namespace="team-a").split(" ")
    assert program == "mpctl"
    context, arguments = click.Context(cli, info_name="mpctl", **cli.context_settings), line
    command = cli
    while isinstance(command, click.Group):
        command.parse_args(context, arguments)  # a group may have a default command
        name, command, arguments = command.resolve_command(
            context, [*context._protected_args, *context.args]
        )
        context = click.Context(command, parent=context, info_name=name)
    try:
        command.parse_args(context, arguments)
    except click.MissingParameter as missing:
        pytest.fail(f"{' '.join(line)}: {missing}")
    except click.BadParameter as bad:  # a stand-in for a file, a digest or a number
        assert "does not exist" in str(bad) or "No such file" in str(bad) or "is not" in str(bad), (
            f"{' '.join(line)}: {bad}"
        )


@pytest.fixture
def reader(monkeypatch):
    def use(**settings):
        monkeypatch.setattr(commands, "_reader", commands.Reader(**settings))

    return use


def test_a_command_names_the_namespace_that_the_next_shell_would_not_take(reader):
    reader(find_namespace=lambda: "team-a")
    assert commands.line("rollback", "qwen", namespace="team-b") == "mpctl rollback qwen -n team-b"
    assert commands.line("rollback", "qwen", namespace="team-a") == "mpctl rollback qwen"
    commands.name_every_namespace()
    assert commands.line("rollback", "qwen", namespace="team-a") == "mpctl rollback qwen -n team-a"


def test_a_command_repeats_the_options_that_chose_the_cluster(reader):
    reader(
        program="kubectl mpctl",
        find_options=lambda: (("--context", "prod"), ("--platform", "kubernetes")),
    )
    line = commands.line("history", "qwen", "--revision", 3, namespace="a")
    assert (
        line == "kubectl mpctl history qwen --revision 3 -n a --context prod --platform kubernetes"
    )
    assert commands.line("methods") == "kubectl mpctl methods"
    assert (
        commands.line("local", "down", "qwen", namespace="a")
        == "kubectl mpctl local down qwen -n a"
    )
    assert commands.line("render", "-f", "my file.yaml") == "kubectl mpctl render -f 'my file.yaml'"
    assert commands.kubectl("get", "pods", namespace="a") == "kubectl get pods -n a --context prod"


def test_the_namespace_of_a_command_is_that_of_the_context(tmp_path):
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(
        "current-context: one\ncontexts:\n- {name: one, context: {namespace: team-a}}\n- {name: two, context: {}}\n"
    )
    assert namespace_of(str(kubeconfig), None) == "team-a"
    assert namespace_of(str(kubeconfig), "two") == "default"
    assert namespace_of(str(tmp_path / "none"), None) == ""
