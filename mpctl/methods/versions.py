"""Versions as people write them (tags, wheels, image references), and what later releases of vLLM no longer have.

An image tag is often the only evidence of an engine's version, so ``vllm/vllm-openai:v0.23.0-cu129`` is read as
0.23.0, and ``rocm7.0_vllm_0.28.0_20260901`` as 0.28.0; ``latest``, a digest, a date, a commit hash or the release of
another project says nothing and gives ``None``, never a guess. Guides outlive engines: most published commands for
speculation still carry flags of the V0 engine, which make a current server exit at start-up.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from mpctl.packaged import packaged_rows

Version = tuple[int, int, int]
ASCEND = "vllm-ascend"  # a plugin of vLLM with images of its own

# Two numbers at least, so that a commit hash or a bare "8" is not taken for a version; a wheel's local part
# (+cpu), a release candidate (rc1), a post release and an image's build suffix (-cu129) may follow.
_VERSION = re.compile(
    r"v?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,6}))?(?=$|[-+_.]|(?:rc|dev|post|a|b)\d)", re.ASCII
)
# vLLM's release inside of a tag that begins with another: rocm7.0_vllm_0.28.0_20260901, cu129-v0.28.0.
_NAMED = re.compile(
    r"(?:^|[-_.])vllm[-_]?v?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,6}))?(?!\d)", re.ASCII | re.IGNORECASE
)
_PREFIXED = re.compile(r"[-_]v(0)\.(\d{1,4})\.(\d{1,6})(?!\d)", re.ASCII)

# Images that hold vLLM and carry another project's release: llm-d's, KServe's, KAITO's, LMCache's, NVIDIA's, Red Hat's.
_OTHER_RELEASES = re.compile(
    r"(?:^|/)(?:llm-d|huggingfaceserver|kaito|lmcache/|ai-dynamo/|nvidia/vllm|rhaiis/)"
)


def parse_version(text: str | None) -> Version | None:
    """(major, minor, patch) of ``v0.11.0``, ``0.32.0+cpu`` or an image reference; None where nothing is said.

    >>> parse_version("vllm/vllm-openai:v0.23.0-cu129")
    (0, 23, 0)
    >>> parse_version("latest") is None
    True
    """
    if not text:
        return None
    name, _, _ = text.strip().partition("@")
    head, slash, last = name.rpartition("/")
    _, colon, tag = last.partition(":")  # a registry's port is not a tag
    if not colon:
        return None if slash and head else _version(_VERSION.match(last))
    named = _version(_NAMED.search(tag))
    if named is not None or _OTHER_RELEASES.search(name):
        return named
    version = _version(_VERSION.match(tag) or _PREFIXED.search(tag))
    # vLLM's releases are 0.x: a tag such as 26.07 or 2.3.1 is that of another project or of its owner.
    own = version is not None and version >= (1, 0, 0) and "kserve-controller" not in name
    return None if own else version


def _version(match: re.Match[str] | None) -> Version | None:
    if match is None:
        return None
    major, minor, patch = match.groups()
    return int(major), int(minor), int(patch or 0)


# The first release with speculation; a label with an older one counts the releases of a chart or of an application.
_OLDEST: Version = (0, 2, 7)


def engine_release(image: str | None, stated: Iterable[str]) -> str | None:
    """Return the image where its tag names a release, else the first of ``stated`` that does, else the image.

    ``stated``: texts that may name the release, such as labels. That the image is a plugin's stays recognisable.
    """
    if parse_version(image) is not None:
        return image
    versions = (version for version in map(parse_version, stated) if version is not None)
    version = next((version for version in versions if _OLDEST <= version < (1, 0, 0)), None)
    if version is None:
        return image
    return f"{ASCEND}:{show(version)}" if ASCEND in (image or "") else show(version)


def show(version: Version) -> str:
    """``0.29.0`` for (0, 29, 0)."""
    return ".".join(str(part) for part in version)


@dataclass(frozen=True)
class Removal:
    """A flag, a key of speculative-config or a value that is gone."""

    name: str
    kind: Literal["flag", "key", "value"]
    since: str  # the first release known to be without it
    why: str
    replacement: str
    source: str


REMOVED: Mapping[str, Removal] = MappingProxyType(
    {entry.name: entry for entry in packaged_rows(__package__, "removed.yaml", Removal)}
)


def removed_flags(argv: tuple[str, ...]) -> tuple[Removal, ...]:
    """The removed flags an engine command line still carries, in table order; underscores count as dashes."""
    flags = {part.partition("=")[0].replace("_", "-") for part in argv if part.startswith("--")}
    return tuple(
        entry for entry in REMOVED.values() if entry.kind == "flag" and entry.name in flags
    )
