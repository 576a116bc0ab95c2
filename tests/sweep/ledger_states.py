"""The states of a ledger: events, kinds of operations, steps and endings. Enumerated from the code, so that a new one
has a place here: who reaches it, or why nothing does.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from mpctl.platform.kubernetes.api.kinds import CONTROLLER_REVISION
from mpctl.platform.kubernetes.api.names import LEDGER, PART_LABEL
from mpctl.platform.kubernetes.ledger_objects import Appended
from mpctl.rollout import operation, sequences
from mpctl.rollout.ledger import Event
from mpctl.rollout.operation import RESIZED, Ending
from mpctl.rollout.plan import Kind
from tests.sweep.api_server import ApiServer

# Reached by the swept cycle itself, by a fault in it, or by a command that is not swept (``trips.TRIPS``).
REACHED = {
    "cycle": (
        *("event opened", "event done", "event closed", "kind rollout", "kind rollback"),
        *("ending promoted", "ending rolled back"),
        *(
            "step record",
            "step pin",
            "step start",
            "step ready",
            "step measure",
            "step judge",
            "step shift-N",
        ),
        *(
            "step unshift",
            "step promote",
            "step settle",
            "step record-promoted",
            "step keep-baseline",
            "step confirm",
            "step unpin",
        ),
        *(
            "step verify",
            "step bake",
            "step retire-baked",
            "step restore",
            "step retire",
            "step record-restored",
        ),
    ),
    "a fault": ("ending undone",),
    "answers": ("step answers", "step answers-again"),
    "restart": ("kind restart", "ending restarted", "step record-restarted"),
    "kept baseline": ("step redirect",),
    "second kept baseline": ("step release", "ending undecided"),
    "retired": ("kind retire", "ending retired"),
    "in place": (
        "step answers-baseline",
        "step measure-baseline",
        "step measure-candidate",
        "step switch",
    ),
    "pair": ("step start-copy", "step ready-copy", "step stop-copy"),
    "turns": ("step start-again", "step ready-again"),
    "mirror": ("step mirror",),
    "slower candidate": ("ending rejected",),
    "abandoned": ("ending abandoned",),
    "failed load": ("event failed", "ending failed"),
    "grown": (f"step {RESIZED}", "event begun"),
}
_TRAINING = (
    "only a training of an earlier version: tests/unit/rollout/test_rollout_golden.py reads one"
)
UNREACHED = {
    "kind refresh": _TRAINING,
    "ending offered": _TRAINING,
    "ending refused": _TRAINING,
    "step match": "the cycle's method loads no draft: tests/unit/rollout/test_rollout_match.py",
}


def enumerated() -> set[str]:
    """Every state that the code can write."""
    states = {f"event {event.value}" for event in Event} | {f"kind {kind.value}" for kind in Kind}
    states |= {f"ending {ending.value}" for ending in Ending} | {f"step {RESIZED}"}
    tree = ast.parse(Path(str(sequences.__file__)).read_text(encoding="utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    steps = [
        call.args[0] for call in calls if isinstance(call.func, ast.Name) and call.func.id == "Step"
    ]
    return states | {f"step {_name(step)}" for step in steps}


def _name(node: ast.expr) -> str:
    """The name that a ``Step`` is made with; one that ends with a number stands for all of them."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.Name):
        return str(getattr(operation, node.id))
    assert isinstance(node, ast.JoinedStr)
    return f"{ast.literal_eval(node.values[0])}N"


def states_of(server: ApiServer) -> set[str]:
    """The states that the ledgers of a server hold."""
    items = [
        i
        for i in server.of(CONTROLLER_REVISION)
        if i["metadata"]["labels"].get(PART_LABEL) == LEDGER
    ]
    return {
        state for item in items for record in Appended.of(item).entries for state in _states(record)
    }


def _states(record: Any) -> set[str]:
    states = {f"event {record['event']}"}
    steps = [step for step in (record.get("step"), record.get("then")) if step]
    states |= {f"step {'shift-N' if step.startswith('shift-') else step}" for step in steps}
    if "ending" in record["data"]:
        states.add(f"ending {record['data']['ending']}")
    if "plan" in record["data"]:
        states.add(f"kind {record['data']['plan']['kind']}")
    return states
