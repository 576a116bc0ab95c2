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
class DraftVariant:
    """Drafts of a method with more in them than the method's own, told by their architecture; Model Runner V2 alone
    runs them."""

    name: str
    architectures: tuple[str, ...]
    since: Version
    k_below_block: bool = False  # K must be one less than the checkpoint's block size
    own_keys: tuple[str, ...] = ()  # keys that no other draft takes


@dataclass(frozen=True)
class Method:
    """A method of speculative decoding. Rules and the catalogue ask the row and name no method."""

    name: str
    engine_method: str | None  # vLLM's name, None for ``none``
    summary: str
    needs_draft: NeedsDraft = "none"  # optional: the weights may be in the target's own checkpoint
    notes: tuple[str, ...] = ()  # true for every run, shown in docs/reference/methods.md

    # The setting
    defaults: tuple[tuple[str, int | bool], ...] = ()
    key_groups: frozenset[KeyGroup] = frozenset()  # groups of keys that act on it
    own_keys: tuple[str, ...] = ()  # keys that no other method takes
    parallel_drafting: ParallelDrafting = "never"  # whether that key may, must or need not be set
    k_from: Literal["setting", "draft", "method"] = (
        "setting"  # who decides K where the setting does not
    )
    aliases: tuple[str, ...] = ()  # other spellings of ``engine_method``, by name or by their end
    alias_suffix: str | None = None
    name_marker: tuple[int, str] | None = (
        None  # the part of a draft's name by which vLLM picks it, after its rank
    )

    # The draft
    checkpoint: str | None = None  # the kind of checkpoint it loads
    for_one_target: bool = False  # trained on one target's hidden states
    draft_positions: bool = True  # its position table limits requests
    positions_stretched_since: Version | None = None  # the vLLM release that stretches it
    max_model_len_fails: bool = False  # that key stopped the engine in published runs
    prompt_states: bool = False  # reads the hidden states of every prompt token
    target_layers: bool = False  # without a draft it needs layers of the target's own
    one_head_per_token: bool = False  # the checkpoint's heads limit K
    variants: tuple[
        DraftVariant, ...
    ] = ()  # drafts of other architectures that run under this method's name
    head_layers: int = 0  # decoder layers of its published heads
    head_inputs: int = 2  # vectors of the hidden size that they join

    # The engine
    floor: ReleaseFloor | None = None
    ceiling: ReleaseFloor | None = None
    disables_async_scheduling: bool = False
    async_scheduling_since: Version | None = (
        None  # the release that keeps it, where earlier ones lost it
    )
    foreign_logprobs: str = (
        ""  # an engine with it may report log probabilities of other tokens: the thread
    )
    needs_gpu: bool = False
    prefix_caching_crashes: bool = False
    remembers_answers: bool = False  # drafts also from answers to earlier requests
    busy_above: int | None = None  # concurrency above which it slowed down in the field
    adaptive_since: Version | None = (
        None  # the release that verifies fewer drafts under load by itself
    )
    own_confidence: bool = (
        False  # it does so by a confidence that the draft learned, not by its probabilities
    )
    v1_runner: bool = True  # Model Runner V1 has a proposer
    v2_runner: bool = True
    code_licence: str = "Apache-2.0"  # vLLM's (its wheel)
    notice: str = (
        ""  # patents or revenue limits on its use, for people to check; never recommended first
    )
    published_ratios: bool = (
        False  # ratios with a baseline were published, so a prediction can rest on them
    )

    @property
    def is_lookup(self) -> bool:
        """True when it drafts from text that is there already, without weights."""
        return self.engine_method is not None and not self.loads_weights

    @property
    def loads_weights(self) -> bool:
        """True when weights besides the target's may be loaded."""
        return self.needs_draft != "none"

    @property
    def drafts_with_model(self) -> bool:
        """True when a smaller model drafts."""
        return self.needs_draft == "model"

    @property
    def has_kv_cache(self) -> bool:
        """True when the draft has layers with KV cache of its own."""
        return self.prompt_states or self.checkpoint == "model"

    @property
    def licence(self) -> str:
        """Licence of the method's code, or whose weights' licence counts."""
        of_weights = {"none": self.code_licence, "optional": "the target's or the draft's"}
        return (
            "-" if self.engine_method is None else of_weights.get(self.needs_draft, "the draft's")
        )

    @property
    def drafts_in_one_pass(self) -> bool:
        """True when one pass of the draft fills all K places."""
        return self.parallel_drafting in ("required", "implied")

    @property
    def has_proposer(self) -> bool:
        """True when a current engine runs it."""
        return self.v1_runner or self.v2_runner
