"""A catalogue from its file, with a line for every complaint.

The shipped table is ``drafts.yaml`` beside this module; a user's file of the same shape adds targets and replaces the
drafts of those it names.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from itertools import pairwise

from mpctl import commands
from mpctl.errors import InputError, nearest
from mpctl.methods import METHODS, parse_version
from mpctl.methods.spec import cli_name
from mpctl.staging.catalogue import NATIVE, Catalogue, Draft, Family, PublishedAcceptance
from mpctl.yaml_lines import Node, documents

ENGINES = ("vllm", "sglang")
_REPOSITORY = r"[\w.-]+/[\w.-]+"


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
    nodes = list(documents(text, file))
    if len(nodes) != 1:
        raise InputError(
            f"must hold one YAML document, has {len(nodes)}",
            file=file,
            hint="see docs/how-to/drafts.md",
        )
    root = nodes[0]
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
    repo = node.text(
        "repo", pattern=rf"{NATIVE}|{_REPOSITORY}|/\S+", what="a repository, a path or native"
    )
    parallel = node.value("parallel_drafting", bool, False)
    plugin = node.maybe("plugin")
    method = node.text("method")
    if method not in METHODS and plugin is None:
        near = nearest(method, METHODS)
        raise node.error(
            "method",
            f"{method!r} is no method" + (f", did you mean {near}?" if near else ""),
            commands.line("methods"),
        )
    if method in METHODS and not METHODS[method].loads_weights:
        raise node.error("method", f"{method} loads no draft")
    method = cli_name(method, parallel=parallel) if method in METHODS else method
    draft = Draft(
        target=target,
        repo=None if repo == NATIVE else repo,
        method=method,
        k=_maybe_number(node, "k", 1, 256),
        k_fp8_target=_maybe_number(node, "k_fp8_target", 1, 256),
        parallel=parallel
        or (method in METHODS and METHODS[method].parallel_drafting == "required"),
        tensor_parallel=_maybe_number(node, "tensor_parallel", 1, 1024),
        size_b=_real(node, "size_b", 10_000.0),
        loaded_gib=_real(node, "loaded_gib", 10_000.0),
        kv_pool_factor=_real(node, "kv_pool_factor", 1.0),
        context=_maybe_number(node, "context", 1, 100_000_000),
        expected=tuple(_expected(entry) for entry in node.nodes("expected")),
        per_position=_shares(node),
        engine=node.choice("engine", ENGINES, "vllm"),
        plugin=plugin,
        min_vllm=_version(node),
        variant=node.maybe("variant"),
        licence=node.maybe("licence"),
        note=node.maybe("note"),
        warn=node.maybe("warn"),
        sources=_sources(node, sources),
        file=node.file,
        line=node.line,
    )
    node.done()
    return draft


def _family(node: Node, sources: Mapping[str, str]) -> Family:
    family = Family(
        node.text("family"),
        node.texts("prefixes"),
        node.number("k", low=1, high=256),
        node.number("k_seen", node.number("k"), low=1, high=256),
        _sources(node, sources),
    )
    if not family.prefixes:
        raise node.error("prefixes", "names no beginning of a target's name")
    node.done()
    return family


def _expected(node: Node) -> PublishedAcceptance:
    tokens = _real(node, "tokens", 1000.0)
    if tokens is None or tokens < 1:
        raise node.error(
            "tokens",
            "an acceptance length is at least 1: it counts the token verification itself yields",
        )
    k = node.number("k", low=1, high=256)
    if tokens > k + 1:
        raise node.error("tokens", f"{tokens:g} tokens cannot come from K={k}: the most is {k + 1}")
    acceptance = PublishedAcceptance(
        k, node.text("dataset"), tokens, _real(node, "t", 100.0, low=0.0)
    )
    node.done()
    return acceptance


def _shares(node: Node) -> tuple[float, ...]:
    node.asked.add("per_position")
    if not node.has("per_position"):
        return ()
    items = node.body["per_position"]
    if not isinstance(items, list) or not all(
        isinstance(item, int | float) and not isinstance(item, bool) and 0 <= item <= 1
        for item in items
    ):
        raise node.error("per_position", "expected shares from 0 to 1")
    if any(later > earlier for earlier, later in pairwise(items)):
        raise node.error(
            "per_position",
            "is cumulative: no later position is accepted more often than an earlier one",
        )
    return tuple(float(item) for item in items)


def _maybe_number(node: Node, name: str, low: int, high: int) -> int | None:
    node.asked.add(name)
    return node.number(name, low=low, high=high) if node.has(name) else None


def _real(node: Node, name: str, high: float, *, low: float = 0.0) -> float | None:
    node.asked.add(name)
    if not node.has(name):
        return None
    number = node.body[name]
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise node.error(name, f"expected a number, got {number!r}")
    if not low <= number <= high or (name != "t" and number == 0):
        raise node.error(name, f"{number} is not between {low:g} and {high:g}")
    return float(number)


def _version(node: Node) -> str | None:
    text = node.maybe("min_vllm")
    if text is not None and parse_version(text) is None:
        raise node.error("min_vllm", f"{text!r} is no version", 'write it as "0.16.0"')
    return text


def _sources(node: Node, known: Mapping[str, str]) -> tuple[str, ...]:
    names = node.texts("source")
    for name in names:
        if name not in known:
            near = nearest(name, known)
            hint = f"did you mean {near}?" if near else "explain it under sources"
            raise node.error("source", f"{name!r} is not among the sources", hint)
    return names
