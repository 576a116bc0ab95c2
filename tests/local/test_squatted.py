"""Another user listens on an engine's port before its start and after its crash: nothing is sent there."""

import json
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress

from squatter import needs_root, squatting

from tests.local.unchanged import wait_for

pytestmark = needs_root
KEY = "sk-only-for-the-engine"


def with_key(mpctl, **script):
    path = mpctl.manifest(script=script)
    path.write_text(path.read_text().replace("args: [", f'args: ["--api-key={KEY}", '))
    return str(path)


def desired(mpctl):
    path = mpctl.service / "desired.json"
    wait_for(path.exists)
    return json.loads(path.read_text())


def observed(mpctl):
    return next(iter(json.loads((mpctl.service / "observed.json").read_text())["arms"].values()))


def test_a_port_that_another_user_took_while_the_engine_starts_gets_nothing(mpctl, tmp_path):
    words = ["-m", "mpctl.cli.main", "local", "up", "-f", with_key(mpctl, start_s=3)]
    with subprocess.Popen(
        [sys.executable, *words],
        cwd=mpctl.directory,
        env=mpctl.environment,
        stderr=subprocess.PIPE,
        text=True,
    ) as up:
        (arm,) = desired(mpctl)["arms"].values()
        with squatting(arm["port"], tmp_path / "log") as squatter:
            _, written = up.communicate(timeout=120)
            assert up.returncode != 0, written
            assert squatter.heard == ""
    assert "Ready" not in written


def test_a_port_that_another_user_took_after_a_crash_gets_no_key_and_no_request_of_a_user(
    mpctl, tmp_path
):
    mpctl("local", "up", "-f", with_key(mpctl))
    service = desired(mpctl)
    (arm,) = service["arms"].values()
    with squatting(arm["port"], tmp_path / "log", wait=False) as squatter:
        (engine,) = mpctl.engines()
        engine.kill()
        squatter.wait_until_it_listens()
        body = json.dumps({"model": "demo", "prompt": "private", "max_tokens": 4}).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{service['port']}/v1/completions",
            body,
            {"Authorization": f"Bearer {KEY}"},
        )
        answered = None
        with suppress(OSError):
            answered = urllib.request.urlopen(request, timeout=10).read()
        wait_for(
            lambda: observed(mpctl)["restarts"] >= 2
        )  # the supervisor has looked again and again
        assert (answered, squatter.heard) == (None, "")
        assert observed(mpctl)["phase"] != "Ready"
        mpctl(
            "rollout",
            "--spec",
            "ngram",
            "--requests",
            "4",
            "--repeats",
            "1",
            "--ready-timeout",
            "5s",
            code=None,
        )
        assert squatter.heard == ""
    deadline = time.monotonic() + 90
    while observed(mpctl)["phase"] != "Ready" and time.monotonic() < deadline:
        time.sleep(0.1)
    assert observed(mpctl)["phase"] == "Ready", "the engine has its port again"
