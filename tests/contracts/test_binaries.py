"""Where the test cluster's programs come from; builds nothing."""

import os
import re
import subprocess
import sys

import pytest

from tests.cluster.conftest import ROOT
from tests.cluster.rig import binaries, knative, lws


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    """An empty cache, and no Go."""
    monkeypatch.setenv("MPCTL_RIG_CACHE", str(tmp_path / "cache"))
    for name in ("MPCTL_RIG_ASSETS", "KUBEBUILDER_ASSETS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(binaries.shutil, "which", lambda *_, **__: None)
    monkeypatch.delenv("MPCTL_GO", raising=False)
    return tmp_path


def fake_go(folder, version, *, switches):
    """A go command that says it is ``version``, and what GOTOOLCHAIN asks for where it can switch."""
    path = folder / "go"
    switched = '"$GOTOOLCHAIN"' if switches else version
    path.write_text(
        f'#!/bin/sh\n[ "$GOTOOLCHAIN" = local ] && v={version} || v={switched}\necho go version $v linux/amd64\n'
    )
    path.chmod(0o755)
    return str(path)


def test_the_versions_named_in_the_code_are_those_of_the_modules():
    pinned = (binaries.HERE / "kubernetes" / "go.mod").read_text()
    assert re.search(rf"k8s.io/kubernetes {re.escape(binaries.KUBERNETES)}\b", pinned)
    assert re.search(r"^go 1\.26", pinned, re.MULTILINE)
    helm = (binaries.HERE / "helm" / "go.mod").read_text()
    assert f"helm.sh/helm/v3 {binaries.HELM_VERSION} " in helm
    for recipe in (binaries.BASE, knative.RECIPE, lws.RECIPE):
        source = (binaries.HERE / recipe.source / "go.mod").read_text()
        for module, _ in recipe.definitions.values():
            assert f"{module} v" in source


def test_a_missing_go_is_named_with_install_instructions(nowhere):
    with pytest.raises(binaries.Missing) as missing:
        binaries.find()
    for name in (
        "no Go toolchain",
        "apt install",
        "go.dev/dl",
        binaries.GO,
        "MPCTL_RIG_ASSETS",
        "kserve-manager",
    ):
        assert name in str(missing.value)


def test_another_go_switches_to_the_pinned_one(nowhere, monkeypatch):
    monkeypatch.setenv("MPCTL_GO", fake_go(nowhere, "go1.27.3", switches=True))
    _, environment = binaries._go()
    assert environment["GOTOOLCHAIN"] == binaries.GO


def test_a_go_that_cannot_switch_is_refused_by_name(nowhere, monkeypatch):
    monkeypatch.setenv("MPCTL_GO", fake_go(nowhere, "go1.19.8", switches=False))
    with pytest.raises(binaries.Missing, match=r"is go1\.19\.8 and cannot switch to go1\.26"):
        binaries._go()


def test_programs_and_definitions_of_a_named_folder_are_used(nowhere, monkeypatch):
    folder = nowhere / "mine"
    (folder / "definitions").mkdir(parents=True)
    for program in binaries.PROGRAMS:
        (folder / program.name).touch()
    for name in binaries.DEFINITIONS:
        (folder / "definitions" / f"{name}.json").write_text("[]")
    monkeypatch.setenv("MPCTL_RIG_ASSETS", str(folder))
    found = binaries.find()
    assert found["etcd"] == str(folder / "etcd")
    assert found.definitions == folder / "definitions"


def test_a_missing_folder_is_refused(nowhere, monkeypatch):
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(nowhere / "nosuch"))
    with pytest.raises(binaries.Missing, match="nosuch is not a directory"):
        binaries.find()


def test_a_version_change_moves_the_cache(monkeypatch):
    before = binaries.digest()
    monkeypatch.setattr(binaries, "GO", "go1.26.9")
    assert binaries.digest() != before


@pytest.fixture
def built(nowhere, monkeypatch):
    """Names of the programs in the order in which they were built, by a build that takes twice as long as it says."""
    names = []

    def build(go, program, folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / program.name).touch()
        names.append(program.name)
        return 2.0 * program.build_s

    def extract(go, folder, recipe):
        folder.mkdir(parents=True, exist_ok=True)
        for name in recipe.definitions:
            (folder / f"{name}.json").write_text("[]")

    monkeypatch.setattr(binaries, "_go", lambda: ("go", {}))
    monkeypatch.setattr(binaries, "_build", build)
    monkeypatch.setattr(binaries, "_extract", extract)
    return names


def test_a_plain_build_has_nothing_that_a_plain_cluster_does_not_start(built):
    assert binaries.main([]) == 0
    assert built == [program.name for program in binaries.PROGRAMS]


def test_a_build_says_how_much_is_left_and_learns_how_fast_this_machine_is(built, capsys):
    binaries.main(["lws", "llm"])
    lines = capsys.readouterr().err.splitlines()
    assert built[-2:] == ["lws-manager", "llmisvc-manager"]
    assert lines[0] == "building kube-apiserver (1 of 8), about 11 min left"
    assert lines[1] == "building kube-controller-manager (2 of 8), about 10 min left"
    assert lines[-1] == "building llmisvc-manager (8 of 8), about 1 min left"


def test_everything_that_tests_need_is_built_as_one_count(built, capsys):
    binaries.main(["all"])
    assert built[6:] == [
        "llmisvc-manager",
        "lws-manager",
        "knative-controller",
        "prometheus",
        "promtool",
        "helm",
    ]
    assert "(12 of 12)" in capsys.readouterr().err


def test_the_script_names_what_is_missing(nowhere):
    environment = {
        k: v
        for k, v in os.environ.items()
        if k not in ("MPCTL_GO", "MPCTL_RIG_ASSETS", "KUBEBUILDER_ASSETS")
    }
    environment |= {"MPCTL_RIG_CACHE": str(nowhere / "cache"), "MPCTL_GO": str(nowhere / "nosuch")}
    done = subprocess.run(
        [sys.executable, "-m", "tests.cluster.rig.binaries"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "error: " in done.stderr and "apt install" in done.stderr
