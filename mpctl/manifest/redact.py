"""Arguments, variables and texts without their secrets, for everything that is shown or recorded."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

HIDDEN = "<hidden>"
# vLLM's --api-key and --hf-token, and whatever is named alike; --tokenizer and --max-tokens-... are not secrets.
_SECRET = re.compile(
    r"--?(?:[a-z0-9._-]*[-_.])?(?:api[-_]?keys?|token|password|secret|credentials?)$", re.IGNORECASE
)


def redacted(arguments: Sequence[str]) -> tuple[str, ...]:
    """The arguments with the values of secret flags hidden, written ``--flag=value`` or ``--flag value``."""
    shown: list[str] = []
    for argument, secret in _secrets_of(arguments):
        flag, equals, _ = argument.partition("=")
        if not secret or (argument.startswith("-") and not equals):
            shown.append(argument)
        else:
            shown.append(f"{flag}={HIDDEN}" if argument.startswith("-") else HIDDEN)
    return tuple(shown)


def split_secrets(arguments: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the arguments without secret flags, and those flags with their values."""
    marked = list(_secrets_of(arguments))
    public = tuple(argument for argument, secret in marked if not secret)
    return public, tuple(argument for argument, secret in marked if secret)


def _secrets_of(arguments: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Yield each argument, and whether it is a secret flag or a value of one.

    ``--api-key`` takes several values: all up to the next flag.
    """
    follows_secret = False
    for argument in arguments:
        if not argument.startswith("-"):
            yield argument, follows_secret
            continue
        flag, equals, _ = argument.partition("=")
        secret = bool(_SECRET.match(flag))
        follows_secret = secret and not equals
        yield argument, secret


# Parts of a variable's name; TOKENIZERS_PARALLELISM and MAX_TOKENS are not secrets.
_PARTS = r"(?:TOKEN|KEY|APIKEY|SECRET|PASSWORD|PASSWD|CREDENTIALS?)"
_NAME = rf"(?:[A-Z0-9]+[_-])*{_PARTS}(?:[_-][A-Z0-9]+)*"
_FLAG = r"--?(?:[a-z0-9._-]*[-_.])?(?:api[-_]?keys?|token|password|secret|credentials?)"
# Keys of connection strings and of URL queries.
_PAIR = (
    r"(?:password|passwd|pwd|secret|token|api_?key|client_?secret|access_?token|auth_?token|access_?key"
    r"|account_?key|shared_?access_?key|sig|signature)"
)
_NAME_LINE = re.compile(
    rf"[+\- ]?\s*(?:-\s+)?[\"']?name[\"']?:\s*[\"']?{_NAME}[\"']?\s*(?:#.*)?", re.IGNORECASE
)
_VALUE_LINE = re.compile(r"([+\- ]?\s*(?:-\s+)?[\"']?value[\"']?:\s*)\S[^\r]*(\r?)")
_LINE = re.compile(r"([+\- ]?\s*)\S[^\r]*(\r?)")
_INLINE = (
    re.compile(
        rf"(name[\"']?:\s*[\"']?{_NAME}[\"']?,\s*[\"']?value[\"']?:\s*)[^,}}\s]+", re.IGNORECASE
    ),
    re.compile(
        rf"((?<![\w-]){_FLAG}(?:=|[\"']?,?[ ]+)[\"']?)[^\s\"'\],-][^\s\"'\],]*", re.IGNORECASE
    ),
    re.compile(rf"([\"']{_NAME}[\"']:\s*\[?[\"'])[^\"']+", re.IGNORECASE),
    re.compile(rf"(\b{_NAME}=[\"']?)[^\s\"']+"),
    re.compile(rf"((?<![\w-]){_PAIR}=)[^\s\"';&,<]+", re.IGNORECASE),
    re.compile(r"(\b(?:Bearer|Basic)\s+)[A-Za-z0-9._~+/=-]{6,}", re.IGNORECASE),
    re.compile(r"(\bauthorization[\"']?\s*[:=]\s*[\"']?)(?!Bearer|Basic)[^\s\"']+", re.IGNORECASE),
    re.compile(r"([a-z][a-z0-9+.-]*://[^/\s:@]*:)[^@\s/]+(?=@)", re.IGNORECASE),
    # Base64 of PEM: "-----BEGIN " with the first letters of the kinds of private keys.
    re.compile(
        r"\b(LS0tLS1CRUdJTi)(?:BQUklWQVRF|BSU0Eg|BFQyBQ|BPUEVOU1NI|BFTkNSWVBU|BEU0Eg|BQR1Ag)[A-Za-z0-9+/=]*"
    ),
    # Tokens that their issuer's prefix gives away, wherever they stand: Hugging Face, GitHub, GitLab, AWS.
    re.compile(r"\b(hf_|gh[opsu]_|github_pat_|glpat-|AKIA|ASIA)[A-Za-z0-9_-]{16,}"),
)
# A flag with several values: the items that follow in a list, in block and in flow style.
_ITEMS = re.compile(
    rf"^([+\- ]?\s*-\s+)([\"']?{_FLAG}[\"']?[ \t]*\r?)((?:\n\1[\"']?[^\s\"'-][^\n]*)+)$",
    re.IGNORECASE | re.MULTILINE,
)
_FLOW_ITEMS = re.compile(
    rf"([\"']{_FLAG}[\"'])((?:\s*,\s*[\"'][^\"'-][^\"']*[\"'])+)", re.IGNORECASE
)
# A private key as lines, in any indentation or diff, or in one line; one that is cut off, as far as it is one.
_PEM = re.compile(
    r"(-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----)"
    r"(.{0,20000}?(?=-----END [A-Z0-9 ]*PRIVATE KEY)|[A-Za-z0-9+/=\\\s-]*)",
    re.DOTALL,
)
_PEM_LINE = re.compile(r"^([+\- ]?\s*)[^\s\"'][^\r\n\"']*", re.MULTILINE)


def masked(text: str) -> str:
    """Return a manifest, diff, log or message with its secrets hidden: values of variables whose names say so, flags,
    authorization headers, passwords in URLs and connection strings, and tokens with a known prefix."""
    lines = text.split("\n")
    values = {at: _end(lines, at) for at, line in enumerate(lines) if _VALUE_LINE.fullmatch(line)}
    inside = {at for start, end in values.items() for at in range(start, end)}
    for start, end in values.items():
        if _belongs_to_secret(lines, inside, start):
            lines[start] = _VALUE_LINE.sub(rf"\1{HIDDEN}\2", lines[start])
            lines[start + 1 : end] = [
                _LINE.sub(rf"\1{HIDDEN}\2", line) for line in lines[start + 1 : end]
            ]
    text = _PEM.sub(_without_key, "\n".join(lines))
    text = _ITEMS.sub(lambda m: m[1] + m[2] + f"\n{m[1]}{HIDDEN}" * m[3].count("\n"), text)
    text = _FLOW_ITEMS.sub(lambda m: m[1] + re.sub(r"[^\s,\"']+(?: [^,\"']+)?", HIDDEN, m[2]), text)
    for pattern in _INLINE:
        text = pattern.sub(rf"\1{HIDDEN}", text)
    return text


def _without_key(match: re.Match[str]) -> str:
    """A private key whose lines are hidden and keep their indentation."""
    begin, body = match.groups()
    first, newline, others = body.partition("\n")
    lines = _PEM_LINE.sub(rf"\1{HIDDEN}", others)
    return f"{begin}{HIDDEN if first.strip() else first}{newline}{lines}"


def _end(lines: Sequence[str], at: int) -> int:
    """The line after a value: a block scalar or a folded string continues on deeper lines."""
    end = at + 1
    while end < len(lines) and (
        not lines[end].strip() or _column(lines[end]) > lines[at].index("value")
    ):
        end += 1
    return end


def _column(line: str) -> int:
    """Indentation of a line of a manifest or of a diff."""
    return len(line) - len(
        line[:1].replace("+", " ").replace("-", " ").lstrip() + line[1:].lstrip()
    )


def _belongs_to_secret(lines: Sequence[str], values: set[int], at: int) -> bool:
    """Return whether the nearest line around a value, other values aside, names a secret: a diff has two values."""
    before = next((i for i in range(at - 1, -1, -1) if i not in values), None)
    after = next((i for i in range(at + 1, len(lines)) if i not in values), None)
    return any(
        i is not None and _NAME_LINE.fullmatch(lines[i]) is not None for i in (before, after)
    )


def plain_secrets(
    env: Sequence[tuple[str, str | None]], arguments: Sequence[str]
) -> tuple[str, ...]:
    """Return the names of variables and flags in which :func:`masked` or :func:`redacted` hides something.

    ``env``: None is a value from elsewhere; ``$(NAME)`` is one, too.
    """
    named = [
        name for name, value in env if value and _hides(f"- name: {name}\n  value: {_plain(value)}")
    ]
    words = [_plain(argument) for argument in arguments]
    hidden = redacted(words)
    for index, (argument, shown) in enumerate(zip(words, hidden, strict=True)):
        flag, _, value = (
            argument.partition("=") if re.match("--?[A-Za-z]", argument) else ("", "", argument)
        )
        if value and (argument != shown or _hides(argument)):
            before = next((w for w in reversed(words[:index]) if w.startswith("-")), argument[:12])
            named.append(flag or before.partition("=")[0])
    return tuple(dict.fromkeys(named))


def _plain(value: str) -> str:
    return re.sub(r"\$\([A-Za-z_][A-Za-z0-9_.-]*\)", "", value)


def _hides(text: str) -> bool:
    return masked(text) != text
