"""The engine's command line."""

from __future__ import annotations


def with_more(argv: list[str], more: list[str]) -> list[str]:
    """A command line with arguments that it does not show. vLLM prefers a model that stands alone to ``--model``, so
    one that ``more`` begins with takes its place."""
    if more[:1] == ["--model"] and not argv[2].startswith("-"):
        return [*argv[:2], more[1], *argv[3:], *more[2:]]
    return [*argv, *more]
