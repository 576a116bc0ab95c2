"""Which flags of vLLM take no value, or many: the editor's table against the installed engine's own parser."""

from __future__ import annotations

import argparse

import pytest

from mpctl.manifest.engine import engine_command as command


@pytest.fixture(scope="module")
def actions():
    cli_args = pytest.importorskip("vllm.entrypoints.launchers.cli_args")
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    return cli_args.make_arg_parser(FlexibleArgumentParser())._actions


def long_names(action):
    return [
        name
        for name in action.option_strings
        if name.startswith("--") and not name.startswith("--no-")
    ]


def test_every_switch_of_the_engine_is_known_as_one(actions):
    switches = [
        one for one in actions if one.nargs == 0 or isinstance(one, argparse.BooleanOptionalAction)
    ]
    assert {name for one in switches for name in long_names(one)} <= command.BOOLEANS
    takes_value = {name for one in actions if one not in switches for name in long_names(one)}
    assert not takes_value & command.BOOLEANS


def test_every_flag_with_many_values_is_known_as_one(actions):
    assert {
        name for one in actions if one.nargs in ("+", "*") for name in long_names(one)
    } <= command._MANY


def test_every_short_flag_is_known(actions):
    shorts = {
        short: long_names(one)[0]
        for one in actions
        if long_names(one)
        for short in one.option_strings
    }
    names_by_short = {
        short: name
        for short, name in shorts.items()
        if not short.startswith("--") and short != "-h"
    }
    assert names_by_short.items() <= command.ALIASES.items()
