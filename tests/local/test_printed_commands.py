"""Every command that messages print on this machine runs as it was printed, in a namespace that is not the default."""

import subprocess

import pytest

from tests.printed import CELL, is_endless, pasted, sign_verdict

QUICK = {"REQUESTS": "4", "REPEATS": "5", "INTERVAL": "1s"}


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_printed_commands_can_be_pasted(mpctl):
    mpctl.environment.update({f"MPCTL_{name}": value for name, value in QUICK.items()})
    mpctl("local", "up", "-f", str(mpctl.manifest()), "-n", "team-a")
    mpctl("bench", "demo", "--spec", "ngram", "-n", "team-a", "--run", "run.json.gz")
    mpctl("rollout", "demo", "--spec", "ngram", "-n", "team-a")
    (mpctl.directory / "cell.yaml").write_text(CELL)
    files = {"manifest": "service.yaml", "run": "run.json.gz", "cell": "cell.yaml"}
    files |= sign_verdict(mpctl, "-n", "team-a")
    lines = pasted("local", "demo", "team-a", files)
    assert len(lines) > 30
    failed = {}
    for line in lines:
        if is_endless(line):
            with pytest.raises(subprocess.TimeoutExpired):
                mpctl(*line, timeout=5)
            continue
        done = mpctl(*line, code=None)
        if done.returncode == 2 or "Traceback" in done.stderr:
            failed[" ".join(line)] = done.stderr
    assert failed == {}
