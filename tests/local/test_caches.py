"""Two equal engines of which one has answered the prompts before: its prefix cache must not decide a measurement."""

import pytest

from mpctl.app.bench.recorded import read_run

SMALL = ("--requests", "4", "--repeats", "6", "--max-tokens", "4", "--max-time", "60s")
STRICT = "min_tokens_per_step: 0\nttft_slack_ms: 0\n"


@pytest.fixture
def two(mpctl):
    """Two services with equal scripted engines, whose prompts take 60 ms and whose answers 8."""

    def start(**script):
        for name in ("one", "two"):
            manifest = mpctl.manifest(script={"prefill_ms": 60, **script})
            manifest.write_text(manifest.read_text().replace("name: demo ", f"name: {name} "))
            mpctl("local", "up", "-f", str(manifest))
        mpctl.environment["MPCTL_POLICY"] = mpctl.policy(STRICT)
        return mpctl

    return start


@pytest.mark.parametrize("warm", ["one"])
def test_prompts_of_an_earlier_measurement_make_no_engine_faster(two, warm):
    mpctl = two()
    mpctl("bench", warm, *SMALL)
    mpctl("bench", "one", "--candidate", "two", *SMALL, "--run", "both.json")
    run = read_run(str(mpctl.directory / "both.json"))
    ttft = {
        arm: sum(s.ttft_ms for b in run.blocks if b.arm == arm for s in b.samples)
        for arm in run.arms
    }
    assert 0.7 < ttft["candidate"] / ttft["baseline"] < 1.4
    assert {b.window.prefix_hits for b in run.blocks} == {0.0}


@pytest.mark.parametrize(("warm", "held"), [("one", (0, 100))])
def test_an_engine_that_drops_the_salt_is_not_judged(two, warm, held):
    mpctl = two(saltless=True)
    mpctl("bench", warm, *SMALL)
    mpctl("bench", "one", "--candidate", "two", *SMALL, "--run", "both.json")
    done = mpctl("bench", "compare", "both.json", code=6)
    message = f"the prefix cache held {held[0]}% of the candidate's prompt tokens, {held[1]}% of the baseline's"
    assert message in done.stdout + done.stderr
