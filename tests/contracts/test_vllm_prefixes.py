"""vLLM's own cache manager finds what ``mpctl.experiment.prefixes`` expects."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from mpctl.experiment.block import StreamedRequest
from mpctl.experiment.prefixes import PrefixCache

PROGRAM = Path(__file__).with_name("cached_prompts.py")
DENSE, HYBRID = (16, 128, 256), 528
UNITS = [*((unit, False) for unit in DENSE), (HYBRID, True)]
SEEDS = range(5)


def conversations(seed, unit):
    """Prompts of four conversations in turns: some share a system prompt, and each repeats what came before."""
    rng = random.Random(seed)

    def words(count):
        return [rng.randrange(1000) for _ in range(count)]

    systems = [words(rng.randrange(4 * unit)) for _ in range(2)]
    running, prompts = [list(rng.choice(systems)) for _ in range(4)], []
    for _ in range(5):
        for history in running:
            history.extend(words(rng.randrange(1, 3 * unit)))
            prompts.append(list(history))
    return prompts


@pytest.fixture(scope="module")
def found():
    """The tokens that vLLM's manager finds of each prompt, by unit and seed."""
    pytest.importorskip("vllm")
    workloads = [
        {"prompts": conversations(seed, unit), "unit": unit, "hybrid": hybrid}
        for unit, hybrid in UNITS
        for seed in SEEDS
    ]
    done = subprocess.run(
        [sys.executable, str(PROGRAM)],
        input=json.dumps(workloads),
        capture_output=True,
        text=True,
        check=True,
    )
    rows = iter(json.loads(done.stdout.splitlines()[-1]))
    return {(unit, seed): next(rows) for unit, _ in UNITS for seed in SEEDS}


def expected(seed, unit, *, hybrid):
    prompts, cache = conversations(seed, unit), PrefixCache(unit, sparse=hybrid)
    return [
        cache.hits([StreamedRequest(0.1, 0.0, (), 1, "", "", tuple(prompt), ())])
        for prompt in prompts
    ]


@pytest.mark.parametrize(("unit", "hybrid"), UNITS)
@pytest.mark.parametrize("seed", SEEDS)
def test_an_engine_holds_what_is_expected(found, unit, hybrid, seed):
    """A hybrid with vLLM's default finds a prefix again only where a prompt ended or left another one."""
    assert found[unit, seed] == expected(seed, unit, hybrid=hybrid)
    assert sum(found[unit, seed]) > 0
