"""Wheel and sdist, each installed into an empty environment from its file alone."""

from __future__ import annotations

import ast
import resource
import shutil
import sys
from pathlib import Path

import pytest

from .conftest import ROOT, SERVICE, run

# Versions that the tests run with, which uv has in its cache.
LOCKED = {"UV_CONSTRAINT": str(ROOT / "requirements" / "runtime.txt")}
# Where libraries of extras are used, each behind an error that names the extra, and what runs inside an engine.
EXTRAS = (
    "cloud/",
    "evidence/",
    "report/html.py",
    "report/plots.py",
    "lab/in_engine/",
    "local/in_engine/",
)
CHAT_TEMPLATES = {"jinja2", "tokenizers"}  # `plan` on transcripts asks for them by name
COPIED = {"stream"}  # next to the agent in the load pod


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


@pytest.mark.parametrize(
    ("artefact", "program", "command", "result"),
    [
        ("wheel", "mpctl", "preflight", "answers-cut"),
        ("sdist", "kubectl-mpctl", "render", '"method": "ngram"'),
    ],
)
def test_a_package_is_installed_from_its_file_and_judges_and_changes_a_service(
    artefact, program, command, result, release, tmp_path, request
):
    programs = request.getfixturevalue(artefact) / "bin"
    version = run(programs / "mpctl", "--version", cwd=tmp_path).stdout
    assert version == f"mpctl {release.version}\n"
    (tmp_path / "service.yaml").write_text(SERVICE)
    words = (command, "-f", "service.yaml", "--spec", "ngram")
    assert result in run(programs / program, *words, cwd=tmp_path).stdout


def test_the_sdist_installs_what_the_wheel_does(wheel, sdist):
    def files(environment: Path) -> list[str]:
        (record,) = environment.glob("lib/python*/site-packages/mpctl-*.dist-info/RECORD")
        return sorted(line for line in record.read_text().splitlines() if line.startswith("mpctl/"))

    assert len(files(wheel)) > 300
    assert files(wheel) == files(sdist)


def test_only_the_extras_need_more_than_the_wheel_requires(wheel, tmp_path):
    """Rollout, bench and rollback are elsewhere; imports inside functions count."""
    needed = needs() - CHAT_TEMPLATES - COPIED
    assert needed >= {"click", "httpx", "kubernetes", "numpy", "scipy", "websocket", "yaml"}
    text = f"from importlib.util import find_spec\nprint(*(n for n in {sorted(needed)} if not find_spec(n)))"
    assert run(wheel / "bin" / "python", "-I", "-c", text, cwd=tmp_path).stdout.split() == []


def needs() -> set[str]:
    """The packages that modules outside of EXTRAS import, anywhere in them."""
    names: set[str] = set()
    for path in (ROOT / "mpctl").rglob("*.py"):
        if str(path.relative_to(ROOT / "mpctl")).startswith(EXTRAS):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Import(names=imported):
                    names |= {alias.name for alias in imported}
                case ast.ImportFrom(module=str(module), level=0):
                    names.add(module)
                case ast.Call(func=ast.Name("import_module"), args=[ast.Constant(str(module))]):
                    names.add(module)
    tops = {name.partition(".")[0] for name in names}
    return tops - set(sys.stdlib_module_names) - {"mpctl"}


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
