"""The cost of training a head and what it may bring, before anything is started. Pure arithmetic.

A stage's time is its arithmetic over the share of a GPU's dense bf16 rate that such stages reach. That share, and the
overhead of heads that draft in one pass, are fitted to published runs; ``tests/unit/drafts/test_plan.py`` has the runs
with their sources, and compares those that were not fitted with the figures here.
"""

from __future__ import annotations

from dataclasses import dataclass

from mpctl.methods import METHODS

GIB = 2**30
LEAST_PROMPTS = (
    200  # conversations: the fewest whose refresh regained most of what a stale head had lost
)
LEAST_GAIN = 1.05  # over what serves now: below it a head is not worth its training
PASSES = 4  # over the training tokens, of a warm start
# Of dense bf16: hidden states of 5 000 answers in 143 s and 5 epochs in 327 s on two H100 (speculators, Llama-3.1-8B)
_REACHED = 0.3
# Training unrolls a head over three drafted tokens (speculators, --ttt-steps); one that drafts in one pass sees about
# as many positions for each token of an answer (3072 anchors of 8 tokens in 8192; depths thinned by 0.7).
_UNROLLED = 3
_TRAINED_FLOPS = (
    6  # per parameter and token: one forward, two backward (Kaplan et al., arXiv 2001.08361, 2.1)
)
_PARALLEL = (
    3.0  # of a head made to draft in one pass, against that arithmetic: speculators' run of 2 793 s
)
_START_S = 100.0  # data preparation, and the engine's start: 60 to 114 s in the same runs
_REGENERATED_AT_ONCE = 64  # answers that the engine generates at the same time
_BANDWIDTH_REACHED = 0.6  # of the memory, while it generates
# Share of the lost tokens per step that a warm start regained, by conversations. Measured on one pair of tiny models
# with both speculators 0.9.0 and mpctl's demo trainer; no published run has both figures.
_REGAINED = ((400, 0.75), (200, 0.65))


@dataclass(frozen=True)
class Sizes:
    """Sizes of target and head. Billions of parameters: ``active_b`` that a token passes in the target, ``head_b`` of
    the head; ``weights_gb`` that a step of the target reads; ``states`` of ``width`` numbers are kept per token."""

    active_b: float
    head_b: float
    weights_gb: float
    states: int
    width: int


@dataclass(frozen=True)
class Device:
    """A GPU: dense bf16 TFLOPS, GB/s of its memory."""

    tflops: float
    bandwidth_gb_s: float


@dataclass(frozen=True)
class TrainingLoad:
    """Conversations to train on, with mean tokens of a prompt and an answer. ``regenerates``: the target answers them
    first; ``passes`` of training over them. ``online``: other GPUs, as many, compute the hidden states again in each
    pass, and no disk keeps them; mpctl's own Job never does so."""

    conversations: int
    prompt_tokens: float
    answer_tokens: float
    passes: float = PASSES
    regenerates: bool = True
    online: bool = False

    @property
    def tokens(self) -> float:
        """Tokens of one pass."""
        return self.conversations * (self.prompt_tokens + self.answer_tokens)


@dataclass(frozen=True)
class Cost:
    """Cost of a training run. ``collect_s`` and ``train_s`` of one GPU, the engine's start not included."""

    collect_s: float
    train_s: float
    gpu_hours: float
    disk_gib: float


def cost_of(method: str, sizes: Sizes, work: TrainingLoad, device: Device, gpus: int = 1) -> Cost:
    """Return the cost of a run on so many GPUs, which take its stages one after the other."""
    rate = device.tflops * 1e12 * _REACHED
    read_s = 2 * sizes.active_b * 1e9 * work.tokens / rate
    collect_s = read_s
    if work.regenerates:
        steps = work.conversations * work.answer_tokens / _REGENERATED_AT_ONCE
        collect_s += steps * sizes.weights_gb / (device.bandwidth_gb_s * _BANDWIDTH_REACHED)
    overhead = _PARALLEL if METHODS[method].parallel_drafting == "required" else 1.0
    flops = _TRAINED_FLOPS * _UNROLLED * sizes.head_b * 1e9 * overhead
    train_s = work.passes * work.tokens * flops / rate
    # Online, half of the GPUs wait for the other half.
    seconds = 2 * max(work.passes * read_s, train_s) if work.online else collect_s + train_s
    stored = 0.0 if work.online else work.tokens * sizes.states * sizes.width * 2
    disk = stored + 3 * sizes.head_b * 1e9 * 2  # the start head, a checkpoint and the head
    return Cost(collect_s, train_s, (seconds + gpus * _START_S) / 3600, disk / GIB)


def regained_share(conversations: int) -> float:
    """Return the share of the lost tokens per step that a refresh is expected to regain; 0 for too few
    conversations."""
    return next((share for least, share in _REGAINED if conversations >= least), 0.0)


@dataclass(frozen=True)
class Gain:
    """Tokens per step: of what serves ``now``, of the head on the target it was made for (``reference``), both None
    where nothing measured them, and of each free method on the service's transcripts."""

    now: float | None
    reference: float | None
    free: dict[str, float]
    conversations: int

    @property
    def refreshed(self) -> float | None:
        """Tokens per step that a refreshed head is expected to reach; None where one of the two is unknown."""
        if self.now is None or self.reference is None:
            return None
        return self.now + regained_share(self.conversations) * max(self.reference - self.now, 0.0)

    @property
    def best_free(self) -> str | None:
        """The free method with the most tokens per step, if it has more than one."""
        gaining = {name: tokens for name, tokens in self.free.items() if tokens > 1.0}
        return max(gaining, key=gaining.__getitem__, default=None)

    def refusals(self) -> tuple[str, ...]:
        """Return the reasons not to train; the figures stand in them."""
        reasons = []
        if self.conversations < LEAST_PROMPTS:
            reasons.append(
                f"{self.conversations} conversations to train on, at least {LEAST_PROMPTS}"
            )
        if self.refreshed is not None and self.now and self.conversations >= LEAST_PROMPTS:
            ratio = self.refreshed / self.now
            if ratio < LEAST_GAIN:
                reasons.append(
                    f"predicted {self.refreshed:.2f} tokens per step, {self.now:.2f} now: a gain of {ratio - 1:.0%}, "
                    f"at least {LEAST_GAIN - 1:.0%}"
                )
        best = self.best_free
        if best is not None and self.refreshed is not None and self.free[best] >= self.refreshed:
            reasons.append(
                f"{best} reaches {self.free[best]:.2f} tokens per step on these transcripts without training, a "
                f"refreshed head is predicted to reach {self.refreshed:.2f}"
            )
        return tuple(reasons)
