"""Real engines and their prefix caches: what one knows of before, and what a draft forgets of conversations."""

import json

import pytest

from mpctl.app.bench.recorded import read_run
from mpctl.experiment.prompt_files import built_in_prompts
from mpctl.gate.assess import judge_run
from mpctl.rollout.steps.measure import verdict_of

from .conftest import DEMO, LAX
from .test_real_methods import last_rollout

LOAD = ("--prompts", "rag", "--requests", "6", "--repeats", "5", "--max-tokens", "8")
# At this level one of a hundred equal engines would be told apart by chance; a warm cache was, at 7.6x.
STRICT = "level: 0.99\nmin_tokens_per_step: 0\nttft_slack_ms: 0\n"
WIDE = LAX.replace("max_ttft_ratio: 1000\n", "")  # what a loss is held against
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
        (comparable,) = [rule for rule in verdict.rules if rule.rule == "comparable"]
        assert comparable.outcome.value == "pass", comparable.message
        assert {block.window.prefix_hits for block in run.blocks} == {0.0}


def conversations(folder):
    """Sessions of two turns about files of the built-in edits, which the demo's head was trained for."""
    edits, _ = built_in_prompts("edits")
    turns = [
        [
            {"role": "user", "content": second},
            {"role": "assistant", "content": "Done."},
            {"role": "user", "content": first},
        ]
        for first, second in zip(edits[::2], edits[1::2], strict=True)
    ]
    file = folder / "sessions.jsonl"
    file.write_text("".join(json.dumps({"conversation": turn}) + "\n" for turn in turns))
    return file


@pytest.mark.parametrize(
    ("options", "code", "kept"),
    [((), 5, "fail"), (("--set", "disable_eagle_block_drop=true"), 0, "pass")],
    ids=["forgets", "keeps"],
)
def test_a_head_that_forgets_conversations_is_refused_and_its_twin_promoted(
    engine, options, code, kept
):
    """The CPU engine keeps blocks of 128 tokens, and eagle3 drops the last one of each hit."""
    head = ("--spec", "eagle3", "--draft", str(DEMO / "eagle3"), *options)
    load = ("--prompts", str(conversations(engine.directory)), "--max-tokens", "64")
    policy = engine.policy(f"{WIDE}min_tokens_per_step: 1.5\n")
    before = engine.live_text()
    done = engine("rollout", "demo", *head, *load, "--policy", policy, code=code, timeout=1800)
    rules = {rule.rule: rule for rule in verdict_of(last_rollout(engine)).rules}
    assert (rules["comparable"].outcome.value, rules["cache kept"].outcome.value) == ("pass", kept)
    if code:
        assert "speculation forgets" in done.stdout + done.stderr
    else:
        engine("rollback", timeout=900)
    assert engine.live_text() == before
