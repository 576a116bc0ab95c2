"""The watch as a process beside an engine: traffic changes, speculation stops paying, the service falls back."""

import http.client
import json
import subprocess
import sys
import threading
import urllib.request

import pytest

SCRIPT = {"accept": 0.4, "novel": 0.0, "speculating": {"slow": 1.3}}
POLICY = "fall_back: true\nconfirm_s: 1\n"


class Users:
    """Three clients that send one request after the other; what failed is counted."""

    def __init__(self, url):
        self.host = url.split("/")[2]
        self.words, self.sent, self.failed = "edit", 0, []
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._send, daemon=True) for _ in range(3)]
        for thread in self._threads:
            thread.start()

    def _send(self):
        while not self._ended.is_set():
            body = json.dumps({"model": "demo", "prompt": f"{self.words} " * 100, "max_tokens": 100})
            try:
                connection = http.client.HTTPConnection(self.host, timeout=30)
                connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                answer.read()
                if answer.status != 200:
                    self.failed.append(answer.status)
                connection.close()
            except OSError as error:
                self.failed.append(repr(error))
            self.sent += 1

    def close(self):
        self._ended.set()
        for thread in self._threads:
            thread.join()


@pytest.fixture
def users(mpctl):
    mpctl("local", "up", "-f", str(mpctl.manifest(script=SCRIPT)))
    mpctl("rollout", "--spec", "ngram", "--policy", mpctl.policy(), "--yes")
    found = Users(mpctl.json("status")["items"][0]["status"]["url"])
    yield found
    found.close()


def events_until(process, reason):
    found = []
    for line in process.stdout:
        found.append(json.loads(line))
        if found[-1]["reason"] == reason:
            return found
    raise AssertionError(f"no {reason} in {found}: {process.stderr.read()}")


def test_novel_traffic_is_found_and_the_service_falls_back_without_a_failed_request(mpctl, users):
    assert mpctl("watch", "demo", "--once", "--interval", "1s").stdout.split()[-1]
    before = json.loads(mpctl("history", "-o", "json").stdout)["revisions"][0]["number"]
    policy = mpctl.policy(POLICY)
    arguments = [
        "watch",
        "demo",
        "--watch-policy",
        policy,
        "--interval",
        "0.25s",
        "-o",
        "json",
        "--listen",
        "127.0.0.1:0",
    ]
    watch = subprocess.Popen(
        [sys.executable, "-m", "mpctl.cli.main", *arguments],
        cwd=mpctl.directory,
        env=mpctl.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        address = watch.stderr.readline().split()[-1]
        users.words = "novel"
        events = events_until(watch, "FellBack")
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
            assert b'mpctl_watch_actions{namespace="default",inference_service="demo"} 1' in answer.read()
        with urllib.request.urlopen(f"http://{address}/healthz", timeout=10) as answer:
            assert answer.status == 200
    finally:
        watch.terminate()
        assert watch.wait(timeout=60) == 0
        watch.stdout.close()
        watch.stderr.close()
    found = next(e for e in events if e["reason"] == "WorseDraft" and e["pays"] is False)
    assert "costs more than it gains" in found["message"]
    assert found["reference"] == "rollout-1"
    assert events[-1]["revert"].startswith("mpctl rollback demo --to-revision ")
    assert users.failed == []
    assert "speculative" not in mpctl.live_text()
    last = mpctl.json("history")["operations"][-1]
    assert last["detail"].startswith("watch: tokens per step 1.0")
    assert before == 1
