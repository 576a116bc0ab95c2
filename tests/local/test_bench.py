"""``mpctl bench`` with scripted engines: the measurement, the unchanged service, and resuming after a kill."""

import json
import signal
import subprocess
import sys

import pytest

from mpctl import __version__
from mpctl.app.bench.recorded import read_run
from tests.local.unchanged import wait_for

SMALL = ("--requests", "4", "--repeats", "3", "--max-tokens", "24")


def run_in(up, name):
    return read_run(str(up.directory / name))


def served(up):
    return up.live_text(), sorted(p.pid for p in up.engines())


def test_bench_measures_a_service_as_it_serves_and_changes_nothing(up):
    before = served(up)
    done = up(
        "bench",
        *SMALL,
        "--run",
        "alone.json.gz",
        "--concurrency",
        "1,2",
        "--prompts",
        "edits",
        "--prompts",
        "chat:3",
    )
    assert served(up) == before
    assert not (up.service / "ledger.jsonl").exists()
    run = run_in(up, "alone.json.gz")
    assert [c.key for c in run.cells] == ["chat-c1-t0", "chat-c2-t0", "edits-c1-t0", "edits-c2-t0"]
    assert {b.arm for b in run.blocks} == {"baseline"}
    assert len(run.blocks) == 4 * 3
    assert run.shares == {"edits": 0.25, "chat": 0.75}
    assert run.arms["baseline"].engine_version
    assert "--served-model-name=demo" in run.arms["baseline"].argv
    assert "edits, 2 at once" in done.stdout
    assert run.client == f"mpctl {__version__}"
    assert up("bench", "compare", "alone.json.gz", code=2).stderr.startswith(
        "error: alone.json.gz: has only one arm"
    )


def test_bench_of_a_spec_starts_a_second_engine_and_removes_it(up):
    before = served(up)
    done = up("bench", "--spec", "ngram", *SMALL, "--run", "two.json.gz")
    assert served(up) == before
    assert not (up.service / "ledger.jsonl").exists()
    assert "gate would promote" in done.stderr
    run = run_in(up, "two.json.gz")
    assert {name: arm.spec for name, arm in run.arms.items()} == {
        "baseline": "none",
        "candidate": "ngram K=5 lookup 2..4",
    }
    assert "--speculative-config" in " ".join(run.arms["candidate"].argv)
    assert up("bench", "compare", "two.json.gz").returncode == 0
    assert "2.00" in up("report", "two.json.gz", "-o", "md").stdout


def test_a_killed_bench_resumes_and_sends_no_finished_block_again(up):
    before = served(up)
    command = (
        "bench",
        "--spec",
        "ngram",
        *SMALL,
        "--repeats",
        "6",
        "--policy",
        up.policy("max_failed_excess: 0\n"),
    )
    first = subprocess.Popen(
        [sys.executable, "-m", "mpctl.cli.main", *command, "--run", "again.json.gz"],
        cwd=up.directory,
        env=up.environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    blocks = up.state / "bench"
    try:
        wait_for(lambda: len(list(blocks.rglob("block-*.json"))) >= 3)
    finally:
        first.send_signal(signal.SIGKILL)
        first.communicate()
    blocks_before = {p.name: p.read_bytes() for p in blocks.rglob("block-*.json")}
    assert not (up.directory / "again.json.gz").exists()
    assert len(up.engines()) == 2

    done = up(*command, "--run", "again.json.gz")
    assert "continuing bench-" in done.stderr
    assert {
        p.name: p.read_bytes() for p in blocks.rglob("block-*.json") if p.name in blocks_before
    } == blocks_before
    assert len(run_in(up, "again.json.gz").blocks) >= 12
    assert served(up) == before, "the engine that the killed command started is stopped, too"

    finished = up(*command, "--run", "third.json.gz", code=None)
    assert "continuing" not in finished.stderr


def test_bench_compares_two_servers_by_their_addresses(up):
    status = up.json("status")["items"][0]["status"]
    done = up(
        "bench",
        "--url",
        status["url"],
        "--candidate",
        status["url"],
        *SMALL,
        "--run",
        "urls.json",
    )
    run = run_in(up, "urls.json")
    assert run.arms["baseline"].model == "demo"
    assert "gate would" in done.stderr
    comparison = json.loads(up("bench", "compare", "urls.json", "-o", "json", code=None).stdout)
    assert comparison["status"]["cells"][0]["outputsDifferent"] == 0


def test_bench_calibrates_the_load_client_first(up):
    done = up("bench", *SMALL, "--repeats", "1", "--run", "calibrated.json")
    run = run_in(up, "calibrated.json")
    assert run.calibration is not None
    assert run.calibration.requests == 12
    assert (
        f"adds {run.calibration.p50_ms:.1f} ms at p50, {run.calibration.p99_ms:.1f} ms at p99"
        in done.stderr
    )


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--spec", "none"), 2, "already runs none"),
        (("--run", "nowhere/run.json"), 2, "is not a writable directory"),
        (("--prompts", "none.jsonl"), 2, "none.jsonl: the prompts cannot be read"),
        (("--requests", "100"), 2, "192 distinct prompts of edits are too few"),
        (("--model", "x"), 2, "needs --url"),
    ],
)
def test_bench_refuses_an_invalid_request_before_anything_starts(up, arguments, code, message):
    before = served(up)
    assert message in up("bench", *arguments, code=code).stderr
    assert served(up) == before
    assert not list((up.state / "bench").rglob("*.json"))


def test_two_candidates_are_compared_from_measurements_against_the_same_service(up):
    """A scripted engine accepts nearly all of what is drafted, so that the larger K is the faster one."""
    up("local", "down", "--all")
    up("local", "up", "-f", str(up.manifest(script={"speculating": {"accept": 0.95}})))
    before = served(up)
    for k in ("1", "5"):
        candidate = ("--spec", "ngram", "--set", f"num_speculative_tokens={k}")
        up("bench", *candidate, *SMALL, "--repeats", "6", "--run", f"k{k}.json.gz")
    assert served(up) == before
    assert throughput_ratio(up, "k1.json.gz", "k5.json.gz") > 1
    assert throughput_ratio(up, "k5.json.gz", "k1.json.gz") < 1


def throughput_ratio(up, first, second):
    compared = up("bench", "compare", first, second, "-o", "json")
    (cell,) = json.loads(compared.stdout)["status"]["cells"]
    return cell["throughputRatio"]["value"]
