"""A catalogue from its file, with a line for every complaint.

The shipped table is ``drafts.yaml`` beside this module; a user's file of the same shape adds targets and replaces the
drafts of those it names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from itertools import pairwise

from msgspec import structs

from mpctl import commands
from mpctl.methods import METHODS, parse_version
from mpctl.methods.spec import cli_name
from mpctl.staging.catalogue import NATIVE, Catalogue, Draft, Family
from mpctl.yaml_lines import Node, document, near

ENGINES = ("vllm", "sglang")
_REPO = rf"{NATIVE}|[\w.-]+/[\w.-]+|/\S+"


@cache
def shipped() -> Catalogue:
    """The table that comes with mpctl."""
    text = (resources.files("mpctl.staging") / "drafts.yaml").read_text(encoding="utf-8")
    return read_catalogue(text, "drafts.yaml")


def read_catalogue(text: str, file: str, known: Mapping[str, str] | None = None) -> Catalogue:
    """A catalogue from YAML; ``known``: sources another table explains already.

    Raises:
        InputError: with file, line and field of the first thing that cannot be used.
    """
    root = document(text, file)
    sources = root.mapping("sources", lambda node, key: node.text(key))
    allowed = {**(known or {}), **sources}
    targets = root.node("targets")
    drafts = {}
    for target in targets.body:
        if not isinstance(target, str) or "/" not in target:
            raise targets.error(str(target), "a target is named ORGANISATION/MODEL")
        drafts[target] = tuple(_draft(node, target, allowed) for node in targets.nodes(target))
    families = tuple(_family(node, allowed) for node in root.nodes("native"))
    root.done()
    if not drafts and not families:
        raise root.error(
            "targets", "names no target", "docs/how-to/drafts.md shows the shape of the file"
        )
    return Catalogue(drafts, families, sources)


def _draft(node: Node, target: str, sources: Mapping[str, str]) -> Draft:
    draft = node.read(Draft)
    node.choice("engine", ENGINES, "vllm")
    if not re.fullmatch(_REPO, draft.repo or NATIVE):
        raise node.error("repo", f"{draft.repo!r} is not a repository, a path or native")
    row = METHODS.get(draft.method)
    if row is None and draft.plugin is None:
        message = f"{draft.method!r} is no method{near(draft.method, tuple(METHODS))}"
        raise node.error("method", message, commands.line("methods"))
    if row is not None and not row.loads_weights:
        raise node.error("method", f"{draft.method} loads no draft")
    if any(later > earlier for earlier, later in pairwise(draft.per_position)):
        raise node.error(
            "per_position",
            "is cumulative: no later position is accepted more often than an earlier one",
        )
    if draft.min_vllm is not None and parse_version(draft.min_vllm) is None:
        raise node.error("min_vllm", f"{draft.min_vllm!r} is no version", 'write it as "0.16.0"')
    _require_explained(node, draft.sources, sources)
    needs_parallel = row is not None and row.parallel_drafting == "required"
    return structs.replace(
        draft,
        target=target,
        repo=None if draft.repo == NATIVE else draft.repo,
        method=draft.method if row is None else cli_name(draft.method, parallel=draft.parallel),
        parallel=draft.parallel or needs_parallel,
        file=node.file,
        line=node.line,
    )


def _family(node: Node, sources: Mapping[str, str]) -> Family:
    family = node.read(Family)
    _require_explained(node, family.sources, sources)
    return family


def _require_explained(node: Node, names: tuple[str, ...], known: Mapping[str, str]) -> None:
    for name in names:
        if name not in known:
            message = f"{name!r} is not among the sources{near(name, tuple(known))}"
            raise node.error("source", message, "explain it under sources")
