"""Arguments that a start script passes through ``eval``: every one of them is read by a shell once more.

KServe's presets for LLMInferenceService (0.18 and later) start vLLM with
``eval "vllm serve ... ${VLLM_ADDITIONAL_ARGS} $@"``. Quotes in an argument count, braces and blanks split it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from mpctl.manifest.text.shell import ShellError, Word, commands
from mpctl.manifest.text.view import View

VARIABLE = "VLLM_ADDITIONAL_ARGS"
_END = "mpctl-end"  # a word behind the argument: it must come out as it is
_QUOTED = re.compile(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"|\\.", re.DOTALL)
_BRACES = re.compile(r"\{[^{}]*(?:,|\.\.)[^{}]*\}", re.DOTALL)


@dataclass(frozen=True)
class Evaluated:
    """The place of such arguments in the manifest.

    ``pod``: the mapping that has, or gets, the pod template under ``key``. ``container``: the engine's, None when the
    manifest leaves it to the presets. ``value``: the scalar of the variable. ``words``: by the path of their scalar.
    """

    pod: View
    key: str
    container: View | None
    value: View | None
    words: Mapping[str, tuple[Word, ...]]

    def of(self, item: View) -> tuple[Word, ...]:
        """The words of one scalar."""
        return self.words[item.path]


def evaluated_words(item: View) -> tuple[Word, ...]:
    """The words that a shell makes of the scalar at ``item``.

    Raises:
        InputError: a quote is not closed, or an operator or a comment ends the command.
    """
    text = item.text()
    try:
        shell_commands = commands(f"{text} {_END}", {})
    except ShellError as error:
        raise item.error(
            f"KServe's start script evaluates this argument in a shell, which cannot read it: {error}",
            hint="close the quotes within the argument",
        ) from error
    if len(shell_commands) != 1 or shell_commands[0][-1].text != _END:
        raise item.error(
            "KServe's start script evaluates this argument in a shell, which ends the command in it",
            hint="quote the value inside the argument, such as --flag='a;b'",
        )
    return tuple(shell_commands[0][:-1])


def is_split(text: str, word: Word) -> bool:
    """Return whether the shell makes several words of one by expanding its braces."""
    return _BRACES.search(_QUOTED.sub("", text[word.start : word.end])) is not None
