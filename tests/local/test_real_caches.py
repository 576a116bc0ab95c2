"""Two equal real engines of which one has answered the prompts before, both ways round: neither is found faster."""

import pytest

from mpctl.app.bench.recorded import read_run
from mpctl.gate.assess import judge_run

from .conftest import DEMO

LOAD = ("--prompts", "rag", "--requests", "6", "--repeats", "5", "--max-tokens", "8")
# At this level one of a hundred equal engines would be told apart by chance; a warm cache was, at 7.6x.
STRICT = "level: 0.99\nmin_tokens_per_step: 0\nttft_slack_ms: 0\n"
pytestmark = [pytest.mark.engine, pytest.mark.nightly]


def test_an_engine_that_knows_the_prompts_wins_nothing(engine):
    manifest = engine.manifest(model=str(DEMO / "model"))
    manifest.write_text(manifest.read_text().replace("name: demo ", "name: other "))
    engine("local", "up", "-f", str(manifest), timeout=900)
    load = (*LOAD, "--policy", engine.policy(STRICT))
    engine("bench", "demo", *load)  # now "demo" has answered every prompt, and "other" none
    for number, (baseline, candidate) in enumerate((("demo", "other"), ("other", "demo"))):
        file = engine.directory / f"both-{number}.json"
        engine("bench", baseline, "--candidate", candidate, *load, "--run", str(file))
        run = read_run(str(file))
        _, verdict = judge_run(run)
        assert verdict.outcome.value == "undecided", verdict.reasons
        (caches,) = [rule for rule in verdict.rules if rule.rule == "caches"]
        assert caches.outcome.value == "pass", caches.message
        assert {block.window.prefix_hits for block in run.blocks} == {0.0}
