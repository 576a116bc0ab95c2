"""The engine's command line as vLLM's parser sees it.

Spellings follow vLLM 0.32 (``vllm/engine/arg_utils.py``, ``vllm/utils/argparse_utils.py``): underscores and dashes are
the same before the first dot, ``--flag=value`` and ``--flag value`` too, and the last of several wins. Which flags
take no value is a table, because ``--enforce-eager model`` and ``--port 80`` cannot be told apart otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from mpctl.packaged import packaged

SPECULATIVE = "--speculative-config"

_FLAGS = packaged(__package__, "flags.yaml")
ALIASES: Mapping[str, str] = MappingProxyType(_FLAGS["aliases"])

# Flags that take no value, of every release that methods are known of; tests/contracts compare them with vLLM's parser.
BOOLEANS = frozenset(Path(__file__).with_name("switches.txt").read_text("utf-8").split())

_MANY = frozenset(_FLAGS["many"])  # take every word up to the next flag

_NUMBER = re.compile(r"-(\d+|\d*\.\d+)")


def canonical(flag: str) -> str:
    """``--tensor_parallel_size``, ``tensor-parallel-size`` and ``-tp`` are one flag; keys after a dot are kept."""
    head, dot, tail = flag.partition(".")
    if not head.startswith("-"):
        head = f"--{head}"
    if head.startswith("--"):
        head = "--" + head[2:].replace("_", "-")
    head = ALIASES.get(head, head)
    if len(head) >= len("--specu") and SPECULATIVE.startswith(head):
        head = SPECULATIVE  # argparse accepts an unambiguous beginning
    return head + dot + tail


@dataclass(frozen=True)
class Flag:
    """A flag on the line: ``written`` as it stands, token ``index``, and ``value_index`` when its value is apart."""

    name: str
    written: str
    value: str | None
    index: int
    value_index: int | None

    @property
    def joined(self) -> bool:
        return self.value is not None and self.value_index is None


def parse(argv: Sequence[str]) -> tuple[tuple[Flag, ...], tuple[int, ...]]:
    """The flags of ``argv`` in order, and the indexes of what belongs to no flag (the model)."""
    flags: list[Flag] = []
    positional: list[int] = []
    i = 0
    while i < len(argv):
        if argv[i] == "--":  # words behind it are no flags
            positional.extend(range(i, len(argv)))
            break
        if not is_flag(argv[i]):
            positional.append(i)
            i += 1
            continue
        flag, i = _flag(argv, i)
        flags.append(flag)
    return tuple(flags), tuple(positional)


def is_flag(token: str) -> bool:
    """Return whether a word is a flag; a negative number is a value."""
    return token.startswith("-") and len(token) > 1 and not _NUMBER.fullmatch(token)


def _flag(argv: Sequence[str], i: int) -> tuple[Flag, int]:
    """The flag at ``i`` and the index after it."""
    token = argv[i]
    if len(token) > 2 and token.startswith("-O"):
        return Flag("--optimization-level", "-O", token[2:].removeprefix("="), i, None), i + 1
    written, equals, value = token.partition("=")
    name = canonical(written)
    if equals:
        return Flag(name, written, value, i, None), i + 1
    bare = name in BOOLEANS or name.startswith("--no-")
    following = argv[i + 1] if i + 1 < len(argv) else None
    takes = following is not None and ("." in name or not is_flag(following))
    if bare or not takes:
        return Flag(name, written, None, i, None), i + 1
    after = i + 2
    while name in _MANY and after < len(argv) and not is_flag(argv[after]):
        after += 1
    return Flag(name, written, following, i, i + 1), after


@dataclass(frozen=True)
class EngineCommand:
    """``argv``: what vLLM's parser is given. ``entrypoint``: how the manifest starts vLLM, None when the image does.

    Words that only the shell or a Secret can fill in stand as they are written (``$MODEL``).
    """

    argv: tuple[str, ...]
    entrypoint: tuple[str, ...] | None = None

    def get(self, flag: str) -> str | None:
        """The value that counts for ``flag`` in any spelling; None when it is absent or takes no value."""
        return self._last().get(canonical(flag))

    def has(self, flag: str) -> bool:
        """Return whether ``flag`` is on; ``--no-flag`` after it turns it off."""
        name = canonical(flag)
        opposite = "--no-" + name[2:]
        on = False
        for option in parse(self.argv)[0]:
            if option.name in (name, opposite):
                on = option.name == name
        return on

    def flags(self) -> Mapping[str, str | None]:
        """Every flag by its long name with dashes, and the value that counts (None for a bare switch)."""
        return MappingProxyType(self._last())

    def positional(self) -> tuple[str, ...]:
        return tuple(self.argv[i] for i in parse(self.argv)[1])

    @property
    def model(self) -> str | None:
        """``--model``, or the first word that belongs to no flag."""
        named = self.get("--model")
        return named if named is not None else next(iter(self.positional()), None)

    def _last(self) -> dict[str, str | None]:
        return {flag.name: flag.value for flag in parse(self.argv)[0]}
