"""Which prompts are sent, in which order, to which arm.

Blocks alternate between the arms in the order A B B A A B B A ..., so that a slow drift of the machine falls on both
alike. Every prompt is sent once to each arm and never twice: an engine that replays earlier answers (suffix decoding,
prefix caches) looks faster on a repeated prompt than it is.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from mpctl.errors import InputError


@dataclass(frozen=True)
class Workload:
    """A measurement to make.

    ``prompts``: distinct user messages; the first ``warmup`` of them warm both arms and are not counted.
    ``repeats``: blocks per arm and concurrency; ``requests``: prompts per block; ``concurrency``: requests in flight;
    ``max_tokens``: limit per answer; ``temperature``: 0 is greedy, which makes outputs comparable.
    """

    prompts: tuple[str, ...]
    repeats: int
    requests: int
    concurrency: int = 1
    max_tokens: int = 256
    temperature: float = 0.0
    warmup: int = 2

    def __post_init__(self) -> None:
        for name in ("repeats", "requests", "concurrency", "max_tokens"):
            if getattr(self, name) < 1:
                raise InputError(f"must be at least 1, not {getattr(self, name)}", field=name)
        if self.warmup < 0:
            raise InputError(f"must not be negative: {self.warmup}", field="warmup")
        needed = self.warmup + self.repeats * self.requests
        if len(self.prompts) < needed:
            raise InputError(
                f"{len(self.prompts)} distinct prompts are too few: {self.warmup} to warm up and "
                f"{self.repeats} blocks of {self.requests} need {needed}",
                field="prompts",
                hint="add prompts, or lower --repeats or --requests",
            )
        if len(set(self.prompts)) != len(self.prompts):
            raise InputError("prompts repeat", field="prompts")

    @property
    def warmup_prompts(self) -> tuple[str, ...]:
        """Sent to each arm first and not counted."""
        return self.prompts[: self.warmup]

    def slice(self, repeat: int) -> tuple[str, ...]:
        """The prompts of block ``repeat`` (0-based), the same for both arms."""
        start = self.warmup + repeat * self.requests
        return self.prompts[start : start + self.requests]

    def digest(self) -> str:
        """sha256 over everything that decides what is sent."""
        return hashlib.sha256(json.dumps(self.to_record(), sort_keys=True).encode()).hexdigest()

    def to_record(self) -> dict[str, Any]:
        """A JSON object."""
        return {**self.__dict__, "prompts": list(self.prompts)}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Workload:
        """The value :meth:`to_record` wrote."""
        return cls(**{**record, "prompts": tuple(record["prompts"])})


def block_order(arms: tuple[str, ...], repeats: int) -> tuple[tuple[str, int], ...]:
    """(arm, repeat) in the order they are run: the arm that goes first changes from one repeat to the next."""
    order: list[tuple[str, int]] = []
    for repeat in range(repeats):
        turn = arms if repeat % 2 == 0 else arms[::-1]
        order.extend((arm, repeat) for arm in turn)
    return tuple(order)


def read_prompts(text: str, *, file: str) -> tuple[tuple[str, ...], int]:
    """Distinct prompts of a JSONL file in ``vllm bench serve``'s custom format, and how many repeats were dropped.

    Raises:
        InputError: a line is no JSON object with a non-empty string "prompt", or there is none at all.
    """
    prompts: dict[str, None] = {}
    seen = 0
    for number, line in enumerate(text.split("\n"), start=1):  # not splitlines: U+2028 may stand inside a prompt
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise InputError(f"not JSON: {error.msg}", file=file, line=number) from error
        prompt = record.get("prompt") if isinstance(record, dict) else None
        if not isinstance(prompt, str) or not prompt:
            raise InputError(
                "needs a non-empty string",
                file=file,
                line=number,
                field="prompt",
                hint='one JSON object per line: {"prompt": "..."}',
            )
        prompts[prompt] = None
        seen += 1
    if not prompts:
        raise InputError("holds no prompts", file=file, hint='one JSON object per line: {"prompt": "..."}')
    return tuple(prompts), seen - len(prompts)
