"""Command lines run in this process, in an empty directory, with settings and state of their own."""

import os
from pathlib import Path

import pytest
from draft_samples import SERVICE

from mpctl.annex import is_installed
from mpctl.cli.main import run


def pytest_runtest_setup(item):
    for mark in item.iter_markers("needs"):
        if not is_installed(f"mpctl.{mark.args[0]}"):
            pytest.skip(f"mpctl/{mark.args[0]} is not part of this installation")


class Ran:
    """What a command line printed, and its exit code."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err


class CommandLine:
    def __init__(self, directory, capsys, monkeypatch):
        self.directory, self._capsys, self._monkeypatch = directory, capsys, monkeypatch
        self.state = directory / "state"

    def __call__(self, *arguments):
        self._capsys.readouterr()
        code = run(list(arguments))
        return Ran(code, *self._capsys.readouterr())

    def env(self, **variables):
        for name, value in variables.items():
            self._monkeypatch.setenv(name, value)

    def project(self, text):
        return self._write(self.directory / "mpctl.yaml", text)

    def user(self, text):
        return self._write(self.directory / "xdg" / "mpctl" / "config.yaml", text)

    @staticmethod
    def _write(path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path


@pytest.fixture
def cli(tmp_path, capsys, monkeypatch):
    for name in list(os.environ):
        if name.startswith(("MPCTL_", "_MPCTL", "CLICOLOR", "NO_COLOR")) or name in (
            "CI",
            "COLUMNS",
        ):
            monkeypatch.delenv(name)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("MPCTL_STATE_DIR", str(work / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(work / "xdg"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("sys.argv", ["mpctl"])
    return CommandLine(Path(work), capsys, monkeypatch)


@pytest.fixture
def service(cli):
    """The path of a manifest whose target has drafts in the catalogue."""
    path = cli.directory / "service.yaml"
    path.write_text(SERVICE)
    return str(path)
