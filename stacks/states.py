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
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpctl.errors import InputError, MpctlError, Refused
from stacks import backends
from stacks.base import Plan
from stacks.main import load_fleet, load_settings, own_layers, plans, wanted_layers
from stacks.settings import LAYERS

MINUTES = 10
State = Mapping[str, Any]


class Terraform:
    """Terraform in a folder with a backend and nothing else, so that it needs no provider."""

    def __init__(self, folder: str, environ: Mapping[str, str] = os.environ) -> None:
        found = (
            environ.get("TERRAFORM_BINARY_NAME")
            or shutil.which("terraform")
            or shutil.which("tofu")
        )
        if not found:
            raise InputError(
                "terraform not found", hint="install Terraform 1.10 or OpenTofu 1.10 or later"
            )
        self.binary, self.folder = found, folder
        self.environ = {**environ, "TF_IN_AUTOMATION": "1", "CHECKPOINT_DISABLE": "1"}

    def use(self, plan: Plan, key: str, *arguments: str) -> None:
        """Initialise the backend with *key*."""
        backend = plan.settings.backend
        body = {"terraform": {"backend": {backend.type: backends.document(backend, key)}}}
        Path(self.folder, "main.tf.json").write_text(json.dumps(body), "utf-8")
        self.run(key, "init", "-input=false", *arguments)

    def pull(self, plan: Plan, key: str) -> State:
        """The state under *key*; empty without one."""
        self.use(plan, key, "-reconfigure")
        text = self.run(key, "state", "pull").strip()
        return dict(json.loads(text)) if text else {}

    def run(self, key: str, *arguments: str) -> str:
        """What Terraform prints.

        Raises:
            Refused: with Terraform's own words.
        """
        done = subprocess.run(
            [self.binary, *arguments, *(["-no-color"] if arguments[0] == "init" else [])],
            cwd=self.folder,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=MINUTES * 60,
            check=False,
        )
        if done.returncode:
            raise Refused(f"the state {key}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout


def owner(state: State) -> str:
    """The cluster that a state names; "" for one that names none."""
    named = state.get("outputs", {}).get("cluster_name", {}).get("value", "")
    for resource in state.get("resources", ()):
        if (resource["type"], resource["name"]) == ("terraform_data", "owner"):
            named = resource["instances"][0]["attributes"]["input"]["value"]
    return str(named)


def owners(plan: Plan) -> tuple[str | None, str | None]:
    """The cluster that the plan's state names, and, where there is no state yet, the one under the former key; None for
    what cannot be read.
    """
    try:
        with tempfile.TemporaryDirectory() as folder:
            terraform = Terraform(folder)
            state = terraform.pull(plan, plan.key(plan.first_layer))
            # A state that was moved and then destroyed leaves its copy under the former key.
            former = {} if state else terraform.pull(plan, plan.former_key(plan.first_layer))
            return owner(state), owner(former)
    except MpctlError:
        return None, None


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
        same = new.get("lineage") == old.get("lineage")
        if new.get("resources") and not same:
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
    terraform.use(move.plan, move.old, "-reconfigure")
    terraform.use(move.plan, move.new, "-migrate-state", "-force-copy")
    found = len(terraform.pull(move.plan, move.new).get("resources", ()))
    if found != move.resources:
        raise Refused(
            f"the state {move.new} has {found} resources after the move, {move.old} has {move.resources}"
        )


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
        hint = f"\nhint: {error.hint}" if error.hint else ""
        sys.stderr.write(f"error: {error.message}{hint}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
