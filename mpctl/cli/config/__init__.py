"""Settings: flag > environment > project file > user file > default.

The project file is ``mpctl.yaml`` in this directory or the nearest one above; the user's is ``config.yaml`` in the
XDG configuration directory. Both hold option names as the flags have them, for all commands at the top and for one
command under its name::

    platform: local
    rollout:
      concurrency: 8
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from mpctl.errors import InputError

PROJECT_FILE = "mpctl.yaml"


def project_file() -> Path | None:
    """The nearest project file, or None."""
    here = Path.cwd()
    for directory in (here, *here.parents):
        candidate = directory / PROJECT_FILE
        if candidate.is_file():
            return candidate
    return None


def user_file() -> Path | None:
    """The user's file, or None."""
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path("~/.config").expanduser())
    candidate = Path(base) / "mpctl" / "config.yaml"
    return candidate if candidate.is_file() else None


def read_settings(path: Path) -> dict[str, Any]:
    """A settings file.

    Raises:
        InputError: it is no YAML mapping.
    """
    import yaml

    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise InputError("not YAML", file=str(path), line=mark.line + 1 if mark else None) from error
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise InputError("must be a mapping of option names to values", file=str(path))
    return {str(key).replace("-", "_"): value for key, value in data.items()}


def default_map(commands: Sequence[str]) -> dict[str, Any]:
    """click's default map: what the files set for each command, the project's over the user's."""
    merged: dict[str, Any] = {}
    for path in (user_file(), project_file()):
        if path is None:
            continue
        for key, value in read_settings(path).items():
            if key in commands and isinstance(value, dict):
                own = {str(k).replace("-", "_"): v for k, v in value.items()}
                merged[key] = {**merged.get(key, {}), **own}
            else:
                merged[key] = value
    common = {k: v for k, v in merged.items() if k not in commands}
    return {name: {**common, **merged.get(name, {})} for name in commands}


@click.group("config")
def command() -> None:
    """Show settings and where they come from."""


@command.command("view")
@click.option("--origin", is_flag=True, help="Also say where each value comes from.")
def view(origin: bool) -> None:
    """Print the settings of all files, the ones in force."""
    from mpctl.cli.terminal import Terminal

    rows = []
    seen: dict[str, tuple[str, str]] = {}
    for path in (user_file(), project_file()):
        if path is not None:
            for key, value in read_settings(path).items():
                nested = value.items() if isinstance(value, dict) else [("", value)]
                for sub, setting in nested:
                    seen[f"{key}.{sub}".rstrip(".")] = (str(setting), str(path))
    for name, value in sorted(os.environ.items()):
        if name.startswith("MPCTL_"):
            seen[name.removeprefix("MPCTL_").lower()] = (value, f"environment {name}")
    for key, (shown, source) in sorted(seen.items()):
        rows.append([key, shown, source] if origin else [key, shown])
    header = ["SETTING", "VALUE", "ORIGIN"] if origin else ["SETTING", "VALUE"]
    Terminal.of_environment().table(header, rows)
