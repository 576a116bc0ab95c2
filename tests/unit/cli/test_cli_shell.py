"""Help: the listing, topics, commands; the name by which we are called."""

import json
import re
from pathlib import Path

import pytest
import yaml

from mpctl.cli.root import COMMANDS
from mpctl.cli.settings_files import COMMON
from mpctl.errors import EXIT_CODES

TREE = Path(__file__).parents[3]


def test_the_listing_names_every_command_once_below_its_topic(cli):
    out = cli("--help").out
    listing = out[out.index("\nRollout:") :]
    assert re.findall(r"^  ([a-z]+)  ", listing, re.MULTILINE) == [
        n for n, (_, _, topic) in COMMANDS.items() if topic
    ]
    assert re.findall(r"^([A-Z][a-z]+):$", out, re.MULTILINE) == [
        *("Rollout", "Inspect", "Platform", "Clouds", "Other")
    ]
    assert out.endswith("Exit codes: mpctl help exit-codes\n")


@pytest.mark.needs("local")
@pytest.mark.parametrize("name", COMMANDS)
def test_the_line_of_the_listing_is_about_the_command(cli, name):
    """The lines are kept apart from the modules, so that listing loads none."""
    done = cli(name, "--help")
    assert done.code == 0
    assert done.out.startswith(f"Usage: mpctl {name} ")


def test_exit_codes_are_those_of_the_errors(cli):
    done = cli("help", "exit-codes")
    assert done.code == 0
    rows = dict(re.findall(r"^(\d)      (.+)$", done.out, re.MULTILINE))
    assert rows == {str(code): text for code, text in EXIT_CODES.items()}
    for command in ("diff", "doctor"):
        assert f"\n  mpctl {command} " in done.out


def test_environment_and_config_topics(cli):
    assert "MPCTL_STATE_DIR" in cli("help", "environment").out
    text = cli("help", "config").out
    assert (
        "Flag > environment > file of --measurement > project file > user file > default." in text
    )
    for name in COMMON:
        assert name.replace("_", "-") in text
    assert "apiVersion" in cli("help", "output").out


def test_help_of_a_command_is_its_help(cli):
    for words in (["rollout"], ["local", "up"]):
        assert cli("help", *words).out == cli(*words, "--help").out


def test_commands_that_texts_name_are_there():
    texts = (*(TREE / "mpctl").rglob("*.py"), *TREE.glob("*.md"), *(TREE / "docs").rglob("*.md"))
    named = {path: re.findall(r"`mpctl ([a-z]+)", path.read_text()) for path in texts}
    assert len([path for path in named if named[path]]) > 20
    assert not {
        path: set(names) - {*COMMANDS, "help"}
        for path, names in named.items()
        if {*names} - {*COMMANDS, "help"}
    }


def test_help_alone_is_the_listing_with_the_topics(cli):
    out = cli("help").out
    assert out.startswith("Usage: mpctl [OPTIONS] COMMAND")
    for topic in ("exit-codes", "environment", "config", "output"):
        assert f"\n  {topic} " in out


@pytest.mark.needs("local")
def test_a_plugin_of_kubectl_speaks_of_itself_as_such(cli, monkeypatch):
    monkeypatch.setattr("sys.argv", ["/usr/local/bin/kubectl-mpctl"])
    for _ in range(2):  # nothing is renamed twice
        done = cli("--help")
        assert done.out.startswith("Usage: kubectl mpctl [OPTIONS] COMMAND")
        assert "Exit codes: kubectl mpctl help exit-codes" in " ".join(done.out.split())
        assert not re.search(r"(?<!kubectl )mpctl (rollout|help|local)", done.out)
        done = cli("rollback", "--help")
        assert done.out.startswith("Usage: kubectl mpctl rollback [OPTIONS]")
        assert "kubectl kubectl" not in done.out
        assert "  kubectl mpctl rollback qwen --to-revision 1" in done.out
    assert cli("rollback").err.endswith(
        "hint: run 'kubectl mpctl local up -f MANIFEST' to start one\n"
    )
    assert cli("status").err.endswith("next: kubectl mpctl local up -f MANIFEST\n")
    monkeypatch.setattr("sys.argv", ["mpctl"])
    assert "kubectl" not in cli("rollback", "--help").out.replace("kubeconfig", "")


@pytest.mark.needs("local")
@pytest.mark.parametrize("output", ["table", "wide", "json", "yaml", "name"])
@pytest.mark.parametrize("command", [["methods"], ["version"], ["status"]], ids=" ".join)
def test_every_format_of_every_listing(cli, command, output):
    done = cli(*command, "-o", output)
    assert done.code == 0
    if output in ("json", "yaml"):
        record = json.loads(done.out) if output == "json" else yaml.safe_load(done.out)
        assert record["apiVersion"] == "mpctl.dev/v1alpha1"
        kinds = {"methods": "MethodList", "version": "Version", "status": "StatusList"}
        assert record["kind"] == kinds[command[0]]
    elif output == "name":
        assert all(" " not in line for line in done.out.splitlines())
    elif command != ["status"]:
        assert re.match(r"[A-Z]+   ", done.out)


def options_of(text):
    """Every option of a help text with its lines of explanation, by section."""
    entries, section = {}, ""
    for line in text.splitlines():
        if re.match(r"[A-Z][\w ]+:$", line):
            section = line[:-1]
        elif re.match(r"  (-|MPCTL_)", line):
            name, _, rest = line.strip().partition("  ")
            last = entries.setdefault((section, name), [rest.strip()] if rest.strip() else [])
        elif section and line.startswith(" " * 28):
            last.append(line.strip())
    return entries


def test_the_options_of_rollout_stand_in_sections_and_take_two_lines_at_most(cli):
    text = cli("rollout", "--help-all").out
    options = options_of(text)
    assert list(dict.fromkeys(section for section, _ in options)) == [
        *(
            "Services",
            "Speculation",
            "Draft and staging",
            "Measurement",
            "Gate",
            "Traffic",
            "Execution",
            "Output",
            "Settings",
            "Global",
        ),
    ]
    assert len(options) > 50
    assert {name: lines for (_, name), lines in options.items() if not 1 <= len(lines) <= 2} == {}
    assert text.index("Examples:") < text.index("Speculation:")
