"""Published drafts by target, and the choice among them. What a table leaves out is unknown, never assumed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from msgspec import Meta, Struct

from mpctl import commands
from mpctl.errors import InputError, Refused, nearest
from mpctl.methods import METHODS, parse_version
from mpctl.methods.preflight.draft_rules import plain_name
from mpctl.methods.versions import show

NATIVE = "native"
_LAYERS = next(row.name for row in METHODS.values() if row.target_layers)


_K = Annotated[int, Meta(ge=1, le=256)]
_Size = Annotated[float, Meta(gt=0, le=10_000)]  # GiB, or billions of parameters


class PublishedAcceptance(
    Struct, frozen=True, forbid_unknown_fields=True, rename={"temperature": "t"}
):
    """A published acceptance length: ``tokens`` per verification, the verifier's own included, at ``k`` drafts.

    ``temperature`` is None where the source does not say.
    """

    k: _K
    dataset: str
    tokens: Annotated[float, Meta(ge=1)]
    temperature: Annotated[float, Meta(ge=0, le=100)] | None = None

    def __post_init__(self) -> None:
        """Refuse what no engine can reach. Raises ValueError."""
        if self.tokens > self.k + 1:
            raise ValueError(
                f"{self.tokens:g} tokens cannot come from K={self.k}: the most is {self.k + 1}"
            )

    def describe(self) -> str:
        """``2.60 (K=3, mtbench, t=0)``."""
        heat = "" if self.temperature is None else f", t={self.temperature:g}"
        return f"{self.tokens:.2f} (K={self.k}, {self.dataset}{heat})"


class Draft(
    Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    rename={"parallel": "parallel_drafting", "sources": "source"},
):
    """A published draft of one target, as a file describes it; ``repo`` None: layers in the target's own checkpoint.

    ``method`` is the command line's name (``p-eagle`` for a parallel eagle3 head), or the name of a method that only
    a plugin has. ``size_b``: billions of parameters; ``loaded_gib``: GiB an engine logged after loading it;
    ``kv_pool_factor``: KV pool with it over the pool without it. ``variant``: it was made for a fine-tune
    of the target. ``target``, ``file`` and ``line``: where the description stands.
    """

    repo: str | None
    method: str
    k: _K | None = None
    k_fp8_target: _K | None = None
    parallel: bool = False
    tensor_parallel: Annotated[int, Meta(ge=1, le=1024)] | None = None
    size_b: _Size | None = None
    loaded_gib: _Size | None = None
    kv_pool_factor: Annotated[float, Meta(gt=0, le=1)] | None = None
    context: Annotated[int, Meta(ge=1)] | None = None
    expected: tuple[PublishedAcceptance, ...] = ()
    per_position: tuple[Annotated[float, Meta(ge=0, le=1)], ...] = ()
    engine: str = "vllm"
    plugin: str | None = None
    min_vllm: str | None = None
    variant: str | None = None
    licence: str | None = None
    note: str | None = None
    warn: str | None = None
    sources: tuple[str, ...] = ()
    target: str = ""
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
        floors = [
            parse_version(self.min_vllm),
            method.floor.version if method and method.floor else None,
        ]
        return max(
            (show(floor) for floor in floors if floor),
            key=lambda text: parse_version(text) or (0, 0, 0),
            default=None,
        )

    def needs(self) -> tuple[str, ...]:
        """Requirements besides the weights, in words."""
        requirements = [
            f"{self.engine}" if self.engine != "vllm" else "",
            f"plugin {self.plugin}" if self.plugin else "",
            f"vLLM {self.least_vllm}" if self.least_vllm and self.engine == "vllm" else "",
            f"target {self.variant}" if self.variant else "",
        ]
        return tuple(word for word in requirements if word)

    def settings(self, *, fp8_target: bool = False) -> dict[str, int | bool]:
        """Settings of its model card, besides the draft itself."""
        settings: dict[str, int | bool] = {}
        k = self.k_fp8_target or self.k if fp8_target else self.k
        if k is not None:
            settings["num_speculative_tokens"] = k
        method = METHODS.get(self.method)
        if self.parallel and not (method and method.parallel_drafting == "required"):
            settings["parallel_drafting"] = True
        if self.tensor_parallel is not None:
            settings["draft_tensor_parallel_size"] = self.tensor_parallel
        return settings

    def unsuitable(self, method: str, engine_version: str | None) -> str | None:
        """Return the reason why ``--spec method`` on vLLM cannot load this draft, None when it can."""
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


class Family(Struct, frozen=True, forbid_unknown_fields=True, rename={"sources": "source"}):
    """Targets whose own checkpoint drafts (method mtp), known by how their names begin. ``k_seen``: the largest K in
    recipes, None if that is ``k``."""

    family: str
    prefixes: Annotated[tuple[str, ...], Meta(min_length=1)]
    k: _K
    k_seen: _K | None = None
    sources: tuple[str, ...] = ()


@dataclass(frozen=True)
class Catalogue:
    """Drafts by target in their order of preference, families with native layers, and what the sources stand for."""

    drafts: Mapping[str, tuple[Draft, ...]] = field(default_factory=dict)
    families: tuple[Family, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)

    def of(self, target: str) -> tuple[Draft, ...]:
        """The drafts of ``target``, matched without regard to case; a family's native layers count as one. A quantised
        form of a target has the target's drafts where it has none of its own.

        Raises:
            InputError: the target is in no table; the nearest names are the hint.
        """
        key = self.key(target)
        drafts = () if key is None else self.drafts[key]
        if drafts:
            return drafts
        native = self.native(target)
        if native is not None:
            return (native,)
        raise InputError(f"no draft of {target} is known", field="target", hint=self.hint(target))

    def key(self, target: str) -> str | None:
        """The table's name of ``target``: the same, the only one that ends so, or the one it is a quantised form of."""
        lowered = target.lower()
        for draft in self.drafts:
            if draft.lower() == lowered:
                return draft
        if "/" not in target:
            ends = [draft for draft in self.drafts if draft.lower().endswith(f"/{lowered}")]
            return ends[0] if len(ends) == 1 else None
        if plain_name(target) == lowered.rpartition("/")[2]:
            return None
        alike = [draft for draft in self.drafts if plain_name(draft) == plain_name(target)]
        return alike[0] if len(alike) == 1 else None

    def published(self, repo: str, target: str | None) -> Draft | None:
        """The entry of a draft, for ``target`` where it is published for several; None where no table has it."""
        name = repo.removeprefix("hf://").partition(":")[0].lower()
        entries = [
            draft
            for drafts in self.drafts.values()
            for draft in drafts
            if (draft.repo or "").lower() == name
        ]
        mine = (
            draft for draft in entries if target and plain_name(draft.target) == plain_name(target)
        )
        return next(mine, entries[0] if entries else None)

    def native(self, target: str) -> Draft | None:
        """Multi-token prediction layers inside ``target``, when its family ships them."""
        for family in self.families:
            if target.lower().startswith(tuple(prefix.lower() for prefix in family.prefixes)):
                note = f"{family.family}: K up to {family.k_seen or family.k} in recipes"
                return Draft(
                    target=target,
                    repo=None,
                    method=_LAYERS,
                    k=family.k,
                    note=note,
                    sources=family.sources,
                )
        return None

    def hint(self, target: str, *, typed: bool = True) -> str:
        """Return a hint for an unknown target. One that nobody ``typed`` is no slip of the pen: a target of another
        generation or size has drafts that do not fit."""
        similar = [name for name in self.drafts if typed or _numbers(name) == _numbers(target)]
        short = {name.rpartition("/")[2].lower(): name for name in similar}
        if close := nearest(target.rpartition("/")[2].lower(), short):
            return f"did you mean {short[close]}?"
        return f"{commands.line('drafts')} lists the targets; MPCTL_DRAFTS=FILE adds your own"

    def merged(self, other: Catalogue) -> Catalogue:
        """This table with the other's targets in place of its own; the other's families come first."""
        return Catalogue(
            {**self.drafts, **other.drafts},
            (*other.families, *self.families),
            {**self.sources, **other.sources},
        )


def _numbers(name: str) -> list[str]:
    return re.findall(r"\d+", name)


@dataclass(frozen=True)
class DraftChoice:
    """The draft for one method and target, and the reason."""

    draft: Draft
    reason: str


def choose(
    catalogue: Catalogue, target: str | None, method: str, *, engine_version: str | None = None
) -> DraftChoice | None:
    """The first draft of ``target`` that ``--spec method`` can load on vLLM; None when the method needs none named.

    Raises:
        Refused: there is none; the message says why each is passed over.
    """
    method_row = METHODS[method]
    if not method_row.loads_weights:
        return None
    optional = method_row.needs_draft == "optional"
    hint = f"name one with --draft; {commands.line('drafts')} lists what is known"
    if target is None:
        if optional:
            return None
        raise Refused(
            f"{method} needs a draft, and the target's name is not known to choose one", hint=hint
        )
    try:
        drafts = catalogue.of(target)
    except InputError as error:
        if optional:
            return None
        near = catalogue.hint(target, typed=False)
        raise Refused(
            f"{method} needs a draft, and {error.reason}", hint=f"{near}; or {hint}"
        ) from error
    passed = []
    for draft in drafts:
        reason = draft.unsuitable(method, engine_version)
        if reason is None:
            form = (
                ""
                if draft.target.lower() == target.lower()
                else f", which {target} is a quantised form of,"
            )
            where = draft.file or "the catalogue"
            return DraftChoice(
                draft, f"first draft of {draft.target}{form} for {method} in {where}"
            )
        passed.append(f"{draft.name} {reason}")
    if optional:
        return None
    raise Refused(
        f"{method} needs a draft, and no known draft of {target} fits: {'; '.join(passed)}",
        hint=hint,
    )
