"""Variants of a class of traffic: its prompts at another length, with thinking on or off, or for a LoRA adapter.

The prompts of the class are divided among its variants, so that no prompt is sent twice. A long prompt begins with
passages of the built-in files and reports and ends with the prompt itself. A passage occurs in it once, and each prompt
begins with another one: a lookup finds no copy of what is asked for but its own, and no prefix cache helps.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache

from mpctl.errors import InputError
from mpctl.experiment.prompt_files import Chat, Prompt, body_of, built_in_prompts, text_of
from mpctl.json_types import Json
from mpctl.records import Record

_SOURCES = ("edits", "rag")  # the sets whose prompts bring a file or a report of their own
_OF_CODE = (
    "edits",
    "fresh",
)  # they get files first, and reports when these run out; others the other way round
_KILO = 1024


@dataclass(frozen=True)
class Variant(Record):
    """``of``: the class, whose prompts have the sha256 ``digest``; every ``parts``-th of them, from ``part`` on, is of
    this variant. ``context``: tokens of a prompt with its answer, 0 for prompts as they are; ``characters``: of such a
    prompt. ``thinking``: None where the chat template decides. ``adapter``: the name under which a LoRA adapter, or
    the model itself beside adapters, is served; empty where nothing was asked."""

    of: str
    digest: str
    part: int = 0
    parts: int = 1
    context: int = 0
    characters: int = 0
    thinking: bool | None = None
    adapter: str = ""

    @property
    def name(self) -> str:
        """The name of the class of traffic: ``edits-8k-thinking-sql``."""
        length = (
            f"{self.context // _KILO}k"
            if self.context and not self.context % _KILO
            else str(self.context or "")
        )
        thinking = {None: "", True: "thinking", False: "direct"}[self.thinking]
        adapter = re.sub(r"[^a-z0-9]+", "-", self.adapter.lower()).strip("-")
        adapter = re.sub(r"-r(?=[0-9e-]+$)", "-rank", adapter)  # "-r16" would read as a rate
        return "-".join(filter(None, (self.of, length, thinking, adapter)))

    def prompts(self, base: tuple[Prompt, ...]) -> tuple[Prompt, ...]:
        """The variant's prompts, of those of its class.

        Raises:
            InputError: a conversation is to get longer, which only a text can.
        """
        numbered = range(self.part, len(base), self.parts)
        return tuple(
            self._sent(_lengthened(base[n], n, self.characters, self.of)) for n in numbered
        )

    def _sent(self, prompt: Prompt) -> Prompt:
        overrides: Json = {"model": self.adapter} if self.adapter else {}
        if self.thinking is not None:
            overrides["chat_template_kwargs"] = {"enable_thinking": self.thinking}
        return Chat.of({**body_of(prompt), **overrides}) if overrides else prompt


def most_characters() -> int:
    """Characters of all passages, of which a prompt has each at most once."""
    return sum(len(passage) for name in _SOURCES for passage in passages_of(name))


@lru_cache(maxsize=len(_SOURCES))
def passages_of(name: str) -> tuple[str, ...]:
    """The files or the reports of a built-in set."""
    texts, _ = built_in_prompts(name) or ((), 0)
    return tuple(text_of(prompt).partition("\n\n")[2] for prompt in texts)


def _shuffled(passages: tuple[str, ...], number: int) -> list[str]:
    """The passages in an order of the prompt's own; another one is first for each prompt."""
    first = number % len(passages)
    order = sorted(
        range(len(passages)),
        key=lambda n: (n != first, hashlib.sha256(b"%d %d" % (number, n)).digest()),
    )
    return [passages[n] for n in order]


def _lengthened(prompt: Prompt, number: int, characters: int, name: str) -> Prompt:
    """The prompt behind as many passages as make it ``characters`` long; their order follows from its number."""
    if not characters:
        return prompt
    if isinstance(prompt, Chat):
        raise InputError(
            f"{name} has conversations, which cannot be lengthened",
            field="MPCTL_CONTEXTS",
            hint="give prompts of that length with --prompts NAME=FILE",
        )
    room, chosen = characters - len(prompt), list[str]()
    sources = _SOURCES if name in _OF_CODE else _SOURCES[::-1]
    for passage in (
        passage for source in sources for passage in _shuffled(passages_of(source), number)
    ):
        if room <= len("\n\n"):
            break
        if passage in prompt:
            continue
        paragraph = f"{passage}\n\n"
        chosen.append(
            paragraph if len(paragraph) <= room else f"{passage[: room - 2].rpartition(' ')[0]}\n\n"
        )
        room -= len(paragraph)
    return "".join((*chosen, prompt))
