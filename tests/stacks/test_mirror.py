"""Registries of one's own: every image of every layer comes from them, and nothing else of a chart changes."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from mpctl.errors import InputError
from stacks.images import rewrite
from stacks.settings.mirror import REGISTRIES, Mirror, from_arguments, full
from tests.stacks.conftest import ROOT, synthesise
from tests.stacks.test_charts import environment, from_module
from tests.stacks.test_first_apply import EKS, fleet, golden, refused, resources

OWN = "registry.bank.test"
MIRROR = Mirror({name: f"{OWN}/{name.split('.')[0]}" for name in REGISTRIES}, f"oci://{OWN}/charts")
SETTING = (
    "mirror: {charts: 'oci://registry.bank.test/charts', registries: {"
    + ", ".join(f"{name}: {own}" for name, own in MIRROR.registries.items())
    + "}}"
)
DIGEST = "sha256:" + "a" * 64

IMAGES = [
    (
        "image: quay.io/jetstack/cert-manager-controller:v1.20.2",
        f"image: {OWN}/quay/jetstack/cert-manager-controller:v1.20.2",
    ),
    ('image: "kserve/agent:v0.20.0"', f'image: "{OWN}/docker/kserve/agent:v0.20.0"'),
    ("  image: python:3.13-slim", f"  image: {OWN}/docker/library/python:3.13-slim"),
    ("- --acme-image=quay.io/j/solver:v1", f"- --acme-image={OWN}/quay/j/solver:v1"),
    (
        '  {"image" : "kserve/router:v1", "cpu": "1"}',
        f'  {{"image" : "{OWN}/docker/kserve/router:v1", "cpu": "1"}}',
    ),
    (
        'x: "{\\"image\\": \\"kserve/router:v1\\"}"',
        f'x: "{{\\"image\\": \\"{OWN}/docker/kserve/router:v1\\"}}"',
    ),
    (f"image: quay.io/a/b@{DIGEST}", f"image: {OWN}/quay/a/b@{DIGEST}"),
    ("image: registry.example.com/a/b:1", "image: registry.example.com/a/b:1"),
    ("url: https://quay.io/repository/a", "url: https://quay.io/repository/a"),
    ("image: ''", "image: ''"),
    ("imagePullPolicy: Always", "imagePullPolicy: Always"),
    (f"image: {OWN}/quay.io/a:1", f"image: {OWN}/quay.io/a:1"),
]


@pytest.mark.parametrize(("before", "after"), IMAGES)
def test_images_are_replaced_wherever_a_chart_has_them(before: str, after: str) -> None:
    assert rewrite(before, MIRROR) == after
    assert rewrite(after, MIRROR) == after, "twice is once"


def test_the_mirror_survives_its_way_through_arguments() -> None:
    mirror = Mirror(MIRROR.registries, None, {"quay.io/a/b:1": DIGEST}, True)
    assert from_arguments(mirror.arguments()) == mirror


def test_a_digest_is_added_or_asked_for() -> None:
    mirror = Mirror(MIRROR.registries, None, {full("kserve/agent:v1"): DIGEST}, True)
    assert mirror.image("kserve/agent:v1") == f"{OWN}/docker/kserve/agent:v1@{DIGEST}"
    command = [str(ROOT / "scripts" / "mirror-images"), *mirror.arguments()]
    done = subprocess.run(
        command,
        input="image: kserve/router:v1\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (
        done.returncode == 2
        and "docker.io/kserve/router:v1 has no digest" in done.stderr
        and not done.stdout
    )


def test_every_chart_and_image_of_every_layer_comes_from_the_mirror(tmp_path: Path) -> None:
    template = synthesise(golden(tmp_path, ("serving:\n", f"{SETTING}\nserving:\n")))
    for name, stack in template.items():
        for release in stack["resource"].get("helm_release", {}).values():
            assert release["repository"] == f"oci://{OWN}/charts"
            assert release["postrender"]["binary_path"] == "../../../scripts/mirror-images"
            assert from_arguments(release["postrender"]["args"]).registries == MIRROR.registries
        manifests = stack["resource"].get("kubernetes_manifest", {})
        text = json.dumps([one["manifest"] for one in manifests.values()])
        pulled = [
            image
            for image in re.findall(r'"image": "([^"]+)"', text)
            if image != "cos-nvidia-installer:fixed"
        ]
        assert all(image.startswith(f"{OWN}/") for image in pulled), (name, pulled)
    proxies = resources(template, f"{EKS}-serving", "kubernetes_manifest")
    assert any(one["manifest"]["kind"] == "EnvoyProxy" for one in proxies.values())


def test_the_script_is_where_a_stacks_folder_looks_for_it() -> None:
    """cdktf.out/stacks/NAME is three levels below the checkout."""
    from stacks.platform import MIRROR_IMAGES

    place = os.path.normpath(ROOT / "cdktf.out" / "stacks" / "eks" / MIRROR_IMAGES)
    assert os.access(place, os.X_OK)


def test_kserves_chart_pulls_nothing_from_elsewhere(helm: str, tmp_path: Path) -> None:
    chart = from_module("kserve-resources", "v0.20.0", tmp_path)
    if chart is None:
        pytest.skip("KServe's charts are in its Go module, and there is no Go")
    script = str(ROOT / "scripts" / "mirror-images")
    command = [helm, "template", "kserve", str(chart), "--post-renderer", script]
    command += [part for one in MIRROR.arguments() for part in ("--post-renderer-args", one)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, env=environment(tmp_path)
    )
    assert done.returncode == 0, done.stderr
    images = re.findall(r'"?image"?\s*:\s*"?([\w./-]+:[\w.-]+)', done.stdout)
    assert len(images) > 5 and all(image.startswith(f"{OWN}/") for image in images)
    plain = subprocess.run(
        command[:4],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env=environment(tmp_path),
    )
    assert len(list(yaml.safe_load_all(done.stdout))) == len(list(yaml.safe_load_all(plain.stdout)))


ENDPOINTS = ("egress: nat", "egress: endpoints")
LAYERS = ("layers: [cluster]", "layers: [cluster, platform, serving]")


def test_a_mirror_makes_a_cluster_without_internet_whole(tmp_path: Path) -> None:
    s3 = ('uri: "hf://Qwen/Qwen3-8B"', 'uri: "s3://models/qwen3-8b"')
    changes = (ENDPOINTS, LAYERS, ("serving:\n", f"{SETTING}\nserving:\n"), s3)
    environ = golden(tmp_path, *changes) | {"MPCTL_FLEET": "manifests/fleet/eks-l4.yaml"}
    assert f"{EKS}-serving" in synthesise(environ)


def test_what_a_cluster_without_internet_cannot_reach_is_named(tmp_path: Path) -> None:
    eks = fleet(tmp_path, "eks")
    assert "docker.io, ghcr.io" in refused(golden(tmp_path, ENDPOINTS, LAYERS) | eks).message
    error = refused(
        golden(tmp_path, ENDPOINTS, LAYERS, ("serving:\n", f"{SETTING}\nserving:\n")) | eks
    )
    assert "no way to hf://Qwen/Qwen3-8B" in error.message


REFUSED = [
    ("{registries: {quay.io: registry.bank.test}}", "mirror.charts"),
    ("{registries: {quay.oi: registry.bank.test}, charts: 'oci://a'}", "mirror.registries.quay.oi"),
    ("{digests: {a: sha1}}", "mirror.digests.a"),
    ("{charts: 'https://a'}", "mirror.charts"),
]


@pytest.mark.parametrize(("text", "field"), REFUSED)
def test_a_mirror_that_cannot_work_is_refused(text: str, field: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        synthesise(golden(tmp_path, ("serving:\n", f"mirror: {text}\nserving:\n")))
    assert caught.value.line and caught.value.field == field
