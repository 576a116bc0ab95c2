"""Which tests stay together when two workers share them (``scripts/test`` without arguments).

Real engines take whole cores and the test cluster mostly waits, so these two go side by side. Each room's fixtures are
made once, by one worker.
"""

from xdist.scheduler import LoadScopeScheduling

ENGINES = ("autoscaling", "local")


class Rooms(LoadScopeScheduling):
    """A room of tests is a worker's as a whole."""

    def _split_scope(self, nodeid):
        room, *below = nodeid.partition("::")[0].split("/")[1:]
        if room in ENGINES:
            return "engines"
        return f"unit/{below[0]}" if room == "unit" else room


def pytest_xdist_make_scheduler(config, log):
    return Rooms(config, log)
