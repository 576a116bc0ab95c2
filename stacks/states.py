"""Move states from the key of earlier versions to today's: ``scripts/deploy --move-state``.

Takes the same environment variables as the stacks. Everything is read and judged first; then the moves are shown, and
made after a `yes` (``-auto-approve`` skips the question). Nothing in the cloud changes, and the old state stays where
it was, as a copy. Run again, it finds nothing left to move. Exit codes: 0 moved, or nothing to move; 2 wrong input;
9 refused.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from mpctl.errors import MpctlError, Refused
from stacks import backends
from stacks.base import Plan
from stacks.drift import run_terraform, terraform_binary
from stacks.main import load_fleet, load_settings, own_layers, plans, told, wanted_layers
from stacks.preflight.facts import AccountFacts
from stacks.settings import LAYERS

POOLS = ("aws_eks_node_group", "google_container_node_pool")
State = Mapping[str, Any]


class Terraform:
    """Terraform in a folder with a backend and nothing else."""

    def __init__(self, folder: str, environ: Mapping[str, str] = os.environ) -> None:
        self.folder = Path(folder)
        self.run = partial(run_terraform, terraform_binary(environ), self.folder, environ)

    def pull(self, plan: Plan, key: str, *arguments: str) -> State:
        """The state under *key*; empty without one. With ``-migrate-state`` the one that was read before comes there.

        Raises:
            Refused: it cannot be read, in Terraform's own words.
        """
        backend = plan.settings.backend
        body = {"terraform": {"backend": {backend.type: backends.document(backend, key)}}}
        (self.folder / "main.tf.json").write_text(json.dumps(body), "utf-8")
        # init prepares the backend first; then it looks for the providers of the state's resources, hundreds of
        # megabytes that no copy needs. In an empty folder it finds none and ends with an error; only the pull decides.
        (none := self.folder / "none").mkdir(exist_ok=True)
        started = self.run(
            "init",
            "-input=false",
            f"-plugin-dir={none}",
            "-no-color",
            *(arguments or ("-reconfigure",)),
        )
        done = self.run("state", "pull")
        if done.returncode:
            raise Refused(f"the state {key}: {(started.stderr or done.stderr).strip()}")
        return dict(json.loads(done.stdout)) if done.stdout.strip() else {}


def owner(state: State) -> str:
    """The cluster that a state names; "" for one that names none."""
    named = state.get("outputs", {}).get("cluster_name", {}).get("value", "")
    for resource in state.get("resources", ()):
        if (resource["type"], resource["name"]) == ("terraform_data", "owner"):
            named = resource["instances"][0]["attributes"]["input"]["value"]
    return str(named)


def read_state(plan: Plan, facts: AccountFacts) -> AccountFacts:
    """*facts* with what the plan's state says, and, where there is none yet, the one under the former key."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            terraform = Terraform(folder)
            state = terraform.pull(plan, plan.key(plan.first_layer))
            # A state that was moved and then destroyed leaves its copy under the former key.
            former = {} if state else terraform.pull(plan, plan.former_key(plan.first_layer))
    except MpctlError:
        return replace(facts, owner=None)
    pools = [one["name"] for one in state.get("resources", ()) if one["type"] in POOLS]
    return replace(facts, owner=owner(state), former_owner=owner(former), pools=tuple(pools))


@dataclass(frozen=True)
class Move:
    """One stack's state, its new key, and the number of its resources; ``made``: it was moved before."""

    plan: Plan
    old: str
    new: str
    resources: int
    made: bool


def moves(plan: Plan, layers: Sequence[str], terraform: Terraform) -> Iterator[Move]:
    """What is left under the former keys of one cluster.

    Raises:
        Refused: it belongs to another cluster, or the new key holds another state.
    """
    for layer in layers:
        old_key, new_key = plan.former_key(layer), plan.key(layer)
        old, new = terraform.pull(plan, old_key), terraform.pull(plan, new_key)
        if not old.get("resources"):
            continue
        if (named := owner(old)) not in ("", plan.name):
            raise Refused(
                f"the state {old_key} belongs to {named}, not to {plan.name}",
                hint=f"set MPCTL_ENV to the environment of {named}; {plan.name} starts with no state",
            )
        if new and new.get("lineage") != old.get("lineage"):
            raise Refused(
                f"the key {new_key} holds a state already, and {old_key} another one",
                hint="compare them with 'terraform state pull', and take the wrong one away",
            )
        yield Move(plan, old_key, new_key, len(old["resources"]), bool(new))


def shown(move: Move) -> str:
    what = "moved before" if move.made else f"{move.resources} resources"
    return f"{move.plan.name}: {move.old} -> {move.new} ({what})\n"


def move_state(move: Move, terraform: Terraform) -> None:
    """Copy one state to its new key, and read it back."""
    old = terraform.pull(move.plan, move.old)
    new = terraform.pull(move.plan, move.new, "-migrate-state", "-force-copy")
    if new.get("resources") != old["resources"]:
        raise Refused(f"the state {move.new} is not {move.old} after the move; nothing was removed")


def main(arguments: Sequence[str] = (), environ: Mapping[str, str] = os.environ) -> int:
    """Move every state of the chosen clusters."""
    try:
        settings = load_settings(environ)
        layers = wanted_layers({"MPCTL_LAYERS": "all", **environ}, settings)
        todo = plans(environ, settings, load_fleet(environ), dt.date.today())
        with tempfile.TemporaryDirectory() as folder:
            terraform = Terraform(folder, environ)
            found = [
                move
                for plan in todo
                # The cluster's own state comes first, whatever is chosen: it says whose they all are.
                for move in moves(plan, own_layers(plan, LAYERS), terraform)
                if move.old.rpartition("-")[2] in layers
            ]
            sys.stdout.write("".join(shown(move) for move in found))
            left = [move for move in found if not move.made]
            if not left:
                sys.stdout.write("nothing to move\n")
                return 0
            if "-auto-approve" not in arguments:
                sys.stdout.write("Move them? Only 'yes' does. ")
                sys.stdout.flush()
                if sys.stdin.readline().strip() != "yes":
                    raise Refused("nothing was moved")
            for move in left:
                move_state(move, terraform)
            sys.stdout.write(f"{len(left)} moved; the old ones are kept as copies\n")
    except MpctlError as error:
        return told(error)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
