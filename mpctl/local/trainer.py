"""Trains heads in processes of this machine: implements ``mpctl.lab.drafts.order.Trainer``.

A head's folder lies in its service's: ``drafts/NAME/`` with order, prompts, transcripts, ``head/`` and card. The stages
run in a process group of their own, so that they outlive the command; ``state.json`` names the stage that runs.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from pathlib import Path

from mpctl import commands
from mpctl.app.session.base import Source
from mpctl.errors import InputError, MpctlError
from mpctl.json_types import Json
from mpctl.lab.drafts.card import Card, card_of
from mpctl.lab.drafts.order import Split, TrainingOrder, TrainingPhase, TrainingStatus, prompt_lines
from mpctl.local.desired import Process
from mpctl.local.engine import DEFAULT_ENV, python_of, with_loopback
from mpctl.local.processes import alive, identify, marked, stop_group
from mpctl.local.session import LocalSession
from mpctl.platform.state_files import (
    locked,
    part_of_path,
    read_json,
    state_root,
    write_json,
    write_text,
)
from mpctl.records import decode, encode, restored

PROGRAM = Path(__file__).parents[1] / "lab" / "in_engine" / "heads.py"
_DAMAGED = f"'{commands.line('drafts', 'purge', 'HEAD')}' deletes the head"


class LocalTrainer:
    """``directory``: of the service; ``python``: of the engine; ``cwd``: where the service's relative paths start."""

    def __init__(self, directory: Path, python: str, cwd: Path) -> None:
        self._drafts, self._python, self._cwd = directory / "drafts", python, cwd

    def folder(self, head: str) -> Path:
        """The folder of a head. Raises :class:`InputError` for a name that would lead elsewhere."""
        return self._drafts / part_of_path(head)

    def weights(self, head: str) -> str:
        """Return the folder of a head's weights."""
        return str(self.folder(head) / "head")

    def orders(self) -> tuple[TrainingOrder, ...]:
        """Return every order of the service, the oldest number first."""
        orders = [
            restored(path, TrainingOrder.from_record, read_json(path), hint=_DAMAGED)
            for path in self._drafts.glob("*/order.json")
        ]
        return tuple(
            sorted(orders, key=lambda order: (int(order.name.rpartition("-")[2] or 0), order.name))
        )

    def cards(self) -> tuple[Card, ...]:
        """Return the cards that were written."""
        return tuple(self._card(path) for path in sorted(self._drafts.glob("*/card.json")))

    def _card(self, path: Path) -> Card:
        return restored(path, card_of, read_json(path, hint=_DAMAGED), hint=_DAMAGED)

    def uid_of(self, head: str) -> str | None:
        """Return the uid of a head's run; None without one."""
        state = self._state(self.folder(head))
        return None if state is None else str(state["uid"])

    def _state(self, folder: Path) -> Json | None:
        state: Json | None = read_json(folder / "state.json", hint=_DAMAGED)
        return state

    def submit(self, order: TrainingOrder, prompts: Split) -> str:
        """Start the order's stages, or those that an interrupted run has not done; return the run's uid.

        Raises:
            InputError: the trainer's command names no program of this machine.
        """
        folder, program = self.folder(order.name), order.command[0] if order.command else ""
        if shutil.which(str(self._cwd / program) if "/" in program else program) is None:
            raise InputError(f"this machine has no program {program!r}", field="--trainer")
        with locked(self._drafts / ".lock"):
            uid = self.uid_of(order.name) or secrets.token_hex(8)
            if (folder / "card.json").exists() or self._runs(folder):
                return uid
            write_json(folder / "order.json", order.to_record())
            write_text(folder / "prompts.jsonl", prompt_lines(prompts))
            self._start(folder, order, uid)
        return uid

    def _start(self, folder: Path, order: TrainingOrder, uid: str) -> None:
        values = {
            "transcripts": str(folder / "transcripts"),
            "target": str(self._path(order.target.model)),
            "start": str(self._path(order.start.head)) if order.start else "",
            "out": str(folder / "head"),
            "steps": str(order.limits.steps),
        }
        write_json(
            folder / "state.json", {"uid": uid, "phase": TrainingPhase.PENDING.value, "message": ""}
        )
        environment = with_loopback({**DEFAULT_ENV, **os.environ})
        process = subprocess.Popen(
            [self._python, str(PROGRAM), str(folder), "run", uid, *order.trainer_command(values)],
            cwd=self._cwd,
            env=marked(environment, str(state_root()), f"draft/{order.name}"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        process.returncode = 0  # it outlives this command, which waits for state.json alone
        running = identify(process.pid)
        write_json(folder / "process.json", None if running is None else encode(running))

    def _path(self, checkpoint: str) -> str:
        path = self._cwd / Path(checkpoint).expanduser()
        return str(path) if path.is_dir() else checkpoint

    def _process(self, folder: Path) -> Process | None:
        record = read_json(folder / "process.json", hint=_DAMAGED)
        return None if record is None else decode(Process, record)

    def _runs(self, folder: Path) -> bool:
        return alive(self._process(folder)) is not None

    def status(self, uid: str) -> TrainingStatus | None:
        """Return the state of a run; None if there is none of this uid."""
        folder = self._folder_of(uid)
        if folder is None:
            return None
        with locked(self._drafts / ".lock"):  # a run that is being submitted has no process yet
            runs = self._runs(folder)
        state = self._state(folder)  # read last: a run may have ended meanwhile
        if state is None:
            return None
        status = TrainingStatus(TrainingPhase(state["phase"]), state["message"], uid)
        if runs or status.over:
            return status
        return TrainingStatus(TrainingPhase.FAILED, f"its process ended while {status.phase}", uid)

    def _folder_of(self, uid: str) -> Path | None:
        folders = (path.parent for path in self._drafts.glob("*/state.json"))
        return next((folder for folder in folders if self.uid_of(folder.name) == uid), None)

    def card(self, uid: str) -> Card:
        """Return the card of a run that is done.

        Raises:
            MpctlError: the run is not done, or its card is damaged.
        """
        folder = self._folder_of(uid)
        if folder is None or not (folder / "card.json").exists():
            raise MpctlError(f"the training {uid} has written no card")
        return self._card(folder / "card.json")

    def cancel(self, uid: str) -> None:
        """Stop a run; its folder stays."""
        folder = self._folder_of(uid)
        if folder is not None:
            stop_group(self._process(folder))

    def purge(self, name: str) -> None:
        """Delete the folder of a head, and stop its run."""
        folder = self.folder(name)
        stop_group(self._process(folder))
        shutil.rmtree(folder, ignore_errors=True)

    def running(self) -> tuple[str, ...]:
        """Describe each training that is not over."""
        states = [
            (order.name, self.status(self.uid_of(order.name) or "")) for order in self.orders()
        ]
        return tuple(
            f"{name}: {status.phase}"
            for name, status in states
            if status is not None and not status.over
        )

    def close(self) -> None:
        """Nothing is open."""


def local_heads(source: Source) -> LocalTrainer | None:
    """The heads in the state of a service on this machine; None for one that runs elsewhere."""
    if not isinstance(source, LocalSession):
        return None
    desired = source.platform.desired()
    return LocalTrainer(
        source.platform.directory, desired.python or python_of(None), Path(desired.cwd)
    )
