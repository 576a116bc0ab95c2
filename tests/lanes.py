"""The lanes of the tests: which run together, and on which worker. Declared here and nowhere else.

``fast``        protects a change: what is pure or has a scripted outside, and the journeys marked ``journey``; without
                what is marked ``exhaustive``. It ends with the rooms of tests that the change needs besides
``all``         everything but the contracts and the lane below
``nightly``     minutes of a real engine or of the test cluster each, marked ``nightly``: what they try at every
                point, with every method or on every kind, another test holds every day at some, or on scripted engines
``contracts``   what KServe, Kubernetes, vLLM, Prometheus and the test cluster itself do (tests/contracts)

``pytest --lane fast`` (``scripts/test``); several are named with commas. Without ``--lane`` the named paths run, those
marked ``nightly`` only if their file, their test or the mark is named.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any

import hypothesis
import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.contracts import passed

LANES = ("fast", "all", "contracts", "nightly")
FAST = "unit"  # the room that the fast lane runs as a whole
JOURNEY = "pytest.mark.journey"
# What a change needs besides the fast lane: paths, and the room that tests them.
NEEDS = {
    "artefacts": ("scripts/release", "action.yml", "pyproject.toml"),
    "autoscaling": ("manifests/autoscaling/", "manifests/monitoring/"),
    "cloud": ("mpctl/cloud/",),
    "cluster": ("mpctl/platform/kubernetes/", "mpctl/app/session/cluster.py", "tests/cluster/"),
    "local": ("mpctl/local/", "tests/local/"),
    "stacks": ("infra/", "stacks/", "cdktf.json", "tests/stacks/"),
}
# Groups of tests that share costly fixtures, in the order in which they begin. A worker takes the next file of
# a group when it is free: engines need whole cores and stay on one, the cluster mostly waits and gets the others, each
# with a control plane of its own. The short groups fill whichever worker is free.
GROUPS = (
    *(
        "engines",
        "cluster",
        "local",
        "autoscaling",
        "artefacts",
        "stacks",
        "cloud",
        "unit",
        "contracts",
    ),
)
# Fixtures whose programs are built from source, for minutes: the fast lane runs their tests where that was done.
BUILT = ("cluster", "helm", "promtool")
# Rooms whose tests run real processes beside those of other tests. In a lane a failed one runs once more, and the
# summary shows why the first attempt failed: a defect, which keeps nobody from seeing what else there is.
REAL = ("artefacts", "autoscaling", "cluster", "contracts", "local")
_STARTED = time.monotonic()

# Generated cases are the same in every lane. `scripts/test --nightly` explores others and prints how to repeat them.
hypothesis.settings.register_profile("lane", derandomize=True, deadline=None, print_blob=True)
hypothesis.settings.register_profile("nightly", deadline=None, print_blob=True)
hypothesis.settings.load_profile("lane")


def room(nodeid: str) -> str:
    """The folder below tests/ that a test is in."""
    return _path(nodeid).parts[1]


def group(nodeid: str) -> str:
    """The tests that one worker runs as a whole: one of GROUPS, split by file where it is cheap."""
    path, here = _path(nodeid), room(nodeid)
    if here == "cluster" or path.name.startswith("test_cluster_"):
        return f"cluster/{path.stem}"
    if path.name.startswith("test_real_"):
        return "engines"
    return "/".join(path.parts[1:]) if here in ("local", "unit") else here


def _path(nodeid: str) -> PurePosixPath:
    return PurePosixPath(nodeid.partition("::")[0])


def belongs(item: pytest.Item, lanes: set[str], missing: set[str]) -> bool:
    """Whether a test is in one of the lanes. ``missing``: fixtures whose programs are not built."""
    here = room(item.nodeid)
    if item.get_closest_marker("nightly") is not None:
        return "nightly" in lanes
    if here == "contracts":
        return "contracts" in lanes
    if "all" in lanes:
        return True
    is_long = item.get_closest_marker("exhaustive") is not None
    in_fast = (here == FAST and not is_long) or item.get_closest_marker("journey") is not None
    return (
        "fast" in lanes and in_fast and not missing.intersection(getattr(item, "fixturenames", ()))
    )


def is_named(item: pytest.Item, config: pytest.Config) -> bool:
    """Whether a test runs without lanes: one for the night only by its file, its id or ``-m nightly``."""
    files = {config.invocation_params.dir / arg.partition("::")[0] for arg in config.args}
    asked = item.path in files or "nightly" in config.option.markexpr
    return asked or item.get_closest_marker("nightly") is None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no test of a room that the fast lane leaves out: the stacks' alone take seconds in each worker."""
    if _lanes(config) != {"fast"} or not collection_path.name.startswith("test_"):
        return None
    here = collection_path.relative_to(Path(__file__).parent).parts[0]
    return None if here == FAST or JOURNEY in collection_path.read_text("utf-8") else True


class Scheduler(LoadScopeScheduling):
    """Gives each group to one worker, in the order of the tests."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--lane", default="", help="run the lanes named here, of " + ", ".join(LANES))


def pytest_configure(config: pytest.Config) -> None:
    """Let Ctrl-C reach the processes that tests start, although background jobs of a script ignore it, and give them
    one temporary directory, which goes with the run: not every program removes what it leaves there."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput"):
        os.environ.setdefault(
            "PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir()
        )  # tmp_path stays for a look at a failure
        scratch = tempfile.TemporaryDirectory(prefix="mpctl-", ignore_cleanup_errors=True)
        config.add_cleanup(scratch.cleanup)
        os.environ["TMPDIR"] = tempfile.tempdir = scratch.name


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadScopeScheduling:
    config.option.loadscopereorder = False
    return Scheduler(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the lanes' tests, those of the costly groups first."""
    if lanes := _lanes(config):
        missing = _missing()
        chosen = [item for item in items if belongs(item, lanes, missing)]
        for item in chosen:
            if room(item.nodeid) in REAL:
                item.add_marker(pytest.mark.flaky(reruns=1))
    else:
        chosen = [item for item in items if is_named(item, config)]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
    items[:] = chosen
    items.sort(key=lambda item: GROUPS.index(group(item.nodeid).partition("/")[0]))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config
) -> None:
    """Say what a lane left out, and how long it took. Contracts that passed are due again when an input changes."""
    lanes = _lanes(config)
    ended = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
    whole = "contracts" in lanes and config.args == ["tests"] and ended
    if whole and _contracts_passed(terminalreporter.stats) and passed.changed():
        passed.record()
        terminalreporter.write_line("the contracts passed: commit tests/contracts/passed.json")
    if lanes == {"fast"}:
        for here in needed(_changed_paths()):
            terminalreporter.write_line(f"this change needs scripts/test tests/{here}, too")
        for fixture in sorted(_missing()):
            terminalreporter.write_line(
                f"left out: tests with {fixture}, which is not built; scripts/test --all builds it"
            )
    if lanes:
        minutes, seconds = divmod(round(time.monotonic() - _STARTED), 60)
        terminalreporter.write_line(
            f"lane {', '.join(sorted(lanes))}: {minutes} min {seconds} s, load {os.getloadavg()[1]:.1f}"
        )


def needed(changed: Iterable[str]) -> list[str]:
    """The rooms of tests that a change of these paths needs besides the fast lane."""
    paths = tuple(changed)
    return [here for here, roots in NEEDS.items() if any(path.startswith(roots) for path in paths)]


def _changed_paths() -> list[str]:
    """What differs from the main branch, or from the last commit where there is none; nothing without git."""

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", *words], cwd=Path(__file__).parent, capture_output=True, text=True, check=False
        )
        return done.stdout.strip() if done.returncode == 0 else ""

    base = git("merge-base", "HEAD", "origin/main") or git("merge-base", "HEAD", "main") or "HEAD"
    untracked = git("ls-files", "--others", "--exclude-standard", "--full-name", ":/")
    return [*git("diff", "--name-only", base).splitlines(), *untracked.splitlines()]


def _contracts_passed(stats: dict[str, list[Any]]) -> bool:
    """Whether every contract ran and passed; ``stats``: reports by outcome."""
    outcomes = {
        outcome for outcome, reports in stats.items() for report in reports if _is_contract(report)
    }
    return "passed" in outcomes and not outcomes & {"failed", "error", "skipped"}


def _is_contract(report: Any) -> bool:
    return (
        isinstance(report, pytest.TestReport | pytest.CollectReport)
        and room(report.nodeid) == "contracts"
    )


def _lanes(config: pytest.Config) -> set[str]:
    lanes = set(filter(None, config.getoption("lane").split(",")))
    if unknown := lanes - set(LANES):
        raise pytest.UsageError(
            f"--lane: unknown lane {', '.join(sorted(unknown))}; known: {', '.join(LANES)}"
        )
    return lanes


def _missing() -> set[str]:
    from tests.cluster.rig import binaries

    recipes = {"cluster": binaries.BASE, "helm": binaries.HELM, "promtool": binaries.PROMTOOL}
    return {name for name in BUILT if not binaries.is_built(recipes[name])}
