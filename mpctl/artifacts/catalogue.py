"""Published drafts by target, read from a file with a line for every complaint, and the choice among them.

Pure: text in, values out. The shipped table is ``drafts.yaml`` beside this module; a user's file of the same shape
adds targets and replaces the drafts of those it names. What a file leaves out is unknown, never assumed.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from itertools import pairwise

from ruamel.yaml.error import YAMLError

from mpctl.errors import InputError
from mpctl.fleet.node import Node, documents
from mpctl.speculation import METHODS, parse_version
from mpctl.speculation.versions import show

NATIVE = "native"
ENGINES = ("vllm", "sglang")
_REPOSITORY = r"[\w.-]+/[\w.-]+"


@dataclass(frozen=True)
class Expected:
    """A published acceptance length: ``tokens`` per verification, the verifier's own included, at ``k`` drafts.

    ``temperature`` is None where the source does not say.
    """

    k: int
    dataset: str
    tokens: float
    temperature: float | None = None

    def describe(self) -> str:
        """``2.60 (K=3, mtbench, t=0)``."""
        heat = "" if self.temperature is None else f", t={self.temperature:g}"
        return f"{self.tokens:.2f} (K={self.k}, {self.dataset}{heat})"


@dataclass(frozen=True)
class Draft:
    """One published draft of one target; ``repo`` None: layers in the target's own checkpoint.

    ``method`` is the command line's name (``p-eagle`` for a parallel eagle3 head), or the name of a method that only
    a plugin has. ``size_b``: billions of parameters; ``loaded_gib``: GiB an engine logged after loading it;
    ``kv_pool_factor``: KV pool with it over the pool without it. ``variant``: it was made for a fine-tune
    of the target.
    """

    target: str
    repo: str | None
    method: str
    k: int | None = None
    k_fp8_target: int | None = None
    parallel: bool = False
    tensor_parallel: int | None = None
    size_b: float | None = None
    loaded_gib: float | None = None
    kv_pool_factor: float | None = None
    context: int | None = None
    expected: tuple[Expected, ...] = ()
    per_position: tuple[float, ...] = ()
    engine: str = "vllm"
    plugin: str | None = None
    min_vllm: str | None = None
    variant: str | None = None
    licence: str | None = None
    note: str | None = None
    warn: str | None = None
    sources: tuple[str, ...] = ()
    file: str = ""
    line: int = 0

    @property
    def name(self) -> str:
        """The repository, or ``native``."""
        return self.repo or NATIVE

    @property
    def least_vllm(self) -> str | None:
        """The later of the draft's own first vLLM and its method's; None where neither is known."""
        method = METHODS.get(self.method)
        floors = [parse_version(self.min_vllm), method.min_vllm if method else None]
        return max(
            (show(one) for one in floors if one), key=lambda text: parse_version(text) or (0, 0, 0), default=None
        )

    def needs(self) -> tuple[str, ...]:
        """What has to be there besides the weights, in words."""
        said = [
            f"{self.engine}" if self.engine != "vllm" else "",
            f"plugin {self.plugin}" if self.plugin else "",
            f"vLLM {self.least_vllm}" if self.least_vllm and self.engine == "vllm" else "",
            f"target {self.variant}" if self.variant else "",
        ]
        return tuple(word for word in said if word)

    def settings(self) -> dict[str, int | bool]:
        """What its card sets in the speculative configuration, besides the draft itself."""
        found: dict[str, int | bool] = {}
        if self.k is not None:
            found["num_speculative_tokens"] = self.k
        if self.parallel and self.method != "p-eagle":
            found["parallel_drafting"] = True
        if self.tensor_parallel is not None:
            found["draft_tensor_parallel_size"] = self.tensor_parallel
        return found

    def obstacle(self, method: str, engine_version: str | None) -> str | None:
        """Why ``--spec method`` on vLLM cannot take this draft; None when it can."""
        if self.method != method:
            return f"is for {self.method}"
        if self.engine != "vllm":
            return f"is published for {self.engine}"
        if self.plugin:
            return f"needs the plugin {self.plugin}"
        if self.variant:
            return f"was made for {self.variant}"
        have, least = parse_version(engine_version), parse_version(self.least_vllm)
        if have is not None and least is not None and have < least:
            return f"needs vLLM {self.least_vllm}, the engine is {show(have)}"
        return None


@dataclass(frozen=True)
class Family:
    """Targets whose own checkpoint drafts (method mtp), known by how their names begin."""

    name: str
    prefixes: tuple[str, ...]
    k: int
    k_seen: int
    sources: tuple[str, ...] = ()


@dataclass(frozen=True)
class Catalogue:
    """Drafts by target in their order of preference, families with native layers, and what the sources stand for."""

    drafts: Mapping[str, tuple[Draft, ...]] = field(default_factory=dict)
    families: tuple[Family, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)

    def of(self, target: str) -> tuple[Draft, ...]:
        """The drafts of ``target``, matched without regard to case; a family's native layers count as one.

        Raises:
            InputError: the target is in no table; the nearest names are the hint.
        """
        key = next((name for name in self.drafts if name.lower() == target.lower()), None)
        found = () if key is None else self.drafts[key]
        if found:
            return found
        native = self.native(target)
        if native is not None:
            return (native,)
        raise InputError(f"no draft of {target} is known", field="target", hint=self.hint(target))

    def native(self, target: str) -> Draft | None:
        """Multi-token prediction layers inside ``target``, when its family ships them."""
        for family in self.families:
            if target.lower().startswith(tuple(prefix.lower() for prefix in family.prefixes)):
                note = f"{family.name}: K up to {family.k_seen} in recipes"
                return Draft(target, None, "mtp", k=family.k, note=note, sources=family.sources)
        return None

    def hint(self, target: str) -> str:
        """What to type instead of an unknown target."""
        short = {name.rpartition("/")[2].lower(): name for name in self.drafts}
        lowered = target.rpartition("/")[2].lower()
        close = difflib.get_close_matches(target, list(self.drafts), n=2, cutoff=0.6)
        close += [short[one] for one in difflib.get_close_matches(lowered, list(short), n=2, cutoff=0.7)]
        if close:
            return f"did you mean {' or '.join(dict.fromkeys(close))}?"
        return "mpctl drafts lists the targets; --drafts FILE adds your own"

    def merged(self, other: Catalogue) -> Catalogue:
        """This table with the other's targets in place of its own; the other's families come first."""
        return Catalogue(
            {**self.drafts, **other.drafts}, (*other.families, *self.families), {**self.sources, **other.sources}
        )


@dataclass(frozen=True)
class Choice:
    """What the catalogue gives for one method and target, and why."""

    draft: Draft
    reason: str


def choose(
    catalogue: Catalogue, target: str | None, method: str, *, engine_version: str | None = None
) -> Choice | None:
    """The first draft of ``target`` that ``--spec method`` can load on vLLM; None when the method needs none named.

    Raises:
        InputError: there is none; the message says why each is passed over.
    """
    known = METHODS[method]
    if not known.loads_weights:
        return None
    optional = known.needs_draft == "optional"
    hint = "name one with --draft; mpctl drafts lists what is known"
    if target is None:
        if optional:
            return None
        raise InputError("is needed: the target's name is not known, so none can be chosen", field="--draft", hint=hint)
    try:
        drafts = catalogue.of(target)
    except InputError as error:
        if optional:
            return None
        raise InputError(f"is needed: {error.reason}", field="--draft", hint=error.hint) from error
    passed = []
    for draft in drafts:
        obstacle = draft.obstacle(method, engine_version)
        if obstacle is None:
            return Choice(draft, f"first draft of {target} for {method} in {draft.file or 'the catalogue'}")
        passed.append(f"{draft.name} {obstacle}")
    if optional:
        return None
    raise InputError(f"is needed: no draft of {target} fits {method}: {'; '.join(passed)}", field="--draft", hint=hint)


def shipped() -> Catalogue:
    """The table that comes with mpctl."""
    text = (resources.files("mpctl.artifacts") / "drafts.yaml").read_text(encoding="utf-8")
    return read_catalogue(text, "drafts.yaml")


def read_catalogue(text: str, file: str, known: Mapping[str, str] | None = None) -> Catalogue:
    """A catalogue from YAML; ``known``: sources another table explains already.

    Raises:
        InputError: with file, line and field of the first thing that cannot be used.
    """
    try:
        nodes = list(documents(text, file))
    except YAMLError as error:
        raise InputError(f"not YAML: {str(error).splitlines()[0]}", file=file) from error
    if len(nodes) != 1:
        raise InputError(f"must hold one YAML document, has {len(nodes)}", file=file, hint="docs/drafts.md shows one")
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
        raise root.error("targets", "names no target", "docs/drafts.md shows the shape of the file")
    return Catalogue(drafts, families, sources)


def _draft(node: Node, target: str, sources: Mapping[str, str]) -> Draft:
    repo = node.text("repo", pattern=rf"{NATIVE}|{_REPOSITORY}|/\S+", what="a repository, a path or native")
    parallel = node.value("parallel_drafting", bool, False)
    plugin = node.maybe("plugin")
    method = node.text("method")
    if method not in METHODS and plugin is None:
        near = difflib.get_close_matches(method, list(METHODS), n=1)
        raise node.error(
            "method", f"{method!r} is no method" + (f", did you mean {near[0]}?" if near else ""), "mpctl methods"
        )
    if method in METHODS and not METHODS[method].loads_weights:
        raise node.error("method", f"{method} loads no draft")
    found = Draft(
        target=target,
        repo=None if repo == NATIVE else repo,
        method="p-eagle" if parallel and method == "eagle3" else method,
        k=_maybe_number(node, "k", 1, 256),
        k_fp8_target=_maybe_number(node, "k_fp8_target", 1, 256),
        parallel=parallel or method == "p-eagle",
        tensor_parallel=_maybe_number(node, "tensor_parallel", 1, 1024),
        size_b=_real(node, "size_b", 10_000.0),
        loaded_gib=_real(node, "loaded_gib", 10_000.0),
        kv_pool_factor=_real(node, "kv_pool_factor", 1.0),
        context=_maybe_number(node, "context", 1, 100_000_000),
        expected=tuple(_expected(one) for one in node.nodes("expected")),
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
    return found


def _family(node: Node, sources: Mapping[str, str]) -> Family:
    found = Family(
        node.text("family"),
        node.texts("prefixes"),
        node.number("k", low=1, high=256),
        node.number("k_seen", node.number("k"), low=1, high=256),
        _sources(node, sources),
    )
    if not found.prefixes:
        raise node.error("prefixes", "names no beginning of a target's name")
    node.done()
    return found


def _expected(node: Node) -> Expected:
    tokens = _real(node, "tokens", 1000.0)
    if tokens is None or tokens < 1:
        raise node.error("tokens", "an acceptance length is at least 1: it counts the token verification itself yields")
    k = node.number("k", low=1, high=256)
    if tokens > k + 1:
        raise node.error("tokens", f"{tokens:g} tokens cannot come from K={k}: the most is {k + 1}")
    made = Expected(k, node.text("dataset"), tokens, _real(node, "t", 100.0, low=0.0))
    node.done()
    return made


def _shares(node: Node) -> tuple[float, ...]:
    node.asked.add("per_position")
    if not node.has("per_position"):
        return ()
    items = node.body["per_position"]
    if not isinstance(items, list) or not all(_is_share(item) for item in items):
        raise node.error("per_position", "expected shares from 0 to 1")
    if any(later > earlier for earlier, later in pairwise(items)):
        raise node.error("per_position", "is cumulative: no later position is accepted more often than an earlier one")
    return tuple(float(item) for item in items)


def _is_share(item: object) -> bool:
    return isinstance(item, int | float) and not isinstance(item, bool) and 0 <= item <= 1


def _maybe_number(node: Node, name: str, low: int, high: int) -> int | None:
    node.asked.add(name)
    return node.number(name, low=low, high=high) if node.has(name) else None


def _real(node: Node, name: str, high: float, *, low: float = 0.0) -> float | None:
    node.asked.add(name)
    if not node.has(name):
        return None
    found = node.body[name]
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise node.error(name, f"expected a number, got {found!r}")
    if not low <= found <= high or (name != "t" and found == 0):
        raise node.error(name, f"{found} is not between {low:g} and {high:g}")
    return float(found)


def _version(node: Node) -> str | None:
    text = node.maybe("min_vllm")
    if text is not None and parse_version(text) is None:
        raise node.error("min_vllm", f"{text!r} is no version", 'write it as "0.16.0"')
    return text


def _sources(node: Node, known: Mapping[str, str]) -> tuple[str, ...]:
    names = node.texts("source")
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, list(known), n=1)
            hint = f"did you mean {near[0]}?" if near else "explain it under sources"
            raise node.error("source", f"{name!r} is not among the sources", hint)
    return names


def targets_of(drafts: Iterable[Draft]) -> tuple[str, ...]:
    """The targets named, once each, in order."""
    return tuple(dict.fromkeys(draft.target for draft in drafts))
