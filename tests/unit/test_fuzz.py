"""The fuzzer's targets (tests/fuzz) on their corpus and on a fixed number of mutations, the same in every run.
``scripts/fuzz`` runs the same targets under a coverage-guided fuzzer every night."""

import time

import pytest

from tests.fuzz import foreign
from tests.fuzz.mutate import mutated
from tests.fuzz.targets import CORPUS, TARGETS

MUTATIONS = 60  # of each target
LONGEST_S = 5.0  # of CPU time for one input; what matters is a pattern that never ends


def inputs(name):
    return [path.read_bytes() for path in sorted((CORPUS / name).iterdir())]


def test_every_target_has_a_corpus():
    assert {path.name for path in CORPUS.iterdir()} == TARGETS.keys()
    assert all(inputs(name) for name in TARGETS)


@pytest.mark.parametrize("name", TARGETS)
def test_nothing_hostile_gets_past_a_parser(name):
    corpus = inputs(name)
    items = [
        *corpus,
        b"",
        b"\0",
        *(mutated(corpus[i % len(corpus)], corpus[-1], f"{name} {i}") for i in range(MUTATIONS)),
    ]
    for number, data in enumerate(items):
        began = time.process_time()
        try:
            TARGETS[name](data)
        except Exception as error:  # noqa: BLE001  whatever it is, it got past the parser
            pytest.fail(
                f"input {number} of {name}: {data[:2000]!r}\n{type(error).__name__}: {error}"
            )
        assert time.process_time() - began < LONGEST_S, data[:2000]


@pytest.mark.parametrize("kind", foreign.READERS)
def test_generated_input_of_an_attacker_ends_no_reader(kind):
    """``scripts/foreign-table`` does the same with 10,000."""
    faults, longest = foreign.run(kind, 60, seed="unit")
    assert not faults
    assert longest < foreign.LONGEST_S
