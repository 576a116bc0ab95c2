"""The steps of every kind of operation, compared with a file: a step that moves, joins or leaves shows there."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from rolling import ROUTE, SCALING
from world import plan

from mpctl.experiment.users import Placement
from mpctl.rollout import sequences
from mpctl.rollout.plan import Kind, Strategy

GOLDEN = Path(__file__).parent / "golden" / "sequences.txt"
ROUTED = {"route": ROUTE}
ROLLOUTS = {
    "plain": {},
    "pinned": {"scaling": SCALING},
    "draft": {"draft": "a/head"},
    "older baseline retained": {"deletes_retained_baseline": True},
    "baseline retained": {"keep_baseline": True},
    "baked": {"bake_s": 60.0},
    "baked, baseline retained": {"bake_s": 60.0, "keep_baseline": True},
    "baked, baseline retained for it": {"bake_s": 60.0, "bake_baseline": True, **ROUTED},
    "traffic steps": {"traffic_steps": (1, 50), **ROUTED},
    "mirror": {"mirror_percent": 100, **ROUTED},
    "everything": {
        "scaling": SCALING,
        "draft": "a/head",
        "deletes_retained_baseline": True,
        "keep_baseline": True,
        "bake_s": 60.0,
        "traffic_steps": (10,),
        "mirror_percent": 50,
        **ROUTED,
    },
}
PLACEMENTS = {
    f"measured as {placement.value}{name}": {"placement": placement, **changes}
    for placement in Placement
    for name, changes in {
        "": {},
        ", traffic steps": {"traffic_steps": (10,), **ROUTED},
        ", routed": ROUTED,
    }.items()
}
ROLLBACKS = {
    "plain": {},
    "pinned": {"scaling": SCALING},
    "routed": ROUTED,
    "baseline retained": {"uses_retained_baseline": True, "scaling": SCALING, **ROUTED},
}
VARIANTS = {
    Kind.ROLLOUT: ROLLOUTS | PLACEMENTS,
    Kind.ROLLBACK: ROLLBACKS,
    Kind.RESTART: {"plain": {}, "pinned": {"scaling": SCALING}},
    Kind.RETIRE: {"plain": {}},
}


def described(step):
    """The step's name, with that of its function where it has another one."""
    function = (step.act.func if isinstance(step.act, partial) else step.act).__name__
    return step.name if function == step.name.replace("-", "_") else f"{step.name} ({function})"


def lines():
    for kind, variants in VARIANTS.items():
        strategies = (
            list(Strategy) if kind in (Kind.ROLLOUT, Kind.ROLLBACK) else [Strategy.SIDE_BY_SIDE]
        )
        for strategy in strategies:
            for replaces_pods in (False, True):
                for variant, changes in variants.items():
                    planned = plan(strategy, kind=kind, **changes)
                    steps = sequences.sequence(planned, replaces_pods=replaces_pods)
                    platform = "pods are replaced" if replaces_pods else "arms side by side"
                    yield f"{kind.value}, {strategy.value}, {platform}, {variant}:"
                    yield f"  {', '.join(described(step) for step in steps)}"


def test_every_operation_has_the_steps_of_the_file():
    assert "\n".join(lines()) + "\n" == GOLDEN.read_text()
