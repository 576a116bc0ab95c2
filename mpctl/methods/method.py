"""A row of the table of methods: everything that is known of one method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mpctl.methods.versions import Version

NeedsDraft = Literal["none", "head", "model", "optional"]
KeyGroup = Literal["lookup", "trees", "draft"]
ParallelDrafting = Literal["never", "optional", "required", "implied"]


@dataclass(frozen=True)
class ReleaseFloor:
    """The first release that has a method, as a ceiling the first that no longer has it, and the source."""

    version: Version
    source: str


@dataclass(frozen=True)
class Variant:
    """Drafts of a method with more in them than the method's own, told by their architecture; Model Runner V2 alone
    runs them. ``k_below_block``: K must be one less than the checkpoint's block size; ``own_keys``: keys that no other
    draft takes."""

    name: str
    architectures: tuple[str, ...]
    since: Version
    k_below_block: bool = False
    own_keys: tuple[str, ...] = ()


@dataclass(frozen=True)
class Method:
    """A method of speculative decoding. Rules and the catalogue ask the row and name no method.

    ``needs_draft``: nothing; a head trained for exactly this target; a smaller model; or optional, when the weights
    may be in the target's own checkpoint. ``engine_method``: vLLM's name, None for ``none``.

    The setting. ``key_groups``: the groups of keys that act on it; ``own_keys``: keys that no other method takes.
    ``parallel_drafting``: whether that key may, must or need not be set. ``k_from``: who decides K where the setting
    does not: nobody, the draft's checkpoint or the method itself. ``aliases``, ``alias_suffix``: other spellings of
    ``engine_method``. ``name_marker``: the part of a draft's name by which vLLM picks this method, and its rank.

    The draft. ``checkpoint``: the kind of checkpoint it loads. ``for_one_target``: trained on one target's hidden
    states. ``draft_positions``: its position table limits requests; ``positions_stretched_since``: the vLLM release
    that stretches it. ``max_model_len_fails``: that key stopped the engine in published runs. ``prompt_states``: reads
    the hidden states of every prompt token. ``target_layers``: without a draft it needs layers of the target's own.
    ``one_head_per_token``: the checkpoint's heads limit K. ``variants``: drafts of other architectures that run under
    this method's name. ``head_layers``: decoder layers of its published heads;
    ``head_inputs``: vectors of the hidden size that they join.

    The engine. ``remembers_answers``: drafts also from answers to earlier requests. ``v1_runner``,
    ``v2_runner``: which model runner has a proposer. ``adaptive_since``: the release from which the engine can verify
    fewer drafts under load by itself; None where its drafts have no probabilities. ``own_confidence``: by a confidence
    that the draft learned. ``busy_above``: concurrency above which
    it slowed down in the field.
    ``published_ratios``: ratios with a baseline were published, so a prediction can rest on them.
    ``notes``: true for every run, shown in docs/reference/methods.md.
    """

    name: str
    engine_method: str | None
    summary: str
    needs_draft: NeedsDraft = "none"
    defaults: tuple[tuple[str, int | bool], ...] = ()
    floor: ReleaseFloor | None = None
    ceiling: ReleaseFloor | None = None
    key_groups: frozenset[KeyGroup] = frozenset()
    own_keys: tuple[str, ...] = ()
    parallel_drafting: ParallelDrafting = "never"
    k_from: Literal["setting", "draft", "method"] = "setting"
    aliases: tuple[str, ...] = ()
    alias_suffix: str | None = None
    name_marker: tuple[int, str] | None = None
    checkpoint: str | None = None
    for_one_target: bool = False
    draft_positions: bool = True
    positions_stretched_since: Version | None = None
    max_model_len_fails: bool = False
    prompt_states: bool = False
    target_layers: bool = False
    one_head_per_token: bool = False
    variants: tuple[Variant, ...] = ()
    head_layers: int = 0
    head_inputs: int = 2
    disables_async_scheduling: bool = False
    needs_gpu: bool = False
    prefix_caching_crashes: bool = False
    remembers_answers: bool = False
    busy_above: int | None = None
    adaptive_since: Version | None = None
    own_confidence: bool = False
    v1_runner: bool = True
    v2_runner: bool = True
    published_ratios: bool = False
    notes: tuple[str, ...] = ()

    @property
    def is_lookup(self) -> bool:
        """True when it drafts from text that is there already, without weights."""
        return self.engine_method is not None and not self.loads_weights

    @property
    def loads_weights(self) -> bool:
        """True when weights besides the target's may be loaded."""
        return self.needs_draft != "none"

    @property
    def drafts_in_one_pass(self) -> bool:
        """True when one pass of the draft fills all K places."""
        return self.parallel_drafting in ("required", "implied")

    @property
    def has_proposer(self) -> bool:
        """True when a current engine runs it."""
        return self.v1_runner or self.v2_runner
