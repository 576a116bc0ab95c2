"""Mutations of an input, the same for the same seed: where no coverage-guided fuzzer runs."""

from __future__ import annotations

import random

# What breaks parsers: numbers at their limits, words of YAML and JSON, control and bidirectional characters, nesting.
WORDS = [
    *(
        b'-1 0 1e999 NaN .inf 1.5 null ~ true [] {} "" \' " \\ # + | >- {{.Args}} $(A) hf:// oci://a@sha256:'.split()
    ),
    *(
        b"&a ",
        b"*a",
        b"<<: *a",
        b"!!binary ",
        b"%YAML 9.9\n",
        b"---\n",
        b"- ",
        b": ",
        b"  ",
        b"\t",
        b"\n",
        b"\r\n",
        b"\0",
    ),
    *(b"\xef\xbb\xbf", b"\xff\xfe", b"\xe2\x80\xae", b"\x1b[2J", b"\xf0\x9f\x92\xa5", b"\\ud800"),
    *(b"9" * 40, b"[" * 200, b"{" * 200, b"name: HF_TOKEN\n", b"value: x", b"--api-key"),
]


def mutated(data: bytes, other: bytes, seed: str) -> bytes:
    """``data`` after one to four changes; ``other`` is an input to splice from."""
    chance = random.Random(seed)
    for _ in range(chance.randint(1, 4)):
        position = chance.randrange(len(data) + 1)
        end = min(len(data), position + chance.choice((0, 1, 1, 4, 16, 64)))
        lines = data.split(b"\n")
        match chance.randrange(6):
            case 0:
                data = data[:position] + chance.choice(WORDS) + data[end:]
            case 1:
                data = data[:position] + data[end:]
            case 2:
                data = data[:position] + bytes([chance.randrange(256)]) + data[position + 1 :]
            case 3:
                lines.insert(chance.randrange(len(lines) + 1), chance.choice(lines))
                data = b"\n".join(lines)
            case 4:
                lines.pop(chance.randrange(len(lines)))
                data = b"\n".join(lines)
            case _:
                start = chance.randrange(len(other) + 1)
                data = data[:position] + other[start : start + 64] + data[end:]
    return data
