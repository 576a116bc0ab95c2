"""``kubectl mpctl`` with the real kubectl: found as a plugin, named so in its help, completed, on a real cluster."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from scripts import watch_chart

from .conftest import ROOT
from .objects import CONTAINERS


@pytest.fixture
def kubectl(cluster, namespace, tmp_path):
    """kubectl in the namespace, with the plugin and its completion on PATH as an installation puts them there."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, module, function in (
        ("kubectl-mpctl", "mpctl.cli.main", "main"),
        ("kubectl_complete-mpctl", "mpctl.cli.kubectl", "main"),
    ):
        script = programs / name
        # What an installer writes for an entry point.
        script.write_text(
            f"#!{sys.executable}\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n"
        )
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
    config = cluster.kubeconfig_for(
        cluster.admin, tmp_path / "kubeconfig", namespace=namespace.name
    )
    # kubectl warns of an installed plugin that this one hides, and `plugin list` fails then.
    others = [
        folder
        for folder in os.environ["PATH"].split(os.pathsep)
        if not Path(folder, "kubectl-mpctl").exists()
    ]
    environment = {
        "PATH": os.pathsep.join([str(programs), *others]),
        "KUBECONFIG": str(config),
        "PYTHONPATH": str(ROOT),
        "HOME": str(tmp_path),
        "MPCTL_STATE_DIR": str(tmp_path / "state"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
    }

    def run(*arguments, code=0):
        done = subprocess.run(
            [cluster.assets["kubectl"], *arguments],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done

    return run


def test_kubectl_lists_the_plugin(kubectl):
    assert "kubectl-mpctl" in kubectl("plugin", "list").stdout
    assert kubectl("mpctl", "--help").stdout.startswith("Usage: kubectl mpctl [OPTIONS] COMMAND")
    assert "kubectl mpctl rollback qwen" in kubectl("mpctl", "rollback", "--help").stdout


def test_the_plugin_reads_the_services_of_the_context(kubectl, namespace):
    namespace.deploy(CONTAINERS)
    assert "demo" in kubectl("mpctl", "status").stdout
    assert kubectl("mpctl", "doctor", "-o", "name").returncode == 0
    refused = kubectl("mpctl", "rollback", "nobody", code=2)
    assert "hint: " in refused.stderr


def test_the_plugins_exit_code_is_kubectls(kubectl):
    done = kubectl("mpctl", "rollot", code=2)
    assert "did you mean kubectl mpctl rollout" in done.stderr


@pytest.mark.parametrize(
    ("words", "candidates"),
    [
        (("roll",), {"rollout", "rollback"}),
        (("rollout", "--spec", "ng"), {"ngram"}),
        (("doctor", "--al"), {"--all-namespaces"}),
        (("rbac", ""), {"reader", "operator"}),
    ],
)
def test_kubectl_completes_through_the_plugin(kubectl, words, candidates):
    lines = kubectl("__complete", "mpctl", *words).stdout.splitlines()
    assert {line.partition("\t")[0] for line in lines if not line.startswith(":")} >= candidates
    assert lines[-1].startswith(":")


def test_helm_installs_the_watch_and_removes_it(cluster, helm, namespace, mpctl, tmp_path):
    """The objects that `mpctl watch install` prints, without the definition, which other tests have applied."""
    home = f"{namespace.name}-watch"
    watch_chart.main("registry.example.com/mpctl", "acme/mpctl", str(tmp_path))
    (chart,) = tmp_path.glob("*.tgz")
    config = cluster.kubeconfig_for(cluster.admin, tmp_path / "admin")

    def run(*words):
        command = [helm, *words, "-n", home, "--kubeconfig", str(config)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    values = (f"namespace={namespace.name}", "crd=false", "podMonitor=false")
    sets = [word for value in values for word in ("--set", value)]
    notes = run("install", "watch", str(chart), "--create-namespace", *sets)
    assert f"kubectl get speculationstatus -n {namespace.name}" in notes
    words = ("-n", namespace.name, "--home", home, "--image", "mpctl", "--without", "podmonitor")
    printed = [
        record
        for record in yaml.safe_load_all(mpctl("watch", "install", *words).stdout)
        if record["kind"] not in ("CustomResourceDefinition", "Namespace")
    ]
    assert len(printed) > 10
    objects = tmp_path / "objects.yaml"
    objects.write_text(yaml.safe_dump_all(printed))

    def present():
        listed = cluster.kubectl("get", "-f", str(objects), "--ignore-not-found", "-o", "name")
        return len(listed.split())

    assert present() == len(printed)
    run("uninstall", "watch", "--wait")
    assert present() == 0
    cluster.kubectl("delete", "namespace", home, "--wait=false")


def test_kustomize_makes_of_the_base_what_watch_install_prints(cluster, mpctl, tmp_path):
    """The base of a release has the image `mpctl`."""
    base, image = tmp_path / "base", "registry.example.com/mpctl"
    base.mkdir()
    watch_chart.main("mpctl", "acme/mpctl", str(base))
    replaced = {"name": "mpctl", "newName": image, "digest": f"sha256:{'a' * 64}"}
    (base / "kustomization.yaml").write_text(
        yaml.safe_dump({"resources": ["watch.yaml"], "images": [replaced]})
    )
    rendered = list(yaml.safe_load_all(cluster.kubectl("kustomize", str(base))))
    printed = mpctl("watch", "install", "-A", "--image", f"{image}@sha256:{'a' * 64}").stdout
    name = lambda record: (  # noqa: E731
        record["kind"],
        record["metadata"]["name"],
        record["metadata"].get("namespace", ""),
    )
    assert sorted(rendered, key=name) == sorted(yaml.safe_load_all(printed), key=name)
