"""The gate's limits: a name, a number, a reason and a source each. A user's YAML file changes some of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from mpctl.errors import InputError
from mpctl.json_types import Json, JsonView
from mpctl.stats.sequential import Spending
from mpctl.yaml_lines import document


@dataclass(frozen=True)
class Term:
    """A limit: the ``rule`` it belongs to, its ``unit``, ``why`` it has its default, and the ``source``.

    ``most``: the largest allowed value; ``above``: an excluded minimum.
    """

    rule: str
    unit: str
    why: str
    source: str
    most: float = math.inf
    above: float | None = None


def _term(default: float, rule: str, unit: str, why: str, source: str, **bounds: Any) -> Any:
    return field(default=default, metadata={"term": Term(rule, unit, why, source, **bounds)})


_GAIN, _LOSS = 0.58, 0.2  # of the total error
_LARGEST = 1e18  # of any limit; a number that no float holds is none
_SHARE = "share"
_FACTOR = "x the baseline's"
_OWN = "a choice of this project"
_TRAP = "Ruiz, vllm-scripts@d94d714: Qwen3-32B with a 4B draft at 256 requests"
_GONE = (  # limits that recorded policies may have, and a policy file may not
    "max_different",
    "min_compared",
    "min_coverage",
    "min_throughput_ratio",
    "slo_ttft_ms",
    "slo_tpot_ms",
    "slo_e2e_ms",
)
_PEERS = "simulation, scripts/gate-table"


@dataclass(frozen=True)
class Policy:
    """Limits of the gate; ``mpctl gate explain`` prints each with its reason. Ratios are candidate over baseline."""

    level: float = _term(
        0.95,
        "all",
        _SHARE,
        "confidence level: at most 1 - level of the rollouts that change nothing end promoted or rejected",
        _PEERS,
        most=0.999,
        above=0.5,
    )
    power: float = _term(
        0.9,
        "all",
        _SHARE,
        "statistical power of the number of samples that is reported as needed",
        _OWN,
        most=0.99,
        above=0.5,
    )
    max_drift: float = _term(
        0.15,
        "all",
        _SHARE,
        "what a machine may change between two arms that were measured one after the other (in place, or on two days); "
        "each interval is widened by it, because no number of rounds shows it",
        "two equal days 8 % apart",
        most=10.0,
    )
    max_pod_gap: float = _term(
        0.1,
        "all",
        _SHARE,
        "by how much two equal engines (processes, pods, GPUs) that live side by side may differ for as long as both "
        "live; no number of rounds shows it, so no bound of a speed comes nearer to its estimate than this, and with "
        "the noise of the rounds it adds up as independent errors do; it is 0 where arms take turns on one GPU, and "
        "max_drift takes its place where one arm was measured after the other",
        "two equal engines on one machine: 3 to 4 % apart in five of five measurements; at a spread of 3 % between "
        "pods 10 % keeps false verdicts at 2 % (simulation)",
        most=10.0,
    )
    max_baseline_age: float = _term(
        6.0,
        "all",
        "hours",
        "engines get slower with age, and a candidate is fresh: a service without users that runs for longer is "
        "measured by a fresh copy where one fits",
        "five public reports of 1.25x to 3.2x until a restart",
    )
    max_repeated: float = _term(
        0.1,
        "comparable",
        _SHARE,
        "an engine that replays earlier answers is flattered by a prompt it has seen; four prompts repeated 25 times "
        "once looked like 8x",
        "varad-more/inference-engine-benchmark-system, SGLang n-gram",
        most=1.0,
    )
    max_cache_gap: float = _term(
        0.1,
        "comparable",
        _SHARE,
        "an engine that knows the prompts from an earlier measurement is faster without being so: two equal engines "
        "were measured as 7.6x",
        "vllm:prefix_cache_hits_total over vllm:prefix_cache_queries_total",
        most=1.0,
    )
    max_cache_loss: float = _term(
        0.1,
        "cache kept",
        _SHARE,
        "methods that draft from hidden states drop cached tokens of each request, a few on dense models, thousands or "
        "all on hybrids, while their tokens per step look excellent",
        "vllm-project/vllm#51771: hits 72.7 -> 0 %, time to first token 1.0 -> 12.4 s",
        most=1.0,
    )
    max_token_gap: float = _term(
        0.05,
        "comparable",
        _SHARE,
        "an engine whose token count differs from its answers' served foreign requests meanwhile",
        "vllm:generation_tokens_total against usage",
        most=1.0,
    )
    max_load_gap: float = _term(
        0.1,
        "equal load",
        _SHARE,
        "on users' requests the arms are compared at equal load per pod: equal engines look 1.12x apart where one has "
        "half of the other's requests",
        "simulation, scripts/users-table",
        most=1.0,
    )
    traffic_window_s: float = _term(
        60.0,
        "time per token",
        "s",
        "neighbouring windows of users' requests resemble each other in bursts and sessions; set it to the length of a "
        "session where a router keeps sessions on a pod",
        "simulation, scripts/users-table",
        above=0.0,
    )
    traffic_window_requests: float = _term(
        12,
        "time per token",
        "requests",
        "fewer on the candidate leave a window to one long answer",
        _PEERS,
        above=0.0,
    )
    max_failed_excess: float = _term(
        0.05,
        "errors",
        _SHARE,
        "requests that fail on the candidate alone; the upper 95% confidence bound over all interim analyses is "
        "compared, for which 72 requests without a failure are enough, or 135 with one",
        _PEERS,
        most=1.0,
    )
    min_scored_answers: float = _term(
        4,
        "chosen tokens",
        "answers",
        "fewer greedy answers that are equal or scored show nothing; a fault in a share p of the answers takes "
        "ln 0.05 / ln(1 - p) of them; 0: a rule about answers that could not run is skipped instead of leaving the "
        "verdict open",
        _OWN,
    )
    max_length_ratio: float = _term(
        1.25,
        "length",
        "x the baseline's, either way",
        "speed is judged per token, so an engine that answers three times as long looks faster while its users wait "
        "twice as long; sampled answers differ by chance, and 24 rounds of 4 tell 25 % from nothing",
        _PEERS,
        above=1.0,
    )
    max_sampled_length_ratio: float = _term(
        1.5,
        "length",
        "x the baseline's, either way",
        "at a temperature above 0, where lengths differ by chance and a candidate twice as fast was left open by them; "
        "E2E limits how much longer a user waits",
        _PEERS,
        above=1.0,
    )
    max_e2e_ratio: float = _term(
        1.05,
        "E2E",
        _FACTOR,
        "a user waits for the whole answer: answers 1.2 times as long at 4 % more time per token take 1.25 times as "
        "long, and no figure per token shows it",
        _OWN,
        above=0.0,
    )
    max_time_per_token_ratio: float = _term(
        1.0,
        "time per token",
        _FACTOR,
        "a gain must be shown: the whole interval lies below",
        "the reason to speculate",
        above=0.0,
    )
    max_tpot_ratio: float = _term(
        1.05, "TPOT", _FACTOR, "the pace of the stream that a reader sees", _OWN, above=0.0
    )
    max_ttft_ratio: float = _term(
        1.25,
        "TTFT",
        _FACTOR,
        "a queue that forms because the draft took memory shows here first",
        _TRAP,
        above=0.0,
    )
    ttft_slack_ms: float = _term(
        50.0,
        "TTFT",
        "ms",
        "half of what feels instantaneous; at a few ms a ratio judges the noise",
        "Nielsen 1993: 0.1 s",
    )
    max_queue_wait_ratio: float = _term(
        1.25,
        "queue wait",
        _FACTOR,
        "requests that wait while those that run are fast",
        _TRAP,
        above=0.0,
    )
    queue_wait_slack_ms: float = _term(
        50.0, "queue wait", "ms", "an idle engine waits microseconds", _OWN
    )
    min_tokens_per_step: float = _term(
        1.1,
        "tokens per step",
        "tokens",
        "verification costs 5 to 10 % of a step, so drafts that bring less do not pay; 0 asks for no speculation",
        "step ratio 1.08 to 1.09 on A10G",
    )
    min_first_acceptance: float = _term(
        0.3,
        "first position",
        _SHARE,
        "a draft model or head that fits its target has its first token accepted in half the steps or more; below 30 % "
        "it was made for another model or chat template",
        "published heads: 65 to 83 % at position 0",
        most=1.0,
    )
    max_pool_loss: float = _term(
        0.6,
        "KV pool",
        _SHARE,
        "a loss of 53 % still gained up to 128 requests, one of 73 % is the trap",
        "Ruiz: 69 232 tokens to 32 528 and 18 560",
        most=1.0,
    )
    max_rejected_share: float = _term(
        0.1,
        "all",
        _SHARE,
        "how much of the traffic may be slower so that the rest is faster",
        _OWN,
        most=1.0,
    )
    max_rejected_slowdown: float = _term(
        2.0,
        "all",
        _FACTOR,
        "how much more time per token a class may take so that the rest is faster; the machine time of all classes "
        "together must be shown to be less as well",
        _OWN,
        above=0.0,
    )

    @property
    def side(self) -> float:
        """The one-sided error, to promote and to reject, of all interim analyses of users' requests: a third of the
        total, because the rules that reject err partly independently."""
        return 0.34 * (1.0 - self.level)

    @property
    def gain(self) -> Spending:
        """The error of promoting a candidate that is no faster, over all interim analyses: most of the total. A fifth
        of it is for large gains, at the first analysis, and most of it for small ones, at the last."""
        return Spending(_GAIN * (1.0 - self.level), first=0.2, power=3.0)

    @property
    def loss(self) -> Spending:
        """The error of rejecting a candidate whose figure is at its limit, over all interim analyses: a fifth of the
        total, because several rules reject and err partly independently (scripts/gate-table counts their joint
        error)."""
        return Spending(_LOSS * (1.0 - self.level))

    @property
    def guard(self) -> Spending:
        """The error of passing a figure that is worse than its limit, over all interim analyses. A candidate that is no
        faster does not pass by it, so it is no part of the total. Half of it is for the first analysis: what got no
        worse is mostly far from its limit."""
        return Spending(1.0 - self.level, first=0.5)

    @classmethod
    def terms(cls) -> dict[str, tuple[float, Term]]:
        """Return every limit's default and term, by name."""
        return {f.name: (f.default, f.metadata["term"]) for f in fields(cls)}  # type: ignore[misc]

    @classmethod
    def from_record(
        cls,
        record: JsonView,
        *,
        file: str | None = None,
        lines: Mapping[str, int] | None = None,
    ) -> Policy:
        """Read a policy's mapping; ``lines`` are those of the keys in ``file``.

        Raises:
            InputError: an unknown key, or a value that the limit cannot have.
        """
        terms = cls.terms()
        record = {key: value for key, value in record.items() if lines or key not in _GONE}
        for key, value in record.items():
            line = (lines or {}).get(key)
            if key not in terms and value is None:  # a limit of an earlier version that was off
                continue
            if key not in terms:
                message = f"unknown; known are {', '.join(sorted(terms))}"
                raise InputError(message, file=file, line=line, field=key)
            fault = _fault(value, terms[key][1])
            if fault:
                raise InputError(
                    f"must be {fault}, not {value!r:.40}", file=file, line=line, field=key
                )
        return cls(**{key: value for key, value in record.items() if key in terms})

    @classmethod
    def parse(cls, text: str, *, file: str) -> Policy:
        """Read a policy file.

        Raises:
            InputError: it is no YAML mapping of known limits to numbers; file, line and field are named.
        """
        node = document(text, file)
        lines = {str(name): node.line_of(name) for name in node.body}
        return cls.from_record(
            {str(name): value for name, value in node.body.items()}, file=file, lines=lines
        )

    def to_record(self) -> Json:
        """Return a JSON object."""
        return dict(self.__dict__)


def _fault(value: Any, term: Term) -> str:
    """Return what the value would have to be, or "" if it is allowed."""
    least = "of zero or more" if term.above is None else f"above {term.above:g}"
    most = "" if math.isinf(term.most) else f" and at most {term.most:g}"
    wanted = f"a number {least}{most}"
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= _LARGEST:
        return wanted
    low = value >= 0 if term.above is None else value > term.above
    return "" if low and value <= term.most else wanted
