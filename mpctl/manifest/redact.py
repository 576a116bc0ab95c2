"""Arguments, variables and texts without their secrets, for everything that is shown or kept."""

from __future__ import annotations

import re
from collections.abc import Sequence

HIDDEN = "<hidden>"
# vLLM's --api-key and --hf-token, and whatever is named alike; --tokenizer and --max-tokens-... are not secrets.
_SECRET = re.compile(r"--?(?:[a-z0-9._-]*[-_.])?(?:api[-_]?keys?|token|password|secret|credentials?)$", re.IGNORECASE)


def redacted(arguments: Sequence[str]) -> tuple[str, ...]:
    """The arguments with the values of secret flags hidden, written ``--flag=value`` or ``--flag value``.

    ``--api-key`` takes several values; all of them up to the next flag are hidden.
    """
    shown: list[str] = []
    hiding = False
    for word in arguments:
        flag, equals, _ = word.partition("=")
        if word.startswith("-"):
            hiding = bool(_SECRET.match(flag)) and not equals
            shown.append(f"{flag}={HIDDEN}" if equals and _SECRET.match(flag) else word)
        else:
            shown.append(HIDDEN if hiding else word)
    return tuple(shown)


# Parts of a variable's name; TOKENIZERS_PARALLELISM and MAX_TOKENS are not secrets.
_PARTS = r"(?:TOKEN|KEY|APIKEY|SECRET|PASSWORD|PASSWD|CREDENTIALS?)"
_NAME = rf"(?:[A-Z0-9]+[_-])*{_PARTS}(?:[_-][A-Z0-9]+)*"
_FLAG = r"--?(?:[a-z0-9._-]*[-_.])?(?:api[-_]?keys?|token|password|secret|credentials?)"
_NAME_LINE = re.compile(rf"[+\- ]?\s*(?:-\s+)?[\"']?name[\"']?:\s*[\"']?{_NAME}[\"']?\s*", re.IGNORECASE)
_VALUE_LINE = re.compile(r"([+\- ]?\s*(?:-\s+)?[\"']?value[\"']?:\s*)\S.*")
_INLINE = (
    re.compile(rf"(name[\"']?:\s*[\"']?{_NAME}[\"']?,\s*[\"']?value[\"']?:\s*)[^,}}\s]+", re.IGNORECASE),
    re.compile(
        rf"((?<![\w-]){_FLAG}(?:=|[\"']?,?[ ]+|[\"']?\n[+\- ]?\s*-\s+)[\"']?)[^\s\"'\],-][^\s\"'\],]*", re.IGNORECASE
    ),
    re.compile(rf"(\b{_NAME}=[\"']?)[^\s\"']+"),
    re.compile(r"(\b(?:Bearer|Basic)\s+)[A-Za-z0-9._~+/=-]{6,}", re.IGNORECASE),
    re.compile(r"(\bauthorization[\"']?\s*[:=]\s*[\"']?)(?!Bearer|Basic)[^\s\"']+", re.IGNORECASE),
    re.compile(r"([a-z][a-z0-9+.-]*://[^/\s:@]*:)[^@\s/]+(?=@)", re.IGNORECASE),
)


def masked(text: str) -> str:
    """Return a manifest, diff, log or message with its secrets hidden: values of variables whose names say so, flags,
    authorization headers, and passwords in URLs."""
    lines = text.split("\n")
    secret = [bool(_NAME_LINE.fullmatch(line)) for line in lines]
    for at, line in enumerate(lines):
        if _VALUE_LINE.fullmatch(line) and _belongs_to_secret(lines, secret, at):
            lines[at] = _VALUE_LINE.sub(rf"\1{HIDDEN}", line)
    text = "\n".join(lines)
    for pattern in _INLINE:
        text = pattern.sub(rf"\1{HIDDEN}", text)
    return text


def _belongs_to_secret(lines: Sequence[str], secret: Sequence[bool], at: int) -> bool:
    """Whether the nearest line before or after a value, other values aside, names a secret: a diff has two values."""
    before = next((i for i in range(at - 1, -1, -1) if not _VALUE_LINE.fullmatch(lines[i])), None)
    after = next((i for i in range(at + 1, len(lines)) if not _VALUE_LINE.fullmatch(lines[i])), None)
    return any(i is not None and secret[i] for i in (before, after))


def plain_secrets(env: Sequence[tuple[str, str | None]], arguments: Sequence[str]) -> tuple[str, ...]:
    """Return the names of variables and flags that hold a secret in plain text. ``env``: None is a value from
    elsewhere; ``$(NAME)`` in an argument is one, too."""
    named = [name for name, value in env if value and re.fullmatch(_NAME, name, re.IGNORECASE)]
    hidden = redacted(arguments)
    for at, (word, shown) in enumerate(zip(arguments, hidden, strict=True)):
        value = word.partition("=")[2] if word.startswith("-") else word
        if word != shown and not value.startswith("$("):
            named.append(word.partition("=")[0] if word.startswith("-") else arguments[at - 1])
    return tuple(dict.fromkeys(named))
