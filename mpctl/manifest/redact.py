"""Arguments, variables and texts without their secrets, for everything that is shown or recorded."""

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


def split_secrets(arguments: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the arguments without secret flags, and those flags with their values."""
    public: list[str] = []
    secret: list[str] = []
    hiding = False
    for word in arguments:
        if word.startswith("-"):
            flag, equals, _ = word.partition("=")
            named = bool(_SECRET.match(flag))
            hiding = named and not equals
            (secret if named else public).append(word)
        else:
            (secret if hiding else public).append(word)
    return tuple(public), tuple(secret)


# Parts of a variable's name; TOKENIZERS_PARALLELISM and MAX_TOKENS are not secrets.
_PARTS = r"(?:TOKEN|KEY|APIKEY|SECRET|PASSWORD|PASSWD|CREDENTIALS?)"
_NAME = rf"(?:[A-Z0-9]+[_-])*{_PARTS}(?:[_-][A-Z0-9]+)*"
_FLAG = r"--?(?:[a-z0-9._-]*[-_.])?(?:api[-_]?keys?|token|password|secret|credentials?)"
# Keys of connection strings and of URL queries.
_PAIR = (
    r"(?:password|passwd|pwd|secret|token|api_?key|client_?secret|access_?token|auth_?token|access_?key"
    r"|account_?key|shared_?access_?key|sig|signature)"
)
_NAME_LINE = re.compile(rf"[+\- ]?\s*(?:-\s+)?[\"']?name[\"']?:\s*[\"']?{_NAME}[\"']?\s*(?:#.*)?", re.IGNORECASE)
_VALUE_LINE = re.compile(r"([+\- ]?\s*(?:-\s+)?[\"']?value[\"']?:\s*)\S[^\r]*(\r?)")
_LINE = re.compile(r"([+\- ]?\s*)\S[^\r]*(\r?)")
_INLINE = (
    re.compile(rf"(name[\"']?:\s*[\"']?{_NAME}[\"']?,\s*[\"']?value[\"']?:\s*)[^,}}\s]+", re.IGNORECASE),
    re.compile(
        rf"((?<![\w-]){_FLAG}(?:=|[\"']?,?[ ]+|[\"']?\n[+\- ]?\s*-\s+)[\"']?)[^\s\"'\],-][^\s\"'\],]*", re.IGNORECASE
    ),
    re.compile(rf"([\"']{_NAME}[\"']:\s*\[?[\"'])[^\"']+", re.IGNORECASE),
    re.compile(rf"(\b{_NAME}=[\"']?)[^\s\"']+"),
    re.compile(rf"((?<![\w-]){_PAIR}=)[^\s\"';&,<]+", re.IGNORECASE),
    re.compile(r"(\b(?:Bearer|Basic)\s+)[A-Za-z0-9._~+/=-]{6,}", re.IGNORECASE),
    re.compile(r"(\bauthorization[\"']?\s*[:=]\s*[\"']?)(?!Bearer|Basic)[^\s\"']+", re.IGNORECASE),
    re.compile(r"([a-z][a-z0-9+.-]*://[^/\s:@]*:)[^@\s/]+(?=@)", re.IGNORECASE),
    # Tokens that their issuer's prefix gives away, wherever they stand: Hugging Face, GitHub, GitLab, AWS.
    re.compile(r"\b(hf_|gh[opsu]_|github_pat_|glpat-|AKIA|ASIA)[A-Za-z0-9_-]{16,}"),
)


def masked(text: str) -> str:
    """Return a manifest, diff, log or message with its secrets hidden: values of variables whose names say so, flags,
    authorization headers, passwords in URLs and connection strings, and tokens with a known prefix."""
    lines = text.split("\n")
    values = {at: _end(lines, at) for at, line in enumerate(lines) if _VALUE_LINE.fullmatch(line)}
    inside = {at for start, end in values.items() for at in range(start, end)}
    for start, end in values.items():
        if _belongs_to_secret(lines, inside, start):
            lines[start] = _VALUE_LINE.sub(rf"\1{HIDDEN}\2", lines[start])
            lines[start + 1 : end] = [_LINE.sub(rf"\1{HIDDEN}\2", line) for line in lines[start + 1 : end]]
    text = "\n".join(lines)
    for pattern in _INLINE:
        text = pattern.sub(rf"\1{HIDDEN}", text)
    return text


def _end(lines: Sequence[str], at: int) -> int:
    """The line after a value: a block scalar or a folded string continues on deeper lines."""
    end = at + 1
    while end < len(lines) and (not lines[end].strip() or _column(lines[end]) > lines[at].index("value")):
        end += 1
    return end


def _column(line: str) -> int:
    """Indentation of a line of a manifest or of a diff."""
    return len(line) - len(line[:1].replace("+", " ").replace("-", " ").lstrip() + line[1:].lstrip())


def _belongs_to_secret(lines: Sequence[str], values: set[int], at: int) -> bool:
    """Return whether the nearest line around a value, other values aside, names a secret: a diff has two values."""
    before = next((i for i in range(at - 1, -1, -1) if i not in values), None)
    after = next((i for i in range(at + 1, len(lines)) if i not in values), None)
    return any(i is not None and _NAME_LINE.fullmatch(lines[i]) is not None for i in (before, after))


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
