"""The offline replay of n-gram against a real engine's own counters on the same texts."""

import json
import urllib.request

import pytest

from mpctl.experiment.counters import Counters, Window
from mpctl.experiment.prompt_files import built_in_prompts
from mpctl.lab.replay import Conversation, PromptLookup, replay

from .conftest import LAX

pytestmark = [
    pytest.mark.engine,
    pytest.mark.nightly,
]  # the replay is held on recorded answers every day


def ask(url, body):
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


def counters(base):
    with urllib.request.urlopen(f"{base}/metrics", timeout=30) as answer:
        return Counters.parse(answer.read().decode())


def test_the_replay_of_logged_answers_reads_as_the_counters_do(engine):
    load = ("--requests", "6", "--repeats", "3", "--concurrency", "1", "--max-tokens", "160")
    policy = engine.policy(f"{LAX}min_tokens_per_step: 1.5\n")
    engine(
        "rollout",
        "--spec",
        "ngram",
        "--prompts",
        "edits",
        *load,
        "--policy",
        policy,
        code=0,
        timeout=900,
    )
    status = engine.json("status")["items"][0]["status"]
    base = next(arm["endpoint"] for arm in status["arms"] if arm["id"] == status["routed"])
    prompts, _ = built_in_prompts("edits")
    fresh, _ = built_in_prompts("fresh")
    before = counters(base)
    assert before.drafts is not None, "the engine speculates"
    logged = []
    for prompt in (*prompts[:20], *fresh[:8]):
        body = {
            "model": "demo",
            "messages": [{"role": "user", "content": prompt}],
            "temperature": 0,
        }
        answer = ask(
            f"{base}/v1/chat/completions", {**body, "max_tokens": 200, "return_token_ids": True}
        )
        logged.append(
            Conversation(
                tuple(answer["prompt_token_ids"]), tuple(answer["choices"][0]["token_ids"])
            )
        )
    measured = Window.between(before, counters(base))
    replayed = replay(logged, PromptLookup(5, 2, 4, 2048), 5)
    assert replayed.generated == measured.generation_tokens
    assert replayed.drafts == pytest.approx(measured.drafts, rel=0.02)
    assert replayed.drafted == pytest.approx(measured.draft_tokens, rel=0.02)
    assert replayed.accepted == pytest.approx(measured.accepted, rel=0.02)
    # The engine also counts what it accepts past an answer's end, which no log holds: the last positions have the most.
    assert replayed.per_position == pytest.approx(measured.per_position, rel=0.03, abs=3)
