"""``kill -9`` of ``mpctl rollout`` after every ledger entry, with real processes and a scripted engine.

For each entry: the same command again completes, or ``mpctl rollback`` instead restores byte for byte; no engine is
left over and no revision is lost.
"""

import json

import pytest

ROLLOUT = ("rollout", "--spec", "ngram", "--requests", "4", "--repeats", "3", "--max-tokens", "24")
SIGKILL = -9


def ledger(mpctl):
    path = mpctl.manifest / "ledger.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def next_kill(mpctl):
    """After one entry, or after two where the first only repeats the ``begun`` that the last kill left behind."""
    entries = ledger(mpctl)
    return 2 if entries and entries[-1]["event"] == "begun" else 1


def speculating(mpctl):
    return ["--speculative-config" in " ".join(p.cmdline()) for p in mpctl.engines()]


@pytest.mark.parametrize("strategy", ["side-by-side", "in-place"])
def test_killed_after_every_entry_and_run_again_it_completes(up, strategy):
    kills = 0
    while True:
        done = up(*ROLLOUT, "--strategy", strategy, kill_after=next_kill(up), code=None)
        if done.returncode != SIGKILL:
            break
        kills += 1
    assert done.returncode == 0, done.stderr
    # Killed after the last entry, the rollout was complete; the command after it only says so.
    assert "already runs ngram" in done.stderr
    steps = [e["step"] for e in ledger(up) if e["event"] == "done"]
    assert len(steps) == len(set(steps)) == 9
    assert kills == 2 * len(steps) + 2
    assert speculating(up) == [True]
    assert [r["spec"] for r in up.json("history")["revisions"]] == ["none", "ngram K=5 lookup 2..4"]


@pytest.mark.parametrize("strategy", ["side-by-side", "in-place"])
def test_killed_after_every_entry_and_rolled_back_it_is_as_before(up, strategy):
    before = up.live_text()
    entry = 0
    while True:
        entry += 1
        done = up(*ROLLOUT, "--strategy", strategy, kill_after=entry, code=None)
        if done.returncode != SIGKILL:
            break
        up("rollback", code=None if entry == 1 else 0)
        assert up.live_text() == before, f"after entry {entry}"
        assert speculating(up) == [False], f"after entry {entry}"
        history = up.json("history")
        assert history["revisions"][-1]["digest"] == history["revisions"][0]["digest"], f"after entry {entry}"
        assert all(op["ending"] for op in history["operations"]), f"after entry {entry}"
    assert done.returncode == 0, done.stderr
    assert entry == 2 * 9 + 3


def test_a_rejected_rollout_killed_on_its_way_back_still_comes_back(mpctl):
    mpctl("local", "up", "-f", str(mpctl.manifest(script={"other": True})))
    before = mpctl.live_text()
    kills = 0
    while True:
        command = ROLLOUT if kills < 3 else ("resume",)
        done = mpctl(*command, kill_after=next_kill(mpctl), code=None)
        if done.returncode != SIGKILL:
            break
        kills += 1
    assert "nothing of service default/demo is unfinished" in done.stderr
    assert mpctl.live_text() == before
    assert speculating(mpctl) == [False]
    assert [o["ending"] for o in mpctl.json("history")["operations"]] == ["rejected", "rolled back"]


def test_a_killed_rollback_goes_on(up):
    up(*ROLLOUT)
    kills = 0
    while True:
        done = up("rollback", "--to-revision", "1", kill_after=next_kill(up), code=None)
        if done.returncode != SIGKILL:
            break
        kills += 1
    assert done.returncode == 0, done.stderr
    assert kills == 2 * 6 + 2
    assert speculating(up) == [False]
    assert up.live_text() == up("history", "--revision", "1", "-o", "yaml").stdout
