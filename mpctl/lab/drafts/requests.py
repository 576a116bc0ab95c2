"""Requests of the commands that plan and train a draft."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from mpctl.app.option import AboveZero, Duration, File, Whole, option

_execution = partial(option, section="Execution")


_training = partial(option, section="Training")


def _training_prompts() -> Any:
    return _training(
        "--prompts",
        type=File,
        multiple=True,
        metavar="[NAME=]FILE",
        help="Prompts of your traffic, the oldest first: JSONL files, access logs; repeatable.",
    )


@dataclass(frozen=True)
class DraftPlanRequest:
    """The training of a head to plan."""

    method: str | None = _training(
        "--spec", metavar="METHOD", help="Method of the head (default: the method that serves)."
    )
    prompts: tuple[str, ...] = _training_prompts()
    answer_tokens: float = _training(
        "--output-tokens",
        type=AboveZero(),
        metavar="N",
        default="384",
        help="Mean tokens of an answer.",
    )
    reference: float | None = _training(
        "--reference",
        type=AboveZero(),
        metavar="TOKENS",
        help="Tokens per step of a good head (default: what the last promoted rollout measured).",
    )
    now: float | None = _training(
        "--now",
        type=AboveZero(),
        metavar="TOKENS",
        help="Tokens per step now (default: the engines' counters).",
    )
    gpu: str | None = _training(
        "--gpu", metavar="NAME", help="GPU that trains (default: the service's)."
    )
    transcripts: str | None = _training(
        "--transcripts",
        type=File,
        help="JSONL of prompts and answers: what ngram and suffix bring without training.",
    )
    tokenizer: str | None = _training(
        "--tokenizer", type=File, metavar="DIR", help="Directory with the target's tokenizer.json."
    )


@dataclass(frozen=True)
class DraftCardRequest:
    """What is known of a head that another tool trained."""

    target: str = _training(
        "--target",
        metavar="MODEL",
        default="",
        help="Target that it was trained for, as the engine names it.",
    )
    revision: str = _training(
        "--revision", metavar="REVISION", default="", help="Revision of the target."
    )
    method: str | None = _training(
        "--spec", metavar="METHOD", help="Method of the head (default: eagle3)."
    )
    made_with: str = _training(
        "--made-with",
        metavar="TEXT",
        default="",
        help="Trainer and its version, such as 'SpecForge 0.2'.",
    )
    prompts: tuple[str, ...] = _training(
        "--prompts",
        type=File,
        multiple=True,
        metavar="[NAME=]FILE",
        help="Prompts that it was trained on, of which the card keeps salted digests; repeatable.",
    )


@dataclass(frozen=True)
class DraftTrainRequest:
    """A head to train from prompts."""

    method: str | None = _training(
        "--spec", metavar="METHOD", help="Method of the head (default: the method that serves)."
    )
    prompts: tuple[str, ...] = _training_prompts()
    start: str | None = _training(
        "--from",
        metavar="HEAD",
        help="Head to start from: a path in the pod (default: the draft that serves).",
    )
    command: str | None = _training(
        "--trainer",
        metavar="COMMAND",
        help="Command of the training stage, with {transcripts}, {target}, {start}, {out} and {steps}.",
    )
    image: str | None = _training(
        "--trainer-image", metavar="IMAGE", help="Image with the trainer, by digest."
    )
    steps: int = _training(
        "--steps", type=Whole(1), metavar="N", default=1000, help="Steps of the trainer."
    )
    answer_tokens: int = _training(
        "--max-tokens",
        type=Whole(1),
        metavar="N",
        default=1024,
        help="Longest answer that the target regenerates.",
    )
    disk_gib: float = _training(
        "--disk",
        type=AboveZero(),
        metavar="GIB",
        default="20",
        help="Disk for transcripts; collecting stops there.",
    )
    deadline_s: float = _training(
        "--deadline",
        type=Duration(),
        default="6h",
        help="Time of all stages together.",
    )
    accepted: tuple[str, ...] = _training(
        "--accept",
        multiple=True,
        metavar="FINDING",
        help="Finding to accept (unknown-licence); repeatable.",
    )
    apply: bool = _execution(
        "--apply", type=bool, help="Create the objects after a question, and follow the Job."
    )
    queue: str | None = _training(
        "--queue", metavar="NAME", help="LocalQueue of Kueue that starts the Job."
    )
    storage_class: str | None = _training(
        "--storage-class",
        metavar="NAME",
        help="StorageClass of the claim (default: the cluster's).",
    )
    shared: bool = _training("--shared", type=bool, help="Claim that several nodes can mount.")
