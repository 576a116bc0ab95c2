"""The plugin for krew: its manifest checked by krew's validator, and both installed by krew itself from the files."""

from __future__ import annotations

import shutil

import pytest

from tests.cluster.rig import binaries

from .conftest import REPOSITORY, SERVICE, run

_MODULE = "../../artefacts/krew"  # from the folder of the rig
KREW = binaries.Recipe(
    (_MODULE,),
    (
        binaries.Program("krew", _MODULE, "sigs.k8s.io/krew/cmd/krew", build_s=10),
        binaries.Program(
            "validate-krew-manifest",
            _MODULE,
            "sigs.k8s.io/krew/cmd/validate-krew-manifest",
            build_s=5,
        ),
    ),
    {},
    _MODULE,
)


@pytest.fixture(scope="module")
def krew():
    try:
        return binaries.find(KREW)
    except binaries.Missing as missing:
        pytest.skip(str(missing))


def test_krews_validator_takes_the_manifest(krew, release, tmp_path):
    command = (krew["validate-krew-manifest"], "-skip-install", "-manifest")
    run(*command, release.file("mpctl.yaml"), cwd=tmp_path)
    broken = tmp_path / "mpctl.yaml"
    broken.write_text(release.file("mpctl.yaml").read_text().replace("version: v", "version: "))
    assert "failed to parse plugin version" in run(*command, broken, cwd=tmp_path, code=255).stderr


def test_krew_installs_the_plugin_whose_first_call_installs_its_packages(
    krew, release, python, empty
):
    for name in ("mpctl.yaml", "kubectl-mpctl.tar.gz"):
        shutil.copy(release.file(name), empty)
    variables = {
        "KREW_ROOT": str(empty / "krew"),
        "KREW_NO_UPGRADE_CHECK": "1",
        "XDG_DATA_HOME": str(empty / "data"),
        "PATH": f"{python}:/usr/local/bin:/usr/bin:/bin",
    }
    files = ("--manifest=mpctl.yaml", "--archive=kubectl-mpctl.tar.gz")
    done = run(krew["krew"], "install", *files, cwd=empty, **variables)
    assert "Installed plugin: mpctl" in done.stderr
    assert f"https://github.com/{REPOSITORY}" in done.stderr
    plugin = empty / "krew" / "bin" / "kubectl-mpctl"
    first = run(plugin, "version", cwd=empty, **variables)
    assert release.version in first.stdout
    assert first.stderr.startswith("installing mpctl into ")
    (empty / "service.yaml").write_text(SERVICE)
    checked = run(
        plugin, "preflight", "-f", "service.yaml", "--spec", "ngram", cwd=empty, **variables
    )
    assert "answers-cut" in checked.stdout
    assert "installing" not in checked.stderr


def test_krew_refuses_another_archive(krew, release, empty):
    other = shutil.copy(release.file("mpctl-{version}.tar.gz"), empty)
    variables = {"KREW_ROOT": str(empty / "krew"), "KREW_NO_UPGRADE_CHECK": "1"}
    files = (f"--manifest={release.file('mpctl.yaml')}", f"--archive={other}")
    done = run(krew["krew"], "install", *files, cwd=empty, code=1, **variables)
    assert "checksum" in done.stderr
