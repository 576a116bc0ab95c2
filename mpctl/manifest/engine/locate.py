"""Find the words that start vLLM in a container's command and args, each with its place in the text.

A word is an item of a YAML list, or a word of a shell script inside such an item. Kubernetes fills in ``$(NAME)`` from
the container's environment before the process starts; that is done here too where the value is in the manifest.

KServe's presets for LLMInferenceService (0.18 and later) start vLLM with
``eval "vllm serve ... ${VLLM_ADDITIONAL_ARGS} $@"``: every argument is read by a shell once more. Quotes in an argument
count, braces and blanks split it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mpctl.errors import InputError
from mpctl.manifest.engine.engine_command import EngineCommand
from mpctl.manifest.text.embedded import Embedded
from mpctl.manifest.text.shell_words import ShellError, ShellWord, commands
from mpctl.manifest.text.view import View, text_of

VARIABLE = "VLLM_ADDITIONAL_ARGS"
_END = "mpctl-end"  # a word behind the argument: it must come out as it is
_QUOTED = re.compile(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"|\\.", re.DOTALL)
_BRACES = re.compile(r"\{[^{}]*(?:,|\.\.)[^{}]*\}", re.DOTALL)


@dataclass(frozen=True)
class EvaluatedArguments:
    """The place of such arguments in the manifest.

    ``pod``: the mapping that has, or gets, the pod template under ``key``. ``container``: the engine's, None when the
    manifest leaves it to the presets. ``value``: the scalar of the variable. ``words``: by the path of their scalar.
    """

    pod: View
    key: str
    container: View | None
    value: View | None
    words: Mapping[str, tuple[ShellWord, ...]]

    def of(self, item: View) -> tuple[ShellWord, ...]:
        """The words of one scalar."""
        return self.words[item.path]


def evaluated_words(item: View) -> tuple[ShellWord, ...]:
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


_SHELLS = frozenset(("sh", "bash", "dash", "ash", "zsh", "ksh"))
_INITS = frozenset(("env", "tini", "dumb-init", "--", "-g", "-s"))
_MODULES = frozenset((
    "vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server", "vllm.entrypoints.launchers.api_server.entry",
    "dynamo.vllm",
))  # fmt: skip
_CLI = "vllm.entrypoints.cli.main"
_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)")
_ALL_POSITIONAL = frozenset(("$@", "$*", "${@}", "${*}"))
_QUIET = frozenset(("echo", "printf", "export", "alias", "which", "command"))
_HIDDEN = re.compile(r"speculative[-_]config|-sc\b|--spec-(?:method|model|tokens)")
_HIDDEN_NAME = re.compile(r"(?i)(?:^|_)SPEC(?:ULATIVE|ULATION|_|$)")
_FLAGS_OF_VLLM = re.compile(
    r"--(?:max[-_]model[-_]len|gpu[-_]memory[-_]utilization|tensor[-_]parallel[-_]size|speculative[-_]config"
    r"|served[-_]model[-_]name|max[-_]num[-_]seqs|max[-_]num[-_]batched[-_]tokens|enforce[-_]eager)\b"
)
_NO_ENGINE_HINT = "start vLLM with `vllm serve` or `python -m vllm.entrypoints.openai.api_server`, directly or in sh -c"


@dataclass(frozen=True)
class ArgumentToken:
    """A word of the engine's command line.

    ``item`` is the list item it stands in, item ``index`` of ``listing``; ``word`` is set when that item is a shell
    script. ``expanded``: its text depends on the environment or the shell. ``names``: the variables it mentions.
    ``split``: a shell makes several words of it, so vLLM never sees it whole.
    """

    text: str
    listing: View
    index: int
    item: View
    word: ShellWord | None = None
    expanded: bool = False
    names: tuple[str, ...] = ()
    split: bool = False


@dataclass(frozen=True)
class Script:
    """The shell script that starts the engine: its item and the words of the one command that does."""

    item: View
    words: tuple[ShellWord, ...]
    first: int
    others: tuple[ShellWord, ...]


@dataclass(frozen=True)
class KeyedArguments:
    """vLLM's flags as keys of a mapping, with the text of their values, in a document inside of a text."""

    document: Embedded


@dataclass(frozen=True)
class Engine:
    """The engine's command line and its place in the manifest. ``home``: the mapping of (missing) ``args``.

    ``evaluated``: set when a shell reads every argument once more; ``key``: the name of ``args`` in its mapping;
    ``keyed``: set where ``home`` has the arguments as keys.
    """

    home: View
    tokens: tuple[ArgumentToken, ...]
    entrypoint: tuple[str, ...] | None
    script: Script | None
    env: Mapping[str, str | None]
    evaluated: EvaluatedArguments | None = None
    key: str = "args"
    keyed: KeyedArguments | None = None

    @property
    def command(self) -> EngineCommand:
        return EngineCommand(tuple(token.text for token in self.tokens), self.entrypoint)

    def words_of(self, item: View) -> tuple[ShellWord, ...]:
        """The words of the engine's command that one scalar holds."""
        if self.evaluated is not None:
            return self.evaluated.of(item)
        assert self.script is not None
        return self.script.words

    def hidden(self) -> InputError | None:
        """The error for a setting that variables or another command may build; None when the words are complete."""
        for token in self.tokens:
            for name in token.names:
                value = self.env.get(name) or ""
                if _HIDDEN.search(value) or (
                    token.text.startswith("$") and _HIDDEN_NAME.search(name)
                ):
                    return self._built(token.item, f"variable {name}")
        for script_word in () if self.script is None else self.script.others:
            if self.script is not None and _HIDDEN.search(script_word.text):
                return self._built(self.script.item, "another command of the script")
        return None

    @staticmethod
    def _built(view: View, where: str) -> InputError:
        return view.error(
            f"the speculative setting comes from {where} and cannot be read or edited safely",
            hint="write --speculative-config with its value on the engine's command line",
        )


def mentions_vllm(*texts: str | None) -> bool:
    """Return whether any of the texts (image, names, arguments) shows that this is vLLM."""
    return any(text and ("vllm" in text.lower() or _FLAGS_OF_VLLM.search(text)) for text in texts)


def environment(container: View) -> tuple[tuple[str, str | None], ...]:
    """The container's ``env``; None for a value that comes from a Secret, a ConfigMap or a field."""
    variables: list[tuple[str, str | None]] = []
    for entry in container.items_at("env"):
        value = entry.get("value")
        outside = entry.get("valueFrom") is not None
        variables.append(
            (entry.need("name").text(), None if outside else "" if value is None else value.text())
        )
    return tuple(variables)


def locate(home: View) -> Engine:
    """The engine's words in ``command`` and ``args`` of the container at ``home``.

    Raises :class:`InputError` when a command is given and no single vLLM start can be found in it.
    """
    env = dict(environment(home))
    tokens: list[ArgumentToken] = []
    started = False
    for part in ("command", "args"):
        listing = home.get(part)
        if listing is not None:
            started = started or part == "command"
            tokens += [_token(listing, i, item, env) for i, item in enumerate(listing.items())]
    shell = _shell(tokens)
    if shell is not None:
        return _from_script(home, tokens, shell, env)
    start = _start([token.text for token in tokens])
    if start is not None:
        first, after = start
        name = tuple(token.text for token in tokens[first:after])
        return Engine(home, tuple(tokens[after:]), name, None, env)
    if started:
        raise home.need("command").error(
            "no vLLM engine is started by this command", hint=_NO_ENGINE_HINT
        )
    return Engine(home, tuple(tokens), None, None, env)


def listed(home: View, key: str, env: Mapping[str, str | None] | None = None) -> Engine:
    """The engine whose arguments stand in one list, as vLLM gets them. ``env``: variables that they may name."""
    env = env or {}
    listing = home.get(key)
    items = () if listing is None else listing.items()
    tokens = tuple(
        _token(listing, i, item, env) for i, item in enumerate(items) if listing is not None
    )
    return Engine(home, tokens, None, None, env, key=key)


def _token(listing: View, index: int, item: View, env: Mapping[str, str | None]) -> ArgumentToken:
    raw = item.text()
    names: list[str] = []

    def fill(match: re.Match[str]) -> str:
        name = match.group(1)
        if name is None:
            return "$"
        if name not in env:
            return match.group()
        names.append(name)
        value = env[name]
        return match.group() if value is None else value

    text = _REFERENCE.sub(fill, raw)
    return ArgumentToken(text, listing, index, item, None, bool(names), tuple(names))


def _start(words: Sequence[str]) -> tuple[int, int] | None:
    """Return begin and end of the words that start vLLM: ``vllm serve`` or ``python -m <module>``."""
    for i, script_word in enumerate(words):
        following = words[i + 1] if i + 1 < len(words) else None
        if script_word.rpartition("/")[2] == "vllm" and following == "serve":
            return i, i + 2
        if script_word == "-m" and following in _MODULES:
            return max(i - 1, 0), i + 2
        if script_word == "-m" and following == _CLI and list(words[i + 2 : i + 3]) == ["serve"]:
            return max(i - 1, 0), i + 3
    return None


def _shell(tokens: Sequence[ArgumentToken]) -> int | None:
    """The index of the script when the words are ``sh -c <script>``, else None."""
    names = [token.text.rpartition("/")[2] for token in tokens]
    shell = next((i for i, name in enumerate(names) if name not in _INITS), None)
    if shell is None or names[shell] not in _SHELLS:
        return None
    takes_script = False
    skip = False
    for k in range(shell + 1, len(tokens)):
        text = tokens[k].text
        if skip:
            skip = False
        elif text.startswith("-") and text != "-":
            takes_script = takes_script or (not text.startswith("--") and "c" in text)
            skip = text.endswith("o") and not text.startswith("--")
        else:
            return k if takes_script else None
    return None


def _from_script(
    home: View, tokens: Sequence[ArgumentToken], index: int, env: Mapping[str, str | None]
) -> Engine:
    holder = tokens[index]
    script = holder.item.text()
    literal_env = {name: value for name, value in env.items() if value is not None}
    try:
        shell_commands = commands(script, literal_env)
    except ShellError as error:
        raise holder.item.error(
            f"the shell script cannot be read: {error}",
            hint="check its quotes; it must run in a POSIX shell",
        ) from error
    starts = [
        (words, start)
        for words in shell_commands
        if words
        and words[0].text not in _QUIET
        and (start := _start([word.text for word in words])) is not None
    ]
    if len(starts) != 1:
        count = "no vLLM engine is" if not starts else "more than one vLLM engine is"
        raise holder.item.error(f"{count} started by this script", hint=_NO_ENGINE_HINT)
    words, (first, after) = starts[0]
    others = tuple(
        script_word for command in shell_commands if command is not words for script_word in command
    )
    script_tokens: list[ArgumentToken] = []
    for script_word in words[after:]:
        if script_word.text in _ALL_POSITIONAL and script_word.expanded:
            script_tokens += tokens[index + 2 :]
        else:
            script_tokens.append(
                ArgumentToken(
                    script_word.text,
                    holder.listing,
                    holder.index,
                    holder.item,
                    script_word,
                    script_word.expanded,
                    script_word.names,
                )
            )
    name = tuple(script_word.text for script_word in words[first:after])
    return Engine(
        home, tuple(script_tokens), name, Script(holder.item, tuple(words), after, others), env
    )


def is_all_positional(word: ShellWord) -> bool:
    """Return whether this is ``"$@"``, which stands for the list items after the script."""
    return word.expanded and word.text in _ALL_POSITIONAL


ENTRYPOINT = ("vllm", "serve")


def engine_of(pod: View, key: str, container: View | None) -> Engine:
    """The engine whose own words are those of the variable, then those of ``args``.

    Raises:
        InputError: a shell cannot read one of them, or the variable comes from elsewhere.
    """
    words: dict[str, tuple[ShellWord, ...]] = {}
    tokens: list[ArgumentToken] = []
    value = None if container is None else _value(container)
    env = () if container is None else environment(container)
    if value is not None and container is not None:
        tokens += _tokens(container.need("env"), 0, value, words, env)
    args = None if container is None else container.get("args")
    for index, item in enumerate(() if args is None else args.items()):
        assert args is not None
        tokens += _tokens(args, index, item, words, env)
    return Engine(
        container if container is not None else pod,
        tuple(tokens),
        ENTRYPOINT,
        None,
        {name: text for name, text in env if name != VARIABLE},
        EvaluatedArguments(pod, key, container, value, words),
    )


def _value(container: View) -> View | None:
    variable_value = None
    for entry in container.items_at("env"):
        if text_of(entry.get("name")) != VARIABLE:
            continue
        if entry.get("valueFrom") is not None or variable_value is not None:
            raise entry.error(
                f"{VARIABLE} cannot be read here: it comes from elsewhere or is given twice",
                hint="give it once, with its value in this manifest",
            )
        variable_value = entry.get("value")
    return variable_value


def _tokens(
    listing: View,
    index: int,
    item: View,
    words: dict[str, tuple[ShellWord, ...]],
    env: Sequence[tuple[str, str | None]],
) -> list[ArgumentToken]:
    """The words of one scalar. Kubernetes puts the values of ``$(NAME)`` in before the shell reads them, which may
    make several words of one."""
    evaluated = words[item.path] = evaluated_words(item)
    text, defined = item.text(), dict(env)
    tokens = []
    for word in evaluated:
        names = (
            *word.names,
            *(name for name in _REFERENCE.findall(text[word.start : word.end]) if name in defined),
        )
        built = word.expanded or names != word.names
        # The shell makes several words of one by expanding its braces.
        split = _BRACES.search(_QUOTED.sub("", text[word.start : word.end])) is not None
        tokens.append(ArgumentToken(word.text, listing, index, item, word, built, names, split))
    return tokens
