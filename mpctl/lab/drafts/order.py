"""A training order: which head is trained for which target on which prompts, and the interface of what runs it.

Locally and in a Job an order takes the same three stages: ``collect`` has the target answer the prompts and keeps its
hidden states, ``train`` runs the order's command, ``card`` measures old and new head on the hold-out and deletes the
transcripts.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from mpctl.errors import InputError
from mpctl.experiment.prompt_files import Prompt, body_of
from mpctl.json_types import Json
from mpctl.lab.drafts.card import Card, StartHead, Target, prompt_digest
from mpctl.records import Record

TRAIN_SHARE = 0.8  # of the conversations, the oldest; the newest are the hold-out
_LEAST = 10  # conversations: fewer leave a hold-out without an interval
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_PLACEHOLDERS = ("transcripts", "target", "start", "out", "steps")


@dataclass(frozen=True)
class Split:
    """Prompts without duplicates: those that are trained on, and the hold-out."""

    training: tuple[Prompt, ...]
    holdout: tuple[Prompt, ...]

    @classmethod
    def of(cls, prompts: Sequence[Prompt], salt: str) -> Split:
        """Split prompts, the oldest first, by conversation: the oldest 80 % are trained on, the newest 20 % held out.

        All turns of a conversation are on the side of its first one.

        Raises:
            InputError: there are fewer than ten conversations.
        """
        conversations: dict[str, list[Prompt]] = {}
        for prompt in dict.fromkeys(prompts):
            conversations.setdefault(prompt_digest(prompt, salt), []).append(prompt)
        count = len(conversations)
        if count < _LEAST:
            raise InputError(
                f"{count} conversations are too few to train on: at least {_LEAST}",
                field="--prompts",
                hint="collect more of the service's traffic",
            )
        order = list(conversations.values())
        cut = round(TRAIN_SHARE * count)
        return cls(
            tuple(prompt for turns in order[:cut] for prompt in turns),
            tuple(
                turns[-1] for turns in order[cut:]
            ),  # one per conversation: the hold-out's prompts are independent
        )


def digest_of(prompts: Split, salt: str) -> str:
    """Return the digest over the whole text of all prompts: sha256 over the salt and prompts.jsonl, hex."""
    return hashlib.sha256(f"{salt}\n{prompt_lines(prompts)}".encode()).hexdigest()


def prompt_lines(prompts: Split) -> str:
    """Return the text of a head's prompts.jsonl."""
    sides = (("training", prompts.training), ("holdout", prompts.holdout))
    return "".join(
        json.dumps({"body": body_of(prompt), "side": side}) + "\n"
        for side, prompts in sides
        for prompt in prompts
    )


@dataclass(frozen=True)
class Limits(Record):
    """Limits of an order. ``disk_gib``: of transcripts with hidden states, where collecting stops; ``deadline_s``: of
    all stages; ``steps``: of the trainer; ``answer_tokens``: of one answer."""

    disk_gib: float = 20.0
    deadline_s: float = 6 * 3600.0
    steps: int = 1000
    answer_tokens: int = 1024


@dataclass(frozen=True)
class Images(Record):
    """Container images of a Job: ``engine`` runs vLLM in ``collect`` and ``card``, ``trainer`` the order's command."""

    engine: str = ""
    trainer: str = ""


@dataclass(frozen=True)
class TrainingOrder(Record):
    """An order. It holds no text of a prompt: ``training`` and ``holdout`` are digests of conversations under ``salt``,
    ``prompts`` is one over the whole text of all.

    ``name``: the service and a number, ``qwen-7``; ``start``: None trains from nothing; ``command``: the trainer's
    arguments with ``{transcripts}``, ``{target}``, ``{start}``, ``{out}`` and ``{steps}``; ``made_with``: the trainer's
    program; ``speculation``: the engine's settings of the method but its head and ``k`` tokens.
    """

    name: str
    service: str
    method: str
    target: Target
    salt: str
    training: tuple[str, ...]
    holdout: tuple[str, ...]
    command: tuple[str, ...]
    k: int = 3
    start: StartHead | None = None
    limits: Limits = Limits()
    images: Images = Images()
    made_with: str = ""
    speculation: Json = field(default_factory=dict)
    prompts: str = ""

    def __post_init__(self) -> None:
        """Raises :class:`InputError` for a name that is no folder's or for an unknown placeholder of the command."""
        if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", self.name):
            raise InputError(
                f"{self.name!r} is no name of a head", field="name", hint="such as qwen-7"
            )
        for unknown in set(_PLACEHOLDER.findall(" ".join(self.command))) - {*_PLACEHOLDERS}:
            hint = ", ".join(f"{{{name}}}" for name in _PLACEHOLDERS)
            raise InputError(
                f"the trainer's command has an unknown {{{unknown}}}", field="--trainer", hint=hint
            )

    def trainer_command(self, values: Mapping[str, str]) -> list[str]:
        """Return the command with its placeholders replaced; an argument whose placeholder has no value is left out
        together with the option before it."""
        filled: list[str] = []
        for argument in self.command:
            named = _PLACEHOLDER.findall(argument)
            if any(not values.get(name) for name in named):
                if filled and filled[-1].startswith("-") and "=" not in filled[-1]:
                    filled.pop()
                continue
            filled.append(_PLACEHOLDER.sub(lambda match: values[match[1]], argument))
        return filled


def program_of(command: Sequence[str]) -> str:
    """Return the program of a trainer's command: of a Python command its script or module."""
    words = [
        word
        for word in command
        if word != "-m" and not re.fullmatch(r"(.*/)?(python[\d.]*|env)", word)
    ]
    return words[0].rpartition("/")[2] if words else ""


def next_name(service: str, taken: Iterable[str]) -> str:
    """Return the service's next head name: the highest number in use plus one."""
    numbers = [
        int(match[1])
        for name in taken
        if (match := re.fullmatch(rf"{re.escape(service)}-(\d{{1,9}})", name))
    ]
    return f"{service}-{max(numbers, default=0) + 1}"


class TrainingPhase(StrEnum):
    """Where an order is."""

    PENDING = "pending"  # not started: no capacity, or suspended
    COLLECTING = "collecting"
    TRAINING = "training"
    CARD = "card"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True)
class TrainingStatus(Record):
    """The state of an order. ``uid`` names its run; ``message`` says why it waits or failed."""

    phase: TrainingPhase
    message: str = ""
    uid: str = ""

    @property
    def over(self) -> bool:
        """True when nothing runs any more."""
        return self.phase in (TrainingPhase.DONE, TrainingPhase.FAILED)


class Trainer(Protocol):
    """Runs training orders."""

    def submit(self, order: TrainingOrder, prompts: Split) -> str:
        """Start the order and return its uid. An order whose name is submitted already is never started twice: its uid
        is returned."""

    def status(self, uid: str) -> TrainingStatus | None:
        """Return the state of a run; None if there is none of this uid."""

    def card(self, uid: str) -> Card:
        """Return the card of a run that is done.

        Raises:
            MpctlError: the run is not done, or its card is damaged.
        """

    def cancel(self, uid: str) -> None:
        """Stop a run; one that is over or gone stays as it is."""

    def purge(self, name: str) -> None:
        """Delete the data and the head of an order, and its run."""
