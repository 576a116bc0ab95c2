"""``kubectl_complete-mpctl``: completes ``kubectl mpctl ...`` for kubectl.

kubectl runs a program of this name beside the plugin and reads the output of cobra's ``__complete``: one candidate per
line with a tab and its description, and a last line with a directive (kubectl documentation, "Extend kubectl with
plugins"; cobra, "Shell completions").
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from click.shell_completion import ShellComplete

from mpctl.cli.context import CliContext
from mpctl.cli.root import cli

_DEFAULT, _NO_FILES = 0, 4  # cobra's ShellCompDirective


def complete(words: Sequence[str]) -> str:
    """Return the answer to kubectl; the last of ``words`` is being typed. Errors give no candidates."""
    before, word = list(words[:-1]), words[-1] if words else ""
    completer = ShellComplete(cli, {"obj": CliContext("kubectl mpctl")}, "mpctl", "_MPCTL_COMPLETE")
    try:
        items = completer.get_completions(before, word)
    except Exception:  # noqa: BLE001  the user is still typing
        items = []
    lines = [
        f"{item.value}\t{item.help}" if item.help else str(item.value)
        for item in items
        if item.type == "plain"
    ]
    files = any(item.type != "plain" for item in items)
    return "\n".join([*lines, f":{_DEFAULT if files else _NO_FILES}"])


def main() -> None:
    """Print the answer and exit."""
    sys.stdout.write(complete(sys.argv[1:]) + "\n")


if __name__ == "__main__":
    main()
