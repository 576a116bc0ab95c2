"""Ten operators on ten services of one machine at once: each gets what it asked for, and none touches another's."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

ROLLOUT = (
    "rollout",
    "--spec",
    "ngram",
    "--requests",
    "4",
    "--repeats",
    "3",
    "--max-tokens",
    "8",
    "--yes",
)
COUNT = 10


@pytest.mark.nightly  # a minute of both cores and more
def test_ten_operators_on_ten_services_do_not_disturb_each_other(mpctl, tmp_path):
    names = [f"demo-{number}" for number in range(COUNT)]
    manifest = mpctl.manifest().read_text()
    mpctl.environment["MPCTL_READY_TIMEOUT"] = "300s"

    def run(words):
        done = subprocess.run(
            [sys.executable, "-m", "mpctl.cli.main", *words],
            cwd=mpctl.directory,
            env=mpctl.environment,
            capture_output=True,
            text=True,
            timeout=500,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
        return done.stderr

    def everywhere(words):
        with ThreadPoolExecutor(COUNT) as operators:
            return list(operators.map(lambda name: run([*words[:1], *words[1:], name]), names))

    for name in names:
        (tmp_path / f"{name}.yaml").write_text(manifest.replace("name: demo ", f"name: {name} "))
    with ThreadPoolExecutor(COUNT) as operators:
        list(
            operators.map(
                lambda name: run(["local", "up", "-f", str(tmp_path / f"{name}.yaml")]), names
            )
        )
    texts = {name: live_text(mpctl, name) for name in names}
    policy = mpctl.policy()
    for written in everywhere([*ROLLOUT, "--policy", policy]):
        assert "promoted" in written
    assert len(speculating(mpctl)) == len(mpctl.engines()) == COUNT
    everywhere(["rollback", "--yes"])
    assert {name: live_text(mpctl, name) for name in names} == texts
    assert (len(speculating(mpctl)), len(mpctl.engines())) == (0, COUNT)
    for name in names:
        operations = mpctl.json("history", name)["operations"]
        assert [operation["ending"] for operation in operations] == ["promoted", "rolled back"]


def live_text(mpctl, name):
    return json.loads((mpctl.state / "local" / "default" / name / "desired.json").read_text())[
        "text"
    ]


def speculating(mpctl):
    return [engine for engine in mpctl.engines() if "speculative" in " ".join(engine.cmdline())]
