"""Arguments without their secrets, for everything that is shown or kept."""

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
