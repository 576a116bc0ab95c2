"""A copy of the package in which a few files are changed, to count what an extension takes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[3] / "mpctl"


class PackageCopy:
    """A copy of the package; ``touched`` are the files that were changed or added."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.touched: set[str] = set()
        shutil.copytree(PACKAGE, folder / "mpctl", ignore=shutil.ignore_patterns("__pycache__"))

    def edit(self, file: str, old: str, new: str) -> None:
        path = self.folder / "mpctl" / file
        text = path.read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{old!r} is not in {file} once"
        path.write_text(text.replace(old, new), encoding="utf-8")
        self.touched.add(file)

    def add(self, file: str, text: str) -> None:
        (self.folder / "mpctl" / file).write_text(text, encoding="utf-8")
        self.touched.add(file)

    def run(self, program: str) -> str:
        """The output of a Python program that imports the copy."""
        env = {**os.environ, "PYTHONPATH": str(self.folder)}
        command = [sys.executable, "-c", program]
        done = subprocess.run(
            command,
            env=env,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout
