"""The engine's command line."""

from __future__ import annotations


def with_more(argv: list[str], added: list[str]) -> list[str]:
    """A command line with arguments that it does not show. vLLM serves the first ``--model`` of several, so one that
    ``added`` begins with comes first, in the place of a model that stands alone."""
    if added[:1] != ["--model"]:
        return [*argv, *added]
    own = argv[2:] if argv[2].startswith("-") else argv[3:]
    return [*argv[:2], *added[:2], *own, *added[2:]]
