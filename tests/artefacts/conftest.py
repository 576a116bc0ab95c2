"""A release, built once for the session by scripts/release, as its workflow does, outside of the checkout."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from scripts.containerfile import identity

ROOT = Path(__file__).parents[2]
REPOSITORY = "acme/mpctl"
SERVICE = """\
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: qwen}
spec:
  predictor:
    model:
      modelFormat: {name: vLLM}
      image: vllm/vllm-openai:v0.32.0
      args: [--model=Qwen/Qwen3-8B, --max-num-seqs=16]
"""
# What an installation may see of the caller: programs, and where packages come from.
_PASSED = re.compile(
    r"PATH|HOME|LANG|TMPDIR|(PIP|UV|GO|SSL|NO|HTTPS?|ALL)_\w+|\w+_proxy|LD_LIBRARY_PATH|XDG_CACHE_HOME"
)


def environment(**variables: str) -> dict[str, str]:
    """The environment of a user who has the tools of this machine, and no settings and no checkout."""
    passed = {name: value for name, value in os.environ.items() if _PASSED.fullmatch(name)}
    return passed | {"MPCTL_SETTINGS": "none", "UV_PYTHON": sys.executable, **variables}


def run(
    *command: str | Path, cwd: Path, code: int = 0, **variables: str
) -> subprocess.CompletedProcess[str]:
    """A command of such a user, that must end with an exit code."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=environment(**variables),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, f"{command} -> {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


@dataclass(frozen=True)
class Release:
    """The folder of a release, and its version."""

    folder: Path
    version: str

    def file(self, name: str) -> Path:
        return self.folder / name.format(version=self.version)

    @property
    def address(self) -> str:
        """Where INSTALL.md says that the files are."""
        return f"https://github.com/{REPOSITORY}/releases/download/v{self.version}/"

    def command(self, program: str) -> list[str]:
        """The words of the command of INSTALL.md that begins so, on the files of this folder."""
        text = (self.folder / "INSTALL.md").read_text().replace(self.address, f"{self.folder}/")
        (line,) = re.findall(rf"^{program} .*$", text, re.MULTILINE)
        return line.split()


def make_release(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """``scripts/release`` into a folder, for :data:`REPOSITORY` unless the variables name another."""
    return subprocess.run(
        [ROOT / "scripts" / "release", folder],
        env={**os.environ, "REPOSITORY": REPOSITORY, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    folder = tmp_path_factory.mktemp("release") / "dist"
    done = make_release(folder)
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("*.whl")
    return Release(folder, wheel.name.split("-")[1])


@pytest.fixture(scope="session")
def source(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked sdist: the build context of the image, and the folder of the action."""
    folder = tmp_path_factory.mktemp("source")
    with tarfile.open(release.file("mpctl-{version}.tar.gz")) as file:
        file.extractall(folder, filter="data")
    return folder / f"mpctl-{release.version}"


@pytest.fixture
def empty():
    """An empty folder that every user may enter, unlike pytest's."""
    with tempfile.TemporaryDirectory(
        dir="/var/tmp", prefix="mpctl-", ignore_cleanup_errors=True
    ) as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@pytest.fixture(scope="session")
def uv() -> str:
    """uv, which scripts/test puts on the PATH, or the one that scripts/release fetched."""
    fetched = ROOT / ".cache" / "uv" / "bin" / "uv"
    path = shutil.which("uv") or (str(fetched) if fetched.is_file() else None)
    if path is None:
        pytest.skip("uv is missing: run scripts/test, which fetches it")
    return path


OTHER = (
    10000 if os.geteuid() == 0 else None
)  # a user who owns nothing here; only root can become one


@pytest.fixture(scope="session")
def interpreter() -> str:
    """A Python with venv that every user of this machine can run."""
    check = "import ensurepip, sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))"
    for path in (sys._base_executable, "/usr/local/bin/python3", "/usr/bin/python3"):
        try:
            done = subprocess.run([path, "-c", check], cwd="/", check=False, **identity(OTHER))
        except OSError:
            continue
        if not done.returncode:
            return path
    pytest.skip(
        "no Python 3.11, 3.12 or 3.13 with venv that other users can run (Debian: apt install python3-venv)"
    )


@pytest.fixture(params=["uv", pytest.param("pip", marks=pytest.mark.nightly)])
def python(request: pytest.FixtureRequest, uv: str, interpreter: str, empty: Path) -> Path:
    """The folder of a python3 that installs artefacts: uv is in pip's place, by night the real one."""
    folder = empty / "programs"
    folder.mkdir()
    shutil.copyfile(Path(__file__).with_name("fast_python.py"), folder / "fast_python.py")
    shutil.copy(uv, folder / "uv")
    words = [interpreter]
    if request.param == "uv":
        words += [str(folder / "fast_python.py"), str(folder / "uv")]
    (folder / "python3").write_text(f'#!/bin/sh\nexec {" ".join(words)} "$@"\n')
    (folder / "python3").chmod(0o755)
    return folder
