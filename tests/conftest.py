"""Which tests stay together when two workers share them (``scripts/test`` without arguments).

Real engines take whole cores and the test cluster mostly waits, so these two go side by side. Each room's fixtures are
made once, by one worker.
"""

from pathlib import Path

import pytest

HERE = Path(__file__).parent
ENGINES = ("autoscaling", "local")


@pytest.hookimpl(tryfirst=True)  # xdist reads the marks in the same hook
def pytest_collection_modifyitems(items):
    for item in items:
        room, *below = item.path.relative_to(HERE).parts
        if room in ENGINES:
            room = "engines"
        elif room == "unit":
            room = f"unit-{below[0]}"
        item.add_marker(pytest.mark.xdist_group(room))
