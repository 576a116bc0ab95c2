"""Engines without a supervisor: ``status`` reports them and starts nothing; a command that changes the service adopts
them."""

import json

import psutil
import pytest

from tests.local.unchanged import unchanged, wait_for

ROLLOUT = ("rollout", "--spec", "ngram", "--requests", "4", "--repeats", "3", "--max-tokens", "24")


def supervisor_of(mpctl):
    return psutil.Process(
        json.loads((mpctl.service / "observed.json").read_text())["supervisor"]["pid"]
    )


@pytest.mark.parametrize("repair", ["up", "rollout"])
def test_an_engine_without_a_supervisor_is_reported_and_adopted(up, repair):
    (engine,) = up.engines()
    supervisor = supervisor_of(up)
    supervisor.kill()
    wait_for(lambda: not supervisor.is_running() or supervisor.status() == psutil.STATUS_ZOMBIE)
    with unchanged(up):
        for _ in range(2):
            done = up("status")
            assert "Unsupervised" in done.stdout
            assert "problem: the supervisor is gone" in done.stdout
            assert f"(pid {engine.pid}) has lost its supervisor; mpctl local up demo" in done.stderr
        record = up.json("status")
        assert record["items"][0]["status"]["supervised"] is False
        assert [o["pid"] for o in record["orphans"]] == [engine.pid]
        assert up.processes() == [engine], "looking started nothing"

    if repair == "up":
        assert "is already up" in up("local", "up", "-f", str(up.manifest())).stderr
    else:
        up(*ROLLOUT, "--keep-baseline", "--policy", up.policy())
    assert engine.pid in [p.pid for p in up.engines()], "adopted, not started again"
    record = up.json("status")
    assert record["items"][0]["status"]["state"] == "Ready"
    assert record["orphans"] == []


def test_a_service_without_processes_is_not_ready(up):
    for process in up.processes():
        process.kill()
    wait_for(lambda: up.processes() == [])
    status = up.json("status")["items"][0]["status"]
    assert (status["state"], status["arms"][0]["phase"]) == ("Unsupervised", "Absent")
    assert up.processes() == []
    up("local", "up", "-f", str(up.manifest()))
    assert len(up.engines()) == 1


def test_down_orphans_stops_an_engine_without_a_supervisor(up):
    supervisor_of(up).kill()
    (engine,) = up.engines()
    done = up("local", "down", "--orphans")
    assert (
        f"stopped default/demo/{json.loads((up.service / 'desired.json').read_text())['route']}"
        in done.stderr
    )
    assert f"(pid {engine.pid})" in done.stderr
    assert not engine.is_running() or engine.status() == psutil.STATUS_ZOMBIE
    assert up.processes() == []
