"""The engine of a pod whose start script evaluates VLLM_ADDITIONAL_ARGS and the arguments in a shell."""

from __future__ import annotations

from mpctl.manifest.engine.evaluated import VARIABLE, Evaluated, evaluated_words, is_split
from mpctl.manifest.engine.locate import Engine, Token, environment
from mpctl.manifest.text.shell import Word
from mpctl.manifest.text.view import View, text_of

ENTRYPOINT = ("vllm", "serve")


def engine_of(pod: View, key: str, container: View | None) -> Engine:
    """The engine whose own words are those of the variable, then those of ``args``.

    Raises:
        InputError: a shell cannot read one of them, or the variable comes from elsewhere.
    """
    words: dict[str, tuple[Word, ...]] = {}
    tokens: list[Token] = []
    value = None if container is None else _value(container)
    env = () if container is None else environment(container)
    if value is not None and container is not None:
        tokens += _tokens(container.need("env"), 0, value, words)
    args = None if container is None else container.get("args")
    for index, item in enumerate(() if args is None else args.items()):
        assert args is not None
        tokens += _tokens(args, index, item, words)
    return Engine(
        container if container is not None else pod,
        tuple(tokens),
        ENTRYPOINT,
        None,
        {name: text for name, text in env if name != VARIABLE},
        Evaluated(pod, key, container, value, words),
    )


def _value(container: View) -> View | None:
    listed = container.get("env")
    variable_value = None
    for entry in () if listed is None else listed.items():
        if text_of(entry.get("name")) != VARIABLE:
            continue
        if entry.get("valueFrom") is not None or variable_value is not None:
            raise entry.error(
                f"{VARIABLE} cannot be read here: it comes from elsewhere or is given twice",
                hint="give it once, with its value in this manifest",
            )
        variable_value = entry.get("value")
    return variable_value


def _tokens(listing: View, index: int, item: View, words: dict[str, tuple[Word, ...]]) -> list[Token]:
    evaluated = words[item.path] = evaluated_words(item)
    text = item.text()
    return [
        Token(word.text, listing, index, item, word, word.expanded, word.names, is_split(text, word))
        for word in evaluated
    ]
