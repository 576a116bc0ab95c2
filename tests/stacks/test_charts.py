"""The charts of the platform layer, rendered by Helm with the stacks' own values.

Two things a schema cannot say: that a chart has every value that is set (Helm ignores what it does not know), and what
comes out. What comes out is compared with a summary in golden/charts: names, images, resources and the settings that
the values decide; `MPCTL_UPDATE_GOLDEN=1` renews it.

Helm: MPCTL_HELM, the PATH, or built once from its module like the test cluster's programs. Charts: six are inside Go
modules; the others come from their own registries, or from MPCTL_CHARTS, a folder of archives. Where a registry cannot
be reached, the skip names chart and registry.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from stacks.versions import table
from tests.stacks.conftest import ROOT
from tests.stacks.test_artifacts import closed
from tests.stacks.test_first_apply import EKS, GKE

GOLDEN = Path(__file__).parent / "golden" / "charts"
# Charts whose releases are Go modules, too: module and folder.
_KSERVE = "github.com/kserve/kserve"
MODULES = {
    "cert-manager": ("github.com/cert-manager/cert-manager", "deploy/charts/cert-manager"),
    "dra-driver-nvidia-gpu": (
        "sigs.k8s.io/dra-driver-nvidia-gpu",
        "deployments/helm/dra-driver-nvidia-gpu",
    ),
    # Not the chart, whose values are a template there.
    "envoy-gateway-definitions": (
        "github.com/envoyproxy/gateway",
        "charts/gateway-helm/charts/crds/crds/generated",
    ),
    "kserve-crd": (_KSERVE, "charts/kserve-crd"),
    "kserve-resources": (_KSERVE, "charts/kserve-resources"),
    "kserve-runtime-configs": (_KSERVE, "charts/kserve-runtime-configs"),
    "node-feature-discovery": (
        "sigs.k8s.io/node-feature-discovery",
        "deployment/helm/node-feature-discovery",
    ),
}
CHARTS = sorted(table().pins["charts"])
# Parents under which a chart takes any key of its user's, or which belong to a chart inside the chart.
DECIDED = (
    "deploy",
    "ingress",
    "storageInitializer",
)  # keys of KServe's ConfigMap that the values decide
FREE = {
    "cluster-autoscaler": ("extraArgs",),
    "kserve-resources": ("kserve.storage.containerSecurityContext",),
    "kube-prometheus-stack": ("grafana", "prometheus.prometheusSpec.storageSpec"),
    "node-feature-discovery": ("worker.config",),
    "prometheus-adapter": ("rules",),
}


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("charts")


def from_module(name: str, version: str, folder: Path) -> Path | None:
    """The folder of a chart inside a Go module."""
    go = shutil.which("go") or "/usr/local/go/bin/go"
    if name not in MODULES or not Path(go).is_file():
        return None
    module, inside = MODULES[name]
    command = [go, "mod", "download", "-json", f"{module}@v{version.removeprefix('v')}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    path = Path(json.loads(done.stdout or "{}").get("Dir", "/nowhere")) / inside
    if (template := path / "Chart.template.yaml").is_file():
        text = template.read_text("utf-8").replace("v0.0.0", version)
        path = shutil.copytree(
            path, folder / name, dirs_exist_ok=True, copy_function=shutil.copyfile
        )
        path.chmod(0o755)
        (path / "Chart.yaml").write_text(text, "utf-8")
    return path if path.is_dir() else None


def chart(name: str, helm: str, folder: Path) -> Path:
    """The folder of a chart at its pinned version."""
    pin = table().chart(name)
    assert pin.repository and pin.chart
    if path := from_module(name, pin.version, folder):
        return path
    value = os.environ.get("MPCTL_CHARTS")
    archive = Path(value or folder) / f"{pin.chart}-{pin.version}.tgz"
    if not value and not archive.is_file():
        oci = pin.repository.startswith("oci://")
        where = [f"{pin.repository}/{pin.chart}"] if oci else [pin.chart, "--repo", pin.repository]
        command = [helm, "pull", *where, "--version", pin.version, "-d", str(folder)]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=environment(folder),
        )
        if done.returncode:
            pytest.skip(
                f"{name} {pin.version} cannot be had from {pin.repository}: {done.stderr.strip()[-160:]}"
            )
    if not archive.is_file():
        pytest.skip(f"{archive.name} is not in {archive.parent}")
    with tarfile.open(archive) as file:
        file.extractall(folder / name, filter="data")
    return folder / name / pin.chart


def environment(folder: Path) -> dict[str, str]:
    """Helm's own files go to *folder*."""
    return {
        **os.environ,
        **{f"HELM_{kind}_HOME": str(folder) for kind in ("CACHE", "CONFIG", "DATA")},
    }


def values_of(stacks: list[dict[str, Any]], name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Cluster and values of every release of a chart."""
    for stack in stacks:
        for cluster in (EKS, GKE):
            release = stack[f"{cluster}-platform"]["resource"]["helm_release"].get(
                name.replace("-", "_")
            )
            if release:
                # Terraform's escapes belong to Terraform.
                text = release.get("values", ["{}"])[0].replace("$${", "${").replace("%%{", "%{")
                yield cluster, yaml.safe_load(text)


def unknown(
    wanted: Mapping[str, Any], known: Any, free: tuple[str, ...], path: str = ""
) -> Iterator[str]:
    """Paths that are set and that the chart's own values do not have."""
    for key, value in wanted.items():
        here = f"{path}.{key}".lstrip(".")
        if here in free:
            continue
        if not isinstance(known, Mapping) or key not in known:
            yield here
        elif isinstance(value, Mapping) and known[key] not in (None, {}):
            yield from unknown(value, known[key], free, here)


@pytest.mark.parametrize("name", CHARTS)
def test_a_chart_has_every_value_that_is_set(
    name: str, helm: str, folder: Path, synthesised: dict[str, Any], rich: dict[str, Any]
) -> None:
    document = yaml.safe_load((chart(name, helm, folder) / "values.yaml").read_text("utf-8")) or {}
    for _, values in values_of([synthesised, rich], name):
        assert list(unknown(values, document, FREE.get(name, ()))) == []


def test_a_misspelt_value_is_found() -> None:
    fields = {"kserve": {"storage": {"resources": {}}}}
    assert list(unknown({"kserve": {"storage": {"ressources": 1}}}, fields, ())) == [
        "kserve.storage.ressources"
    ]


@pytest.mark.parametrize("name", CHARTS)
def test_a_chart_renders_to_its_golden_summary(
    name: str, helm: str, folder: Path, synthesised: dict[str, Any], tmp_path: Path
) -> None:
    actual_chart = chart(name, helm, folder)
    rendered = dict(values_of([synthesised], name))
    if rendered.get(GKE) == rendered.get(EKS):
        rendered.pop(GKE, None)
    for cluster, values in rendered.items():
        given = tmp_path / f"{cluster}.yaml"
        given.write_text(yaml.safe_dump(values), "utf-8")
        command = [
            helm,
            "template",
            name,
            str(actual_chart),
            "-n",
            "kserve",
            "-f",
            str(given),
            "--include-crds",
        ]
        command += ["--kube-version", "1.35.0"]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=environment(folder),
        )
        assert done.returncode == 0, done.stderr[-2000:]
        documents = [one for one in yaml.load_all(done.stdout, yaml.CSafeLoader) if one]
        text = yaml.safe_dump(summary(documents), sort_keys=True, width=120)
        golden = GOLDEN / (
            f"{name}-gke.yaml" if cluster == GKE and len(rendered) > 1 else f"{name}.yaml"
        )
        if os.environ.get("MPCTL_UPDATE_GOLDEN"):
            golden.parent.mkdir(exist_ok=True)
            golden.write_text(text, "utf-8")
        if not golden.exists():
            pytest.skip(
                f"rendered {len(documents)} objects; nobody recorded a summary: MPCTL_UPDATE_GOLDEN=1"
            )
        assert text == golden.read_text("utf-8")


def summary(documents: list[dict[str, Any]]) -> dict[str, Any]:
    """What a person reviews of a rendered chart, by object."""
    return {f"{one['kind']} {one['metadata']['name']}": facts(one) for one in documents}


def facts(document: dict[str, Any]) -> Any:
    """Settings as values; of pods their images and resources; of the rest nothing but that they exist."""
    kind, spec = document["kind"], document.get("spec") or {}
    if kind == "ConfigMap":
        return {
            key: settings(text)
            for key, text in (document.get("data") or {}).items()
            if key in DECIDED
        }
    if kind == "ClusterStorageContainer":
        return {key: spec["container"][key] for key in ("image", "resources", "securityContext")}
    pod = (spec.get("template") or {}).get("spec") or (spec if "containers" in spec else {})
    containers = [*pod.get("initContainers", []), *pod.get("containers", [])]
    return [
        {key: one[key] for key in ("name", "image", "resources") if key in one}
        for one in containers
    ]


def settings(text: str) -> Any:
    """A setting of a ConfigMap, parsed where it is JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return text if len(text) < 200 else f"{len(text)} characters"


def test_definitions_that_helm_never_updates_have_a_step_of_their_own() -> None:
    done = subprocess.run(
        [ROOT / "scripts/upgrade-crds", "--print"], capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert [line.split(" | ")[1] for line in lines] == [
        "kubectl apply --server-side --force-conflicts -f -"
    ] * 2
    for line, name in zip(lines, ("envoy-gateway", "kube-prometheus-stack"), strict=True):
        assert line.startswith("helm show crds") and table().chart(name).version in line


@pytest.mark.parametrize("which", ["synthesised", "rich"])
def test_the_gateways_objects_have_no_field_that_its_release_does_not_know(
    which: str, folder: Path, request: pytest.FixtureRequest
) -> None:
    definitions = from_module(
        "envoy-gateway-definitions", table().chart("envoy-gateway").version, folder
    )
    if definitions is None:
        pytest.skip("Envoy Gateway's definitions are in its Go module, and there is no Go")
    schemas = {}
    for path in definitions.glob("*.yaml"):
        spec = yaml.safe_load(path.read_text("utf-8"))["spec"]
        schema = spec["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
        schemas[spec["names"]["kind"]] = closed(schema)
    checked = set()
    for stack in request.getfixturevalue(which).values():
        for one in stack["resource"].get("kubernetes_manifest", {}).values():
            document = one["manifest"]
            if document["apiVersion"].startswith("gateway.envoyproxy.io/"):
                schema = schemas[document["kind"]]
                errors = jsonschema.Draft202012Validator(schema).iter_errors(document["spec"])
                assert not [error.message for error in errors], document["kind"]
                checked.add(document["kind"])
    assert {"EnvoyProxy", "ClientTrafficPolicy"} <= checked
