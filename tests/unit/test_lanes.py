"""Which tests run without a lane."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.lanes import NEEDS, is_named, needed

HERE = Path("/checkout")
ROOT = Path(__file__).parents[2]
FILE = "tests/unit/sweep/test_sweep.py"


@pytest.mark.parametrize(
    ("args", "mark", "runs"),
    [
        (["tests/unit"], "", False),
        (["tests/unit/sweep", "tests/unit/test_docs.py"], "", False),
        ([FILE], "", True),
        ([f"/checkout/{FILE}"], "", True),
        ([f"{FILE}::test_every_fault"], "", True),
        (["tests/unit"], "nightly", True),
        (["tests/unit"], "hypothesis", False),
    ],
)
def test_a_test_for_the_night_runs_without_a_lane_only_if_it_is_named(args, mark, runs):
    config = SimpleNamespace(
        args=args,
        invocation_params=SimpleNamespace(dir=HERE),
        option=SimpleNamespace(markexpr=mark),
    )
    marked, daily = (
        SimpleNamespace(path=HERE / FILE, get_closest_marker=lambda _, mark=mark: mark)
        for mark in (pytest.mark.nightly, None)
    )
    assert is_named(marked, config) is runs
    assert is_named(daily, config)


@pytest.mark.parametrize(
    ("changed", "rooms"),
    [
        (["stacks/main.py", "infra/eks.py"], ["stacks"]),
        (["mpctl/platform/kubernetes/api/api_client.py"], ["cluster"]),
        (["mpctl/local/engines.py", "mpctl/cloud/gke.py"], ["cloud", "local"]),
        (["mpctl/gate/assess.py", "docs/index.md"], []),
        ([], []),
    ],
)
def test_the_fast_lane_names_the_rooms_that_a_change_needs_besides(changed, rooms):
    assert needed(changed) == rooms


def test_rooms_and_paths_of_the_table_exist():
    for here in NEEDS.keys() - {"local"}:  # of an annex, which may be absent
        roots = NEEDS[here]
        assert (ROOT / "tests" / here).is_dir()
        assert all((ROOT / root).exists() for root in roots)
