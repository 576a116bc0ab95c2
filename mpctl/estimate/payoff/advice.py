"""Advice beside the figures: K by batch size, and rules of published guides, each with its origin. Never a verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mpctl.estimate.payoff.grid import Choice
from mpctl.estimate.payoff.scenario import DRAFT_MODELS, LOOKUPS, PRECISIONS, Scenario, params_of
from mpctl.estimate.shape import GIB
from mpctl.methods.preflight.engine_rules import SCHEDULED_SINCE, VARIABLE_GRAPHS
from mpctl.methods.versions import Version, show

_LEAST_ACCEPTED = 0.5
_DRAFT_SHARE = 0.2
_LEAST_RATIO, _MOST_RATIO = 8, 12  # of the target's parameters to a draft model's
_ADAPTIVE = "vLLM 0.33.0, adaptive_verification.py and flash_attn.py; not with LoRA, pipelines or --enforce-eager"
_GUIDE = "DigitalOcean decision framework for speculative decoding on vLLM, 2026-07"


@dataclass(frozen=True)
class Advice:
    """A rule of a guide that applies: what holds here, and where the rule is from."""

    rule: str
    text: str
    source: str


def advice(cell: Scenario, *, classes: int = 1, temperature: float = 0.0) -> tuple[Advice, ...]:
    """The rules that apply to a cell; ``classes`` of traffic share the service, sampled at ``temperature``."""
    rules = (
        _size(cell),
        _share(cell),
        _rate(cell),
        _warm(temperature),
        _quantised(cell),
        _mixed(classes),
        _adaptive(cell),
    )
    return tuple(advised for advised in rules if advised is not None)


def _size(cell: Scenario) -> Advice | None:
    if cell.draft is None or cell.method not in DRAFT_MODELS:
        return None
    ratio = params_of(cell.target) / params_of(cell.draft)
    if _LEAST_RATIO <= round(ratio) <= _MOST_RATIO:
        return None
    effect = "each guess costs much of what it saves" if ratio < _LEAST_RATIO else "it may guess wrong too often"
    text = f"the target is {ratio:.0f} times as large as its draft, the guide takes 8 to 12 times: {effect}"
    return Advice("draft's size", text, _GUIDE)


def _warm(temperature: float) -> Advice | None:
    if temperature <= 0:
        return None
    text = (
        f"at temperature {temperature:g} fewer drafts are accepted than at 0: the guide counted 81 % at 0, 52 % at 0.8 "
        "and 38 % at 1; acceptance must be measured at your own temperature"
    )
    return Advice("temperature", text, _GUIDE)


def _share(cell: Scenario) -> Advice | None:
    draft = cell.draft_weights
    memory = cell.gpu.usable_gib * cell.gpus * GIB
    share = draft.total_gb * 1e9 / memory if draft is not None else 0.0
    if share < _DRAFT_SHARE:
        return None
    text = f"the draft's weights take {share:.0%} of the GPUs' memory, which the KV pool loses"
    return Advice("draft's share of memory", text, _GUIDE)


def _rate(cell: Scenario) -> Advice | None:
    rate = sum(cell.acceptance.at(cell.k)) / cell.k
    if rate >= _LEAST_ACCEPTED or cell.method in LOOKUPS:
        return None
    text = (
        f"{rate:.0%} of the drafted tokens are accepted at K={cell.k}; the guide turns speculation off below 50 %, "
        "published heads gained at 30 % all the same"
    )
    return Advice("acceptance rate", text, _GUIDE)


def _quantised(cell: Scenario) -> Advice | None:
    if PRECISIONS[cell.precision] >= PRECISIONS["bf16"] or cell.draft_weights is None:
        return None
    text = (
        f"the target is {cell.precision}: a draft trained on its full-precision form is accepted less, "
        "by how much is not published"
    )
    return Advice("quantised target", text, _GUIDE)


def _mixed(classes: int) -> Advice | None:
    if classes < 2:
        return None
    text = f"{classes} classes of traffic share the service: the gate measures each, and none may lose"
    return Advice("mixed traffic", text, _GUIDE)


def _adaptive(cell: Scenario) -> Advice | None:
    """Verification that follows the load by itself, where the engine and the GPU's attention kernels allow it."""
    if cell.engine is None or cell.engine < SCHEDULED_SINCE or cell.draft_weights is None:
        return None
    name, ready = "adaptive verification", cell.gpu.name.startswith(VARIABLE_GRAPHS)
    text = "enable_adaptive_verification=true verifies fewer tokens under load by itself"
    if not ready:
        text += "; on this GPU the engine starts with it only with --attention-backend TRITON_ATTN"
    return Advice(name, text, _ADAPTIVE)


def schedule(choices: Sequence[Choice], engine: Version | None, *, data_parallel: int = 1) -> str:
    """``num_speculative_tokens_per_batch_size`` for the best K of each concurrency, or why one K is better."""
    ranges = batch_ranges({choice.concurrency: choice.k if _pays(choice) else 0 for choice in choices})
    if len(ranges) < 2:
        return ""
    text = schedule_setting(ranges)
    if data_parallel > 1:
        return f"one K: vLLM drops a schedule under data parallelism (it would be {text})"
    if engine is None:
        return f"{text}, from vLLM {show(SCHEDULED_SINCE)} on; older engines do not honour it"
    if engine < SCHEDULED_SINCE:
        return f"one K: vLLM {show(engine)} does not honour a schedule; from {show(SCHEDULED_SINCE)} on {text}"
    return text


def _pays(choice: Choice) -> bool:
    return choice.entry.prediction.throughput.value > 1


def honours_schedule(engine: Version | None) -> bool:
    """Return whether an engine is known to draft by a schedule."""
    return engine is not None and engine >= SCHEDULED_SINCE


def schedule_setting(ranges: Sequence[tuple[int, int, int]]) -> str:
    """The setting, as ``--set`` takes it."""
    return "num_speculative_tokens_per_batch_size=" + str([list(span) for span in ranges]).replace(" ", "")


def batch_ranges(best: Mapping[float, int]) -> list[tuple[int, int, int]]:
    """``(first, last, K)`` of batch sizes from the best K by concurrency; 0 where speculation loses."""
    ranges: list[tuple[int, int, int]] = []
    ordered = sorted(best)
    for index, concurrency in enumerate(ordered):
        k, first = best[concurrency], 1 if index == 0 else ranges[-1][1] + 1
        following = ordered[index + 1] if index + 1 < len(ordered) else concurrency
        last = max(int((concurrency * following) ** 0.5), first)
        if ranges and ranges[-1][2] == k:
            ranges[-1] = (ranges[-1][0], last, k)
        else:
            ranges.append((first, last, k))
    return ranges
