"""Environment files, versions and the choices of the app."""

from __future__ import annotations

import datetime as dt
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from infra.gcp.gke import shortened
from infra.gcp.network import Ranges
from mpctl.errors import InputError
from stacks import serving
from stacks.machines import limited_services
from stacks.main import load_fleet, load_settings, plans, wanted_clusters, wanted_layers
from stacks.settings import read_settings
from stacks.versions import assess_minor, table
from tests.stacks.conftest import DATA, ROOT, TODAY, production, synthesise

GOLDEN = {"MPCTL_ENV": str(DATA / "golden.yaml"), "MPCTL_GCP_PROJECT": "example-project"}
BASE = "name: x\nserving:\n  services:\n  - {name: m, image: i:1, target: {uri: hf://a/b, size_gib: 1}}\n"


def test_the_shipped_environments_are_read(tmp_path: Path) -> None:
    dev = load_settings({"MPCTL_PUBLIC_CIDRS": "198.18.5.7/32, 198.18.6.0/24"}, ROOT)
    assert dev.access.public_cidrs == ("198.18.5.7/32", "198.18.6.0/24")
    environ = production(tmp_path)
    actual_settings = load_settings(environ, ROOT)
    for settings, name in ((dev, "dev"), (actual_settings, "production")):
        assert settings.name == name and settings.services and settings.tags["owner"]
        assert settings.credentials == "mpctl", "a token of 15 minutes does not outlive the charts"
    assert len(plans(environ, actual_settings, load_fleet(environ, ROOT), TODAY)) == 2


def test_dev_asks_for_the_addresses_with_file_and_line() -> None:
    with pytest.raises(InputError, match="MPCTL_PUBLIC_CIDRS is not set") as caught:
        load_settings({}, ROOT)
    assert (caught.value.file, caught.value.field) == (
        "environments/dev.yaml",
        "access.public_cidrs",
    )
    line = (
        (ROOT / "environments/dev.yaml")
        .read_text("utf-8")
        .splitlines()[(caught.value.line or 0) - 1]
    )
    assert "public_cidrs" in line and "export MPCTL_PUBLIC_CIDRS=" in str(caught.value.hint)
    with pytest.raises(InputError, match="not an address block"):
        load_settings({"MPCTL_PUBLIC_CIDRS": "here"}, ROOT)


def test_production_as_shipped_is_refused_at_its_first_example() -> None:
    with pytest.raises(InputError, match="example-terraform-state is an example") as caught:
        load_settings({"MPCTL_ENV": "production"}, ROOT)
    assert caught.value.field == "backend.bucket" and "bucket" in str(caught.value.hint)


@pytest.mark.parametrize("layer", ["platform", "serving"])
def test_without_a_way_out_no_layer_that_pulls_from_public_registries(layer: str) -> None:
    environ = {"MPCTL_ENV": str(DATA / "rich.yaml"), "MPCTL_LAYERS": f"cluster,{layer}"}
    settings = load_settings(environ, ROOT)
    for cloud, message in (
        ("eks", "no way to the public registries"),
        ("gke", "endpoints exist on EKS only"),
    ):
        fields = {**environ, "MPCTL_CLUSTER": f"{cloud}-l4-single"}
        with pytest.raises(InputError, match=message) as caught:
            plans(fields, settings, load_fleet(environ, ROOT), TODAY)
        assert caught.value.field == "network.egress" and caught.value.line == 5


def test_a_budget_on_gke_needs_an_account_and_few_addresses(tmp_path: Path) -> None:
    text = (DATA / "rich.yaml").read_text("utf-8")
    many = ", ".join(f"t{index}@inference.test" for index in range(6))
    for bad, message in (
        (
            text.replace(", billing_account: 000000-000000-000000", ""),
            "belongs to a billing account",
        ),
        (text.replace("team@inference.test", many), "notifies at most 5"),
    ):
        assert bad != text
        path = tmp_path / "env.yaml"
        path.write_text(bad, "utf-8")
        environ = {"MPCTL_ENV": str(path)}
        settings = load_settings(environ, ROOT)
        assert plans(
            {**environ, "MPCTL_CLUSTER": "eks-l4-single"},
            settings,
            load_fleet(environ, ROOT),
            TODAY,
        )
        with pytest.raises(InputError, match=message) as caught:
            plans(environ, settings, load_fleet(environ, ROOT), TODAY)
        assert caught.value.line is not None


def test_a_disk_of_one_node_does_not_scale(tmp_path: Path) -> None:
    text = (DATA / "golden.yaml").read_text("utf-8").replace("staging: storageUris", "staging: pvc")
    path = tmp_path / "env.yaml"
    alone = text.replace("serving:\n", "serving:\n  shared_models: false\n")
    path.write_text(alone, "utf-8")
    environ = {**GOLDEN, "MPCTL_ENV": str(path)}
    with pytest.raises(InputError, match="may grow beyond one replica") as caught:
        plans(environ, load_settings(environ, ROOT), load_fleet(environ, ROOT), TODAY)
    assert "shared_models: true" in str(caught.value.hint)
    path.write_text(
        alone.replace("staging: pvc", "staging: pvc\n    autoscaling: {max: 1}"), "utf-8"
    )
    assert plans(environ, load_settings(environ, ROOT), load_fleet(environ, ROOT), TODAY)
    path.write_text(alone.replace("staging: pvc", "staging: storageUris"), "utf-8")
    assert plans(environ, load_settings(environ, ROOT), load_fleet(environ, ROOT), TODAY)


def scaled(folder: Path, autoscaling: str, kind: str = "HorizontalPodAutoscaler") -> dict[str, Any]:
    """The autoscaler's spec on EKS for a service with these settings."""
    path = folder / "env.yaml"
    text = (DATA / "golden.yaml").read_text("utf-8")
    path.write_text(
        text.replace("    staging:", f"    autoscaling: {autoscaling}\n    staging:"), "utf-8"
    )
    environ = {**GOLDEN, "MPCTL_ENV": str(path), "MPCTL_CLUSTER": "eks-l4-single"}
    (plan,) = plans(environ, load_settings(environ, ROOT), load_fleet(environ, ROOT), TODAY)
    (spec,) = [one["spec"] for one in serving.documents(plan) if one["kind"] == kind]
    return dict(spec)


def targets(spec: dict[str, Any]) -> list[str]:
    return [str(one["pods"]["target"]["averageValue"]) for one in spec["metrics"]]


def test_an_autoscaler_has_the_services_limits_and_targets(tmp_path: Path) -> None:
    usual = scaled(tmp_path, "{}")
    assert (usual["minReplicas"], usual["maxReplicas"]) == (1, 4), (
        "as many as the pool has GPUs for"
    )
    assert targets(usual) == ["1400", "850m", "600m"]
    actual_scaled = scaled(tmp_path, "{min: 2, max: 3, objective_s: 20, busy: 0.75, hold: 0.5}")
    assert (actual_scaled["minReplicas"], actual_scaled["maxReplicas"]) == (2, 3)
    assert targets(actual_scaled) == ["4200", "750m", "500m"]
    warm = scaled(tmp_path, "{objective_s: 20, start_s: 150}")
    assert targets(warm)[0] == "8000"
    assert targets(scaled(tmp_path, "{wait_ms: 2500, start_s: 700}"))[0] == "2500"


@pytest.mark.parametrize(
    ("autoscaling", "said"),
    [
        ("{}", "orders at 1400 ms, for a mean wait of 13 s: a cold start of 265 s at"),
        ("{start_s: 120}", "orders at 2100 ms, for a mean wait of 8 s: a cold start of 150 s at"),
        ("{wait_ms: 2500}", "orders at 2500 ms, as the environment sets it"),
    ],
)
def test_a_deploy_prints_the_wait_that_its_autoscaler_keeps(
    autoscaling: str, said: str, tmp_path: Path
) -> None:
    """17 GiB that every pod downloads make a start of 235 s, after which 8 s cannot be kept."""
    path = tmp_path / "env.yaml"
    text = (DATA / "golden.yaml").read_text("utf-8")
    path.write_text(
        text.replace("    staging:", f"    autoscaling: {autoscaling}\n    staging:"), "utf-8"
    )
    stacks = synthesise({**GOLDEN, "MPCTL_ENV": str(path), "MPCTL_LAYERS": "serving"})
    outputs = [
        stack["output"]["autoscaling"] for name, stack in stacks.items() if "serving" in name
    ]
    assert len(outputs) == 2 and all(said in str(output["value"]) for output in outputs)


LIMITS = [
    ("{max: 5}", "autoscaling.max", "GPUs for 4"),
    ("{min: 5}", "autoscaling.min", "GPUs for 4"),
    ("{min: 3, max: 2}", "serving.services[0].autoscaling.max", "below min 3"),
    (
        "{objective_s: 8}",
        "serving.services[0].autoscaling.objective_s",
        "a cold start of 265 s .* more than the 8.0 s allow",
    ),
    (
        "{objective_s: 8, start_s: 700}",
        "serving.services[0].autoscaling.objective_s",
        "more than the 8.0 s allow",
    ),
    ("{hold: 0.9}", "serving.services[0].autoscaling.hold", "not below busy"),
    ("{busy: 85}", "serving.services[0].autoscaling.busy", "not between"),
    ("{maximum: 4}", "serving.services[0].autoscaling.maximum", "unknown field"),
]


@pytest.mark.parametrize(
    ("autoscaling", "field", "message"), LIMITS, ids=[row[0] for row in LIMITS]
)
def test_limits_that_cannot_be_kept_are_refused_by_line_and_field(
    autoscaling: str, field: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        scaled(tmp_path, autoscaling)
    assert caught.value.field == field and caught.value.line


def test_account_ids_stay_short_and_different() -> None:
    long = "inference-cluster-of-europe-one"
    assert shortened("gke-l4-single") == "gke-l4-single"
    assert shortened(long) != shortened(long.replace("one", "two")) and len(shortened(long)) == 24


WRONG = [
    ("name: x", "name: X Y", "name", "short lower-case name"),
    ("name: x", "name: x\nregoin: a", "regoin", "unknown field"),
    (
        "name: x",
        "name: x\nlayers: [clusters]",
        "layers",
        "is not one of cluster, platform, serving",
    ),
    ("name: x", "name: x\nbackend: {type: s3}", "backend.bucket", "required for the s3 backend"),
    ("name: x", "name: x\nbackend: {type: s4}", "backend.type", "is not one of local, s3, gcs"),
    ("name: x", "name: x\nnetwork: {cidr: 10.0.0.0/24}", "network.cidr", "not a /16"),
    ("name: x", "name: x\nnetwork: {cidr: 10.0.0}", "network.cidr", "not an address block"),
    (
        "name: x",
        "name: x\naccess: {public_cidrs: [0.0.0.0/0]}",
        "access.public_cidrs",
        "wider than /8",
    ),
    (
        "name: x",
        "name: x\naccess: {public_cidrs: [203.0.113.7/32]}",
        "access.public_cidrs",
        "RFC 5737",
    ),
    (
        "name: x",
        "name: x\naccess: {private_cidrs: [8.8.8.0/24]}",
        "access.private_cidrs",
        "public block",
    ),
    (
        "name: x",
        "name: x\naccess: {admins: ['arn:aws:iam::111122223333:role/a']}",
        "access.admins",
        "is an example",
    ),
    (
        "name: x",
        "name: x\nmonitoring: {runbooks: docs/runbooks}",
        "monitoring.runbooks",
        "is not an address",
    ),
    (
        "name: x",
        "name: x\nbudget: {monthly: 10, emails: [a@example.com]}",
        "budget.emails",
        "is an example",
    ),
    ("name: x", "name: x\nbudget: {monthly: 10}", "budget.emails", "tells nobody"),
    ("name: x", "name: x\nsystem_pool: {min: 3, max: 2}", "system_pool.max", "below min 3"),
    (
        "name: x",
        "name: x\ndeletion_protection: 'yes'",
        "deletion_protection",
        "expected true or false",
    ),
    ("name: x", "name: x\nproviders: {azure: '1'}", "providers.azure", "unknown field"),
    (
        "uri: hf://a/b",
        "uri: ftp://a/b",
        "serving.services[0].target.uri",
        "storageUris reads hf, s3, gs",
    ),
    ("image: i:1", "imgae: i:1", "serving.services[0].image", "required field is missing"),
    (
        "image: i:1",
        "image: registry.example/vllm",
        "serving.services[0].image",
        "image with a tag or a digest",
    ),
    ("serving:", "serving:\n  namespace: kserve", "serving.namespace", "belongs to the platform"),
    (
        "serving:",
        "serving:\n  downloader_memory: 6GB",
        "serving.downloader_memory",
        "amount of memory",
    ),
    ("name: x", "name: x\nlog_days: 100", "log_days", "100 is none"),
    ("size_gib: 1", "size_gib: 0", "serving.services[0].target.size_gib", "not between 1"),
]


@pytest.mark.parametrize(
    ("good", "bad", "field", "message"), WRONG, ids=[w[1][-30:] for w in WRONG]
)
def test_a_mistake_is_named_with_file_line_and_field(
    good: str, bad: str, field: str, message: str
) -> None:
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        read_settings(BASE.replace(good, bad), "env.yaml")
    assert (caught.value.file, caught.value.field) == ("env.yaml", field)
    assert caught.value.line is not None


def test_an_error_comes_before_any_construct(tmp_path: Path) -> None:
    """The app ends with code 2 and the place, and writes nothing."""
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(
        (ROOT / "manifests/fleet/eks-l4.yaml")
        .read_text("utf-8")
        .replace("source: EKS", "source: AKS"),
        "utf-8",
    )
    environment = {
        **GOLDEN,
        "MPCTL_FLEET": str(fleet),
        "CDKTF_OUTDIR": str(tmp_path / "out"),
        "PATH": "/usr/bin:/bin",
    }
    done = subprocess.run(
        [sys.executable, "-m", "stacks.main"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert (
        "spec.cluster.source: AKS is not supported" in done.stderr
        and "fleet.yaml:37" in done.stderr
    )
    assert not (tmp_path / "out").exists()


def test_the_published_project_is_not_a_project() -> None:
    environ = {"MPCTL_ENV": str(DATA / "golden.yaml")}
    with pytest.raises(InputError, match="no Google project given") as caught:
        plans(environ, load_settings(environ, ROOT), load_fleet(environ, ROOT), TODAY)
    assert "MPCTL_GCP_PROJECT" in str(caught.value.hint)


def test_clusters_and_layers_by_name() -> None:
    settings = load_settings(GOLDEN, ROOT)
    fleet = load_fleet(GOLDEN, ROOT)
    assert [c.name for c in wanted_clusters({"MPCTL_CLUSTER": "gke-l4-single"}, fleet)] == [
        "gke-l4-single"
    ]
    with pytest.raises(InputError, match="no InferenceCluster named x"):
        wanted_clusters({"MPCTL_CLUSTER": "x"}, fleet)
    assert wanted_layers({}, settings) == ("cluster",), "plain `cdktf deploy` finds one stack"
    assert wanted_layers({"MPCTL_LAYERS": "serving,cluster"}, settings) == ("cluster", "serving")
    assert len(wanted_layers({"MPCTL_LAYERS": "all"}, settings)) == 3
    with pytest.raises(InputError, match="'charts' is not one of"):
        wanted_layers({"MPCTL_LAYERS": "charts"}, settings)


def test_one_manifest_and_plain_deploy_make_exactly_one_stack() -> None:
    environ = {**GOLDEN, "MPCTL_FLEET": "manifests/fleet/eks-l4.yaml"}
    settings = load_settings(environ, ROOT)
    actual_plans = plans(environ, settings, load_fleet(environ, ROOT), TODAY)
    assert len(actual_plans) * len(wanted_layers(environ, settings)) == 1


def test_a_pool_at_zero_on_eks_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "eks.yaml"
    path.write_text(
        (ROOT / "manifests/fleet/eks-l4.yaml")
        .read_text("utf-8")
        .replace("minNodeCount: 1", "minNodeCount: 0"),
        "utf-8",
    )
    environ = {**GOLDEN, "MPCTL_FLEET": str(path)}
    with pytest.raises(InputError, match="cannot start from zero nodes") as caught:
        plans(environ, load_settings(environ, ROOT), load_fleet(environ, ROOT), TODAY)
    assert caught.value.file == str(path) and caught.value.field == "minNodeCount"


def test_a_pool_at_zero_on_gke_is_allowed(tmp_path: Path) -> None:
    path = tmp_path / "gke.yaml"
    path.write_text(
        (ROOT / "manifests/fleet/gke-l4.yaml")
        .read_text("utf-8")
        .replace("odeCount: 1", "odeCount: 0"),
        "utf-8",
    )
    environ = {**GOLDEN, "MPCTL_FLEET": str(path)}
    plan = plans(environ, load_settings(environ, ROOT), load_fleet(environ, ROOT), TODAY)[0]
    assert plan.cluster.pools[0].minimum == 0 and plan.cluster.pools[0].nodes == 0


SUPPORT = [
    ("EKS", "1.34", "2026-11-21", False, False, "below 1.35"),
    ("EKS", "1.35", "2026-11-21", False, True, "until 2027-03-27"),
    ("EKS", "1.35", "2027-03-01", False, True, "plan the upgrade"),
    ("EKS", "1.35", "2027-03-27", False, True, "plan the upgrade"),
    ("EKS", "1.35", "2027-03-28", False, False, "left standard support on EKS on 2027-03-27"),
    ("EKS", "1.35", "2027-03-28", True, True, "plan the upgrade"),
    ("EKS", "1.40", "2026-11-21", False, False, "is not in versions.yaml for EKS"),
    ("GKE", "1.35", "2026-11-21", False, True, "in standard support"),
]


@pytest.mark.parametrize(("provider", "minor", "day", "extended", "allowed", "reason"), SUPPORT)
def test_end_of_support(
    provider: str, minor: str, day: str, extended: bool, allowed: bool, reason: str
) -> None:
    verdict = assess_minor(provider, minor, dt.date.fromisoformat(day), extended=extended)
    assert verdict.allowed is allowed and reason in verdict.reason


def test_every_pin_has_a_date_and_a_reason() -> None:
    for section, pins in table().pins.items():
        for name, pin in pins.items():
            assert isinstance(pin.date, dt.date) and len(pin.reason) > 15 and pin.version, (
                f"{section}.{name}"
            )
    for provider, facts in table().kubernetes.items():
        assert facts["default"] in facts["minors"], provider
        for minor in facts["minors"]:
            if provider == "EKS" and minor >= facts["floor"]:
                assert f"cluster-autoscaler-{minor}" in table().pins["images"]


def test_address_ranges_do_not_overlap() -> None:
    import ipaddress

    ranges = [ipaddress.ip_network(block) for block in vars(Ranges.cut("10.64.0.0/16")).values()]
    assert not any(a.overlaps(b) for i, a in enumerate(ranges) for b in ranges[i + 1 :])
    assert all(r.subnet_of(ipaddress.ip_network("10.64.0.0/16")) for r in ranges)


def test_only_one_module_imports_the_core() -> None:
    for path in [
        *(ROOT / "infra").rglob("*.py"),
        *(ROOT / "stacks").rglob("*.py"),
        *(ROOT / "mpctl").rglob("*.py"),
    ]:
        if path != ROOT / "infra" / "core.py":
            assert not re.search(
                r"^\s*(import|from) cdkt[fn]\b", path.read_text("utf-8"), re.MULTILINE
            ), path


def test_constructs_know_nothing_of_stacks() -> None:
    for path in (ROOT / "infra").rglob("*.py"):
        assert not re.search(
            r"^\s*(import|from) stacks\b", path.read_text("utf-8"), re.MULTILINE
        ), path
    for path in (ROOT / "mpctl").rglob("*.py"):
        assert not re.search(
            r"^\s*(import|from) (stacks|infra)\b", path.read_text("utf-8"), re.MULTILINE
        ), path


def test_the_other_core_is_chosen_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    from infra import core

    monkeypatch.setenv("MPCTL_CDK_CORE", "pulumi")
    with pytest.raises(SystemExit, match="expected one of cdktf, cdktn"):
        core.chosen()


def several(folder: Path, *services: str, more: str = "") -> dict[str, str]:
    """The golden environment with a service for each text of ``autoscaling``, on a pool of four GPUs."""
    text = (DATA / "golden.yaml").read_text("utf-8")
    head, _, _ = text.partition("  services:\n")
    rows = "".join(
        f"  - {{name: m{at}, image: 'i:1', target: {{uri: 'hf://a/b', size_gib: 1}}, autoscaling: {scaling}}}\n"
        for at, scaling in enumerate(services)
    )
    path = folder / "several.yaml"
    path.write_text(f"{head}  services:\n{rows}{more}", "utf-8")
    return {"MPCTL_ENV": str(path), "MPCTL_FLEET": "manifests/fleet/eks-l4.yaml"}


@pytest.mark.parametrize(
    ("services", "more", "at", "message"),
    [
        (("{min: 3}", "{min: 1}", "{min: 1}"), "", 2, "keep 5 GPUs at least"),
        (("{min: 2}", "{min: 2}"), "gpu: {spare_nodes: 1}\n", 1, "1 spare nodes keep 5 GPUs"),
    ],
)
def test_services_that_together_need_more_gpus_than_there_are_are_refused(
    services: tuple[str, ...], more: str, at: int, message: str, tmp_path: Path
) -> None:
    environ = several(tmp_path, *services, more=more)
    with pytest.raises(InputError, match=message) as caught:
        plans(environ, load_settings(environ, ROOT), load_fleet(environ, ROOT), TODAY)
    lines = Path(environ["MPCTL_ENV"]).read_text("utf-8").splitlines()
    assert caught.value.field == "autoscaling.min"
    assert f"name: m{at}," in lines[(caught.value.line or 0) - 1]


def test_services_share_the_pools_unless_they_say_otherwise(tmp_path: Path) -> None:
    environ = several(tmp_path, "{}", "{min: 3}")
    settings, fleet = load_settings(environ, ROOT), load_fleet(environ, ROOT)
    services = limited_services(settings, fleet.clusters[0])
    assert [service.autoscaling.maximum for service in services] == [2, 3]


@pytest.mark.parametrize("name", ["m-candidate", "m-copy"])
def test_a_service_may_not_have_a_name_that_a_rollout_makes(name: str) -> None:
    with pytest.raises(InputError, match=f"{name} ends like what mpctl names itself") as caught:
        read_settings(BASE.replace("name: m,", f"name: {name},"), "x.yaml")
    assert caught.value.field == "serving.services[0].name" and caught.value.line == 4
