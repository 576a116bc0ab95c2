"""Commands that are run without a sweep, for the states of the ledger that the swept cycle does not pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mpctl.platform.kubernetes.api.kinds import DEPLOYMENT
from tests.sweep.clock import clock
from tests.sweep.cycle import DAY_S, SCRIPT, World, command
from tests.sweep.ledger_states import states_of
from tests.sweep.process import Fault

_BASE = (
    "rollout",
    "demo",
    "--spec",
    "ngram",
    "--policy",
    "policy.yaml",
    "--prompts",
    "edits=prompts.jsonl",
)
_BASE += ("--requests", "2")
_QUICK = (*_BASE, "--bake", "0", "--repeats", "24")
_ROLLOUT = (*_QUICK, "--fidelity", "off")
_ONE_ROUND = (
    *_BASE,
    "--bake",
    "0",
    "--repeats",
    "1",
    "--fidelity",
    "off",
    "--set",
    "prompt_lookup_min=3",
)
_STEPS = ("--step-duration", "5s")
# Command lines by name; what they reach is in ``ledger_states.REACHED``.
TRIPS: dict[str, tuple[tuple[str, ...], ...]] = {
    "answers": (_QUICK,),
    "restart": (("restart", "demo"),),
    "kept baseline": ((*_ROLLOUT, "--keep-baseline"), ("rollback", "demo")),
    "second kept baseline": ((*_ROLLOUT, "--keep-baseline"), (*_ONE_ROUND, "--keep-baseline")),
    "retired": ((*_ROLLOUT, "--keep-baseline"), ("retire", "demo")),
    "in place": ((*_QUICK, "--strategy", "in-place"),),
    "pair": ((*_ROLLOUT, "--measure-on", "pair"),),
    "turns": ((*_ROLLOUT, "--measure-on", "turns", "--traffic-steps", "50", *_STEPS),),
    "mirror": ((*_ROLLOUT, "--mirror", "50", *_STEPS),),
    "slower candidate": (_ROLLOUT,),
    "abandoned": (_ROLLOUT, ("abandon", "demo")),
    "grown": (_ROLLOUT, ("rollback", "demo"), ("rollback", "demo")),
    "failed load": (_ROLLOUT,),
}
_SCRIPTS: dict[str, Any] = {"slower candidate": {**SCRIPT, "speculating": {"slow": 8}}}
_DIES_AT = {("abandoned", 0): 100, ("grown", 1): 40}  # call of a command


def states_of_trip(folder: Path, name: str) -> set[str]:
    """The states that a trip reaches in a cluster that is its own."""
    world = World(folder, _SCRIPTS.get(name, SCRIPT))
    world.prepare()
    world.pods.fails = name == "failed load"
    for number, words in enumerate(TRIPS[name]):
        dies_at = _DIES_AT.get((name, number), 0)
        world.process(command(*words), dies_at, Fault.CRASH_BEFORE if dies_at else None)
        if dies_at and name == "grown":
            _grow(world)
        clock.sleep(DAY_S)
    return states_of(world.server)


def _grow(world: World) -> None:
    """Start a second pod, as an autoscaler does whose pin somebody removed."""
    deployment = world.server.find(DEPLOYMENT, "demo-predictor")
    assert deployment is not None
    deployment["spec"]["replicas"] = 2
    world.server.put(DEPLOYMENT, deployment, "horizontal-pod-autoscaler")
