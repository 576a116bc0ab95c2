"""Wheel and sdist, each installed into an empty environment from its file alone."""

from __future__ import annotations

import resource
import shutil
from pathlib import Path

import pytest

from .conftest import ROOT, SERVICE, run

# Versions that the tests run with, which uv has in its cache.
LOCKED = {"UV_CONSTRAINT": str(ROOT / "requirements" / "runtime.txt")}
# Every module but those of extras: they run inside an engine, or the extra is named where they are used.
IMPORT_ALL = """\
import importlib, pkgutil, mpctl
names = [m.name for m in pkgutil.walk_packages(mpctl.__path__, "mpctl.") if ".in_engine" not in m.name]
for name in names:
    if not name.startswith(EXTRAS):
        importlib.import_module(name)
print(len(names))
"""


@pytest.fixture(scope="module")
def wheel(release, uv, tmp_path_factory):
    """The folder of an environment with the wheel."""
    return installed(release.file("mpctl-{version}-py3-none-any.whl"), uv, tmp_path_factory)


@pytest.fixture(scope="module")
def sdist(release, uv, tmp_path_factory):
    """The folder of an environment with the sdist."""
    return installed(release.file("mpctl-{version}.tar.gz"), uv, tmp_path_factory)


def installed(file, uv, tmp_path_factory):
    folder = tmp_path_factory.mktemp("installed")
    shutil.copy(file, folder)
    run(uv, "venv", "--quiet", "environment", cwd=folder)
    program = folder / "environment" / "bin" / "python"
    run(
        uv,
        "pip",
        "install",
        "--quiet",
        "--python",
        program,
        folder / file.name,
        cwd=folder,
        **LOCKED,
    )
    return folder / "environment"


@pytest.mark.parametrize("artefact", ["wheel", "sdist"])
def test_a_package_is_installed_from_its_file_and_checks_and_changes_a_service(
    artefact, release, tmp_path, request
):
    programs = request.getfixturevalue(artefact) / "bin"
    assert run(programs / "mpctl", "--version", cwd=tmp_path).stdout == f"mpctl {release.version}\n"
    (tmp_path / "service.yaml").write_text(SERVICE)
    change = ("-f", "service.yaml", "--spec", "ngram")
    assert "no finding" in run(programs / "mpctl", "preflight", *change, cwd=tmp_path).stdout
    rendered = run(programs / "kubectl-mpctl", "render", *change, cwd=tmp_path).stdout
    assert rendered.replace(SERVICE, "") == rendered and '"method": "ngram"' in rendered


def test_the_sdist_installs_what_the_wheel_does(wheel, sdist):
    def files(environment: Path) -> list[str]:
        (record,) = environment.glob("lib/python*/site-packages/mpctl-*.dist-info/RECORD")
        return sorted(line for line in record.read_text().splitlines() if line.startswith("mpctl/"))

    assert len(files(wheel)) > 300
    assert files(wheel) == files(sdist)


def test_everything_but_the_extras_imports_what_the_wheel_requires(wheel, tmp_path):
    text = IMPORT_ALL.replace("EXTRAS", repr(()))
    done = run(wheel / "bin" / "python", "-I", "-c", text, cwd=tmp_path)
    assert int(done.stdout) > 300


def test_a_plan_without_installing_answers_within_ten_seconds_of_cpu(release, wheel, uv, tmp_path):
    """``wheel`` is installed before, so that the packages are in the cache."""
    command = release.command("uvx")
    assert command[:2] == ["uvx", "--from"] and command[3:5] == ["mpctl", "plan"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = run(uv, "tool", "run", *command[1:], cwd=tmp_path, **LOCKED)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    for method in ("ngram", "eagle3", "draft_model"):
        assert method in done.stdout
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 10


@pytest.mark.nightly
def test_pipx_installs_the_wheel(release, uv, tmp_path):
    variables = {"PIPX_HOME": str(tmp_path / "home"), "PIPX_BIN_DIR": str(tmp_path / "bin")}
    run(uv, "tool", "run", *release.command("pipx"), cwd=tmp_path, **variables)
    assert release.version in run(tmp_path / "bin" / "mpctl", "--version", cwd=tmp_path).stdout
