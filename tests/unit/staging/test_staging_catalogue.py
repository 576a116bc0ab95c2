"""The draft catalogue: the shipped table, users' files with their mistakes, and the choice for --spec."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mpctl.errors import InputError, Refused
from mpctl.methods import METHODS, build
from mpctl.staging.catalogue import Catalogue, choose
from mpctl.staging.catalogue_file import read_catalogue, shipped

# A busy machine is slow; that is no finding.
patient = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

TABLE = shipped()
EVERY = [draft for group in TABLE.drafts.values() for draft in group]


def test_the_shipped_table_is_whole():
    assert (len(TABLE.drafts), len(EVERY), len(TABLE.families)) == (41, 98, 3)
    assert all((draft.sources and draft.method in METHODS) or draft.plugin for draft in EVERY)
    assert all(name in TABLE.sources for draft in EVERY for name in draft.sources)
    used = {name for draft in (*EVERY, *TABLE.families) for name in draft.sources}
    assert used == set(TABLE.sources)
    assert len({(draft.target, draft.name, draft.method) for draft in EVERY}) == len(EVERY)


@pytest.mark.parametrize("draft", EVERY, ids=lambda draft: f"{draft.target}-{draft.name}")
def test_every_draft_that_vllm_can_load_makes_a_configuration(draft):
    if draft.method not in METHODS or draft.engine != "vllm":
        return
    spec, _ = build(draft.method, draft=draft.repo, config=draft.settings())
    assert spec.draft == draft.repo
    assert spec.method == draft.method
    assert draft.k is None or spec.k == draft.k


@pytest.mark.parametrize(
    ("target", "method", "engine", "repo"),
    [
        ("Qwen/Qwen3-8B", "eagle3", None, "RedHatAI/Qwen3-8B-speculator.eagle3"),
        ("qwen/QWEN3-8b", "eagle3", None, "RedHatAI/Qwen3-8B-speculator.eagle3"),
        ("Qwen/Qwen3-8B", "p-eagle", "0.32.0", "RedHatAI/Qwen3-8B-speculator.peagle"),
        ("Qwen/Qwen3-8B", "draft_model", "latest", "Qwen/Qwen3-0.6B"),
        ("openai/gpt-oss-120b", "eagle3", None, "nvidia/gpt-oss-120b-Eagle3-v3"),
        # SGLang's and plugins' drafts are passed over
        (
            "meta-llama/Llama-3.1-8B-Instruct",
            "eagle3",
            None,
            "RedHatAI/Llama-3.1-8B-Instruct-speculator.eagle3",
        ),
    ],
)
def test_the_first_that_fits_is_taken(target, method, engine, repo):
    found = choose(TABLE, target, method, engine_version=engine)
    assert found.draft.repo == repo
    assert target.lower() in found.reason.lower()


def test_a_target_by_the_end_of_its_name_or_in_a_quantised_form():
    assert TABLE.key("qwen3-8b") == "Qwen/Qwen3-8B"
    assert TABLE.key("RedHatAI/Qwen3-8B-FP8-dynamic") == "Qwen/Qwen3-8B"
    assert TABLE.key("someone/Qwen3-8B") is None  # not said to be the same model
    found = choose(TABLE, "RedHatAI/Qwen3-8B-FP8-dynamic", "eagle3")
    assert found.draft.repo == "RedHatAI/Qwen3-8B-speculator.eagle3"
    assert (
        "Qwen/Qwen3-8B, which RedHatAI/Qwen3-8B-FP8-dynamic is a quantised form of" in found.reason
    )
    twice = Catalogue({"a/one": TABLE.of("qwen3-8b"), "b/one": TABLE.of("qwen3-8b")})
    assert twice.key("one") is None


def test_the_cards_k_for_a_quantised_target():
    draft = TABLE.of("Qwen/Qwen3-8B")[0]
    assert draft.settings()["num_speculative_tokens"] == 3
    assert draft.settings(fp8_target=True)["num_speculative_tokens"] == 5


def test_no_draft_is_needed_or_none_is_known():
    assert choose(TABLE, "Qwen/Qwen3-8B", "ngram") is None
    assert choose(TABLE, None, "mtp") is None
    assert choose(TABLE, "nobody/nothing", "mtp") is None
    assert choose(TABLE, "Qwen/Qwen3.6-27B", "mtp").draft.repo is None
    with pytest.raises(Refused, match="target's name is not known"):
        choose(TABLE, None, "eagle3")


@pytest.mark.parametrize(
    ("target", "method", "engine", "says", "hint"),
    [
        (
            "Qwen/Qwen3-8b-it",
            "eagle3",
            None,
            "no draft of Qwen/Qwen3-8b-it is known",
            "Qwen/Qwen3-8B",
        ),
        ("Qwen3-8Bx", "eagle3", None, "is known", "Qwen/Qwen3-8B"),
        ("nobody/Qwen3-8B", "eagle3", None, "is known", "Qwen/Qwen3-8B"),
        ("nobody/zzz", "eagle3", None, "is known", "mpctl drafts lists"),
        ("Qwen/Qwen3-8B", "dflash", "0.19.0", "needs vLLM 0.20.0, the engine is 0.19.0", "--draft"),
        ("Qwen/Qwen3-1.7B", "medusa", None, "AngelSlim/Qwen3-1.7B_eagle3 is for eagle3", "--draft"),
        (
            "Qwen/Qwen3-Coder-480B-A35B-Instruct",
            "eagle3",
            None,
            "is published for sglang",
            "--draft",
        ),
        ("Qwen/Qwen2.5-32B-Instruct", "eagle3", None, "is for arctic", "--draft"),
    ],
)
def test_a_refusal_lists_what_was_passed_over(target, method, engine, says, hint):
    with pytest.raises(Refused) as caught:
        choose(TABLE, target, method, engine_version=engine)
    assert says in caught.value.message
    assert hint in caught.value.hint


MINE = """\
sources: {bench: our own runs}
targets:
  Qwen/Qwen3-8B:
    - repo: ours/head
      method: eagle3
      k: 4
      expected: [{k: 4, dataset: tickets, t: 0, tokens: 3.1}]
      per_position: [0.8, 0.6, 0.4, 0.3]
      source: [bench, vllm-test]
  ours/model:
    - {repo: /models/head, method: eagle3, parallel_drafting: true}
native:
  - {family: ours, prefixes: [ours/mtp-], k: 2}
"""


def test_a_users_file_replaces_and_adds():
    found = TABLE.merged(read_catalogue(MINE, "mine.yaml", TABLE.sources))
    assert [draft.name for draft in found.of("Qwen/Qwen3-8B")] == ["ours/head"]
    assert choose(found, "ours/model", "p-eagle").draft.repo == "/models/head"
    assert "mine.yaml" in choose(found, "Qwen/Qwen3-8B", "eagle3").reason
    assert found.of("ours/mtp-9b")[0].k == 2
    assert len(found.of("Qwen/Qwen3-32B")) == len(TABLE.of("Qwen/Qwen3-32B"))
    assert found.of("Qwen/Qwen3-8B")[0].expected[0].describe() == "3.10 (K=4, tickets, t=0)"


@pytest.mark.parametrize(
    ("old", "new", "where", "says"),
    [
        ("method: eagle3\n      k", "method: egle3\n      k", 5, "did you mean eagle3"),
        ("method: eagle3\n      k", "method: ngram\n      k", 5, "loads no draft"),
        ("k: 4\n", "k: 0\n", 6, "a whole number >= 1"),
        ("k: 4\n", "k: four\n", 6, "whole number"),
        ("tokens: 3.1", "tokens: 0.5", 7, "a number >= 1"),
        ("tokens: 3.1", "tokens: 6", 7, "cannot come from K=4"),
        ("0.6, 0.4", "0.4, 0.6", 8, "cumulative"),
        ("0.8, 0.6", "1.8, 0.6", 8, "a number <= 1"),
        ("[bench, vllm-test]", "[bench, vllm-tests]", 9, "not among the sources"),
        ("repo: ours/head", "repository: ours/head", 4, "unknown field"),
        ("repo: ours/head", "repo: head of ours", 4, "is not a repository"),
        ("  ours/model:", "  model:", 10, "ORGANISATION/MODEL"),
        ("prefixes: [ours/mtp-]", "prefixes: []", 13, "a list of length >= 1"),
        ("native:", "natives:", 12, "unknown field"),
        ("      k: 4", "      k: 4\n      k: 5", None, "duplicate key"),
        ("      k: 4", "      k: 4\n      when: 2026-02-30", None, "when: unknown field"),
        ("      k: 4", "      k: 4\n      note: a\x07b", None, "not YAML: unprintable character"),
        ("{repo: /models/head", "{repo: [", None, "not YAML"),
        ("k: 4\n", "min_vllm: new\n      k: 4\n", 6, "is no version"),
        ("k: 4\n", "engine: tgi\n      k: 4\n", 6, "vllm, sglang"),
    ],
)
def test_a_mistake_has_its_file_line_and_field(old, new, where, says):
    assert old in MINE
    with pytest.raises(InputError) as caught:
        read_catalogue(MINE.replace(old, new, 1), "mine.yaml", TABLE.sources)
    assert says in f"{caught.value.message} {caught.value.hint}"
    assert caught.value.file == "mine.yaml"
    assert where is None or caught.value.line == where


@pytest.mark.parametrize(
    "text", ["", "a: 1\n---\nb: 2\n", "[]", "targets: {}\n", "\x00", "targets: 3"]
)
def test_what_is_no_catalogue_is_refused(text):
    with pytest.raises(InputError):
        read_catalogue(text, "x.yaml")


@patient
@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text):
    try:
        assert isinstance(read_catalogue(text, "x.yaml"), Catalogue)
    except InputError as error:
        assert error.file == "x.yaml"


def test_a_service_is_offered_no_draft_of_another_target():
    with pytest.raises(Refused, match="no draft of google/gemma-3-4b-it is known") as caught:
        choose(TABLE, "google/gemma-3-4b-it", "eagle3")
    assert "gemma-4" not in caught.value.hint
    assert "--draft" in caught.value.hint
