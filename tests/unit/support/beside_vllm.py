"""A program of ``in_engine`` beside a vLLM of a few lines."""

import os
import subprocess
import sys
from pathlib import Path

from mpctl.local import engine


def write(folder: Path, sources: dict[str, str]) -> None:
    """Write modules by their paths, and the packages that they are in."""
    for name, text in sources.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        for package in path.relative_to(folder).parents[:-1]:
            (folder / package / "__init__.py").touch()
        path.write_text(text)


def run(folder: Path, program: str, **environment: str) -> str:
    """What the program prints where it finds the modules of ``folder``."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("VLLM_")}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={
            **inherited,
            "PYTHONPATH": os.pathsep.join((str(engine.ENGINE_MAIN.parent), str(folder))),
            **environment,
        },
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()
