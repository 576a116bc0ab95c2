"""Runs the steps of a Containerfile in an empty folder, without containers: what the image's build does, as any user.

``python -m scripts.containerfile FILE CONTEXT FOLDER BASE`` runs them with this machine's python3 as that of the base
image. A stage is the folder ``root`` below FOLDER; the folders in which the file works (``/opt`` ...) are
below it, and no step may name another one for writing. An instruction that is not listed here is refused.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

WRITTEN = ("opt", "src", "dist", "tmp")
_PATH = "/usr/local/bin:/usr/bin:/bin"  # of an image without ENV PATH


@dataclass
class Image:
    """What the last stage leaves: files below ``root``, and how they are run."""

    root: Path
    base_path: str
    environment: dict[str, str] = field(default_factory=dict)
    user: tuple[int, int] | None = None
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)

    def here(self, text: str) -> str:
        """The text with the stage's folders below ``root``."""
        return re.sub(rf"(?<![\w./-])/({'|'.join(WRITTEN)})(?=[/\s:;]|$)", rf"{self.root}/\1", text)

    def variables(self) -> dict[str, str]:
        path = self.environment.get("PATH", "$PATH")
        values = {name: self.here(value) for name, value in self.environment.items()}
        return values | {"PATH": self.here(path).replace("$PATH", self.base_path)}


class Build:
    """A build by one user. ``variables``: of the steps alone, such as where packages come from."""

    def __init__(
        self,
        context: Path,
        folder: Path,
        *,
        user: int | None = None,
        variables: dict[str, str] | None = None,
        path: str = _PATH,
    ) -> None:
        self.context, self.root, self.path = context, folder / "root", path
        self.user, self.variables = user, variables or {}
        self.steps: list[str] = []
        self._stages: dict[str, Path] = {}
        self._arguments: dict[str, str] = {}

    def run(self, text: str, arguments: dict[str, str]) -> Image:
        """Run all steps of a file with these build arguments."""
        image, stage = Image(self.root, self.path), ""
        for line in instructions(text):
            word, _, value = line.partition(" ")
            match word:
                case "ARG":
                    name, _, default = value.partition("=")
                    if name in arguments or default:
                        self._arguments[name] = arguments.get(name, default)
                case "FROM":
                    if stage:
                        self._leave(stage)
                    _, _, stage = value.partition(" AS ")
                    image, stage = Image(self.root, self.path), stage or "last"
                    self._enter()
                case "RUN":
                    self._step(image.here(value), image)
                case "COPY":
                    self._copy(shlex.split(value), image)
                case "ENV":
                    image.environment |= dict(pair.split("=", 1) for pair in shlex.split(value))
                case "USER":
                    user, _, group = value.partition(":")
                    image.user = int(user), int(group or user)
                case "ENTRYPOINT" | "CMD":
                    setattr(
                        image,
                        "entrypoint" if word == "ENTRYPOINT" else "command",
                        json.loads(value),
                    )
                case _:
                    raise ValueError(f"{word}: this instruction is not known here")
            self.steps.append(line)
        return image

    def _enter(self) -> None:
        for name in WRITTEN:
            self._own(self.root / name)

    def _own(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        if self.user is not None:
            os.chown(folder, self.user, self.user)

    def _leave(self, stage: str) -> None:
        """Keep a stage's files: those of the next one have the same paths, as in an image."""
        self._stages[stage] = self.root.rename(self.root.with_name(f"stage-{stage}"))

    def _step(self, command: str, image: Image) -> None:
        done = subprocess.run(
            ["sh", "-ec", command],
            cwd=self.root,
            env=self.variables | self._arguments | image.variables(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            **identity(self.user),
        )
        if done.returncode:
            raise RuntimeError(f"RUN {command} -> {done.returncode}\n{done.stdout}")

    def _copy(self, words: list[str], image: Image) -> None:
        source = self.context
        if words[0].startswith("--from="):
            source = self._stages[words.pop(0).removeprefix("--from=")]
        *names, target = words
        for name in names:
            path = source / name.strip("/")
            into = Path(image.here(target))
            into = into / path.name if target.endswith("/") and path.is_file() else into
            self._own(into.parent)
            if path.is_dir():
                # A stage that was left is not written any more.
                copy = os.link if path.is_relative_to(self.root.parent) else shutil.copy2
                shutil.copytree(path, into, symlinks=True, dirs_exist_ok=True, copy_function=copy)
            else:
                shutil.copyfile(path, into)


def identity(user: int | None) -> dict[str, object]:
    """How a process of another user is started; only root can."""
    return {} if user is None else {"user": user, "group": user, "extra_groups": []}


def instructions(text: str) -> list[str]:
    """The instructions of a Containerfile, one line each."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [line.strip() for line in joined.splitlines() if line.strip()]


if __name__ == "__main__":
    file, context, folder, base = sys.argv[1:]
    build = Build(
        Path(context), Path(folder).resolve(), variables=dict(os.environ), path=os.environ["PATH"]
    )
    image = build.run(Path(file).read_text(), {"BASE": base})
    print(*build.steps, sep="\n")
    print("built in", image.root)
