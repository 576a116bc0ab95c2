"""The program's entry point.

Importing click takes three times as long as starting Python. The two calls that only print are answered without it:
the version, and the help of the root command; a test compares that with what click prints.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from mpctl import __version__


def program_name() -> str:
    """``kubectl mpctl`` when kubectl runs us as a plugin."""
    return "kubectl mpctl" if os.path.basename(sys.argv[0]).startswith("kubectl-") else "mpctl"  # noqa: PTH119


def main() -> None:
    """Run and exit."""
    _open_streams()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # a locale may lack characters
    code = 0
    try:
        code = run(sys.argv[1:])
        sys.stdout.flush()
    except OSError as error:  # mpctl --help | head; the interpreter's own flush would complain, too
        from mpctl.cli.root import unwritten

        code = unwritten(error, code)
    sys.exit(code)


def _open_streams() -> None:
    """Open the standard streams that the caller closed (``>&-``): a file opened later would get their numbers."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115


def run(arguments: Sequence[str]) -> int:
    """Run a command line and return its exit code."""
    text = _known_answer(list(arguments))
    if text is not None:
        sys.stdout.write(text)
        return 0
    from mpctl.cli import root

    return root.run(program_name(), arguments)


def _known_answer(arguments: list[str]) -> str | None:
    if "_MPCTL_COMPLETE" in os.environ or program_name() != "mpctl":
        return None
    if arguments == ["--version"]:
        return f"mpctl {__version__}\n"
    if arguments in (["--help"], ["-h"]):
        from mpctl.cli import root_help, size

        return root_help.text() if size.width() >= root_help.WIDTH else None
    return None


if __name__ == "__main__":
    main()
