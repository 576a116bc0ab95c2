"""The image: every step of deploy/Containerfile in an empty folder, by a user without rights, from the sdist alone."""

from __future__ import annotations

import os
import subprocess

import pytest

from scripts.containerfile import Build, identity, instructions

from .conftest import OTHER, environment

BASE = "docker.io/library/python@sha256:" + "a" * 64


@pytest.fixture
def build(source, python, empty):
    """A build of the image by a user without rights, in an empty folder."""
    variables = environment(UV_CACHE_DIR=str(empty / "cache"), HOME=str(empty))
    for folder in ("cache", "stages"):
        (empty / folder).mkdir()
        if OTHER is not None:
            os.chown(empty / folder, OTHER, OTHER)
    variables.pop("UV_PYTHON")
    path = f"{python}:/usr/local/bin:/usr/bin:/bin"
    return Build(source, empty / "stages", user=OTHER, variables=variables, path=path)


def test_every_step_of_the_image_runs_without_root_and_its_command_on_a_read_only_system(
    build, source, release
):
    text = (source / "deploy" / "Containerfile").read_text()
    image = build.run(text, {"BASE": BASE})
    assert build.steps == instructions(text)
    assert image.user == (10001, 10001)

    def run(*words):
        """The image's program as its user, to whom no file belongs."""
        return subprocess.run(
            [*image.entrypoint, *words],
            cwd=image.root / "tmp",
            env=image.variables(),
            capture_output=True,
            text=True,
            check=False,
            **identity(None if OTHER is None else image.user[0]),
        )

    subprocess.run(["chmod", "-R", "a-w", image.root / "opt"], check=True)
    assert run("--version").stdout == f"mpctl {release.version}\n"
    watched = run(*image.command, "--once")
    assert watched.returncode == 2
    assert "no cluster" in watched.stderr
    # What is installed has no pip cache, no build tools and no sources of mpctl.
    assert sorted(path.name for path in (image.root / "opt").iterdir()) == ["mpctl"]
    assert not list((image.root / "src").iterdir())


def test_a_base_by_its_tag_is_refused(build, source):
    with pytest.raises(RuntimeError, match="BASE must be an image with its digest, not python:3"):
        build.run((source / "deploy" / "Containerfile").read_text(), {"BASE": "python:3.13-slim"})
