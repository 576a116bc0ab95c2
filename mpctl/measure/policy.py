"""The gate's limits, each a number with a name."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from mpctl.errors import InputError


@dataclass(frozen=True)
class Policy:
    """Limits of the gate.

    ``min_speedup``: candidate over baseline throughput. 1.05 by default: a machine that gains less pays for it in
    memory and in one more thing that can break.
    ``max_ttft_ratio`` and ``ttft_slack_ms``: the first token may come later by this factor or by these milliseconds,
    whichever is more; at a few ms a factor alone judges the client.
    ``max_tpot_ratio``: time per output token, candidate over baseline.
    ``min_tokens_per_step``: below 1.1 the drafts are not worth their verification; 0 does not ask for speculation.
    ``max_different``: share of prompts whose greedy output differs, 0..1.
    ``max_token_gap``: how far the engine's token count may be from that of the answers, 0..1; more is other traffic.
    ``min_compared``: prompts answered by both arms, below which nothing is decided.
    """

    min_speedup: float = 1.05
    max_tpot_ratio: float = 1.05
    max_ttft_ratio: float = 1.25
    ttft_slack_ms: float = 20.0
    min_tokens_per_step: float = 1.1
    max_different: float = 0.0
    max_token_gap: float = 0.05
    min_compared: int = 8

    @classmethod
    def from_record(cls, record: dict[str, Any], *, file: str | None = None) -> Policy:
        """Read a policy file's mapping.

        Raises:
            InputError: an unknown key, or a value that is no number of zero or more.
        """
        known = {f.name: f.type for f in fields(cls)}
        for key, value in record.items():
            if key not in known:
                raise InputError(f"unknown; known are {', '.join(sorted(known))}", file=file, field=key)
            if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
                raise InputError(f"must be a number of zero or more, not {value!r}", file=file, field=key)
        return cls(**record)

    def to_record(self) -> dict[str, Any]:
        """A JSON object."""
        return dict(self.__dict__)
