"""``--draft made:NAME``: a head that was trained for the service."""

from __future__ import annotations

import json

import pytest
from made_heads import begun_training, local_service, trained_head

from mpctl.drafts.card import Target

TARGET = Target("model")


@pytest.fixture
def state(cli):
    """The state of a service of this machine."""
    return local_service(cli.directory)


def test_a_trained_head_is_named_by_its_name(cli, state):
    weights = trained_head(state, "demo-2", TARGET)
    trained_head(state, "demo-1", TARGET)
    answer = json.loads(cli("preflight", "demo", "--spec", "eagle3", "--draft", "made:demo-2", "-o", "json").out)
    assert answer["draft"] == answer["speculation"]["model"] == str(weights)
    assert f'"model": "{weights}"' in cli("render", "demo", "--spec", "eagle3", "--draft", "made:demo-2").out


@pytest.mark.parametrize("command", [("preflight",), ("rollout", "--yes"), ("bench",)])
@pytest.mark.parametrize(
    ("head", "says"),
    [("demo-9", "'demo-9' is no head of demo"), ("demo-3", "the training of demo-3 has no card yet"), ("", "''")],
)
def test_a_head_that_is_not_there_is_an_error_that_names_those_that_are(cli, state, command, head, says):
    trained_head(state, "demo-1", TARGET)
    begun_training(state, "demo-3", TARGET)
    verb, *options = command
    done = cli(verb, "demo", *options, "--spec", "eagle3", "--draft", f"made:{head}")
    assert done.code == 2
    assert says in done.err
    assert "trained heads: demo-1; 'mpctl drafts list demo' shows them all" in done.err


def test_without_any_head_the_error_says_so(cli, state):
    assert "trained heads: none" in cli("preflight", "demo", "--spec", "eagle3", "--draft", "made:demo-1").err


def test_a_manifest_in_a_file_has_no_heads(cli, service):
    done = cli("render", "-f", service, "--spec", "eagle3", "--draft", "made:chat-1")
    assert done.code == 2
    assert "heads are trained for running services alone" in done.err
