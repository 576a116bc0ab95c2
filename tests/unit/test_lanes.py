"""Which tests run without a lane."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.lanes import is_named

HERE = Path("/checkout")
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
