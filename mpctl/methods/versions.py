"""Versions as people write them: tags, wheels and image references.

An image tag is often the only evidence of an engine's version, so ``vllm/vllm-openai:v0.23.0-cu129`` is read as
0.23.0; ``latest``, a digest, a commit hash or the release of another project says nothing and gives ``None``, never a
guess.
"""

from __future__ import annotations

import re

Version = tuple[int, int, int]

# Two numbers at least, so that a commit hash or a bare "8" is not taken for a version; a wheel's local part
# (+cpu), a release candidate (rc1), a post release and an image's build suffix (-cu129) may follow.
_VERSION = re.compile(r"v?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,6}))?(?=$|[-+_.]|(?:rc|dev|post|a|b)\d)", re.ASCII)

# llm-d's images (llm-d-cuda) hold vLLM and carry llm-d's own release.
_OTHER_RELEASES = "llm-d"


def parse_version(text: str | None) -> Version | None:
    """(major, minor, patch) of ``v0.11.0``, ``0.32.0+cpu`` or an image reference; None where nothing is said.

    >>> parse_version("vllm/vllm-openai:v0.23.0-cu129")
    (0, 23, 0)
    >>> parse_version("latest") is None
    True
    """
    if not text:
        return None
    match = _VERSION.match(_tag(text.strip()))
    if match is None:
        return None
    major, minor, patch = match.groups()
    return int(major), int(minor), int(patch or 0)


def _tag(text: str) -> str:
    """The tag of an image reference, or the text itself; a registry's port is not a tag."""
    name, _, _ = text.partition("@")
    head, slash, last = name.rpartition("/")
    if ":" in last:
        return "" if last.startswith(_OTHER_RELEASES) else last.partition(":")[2]
    return "" if slash and head else last


def show(version: Version) -> str:
    """``0.29.0`` for (0, 29, 0)."""
    return ".".join(str(part) for part in version)
