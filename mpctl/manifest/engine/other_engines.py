"""Recognise other engines by image and command, to refuse them by name."""

from __future__ import annotations

import re
from collections.abc import Iterable

# Patterns that recognise images, commands and runtimes of other engines, each with the engine's common name.
_OTHERS = (
    ("sglang", re.compile(r"\bsglang\b|sglang[.:/-]", re.IGNORECASE)),
    ("tensorrt-llm", re.compile(r"tensorrt[-_]?llm|trtllm", re.IGNORECASE)),
)
_FLAG = re.compile(r"--[\w.-]+")
# An option with its value inside a line of a shell, or as an argument of its own.
_OPTION = re.compile(r"""--[\w.-]+(?:=|\s+)(?:'[^']*'|"(?:[^"\\]|\\.)*"|\{.*\}|[^\s'"]+)""", re.DOTALL)
TITLES = {"sglang": "SGLang", "tensorrt-llm": "TensorRT-LLM"}


def other_engine(texts: Iterable[str | None]) -> str | None:
    """``sglang`` or ``tensorrt-llm`` when image, command or runtime say so; None otherwise. Values of options count for
    nothing: heads for vLLM are called ``lmsys/SGLang-EAGLE3-...`` too.
    """
    value = False
    for text in texts:
        words = "" if value else _OPTION.sub(" ", text or "")
        value = bool(text and _FLAG.fullmatch(text))
        for name, pattern in _OTHERS:
            if pattern.search(words):
                return name
    return None


def not_measurable(engine: str) -> tuple[str, str]:
    """Return the error and the hint for a service of another engine."""
    title = TITLES[engine]
    return (
        f"the engine is {title}: the gate counts drafted and accepted tokens by vLLM's counters, which {title} "
        "does not have, so a rollout could not be measured",
        f"measure speculation on {title} with its own tools, or serve the model with vLLM",
    )
