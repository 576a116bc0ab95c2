"""A disk that is full while a service is rolled back: named, nothing lost, continued once there is room."""

import json


def entries(mpctl):
    return [json.loads(line) for line in (mpctl.service / "ledger.jsonl").read_text().splitlines()]


def test_a_rollback_on_a_full_disk_names_the_file_and_continues_when_there_is_room(up):
    before = up.live_text()
    up("rollout", "--spec", "ngram")
    recorded, ledger = entries(up), up.service / "ledger.jsonl"
    failures = 0
    # No room for anything; for no entry; for the first ones; for half of one.
    for room in (0, 200, *(ledger.stat().st_size + extra for extra in (10, 150, 300, 600, 1200))):
        done = up("rollback", "--yes", code=None, room=room)
        if done.returncode == 0:
            break
        failures += 1
        assert done.returncode == 1, done.stderr
        assert f"{up.service}/" in done.stderr, done.stderr
        assert any(word in done.stderr for word in ("File too large", "No space left on device")), (
            done.stderr
        )
        assert "Traceback" not in done.stderr
        assert entries(up)[: len(recorded)] == recorded  # every line whole, none lost
        recorded = entries(up)
        up("status")
    assert failures >= 4
    up("rollback", "--yes")
    assert up.live_text() == before
    (engine,) = up.engines()
    assert not any("speculative" in word for word in engine.cmdline())


def test_a_rollout_on_a_full_disk_names_a_file_and_leaves_what_a_rollback_restores(up):
    before, returncodes, told = up.live_text(), [], 0
    for room in (0, 600, 2500, 6000):
        done = up(
            "rollout", "--spec", "ngram", "--requests", "4", "--repeats", "3", code=None, room=room
        )
        assert "Traceback" not in done.stderr, done.stderr
        returncodes.append(done.returncode)
        if done.returncode:
            assert any(
                word in done.stderr for word in ("File too large", "No space left on device")
            ), done.stderr
            words = " ".join(done.stderr.split())
            told += "is unfinished: 'mpctl resume demo" in words and "'mpctl rollback demo" in words
        after = up("rollback", "--yes", code=None)  # 2: nothing was begun
        assert after.returncode in (0, 2), after.stderr
        assert up.live_text() == before
        (engine,) = up.engines()
        assert not any("speculative" in word for word in engine.cmdline())
    assert any(returncodes)
    assert told  # the operation that a full disk stopped, and both ways on
