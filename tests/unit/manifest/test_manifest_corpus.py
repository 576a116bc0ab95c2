"""A small share of ``scripts/corpus``: the repository's own manifests, and made-up ones."""

import random
from pathlib import Path

import pytest

from tests.corpus.features import featured
from tests.corpus.fuzz import manifest, manifests
from tests.corpus.oracle import split, wrong
from tests.corpus.restyle import restyle, restyled
from tests.corpus.run import KINDS, NGRAM, Counts, judge, texts_of
from tests.corpus.services import services

ROOT = Path(__file__).resolve().parents[3]
ARGS = """\
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: llm}
spec:
  predictor:
    model:
      modelFormat: {name: vLLM}
      args: [--port=80%s]
"""
SPEC = ', \'--speculative-config={"method": "ngram"}\''


def test_the_repositorys_own_manifests_come_out_right():
    counts = Counts()
    for folder in ("docs", "manifests", "stacks", "tests"):
        for name, text in texts_of(ROOT / folder):
            judge(name, text, counts)
    assert counts.clean, counts.problems
    assert counts.edits > 20


@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize(
    "generate", [manifests, restyled, featured], ids=["flags", "kinds in forms of YAML", "features"]
)
def test_made_up_manifests_come_out_right(generate, part):
    counts = Counts()
    for number, (name, text) in enumerate(generate(60, seed=1)):
        if number % 4 == part:
            judge(name, text, counts)
    assert counts.clean, counts.problems
    assert counts.edits > 10


def test_a_key_behind_a_question_mark_is_refused_and_no_fault():
    counts = Counts()
    judge("87", restyle(5001, 87), counts)
    assert counts.clean, counts.problems
    assert any("shares its line" in why for why in counts.not_edited)


def test_every_kind_is_among_the_services_that_are_made_up():
    values = {
        document.get("kind", "Values")
        for seed in range(80)
        for document in services(random.Random(seed))
    }
    assert set(KINDS) <= values


@pytest.mark.parametrize(
    ("seed", "number"),
    [
        *((7, 470), (7, 1054), (7, 1202), (7, 3476), (7, 3618), (11, 1607), (11, 2062), (11, 2812)),
        *((20261122, 614), (20261122, 911), (20261122, 1062), (20261122, 2058), (902, 1517)),
    ],
)
def test_what_a_run_of_ten_thousand_found(seed, number):
    """Doubled and mixed line ends, volumes that are a mapping, words behind --, a value that is null, files that end
    without a line break."""
    counts = Counts()
    judge(str(number), manifest(seed, number), counts)
    assert counts.clean, counts.problems
    assert counts.services == 1


@pytest.mark.parametrize(
    ("after", "why"),
    [
        (ARGS % "", "the engine reads no "),
        (ARGS % SPEC, ""),
        ((ARGS % SPEC).replace("port=80", "port=81"), "other words changed"),
        ((ARGS % SPEC).replace("llm", "other"), "changed besides"),
        ((ARGS % SPEC) + "---\na: b\n", "the number of documents changed"),
        ((ARGS % SPEC) + "]", "the result is not YAML"),
    ],
)
def test_the_oracle_finds_what_is_wrong(after, why):
    found = wrong(ARGS % " ", after, {"method": "ngram"})
    assert found.startswith(why) and bool(found) is bool(why)


def test_the_oracle_reads_every_spelling():
    for words in (
        ["--speculative-config", '{"a": 1}'],
        ["-sc", '{"a": 1}'],
        ["--speculative_config.a", "1"],
    ):
        assert split(["--port=80", *words]) == ({"a": 1}, ["--port=80"])
    taken = [
        "--a.b",
        "--speculative-config.method=ngram",
    ]  # a dotted flag takes the next word, whatever it is
    assert split(taken) == (None, taken)
    assert split(["--port", "80"]) == (None, ["--port", "80"])
    assert NGRAM["method"] == "ngram"
