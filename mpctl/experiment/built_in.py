"""The sets of prompts that mpctl brings along."""

from __future__ import annotations

from importlib import resources

from mpctl.experiment.prompt_files import read_prompts

BUILT_IN = ("edits", "rag", "chat", "math", "fresh")


def built_in_prompts(name: str) -> tuple[tuple[str, ...], int] | None:
    """Distinct prompts of a built-in set and how many repeats were left out; None where there is no such set."""
    if name not in BUILT_IN:
        return None
    file = resources.files("mpctl.experiment") / "prompts" / f"{name}.jsonl"
    return read_prompts(file.read_text(encoding="utf-8"), file=name)
