"""``kubectl_complete-mpctl``: what kubectl runs to complete ``kubectl mpctl ...``.

kubectl looks for a program of this name beside the plugin and reads what cobra's ``__complete`` would print: one
candidate per line, a tab and its explanation behind it, and a last line with a directive (kubectl documentation,
"Extend kubectl with plugins"; cobra, "Shell completions").
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

_DEFAULT, _NO_FILES = 0, 4  # cobra's ShellCompDirective


def complete(words: Sequence[str]) -> str:
    """``words``: everything behind ``kubectl mpctl``; the last one is being typed. Silent when something fails."""
    from click.shell_completion import ShellComplete

    from mpctl.cli.context import CliContext
    from mpctl.cli.root import cli

    before, word = list(words[:-1]), words[-1] if words else ""
    completer = ShellComplete(cli, {"obj": CliContext("kubectl mpctl")}, "mpctl", "_MPCTL_COMPLETE")
    try:
        found = completer.get_completions(before, word)
    except Exception:  # noqa: BLE001  somebody is in the middle of typing
        found = []
    lines = [f"{item.value}\t{item.help}" if item.help else str(item.value) for item in found if item.type == "plain"]
    files = any(item.type != "plain" for item in found)
    return "\n".join([*lines, f":{_DEFAULT if files else _NO_FILES}"])


def main() -> None:
    """Print and exit."""
    sys.stdout.write(complete(sys.argv[1:]) + "\n")


if __name__ == "__main__":
    main()
