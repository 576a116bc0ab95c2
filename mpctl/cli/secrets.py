"""Manifests on the terminal: secrets are hidden unless the user asks for the exact bytes."""

from __future__ import annotations

from mpctl.cli.options.types import option
from mpctl.cli.terminal import Terminal

show_secrets_option = option(
    "--show-secrets", is_flag=True, help="Print secrets of the manifest instead of <hidden>; needed to apply it."
)


def presentable(terminal: Terminal, text: str, *, show_secrets: bool) -> str:
    """Return a manifest of a running or recorded service for printing; warn when secrets are hidden in it."""
    if show_secrets:
        return text
    from mpctl.manifest import masked

    hidden = masked(text)
    if hidden != text:
        terminal.warn("secrets are hidden, so this manifest cannot be applied; --show-secrets prints them")
    return hidden
