"""Model files on this machine, read for the preflight; only small files are opened whole."""

from __future__ import annotations

from pathlib import Path

from mpctl.estimate import ModelFacts
from mpctl.platform.checkpoints import Directory, read_checkpoint


def read_model(model: str | None, cwd: Path) -> ModelFacts | None:
    """Read the facts of the directory ``model``; None if it is not a directory of this machine (but a repository name).

    Raises:
        InputError: one of its files cannot be used; with the file's path.
    """
    directory = cwd / Path(model).expanduser() if model else None
    if directory is None or not (directory / "config.json").is_file():
        return None
    return read_checkpoint(Directory(directory))
