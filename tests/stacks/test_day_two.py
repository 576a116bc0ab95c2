"""The hundredth day: windows and exclusions, upgrades with a spare node or without, pools that are replaced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mpctl.errors import InputError
from tests.stacks.conftest import DATA, ROOT, synthesise
from tests.stacks.test_first_apply import EKS, GKE, fleet, golden, resources


def policy(folder: Path, text: str) -> dict[str, Any]:
    environ = golden(folder, ("serving:\n", f"maintenance: {text}\nserving:\n"))
    template = synthesise(environ | {"MPCTL_FLEET": "manifests/fleet/gke-l4.yaml"})
    maintenance_policy: dict[str, Any] = resources(
        template, f"{GKE}-cluster", "google_container_cluster"
    )["main"]["maintenance_policy"]
    return maintenance_policy


def test_gke_upgrades_at_night_unless_told_otherwise(
    synthesised: dict[str, Any], tmp_path: Path
) -> None:
    window = resources(synthesised, f"{GKE}-cluster", "google_container_cluster")["main"][
        "maintenance_policy"
    ]
    assert window == {
        "recurring_window": {
            "start_time": "2026-01-05T03:00:00Z",
            "end_time": "2026-01-05T07:00:00Z",
            "recurrence": "FREQ=DAILY",
        }
    }
    chosen = policy(tmp_path, '{days: [SU, SA], start: "22:30", hours: 6}')["recurring_window"]
    assert chosen == {
        "start_time": "2026-01-10T22:30:00Z",  # a Saturday
        "end_time": "2026-01-11T04:30:00Z",
        "recurrence": "FREQ=WEEKLY;BYDAY=SA,SU",
    }


def test_exclusions_hold_upgrades_back(tmp_path: Path) -> None:
    frozen = policy(
        tmp_path,
        "{exclusions: [{name: holidays, from: 2026-12-18, until: 2027-01-05}, "
        "{name: stay, from: 2026-12-01, until: 2027-02-20, no: minor-and-node-upgrades}]}",
    )["maintenance_exclusion"]
    assert [(one["exclusion_name"], one["exclusion_options"]["scope"]) for one in frozen] == [
        ("holidays", "NO_UPGRADES"),
        ("stay", "NO_MINOR_OR_NODE_UPGRADES"),
    ]
    assert (frozen[0]["start_time"], frozen[0]["end_time"]) == (
        "2026-12-18T00:00:00Z",
        "2027-01-05T00:00:00Z",
    )


REFUSED = [
    ("{days: [SA, SU]}", "hours", "these windows give 36"),
    ("{hours: 2}", "hours", "2"),
    ("{days: [XX]}", "days", "'XX' is not one of"),
    ('{start: "24:00"}', "start", "03:00"),
    ("{exclusions: [{name: a, from: 2026-12-01, until: 2027-01-15}]}", "until", "at most 30 days"),
    ("{exclusions: [{name: a, from: 2026-12-01, until: 2026-12-01}]}", "until", "ends before"),
    ("{exclusions: [{name: a, from: 2026-02-30, until: 2026-12-01}]}", "from", "not a date"),
]


@pytest.mark.parametrize(
    ("text", "field", "message"), REFUSED, ids=[row[0][:40] for row in REFUSED]
)
def test_what_gke_would_refuse_is_refused_by_line_and_field(
    text: str, field: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as caught:
        policy(tmp_path, text)
    assert caught.value.line and str(caught.value.field).endswith(field)
    assert message in caught.value.message


def test_four_freezes_are_one_too_many(tmp_path: Path) -> None:
    freezes = ", ".join(
        f"{{name: f{n}, from: 2026-12-0{n}, until: 2026-12-0{n + 1}}}" for n in range(1, 5)
    )
    with pytest.raises(InputError, match="at most 3 exclusions"):
        policy(tmp_path, f"{{exclusions: [{freezes}]}}")


def test_an_upgrade_starts_a_spare_node_first_unless_told_otherwise(
    synthesised: dict[str, Any], tmp_path: Path
) -> None:
    def upgrades(stacks: dict[str, Any]) -> tuple[Any, Any]:
        pools = resources(stacks, f"{GKE}-cluster", "google_container_node_pool")
        groups = resources(stacks, f"{EKS}-cluster", "aws_eks_node_group")
        return pools["gpu_l4"]["upgrade_settings"], groups["gpu_l4"]["update_config"]

    assert upgrades(synthesised) == ({"max_surge": 1, "max_unavailable": 0}, {"max_unavailable": 1})
    template = synthesise(golden(tmp_path, ("serving:\n", "gpu: {surge: false}\nserving:\n")))
    assert upgrades(template) == (
        {"max_surge": 0, "max_unavailable": 1},
        {"max_unavailable": 1, "update_strategy": "MINIMAL"},
    )
    system = resources(template, f"{GKE}-cluster", "google_container_node_pool")["system"]
    assert system["upgrade_settings"]["max_surge"] == 1


def test_a_changed_gke_pool_gets_another_name_and_an_unchanged_one_keeps_it(
    synthesised: dict[str, Any], tmp_path: Path
) -> None:
    def pool(stacks: dict[str, Any]) -> dict[str, Any]:
        gpu_l4: dict[str, Any] = resources(stacks, f"{GKE}-cluster", "google_container_node_pool")[
            "gpu_l4"
        ]
        return gpu_l4

    before = pool(synthesised)
    assert before["lifecycle"]["create_before_destroy"] is True
    environ = golden(tmp_path)
    larger = pool(synthesise(environ | fleet(tmp_path, "gke", ("g2-standard-8", "g2-standard-16"))))
    assert larger["name"] != before["name"] and len(larger["name"]) <= 40
    actual_pool = pool(
        synthesise(environ | fleet(tmp_path, "gke", ("maxNodeCount: 4", "maxNodeCount: 6")))
    )
    assert actual_pool["name"] == before["name"], "limits change in place"


def test_gkes_version_is_a_floor_that_can_be_raised(synthesised: dict[str, Any]) -> None:
    cluster = resources(synthesised, f"{GKE}-cluster", "google_container_cluster")["main"]
    assert "min_master_version" not in cluster["lifecycle"]["ignore_changes"]


SECOND_POOL = """  - name: gpu-l4-{letter}
    className: eks-l4-1x-g6
    nodeCount: 1
    zones:
    - us-west-2{letter}
    minNodeCount: 1
    maxNodeCount: 4
"""


def in_zones(folder: Path, *letters: str) -> dict[str, Any]:
    """The EKS cluster layer with one GPU pool in each of these zones."""
    changes = [("    - us-west-2a\n", f"    - us-west-2{letters[0]}\n")]
    if letters[1:]:
        text = "".join(SECOND_POOL.format(letter=letter) for letter in letters[1:])
        changes.append(("    maxNodeCount: 4\n", f"    maxNodeCount: 4\n{text}"))
    template = synthesise(golden(folder) | fleet(folder, "eks", *changes))
    return {
        f"{type_}.{name}": {key: value for key, value in element.items() if key != "depends_on"}
        for type_ in (
            "aws_subnet",
            "aws_nat_gateway",
            "aws_eks_node_group",
            "aws_eks_cluster",
            "aws_efs_mount_target",
        )
        for name, element in template[f"{EKS}-cluster"]["resource"].get(type_, {}).items()
    }


@pytest.mark.parametrize(("before", "after"), [("b", "bc"), ("a", "ac"), ("a", "ad"), ("c", "a")])
def test_a_pool_in_another_zone_replaces_nothing(before: str, after: str, tmp_path: Path) -> None:
    old, new = in_zones(tmp_path, *before), in_zones(tmp_path, *after)
    if not after.startswith(before):  # the pool itself moved
        moved = "aws_eks_node_group.gpu_l4"
        assert old.pop(moved)["subnet_ids"] != new[moved]["subnet_ids"]
    assert {name: new.get(name) for name in old} == old


def test_blocks_by_the_earlier_layout_can_be_stated(tmp_path: Path) -> None:
    environ = golden(
        tmp_path,
        (
            "network:\n",
            "network:\n  zones: [us-west-2b, us-west-2c]\n  blocks: {us-west-2b: 0, us-west-2c: 1}\n",
        ),
    )
    template = synthesise(environ | fleet(tmp_path, "eks", ("us-west-2a", "us-west-2b")))
    subnets = resources(template, f"{EKS}-cluster", "aws_subnet")
    first = {name: int(subnet["cidr_block"].split(".")[2]) for name, subnet in subnets.items()}
    assert first == {"private_b": 0, "private_c": 32, "public_b": 224, "public_c": 225}


@pytest.mark.parametrize(
    ("zones", "field", "message"),
    [
        ("[us-west-2b]", "network.zones", "two zones"),
        ("[us-west-2a, us-west-2-lax-1a]", "network.zones", "no availability zone of us-west-2"),
        (
            "[us-west-2a, us-west-2b]\n  blocks: {us-west-2a: 1}",
            "network.blocks",
            "would both have block 1",
        ),
        (
            "[us-west-2a, us-west-2b]\n  blocks: {us-west-2a: 7}",
            "network.blocks.us-west-2a",
            "between 0 and 6",
        ),
    ],
)
def test_zones_that_no_network_can_have_are_refused(
    zones: str, field: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        synthesise(
            golden(tmp_path, ("network:\n", f"network:\n  zones: {zones}\n"))
            | fleet(tmp_path, "eks")
        )
    assert caught.value.field == field and caught.value.line


@pytest.mark.parametrize(
    ("cloud", "kind", "minutes"),
    [("eks", "aws_eks_node_group", 8 * 25), ("gke", "google_container_node_pool", 8 * 41)],
)
def test_terraform_waits_for_a_pool_by_its_nodes_and_the_longest_drain(
    cloud: str, kind: str, minutes: int, tmp_path: Path
) -> None:
    """Half an hour of answers: EKS drains 15 minutes of it, GKE all; the default would end at an hour or less."""
    text = (ROOT / f"manifests/fleet/{cloud}-l4.yaml").read_text("utf-8")
    assert "maxNodeCount: 4" in text
    manifest = tmp_path / "fleet.yaml"
    manifest.write_text(text.replace("maxNodeCount: 4", "maxNodeCount: 8"), "utf-8")
    stacks = synthesise(
        {
            "MPCTL_ENV": str(DATA / "golden.yaml"),
            "MPCTL_FLEET": str(manifest),
            "MPCTL_GCP_PROJECT": "a-project",
        }
    )
    (pool,) = (
        one
        for name, one in stacks[f"{cloud}-l4-single-cluster"]["resource"][kind].items()
        if name != "system"
    )
    wait = f"{minutes}m"
    assert pool["timeouts"] == {"create": "60m", "update": wait, "delete": wait}
