"""``kill -9`` of ``mpctl rollout`` at three points, with real processes and a scripted engine: while the candidate
starts, after the measurement, and before the promotion.

The same command again completes, or ``mpctl rollback`` instead restores byte for byte; no engine is left over and no
revision is lost. Every other point is swept in memory (tests/unit/rollout) and on the cluster (test_faults_matrix).
"""

import json

import pytest

ROLLOUT = ("rollout", "--spec", "ngram", "--requests", "4", "--repeats", "3", "--max-tokens", "24")
SIGKILL = -9
POINTS = {
    "side-by-side": ("begun:start", "done:measure", "begun:promote"),
    "in-place": ("begun:switch", "done:measure-candidate", "begun:promote"),
}


def ledger(mpctl):
    path = mpctl.service / "ledger.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def speculating(mpctl):
    return ["--speculative-config" in " ".join(p.cmdline()) for p in mpctl.engines()]


@pytest.mark.parametrize("strategy", POINTS)
def test_a_killed_rollout_run_again_completes_and_repeats_no_finished_step(up, strategy):
    command = (*ROLLOUT, "--strategy", strategy)
    for point in POINTS[strategy]:
        up(*command, kill_after=point, code=SIGKILL)
    up(*command)
    steps = [e["step"] for e in ledger(up) if e["event"] == "done"]
    assert len(steps) == len(set(steps)) == 9
    assert speculating(up) == [True]
    assert [r["spec"] for r in up.json("history")["revisions"]] == ["none", "ngram K=5 lookup 2..4"]


@pytest.mark.parametrize("strategy", POINTS)
def test_a_killed_rollout_rolled_back_leaves_the_service_as_before(up, strategy):
    before = up.live_text()
    for point in POINTS[strategy]:
        up(*ROLLOUT, "--strategy", strategy, kill_after=point, code=SIGKILL)
        up("rollback")
        assert up.live_text() == before, point
        assert speculating(up) == [False], point
        history = up.json("history")
        assert up.json("status")["items"][0]["status"]["revision"] == 1, point
        assert all(op["ending"] for op in history["operations"]), point


def test_a_rejected_rollout_killed_while_it_is_undone_is_undone_by_resume(mpctl):
    mpctl("local", "up", "-f", str(mpctl.manifest(script={"silent": True})))
    before = mpctl.live_text()
    mpctl(*ROLLOUT, kill_after="done:judge", code=SIGKILL)
    for entries in (1, 2, 2):
        mpctl("resume", kill_after=entries, code=SIGKILL)
    mpctl("resume", code=None)
    assert mpctl.live_text() == before
    assert speculating(mpctl) == [False]
    assert [o["ending"] for o in mpctl.json("history")["operations"]] == ["rejected", "rolled back"]


def test_a_killed_rollback_completes_when_run_again(up):
    up(*ROLLOUT)
    back = ("rollback", "--to-revision", "1")
    for point in ("begun:start", "done:ready", "done:restore"):
        up(*back, kill_after=point, code=SIGKILL)
    up(*back)
    assert speculating(up) == [False]
    assert up.live_text() == up("history", "--revision", "1", "-o", "yaml").stdout
