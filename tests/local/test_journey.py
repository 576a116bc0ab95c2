"""The main job from ``local up`` to ``history``, with a scripted engine."""

import http.client
import json
import threading

import pytest
import yaml

from mpctl.local.engine import drain_s
from mpctl.manifest import load_one


def test_rollout_promotes_and_rollback_restores_byte_for_byte(up):
    before = up.live_text()
    done = up("rollout", "--spec", "ngram")
    assert "candidate: ngram K=5" in done.stdout
    assert "promoted" in done.stderr
    assert up.live_text() != before
    assert len(up.engines()) == 1
    assert "--speculative-config" in " ".join(up.engines()[0].cmdline())

    up("rollback")
    assert up.live_text() == before
    assert len(up.engines()) == 1
    assert "--speculative-config" not in " ".join(up.engines()[0].cmdline())

    history = up.json("history")
    assert [r["spec"] for r in history["revisions"]] == ["none", "ngram K=5 lookup 2..4", "none"]
    assert [o["ending"] for o in history["operations"]] == ["promoted", "rolled back"]
    printed = up("history", "--revision", "1", "-o", "yaml")
    assert printed.stdout == before


def test_an_in_place_rollout_runs_one_engine_at_a_time(up):
    before = up.live_text()
    up("rollout", "--spec", "ngram", "--strategy", "in-place")
    assert up.live_text() != before
    assert len(up.engines()) == 1
    up("rollback")
    assert up.live_text() == before
    assert len(up.engines()) == 1


@pytest.mark.nightly  # tests/cluster/test_journey_rollout.py rejects one every day
def test_a_slower_candidate_is_rejected_and_the_service_is_unchanged(mpctl):
    mpctl(
        "local", "up", "-f", str(mpctl.manifest(script={"slow": 40}))
    )  # far from what a busy machine adds
    before = mpctl.live_text()
    own = ("--policy", mpctl.policy("{}"), "--requests", "4", "--max-tokens", "12")
    done = mpctl("rollout", "--spec", "ngram", *own, code=5)
    assert "E2E" in done.stderr
    assert mpctl.live_text() == before
    assert len(mpctl.engines()) == 1
    assert mpctl.json("history")["operations"][0]["ending"] == "rejected"
    mpctl("rollout", "--spec", "ngram", "--strategy", "in-place", *own, code=5)
    assert mpctl.live_text() == before
    assert "--speculative-config" not in " ".join(mpctl.engines()[0].cmdline())


def test_an_engine_that_does_not_speculate_is_rejected(mpctl):
    mpctl("local", "up", "-f", str(mpctl.manifest(script={"silent": True})))
    done = mpctl("rollout", "--spec", "ngram", code=5)
    assert "speculation is off in the running engine" in done.stdout


def test_too_few_samples_are_undecided(up):
    before = up.live_text()
    done = up("rollout", "--spec", "ngram", "--requests", "2", "--repeats", "2", code=6)
    assert "(at least 8)" in done.stdout
    assert up.live_text() == before


def test_a_candidate_that_dies_at_start_is_named_and_nothing_is_left(mpctl):
    mpctl("local", "up", "-f", str(mpctl.manifest(script={"exit": 3, "only_speculating": True})))
    before = mpctl.live_text()
    done = mpctl("rollout", "--spec", "ngram", code=7)
    assert "exited with code 3" in done.stderr
    assert "ValueError: scripted to end at start-up" in done.stderr
    assert mpctl.live_text() == before
    assert len(mpctl.engines()) == 1


def test_a_candidate_that_never_gets_ready_times_out(mpctl):
    mpctl("local", "up", "-f", str(mpctl.manifest(script={"mute": True})))
    done = mpctl("rollout", "--spec", "ngram", "--timeout", "3s", code=7)
    assert "not ready within 3 s" in done.stderr
    assert len(mpctl.engines()) == 1


def test_the_same_rollout_again_changes_nothing(up):
    up("rollout", "--spec", "ngram")
    done = up("rollout", "--spec", "ngram")
    assert "already runs ngram" in done.stderr
    assert len(up.json("history")["operations"]) == 1
    done = up("rollback", "--to-revision", "2")
    assert "already is revision 2" in done.stderr


def test_rollback_to_a_retained_baseline_starts_no_engine(up):
    baseline = up.engines()[0].pid
    up("rollout", "--spec", "ngram", "--keep-baseline")
    assert len(up.engines()) == 2
    up("rollback")
    assert [p.pid for p in up.engines()] == [baseline]


def test_rollback_restores_an_older_revision(up):
    before = up.live_text()
    up("rollout", "--spec", "ngram")
    up("rollout", "--spec", "ngram", "--set", "num_speculative_tokens=3")
    assert '"num_speculative_tokens": 3' in up.live_text()
    up("rollback", "--to-revision", "1")
    assert up.live_text() == before


def test_json_output_has_a_kind_and_the_measured_figures(up):
    record = up.json("rollout", "--spec", "ngram")
    assert (record["apiVersion"], record["kind"]) == ("mpctl.dev/v1alpha1", "Operation")
    candidate = record["status"]["cells"][0]["candidate"]
    assert candidate["acceptanceRate"] == pytest.approx(0.5)
    assert candidate["tokensPerStep"] > 1.5
    assert record["status"]["gate"]["outcome"] == "promote"
    as_yaml = yaml.safe_load(up("status", "-o", "yaml").stdout)
    assert as_yaml["items"][0]["status"]["state"] == "Ready"


def test_dry_run_shows_the_change_and_makes_none(up):
    before = up.live_text()
    done = up("rollout", "--spec", "ngram", "--dry-run", "client")
    assert "+" in done.stdout
    assert "--speculative-config" in done.stdout
    assert up.live_text() == before
    assert not (up.service / "ledger.jsonl").exists()


def test_diff_has_the_exit_codes_of_kubectl_diff(up):
    assert up("diff", code=0).stdout == ""
    assert "--speculative-config" in up("diff", "--spec", "ngram", code=1).stdout
    up("rollout", "--spec", "ngram")
    assert "--speculative-config" in up("diff", code=1).stdout
    up("diff", "--revision", "9", code=2)


def test_the_service_keeps_its_port_through_a_rollout(up):
    import urllib.request

    url = up.json("status")["items"][0]["status"]["url"].removesuffix("/v1")
    assert urllib.request.urlopen(f"{url}/health").status == 200
    up("rollout", "--spec", "ngram")
    assert urllib.request.urlopen(f"{url}/health").status == 200
    assert b"spec_decode" in urllib.request.urlopen(f"{url}/metrics").read()


def test_an_edited_ledger_is_refused_with_its_line(up):
    up("rollout", "--spec", "ngram")
    ledger = up.service / "ledger.jsonl"
    lines = ledger.read_text().splitlines(keepends=True)
    assert json.loads(lines[1])["previous"] == json.loads(lines[0])["digest"]
    ledger.write_text("".join(lines[:2] + lines[3:]))
    done = up("history", code=3)
    assert "ledger.jsonl:3" in done.stderr
    assert "chain is broken" in done.stderr


class Reader(threading.Thread):
    """A user who reads streams of ``words`` over one connection, as long as the service keeps it open; ``whole``: how
    many came to their end, ``lost``: what went wrong with the others."""

    def __init__(self, url, words, *, streams=None):
        super().__init__(daemon=True)
        self.address, self.words, self.streams = url.removeprefix("http://"), words, streams
        self.whole, self.lost, self.ending = 0, [], threading.Event()

    def run(self):
        connection = http.client.HTTPConnection(self.address, timeout=120)
        body = {
            "model": "demo",
            "prompt": " ".join(["word"] * self.words),
            "max_tokens": 10_000,
            "stream": True,
        }
        while not self.ending.is_set() and self.whole != self.streams:
            try:
                connection.request(
                    "POST",
                    "/v1/completions",
                    json.dumps(body),
                    {"Content-Type": "application/json"},
                )
                text = connection.getresponse().read().decode()
                assert text.count("data: {") == self.words
                assert text.endswith("data: [DONE]\n\n")
                self.whole += 1
            except (OSError, http.client.HTTPException, AssertionError) as error:
                self.lost.append(repr(error))
                connection.close()


def test_no_stream_of_a_user_is_lost_when_engines_are_switched(up):
    """Users read streams of 2 s over kept connections, and one of 8 s, which an engine that is replaced finishes."""
    script = {"token_s": 0.02}
    up("local", "down", "--all", "--force")
    up("local", "up", "-f", str(up.manifest(script=script)))
    up("rollout", "--spec", "ngram")
    url = up.json("status")["items"][0]["status"]["url"].removesuffix("/v1")
    users = [Reader(url, 200) for _ in range(3)] + [Reader(url, 800, streams=1)]
    for user in users:
        user.start()
    started = up("restart").stdout + up("rollback").stdout
    for user in users:
        user.ending.set()
        user.join(120)
    assert [user.lost for user in users] == [[], [], [], []], started
    assert all(user.whole for user in users)


@pytest.mark.parametrize(("grace", "seconds"), [(None, 600.0), (45, 45.0)])
def test_the_grace_period_of_the_manifest_limits_how_long_requests_are_waited_for(
    mpctl, grace, seconds
):
    text = mpctl.manifest().read_text()
    if grace:
        text = text.replace(
            "  predictor:\n", f"  predictor:\n    terminationGracePeriodSeconds: {grace}\n"
        )
    assert drain_s(load_one(text, "demo")) == seconds
