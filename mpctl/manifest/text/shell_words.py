"""Enough of the POSIX shell to find one command in a script and know where each of its words stands.

This reads; it never runs. Quotes, escapes, line continuations, comments, redirections, here-documents and operators
are understood. Expansions are recognised and filled in only where the environment of the manifest says their value;
a word that depends on one is marked ``expanded``, and what stays unknown keeps its source text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_OPERATOR = re.compile(r"&&|\|\||;;|[;&|()\n]")
_REDIRECT = re.compile(r"&>>|&>|<<<|<<-|<<|>>|>&|<&|>\||<>|[<>]")
_ASSIGN = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_NAME = re.compile(
    r"\$([A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-])|\$\{([A-Za-z_@*][A-Za-z0-9_]*)(?:(:?-)([^{}$]*))?\}"
)
_SAFE = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")


class ShellError(ValueError):
    """The script cannot be read; ``position`` is where in its text."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.position = position


@dataclass(frozen=True)
class ShellWord:
    """A word: ``start:end`` in the script, ``text`` after quoting, ``ends[i]`` where character i of it ends.

    ``expanded``: the shell fills in part of it. ``names``: the variables it mentions.
    """

    start: int
    end: int
    text: str
    ends: tuple[int, ...]
    expanded: bool
    names: tuple[str, ...]


def commands(script: str, env: Mapping[str, str]) -> list[list[ShellWord]]:
    """The simple commands of ``script`` in order, each a list of words. Raises :class:`ShellError`."""
    return _Lexer(script, dict(env)).run()


def quote(text: str, style: str = "") -> str:
    """``text`` as one shell word: bare where that is safe, else single quotes; ``style='"'`` for double quotes."""
    if style == '"':
        return '"' + re.sub(r'([\\"$`])', r"\\\1", text) + '"'
    if style == "" and _SAFE.fullmatch(text):
        return text
    return "'" + text.replace("'", "'\\''") + "'"


@dataclass
class _Lexer:
    text: str
    env: dict[str, str]
    at: int = 0
    commands: list[list[ShellWord]] = field(default_factory=list)
    current: list[ShellWord] = field(default_factory=list)
    heredocs: list[str] = field(default_factory=list)

    def run(self) -> list[list[ShellWord]]:
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in " \t":
                self.at += 1
            elif self.text.startswith("\\\n", self.at):
                self.at += 2
            elif char == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            elif (redirect := _REDIRECT.match(self.text, self.at)) is not None:
                self.redirect(redirect.group())
            elif (operator := _OPERATOR.match(self.text, self.at)) is not None:
                self.operator(operator.group())
            else:
                self.word_in_command()
        self.close()
        return self.commands

    def close(self) -> None:
        if self.current:
            self.assignments(self.current)
            self.commands.append(self.current)
        self.current = []

    def assignments(self, words: list[ShellWord]) -> None:
        """``A=b`` and ``export A=b`` on their own are known to the commands after them."""
        assigned = words[1:] if words[0].text == "export" else words
        pairs = [_ASSIGN.fullmatch(word.text) for word in assigned]
        if all(pairs):
            for pair, word in zip(pairs, assigned, strict=True):
                if pair is not None and not (word.expanded and "$" in word.text):
                    self.env[pair.group(1)] = pair.group(2)

    def operator(self, operator: str) -> None:
        self.at += len(operator)
        self.close()
        if operator == "\n":
            for end in self.heredocs:
                self.skip_heredoc(end)
            self.heredocs = []

    def skip_heredoc(self, end: str) -> None:
        while self.at < len(self.text):
            stop = self.text.find("\n", self.at)
            stop = len(self.text) if stop < 0 else stop
            line = self.text[self.at : stop]
            self.at = stop + 1
            if line.strip("\t") == end:
                return

    def redirect(self, operator: str) -> None:
        begin = self.at
        self.at += len(operator)
        if self.text.startswith("(", self.at):
            raise ShellError("process substitution is not understood", begin)
        while self.at < len(self.text) and self.text[self.at] in " \t":
            self.at += 1
        target = self.word()
        if operator in ("<<", "<<-"):
            self.heredocs.append(target.text)

    def word_in_command(self) -> None:
        shell_word = self.word()
        follows = self.text[self.at : self.at + 1]
        if shell_word.text.isdigit() and follows in ("<", ">") and shell_word.end == self.at:
            return  # the 2 of 2>&1 is no argument
        self.current.append(shell_word)

    def word(self) -> ShellWord:
        start = self.at
        shell_word = _ShellWord()
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in " \t\n;&|()<>":
                break
            if char == "'":
                self.single(shell_word)
            elif char == '"':
                self.double(shell_word)
            elif char == "\\":
                escaped = self.text[self.at + 1 : self.at + 2]
                self.at += 2
                if escaped != "\n":
                    shell_word.add(escaped or "\\", min(self.at, len(self.text)))
            elif char in "$`":
                self.expansion(shell_word, quoted=False)
            else:
                self.at += 1
                shell_word.add(char, self.at)
        self.at = min(self.at, len(self.text))
        return ShellWord(
            start,
            self.at,
            "".join(shell_word.text),
            tuple(shell_word.ends),
            shell_word.expanded,
            tuple(shell_word.names),
        )

    def single(self, made: _ShellWord) -> None:
        end = self.text.find("'", self.at + 1)
        if end < 0:
            raise ShellError("a single quote is never closed", self.at)
        for i in range(self.at + 1, end):
            made.add(self.text[i], i + 1)
        self.at = end + 1

    def double(self, made: _ShellWord) -> None:
        opening = self.at
        self.at += 1
        while self.at < len(self.text) and self.text[self.at] != '"':
            char = self.text[self.at]
            following = self.text[self.at + 1 : self.at + 2]
            if char == "\\" and following and following in '\\"$`\n':
                self.at += 2
                if following != "\n":
                    made.add(following, self.at)
            elif char in "$`":
                self.expansion(made, quoted=True)
            else:
                self.at += 1
                made.add(char, self.at)
        if self.at >= len(self.text):
            raise ShellError("a double quote is never closed", opening)
        self.at += 1

    def expansion(self, made: _ShellWord, *, quoted: bool) -> None:
        """``$NAME``, ``${NAME:-x}``, ``$(...)``, backquotes, ``$'...'``; a lone ``$`` is itself."""
        start = self.at
        name = _NAME.match(self.text, start)
        if name is not None:
            self.at = name.end()
            self.variable(made, name, quoted=quoted)
            return
        following = self.text[start + 1 : start + 2]
        if self.text[start] == "`":
            end = self.text.find("`", start + 1)
            self.at = end + 1
        elif following in ("(", "{"):
            self.at = end = _closing(self.text, start + 1)
        elif following == "'" and not quoted:
            end = self.text.find("'", start + 2)
            self.at = end + 1
        else:
            self.at += 1
            made.add("$", self.at)
            return
        if end < 0:
            raise ShellError("an expansion is never closed", start)
        made.expand(self.text[start : self.at], self.at)

    def variable(self, made: _ShellWord, match: re.Match[str], *, quoted: bool) -> None:
        name = match.group(1) or match.group(2)
        value = self.env.get(name)
        if match.group(3) and (value is None or (match.group(3) == ":-" and not value)):
            value = match.group(4)
        made.names.append(name)
        is_literal = value is not None and (quoted or not re.search(r"\s", value))
        made.expand(value if is_literal and value is not None else match.group(), self.at)


@dataclass
class _ShellWord:
    """A word while it is read."""

    text: list[str] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    expanded: bool = False

    def add(self, char: str, end: int) -> None:
        self.text.append(char)
        self.ends.append(end)

    def expand(self, text: str, end: int) -> None:
        self.expanded = True
        for char in text:
            self.add(char, end)


def _closing(text: str, start: int) -> int:
    """Return the index after the bracket that closes the one at ``start``, or -1. Quotes inside are skipped."""
    depth, i = 0, start
    pairs = {"(": ")", "{": "}"}
    opening, closing = text[start], pairs[text[start]]
    while i < len(text):
        char = text[i]
        if char == "\\":
            i += 1
        elif char in "'\"":
            i = text.find(char, i + 1)
            if i < 0:
                return -1
        elif char == opening:
            depth += 1
        elif char == closing:
            depth -= 1
            if depth == 0:
                return i + 1
        i += 1
    return -1
