"""Usage errors of click in our words: the option at fault, where its value came from, what to type instead."""

from __future__ import annotations

import click
from click.core import ParameterSource

from mpctl.cli.group import path_of
from mpctl.cli.project_file import MEASUREMENT
from mpctl.cli.settings_files import options_of, user_file
from mpctl.packaged import packaged

REPLACED = packaged(__package__, "replaced.yaml")


def explain(error: click.UsageError) -> tuple[str, str | None]:
    """Message and hint."""
    hint = f"run '{error.ctx.command_path} --help' for the options" if error.ctx else None
    if isinstance(error, click.NoSuchOption):
        near = f"did you mean {error.possibilities[0]}" if error.possibilities else hint
        return f"unknown option {error.option_name}", _replacement(error) or near
    if isinstance(error, click.MissingParameter) and error.param is not None:
        return f"{_flag(error.param)} is required", hint
    if isinstance(error, click.BadParameter) and error.param is not None:
        return f"{_origin(error, error.param)}: {_plain(error.message)}", hint
    return _plain(error.format_message()), hint


def _replacement(error: click.NoSuchOption) -> str:
    """Return what to use instead of an option that the command had; empty if it never had one of this name."""
    assert error.ctx is not None
    name, options = error.option_name.lstrip("-"), options_of(error.ctx.command)
    key = name.replace("-", "_")
    if key not in options:
        return next((f"use {new}" for old, new in REPLACED.items() if name in old.split()), "")
    variable = options[key].envvar  # the option is a setting, since it has no flag
    if "measurement" in options and key in MEASUREMENT.split(", "):
        return f"set {variable}, or {key} in a file for --measurement FILE"
    return f"set {variable}, or {key} below {' '.join(path_of(error.ctx))} in {user_file()}"


def _flag(param: click.Parameter) -> str:
    if isinstance(param, click.Option):
        return max(param.opts, key=len)
    return (param.metavar or str(param.name).upper()).strip("[]")


def _origin(error: click.BadParameter, param: click.Parameter) -> str:
    """Return the variable, the line of a file with its key, or the flag that has the value."""
    ctx = error.ctx
    source = ctx.get_parameter_source(param.name or "") if ctx else None
    if source is ParameterSource.ENVIRONMENT:
        return f"environment variable {param.envvar}"
    if ctx and source is ParameterSource.DEFAULT_MAP:
        key = next(name for name, option in options_of(ctx.command).items() if option is param)
        setting = ctx.obj.files.find(path_of(ctx), key)
        return f"{setting.file}:{setting.line}: {key}"
    return _flag(param)


def _plain(message: str) -> str:
    """Sentence case without a full stop."""
    text = message.rstrip(".")
    return text[:1].lower() + text[1:] if text[1:2].islower() else text
